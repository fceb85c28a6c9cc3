"""Documentation that cannot rot: its commands and Python examples are run, and its generated page is compared."""

import doctest
import io
import pkgutil
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

import mainspring
from mainspring.cli.main import main
from tools import conformance

ROOT = Path(__file__).parents[2]
SCHEDULES = "docs/schedules.md"
SHOW_STATUS = "; echo $?"
# What makes a console draw colours or keep to a width although nobody is looking.
TERMINAL = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS")


@dataclass(frozen=True, slots=True)
class Example:
    """A command with its output, or a Python block; ``line`` is where it begins in its file."""

    path: str
    line: int
    text: str
    output: str = ""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


def blocks(path: str, language: str) -> Iterator[Example]:
    """Yield the fenced blocks of a language, without the indentation of a list they may stand in."""
    opened = 0
    content: list[str] = []
    for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
        if not opened and line.strip() == f"```{language}":
            opened, content = number + 1, []
        elif opened and line.strip() == "```":
            yield Example(path, opened, dedent("\n".join(content)) + "\n")
            opened = 0
        elif opened:
            content.append(line)
    assert not opened, f"{path}:{opened}: the block is never closed"


def documents() -> list[str]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(page.relative_to(ROOT)) for page in pages if page.exists()]


def console_examples(path: str) -> Iterator[Example]:
    """Yield each ``$ mainspring`` line with what follows it; other commands (make, pip) are not ours to run."""
    for block in blocks(path, "console"):
        lines = block.text.splitlines()
        commands = [at for at, line in enumerate(lines) if line.startswith("$ ")]
        assert commands, f"{block.place}: a console block without a command"
        for at, end in zip(commands, [*commands[1:], len(lines)], strict=True):
            command = lines[at].removeprefix("$ ")
            if command.split()[0] == "mainspring":
                yield Example(path, block.line + at, command, tidy("\n".join(lines[at + 1 : end])))


def python_examples(path: str) -> Iterator[Example]:
    return (block for block in blocks(path, "python") if ">>>" in block.text)


def tidy(text: str) -> str:
    """Leave out blanks at the ends of lines, and blank lines at the end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command line of ours as the shell would, its two streams as one."""
    words = shlex.split(command.removesuffix(SHOW_STATUS))
    for name in TERMINAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return shown.getvalue() + (f"{status}\n" if command.endswith(SHOW_STATUS) else "")


def modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(mainspring.__path__, "mainspring.")]
    return ["mainspring", *(name for name in names if not name.endswith(".__main__"))]  # importing that runs it


def run_doctest(test: doctest.DocTest) -> str:
    """Return what went wrong; nothing if all is well."""
    report = io.StringIO()
    doctest.DocTestRunner(verbose=False).run(test, out=report.write)
    return report.getvalue()


def by_place(examples: Iterator[Example]) -> Iterator[object]:
    return (pytest.param(example, id=example.place) for example in examples)


@pytest.mark.parametrize("example", [case for path in documents() for case in by_place(console_examples(path))])
def test_a_command_prints_what_its_page_shows(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tidy(run(example.text, monkeypatch)) == example.output


@pytest.mark.parametrize("example", [case for path in documents() for case in by_place(console_examples(path))])
def test_a_command_that_depends_on_the_time_states_it(example: Example) -> None:
    words = shlex.split(example.text)

    refused = example.output.startswith("error:")

    assert refused or "--help" in words or not {"next", "lint"} & set(words) or "--from" in words


@pytest.mark.parametrize("example", [case for path in documents() for case in by_place(python_examples(path))])
def test_a_python_example_gives_what_its_page_shows(example: Example) -> None:
    test = doctest.DocTestParser().get_doctest(example.text, {}, example.place, example.path, example.line - 1)

    assert not run_doctest(test)


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_hold(name: str) -> None:
    for test in doctest.DocTestFinder().find(import_module(name), name):
        assert not run_doctest(test)


def test_the_page_on_schedules_is_made_of_examples() -> None:
    assert len(list(console_examples(SCHEDULES))) >= 15
    assert len(list(python_examples(SCHEDULES))) >= 5


def test_the_package_opens_with_an_example() -> None:
    assert any(test.examples for test in doctest.DocTestFinder().find(mainspring, "mainspring"))


def test_the_page_on_conformance_says_what_the_vectors_say() -> None:
    assert conformance.main(["--check"]) == 0
