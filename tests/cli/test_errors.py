"""What all commands have in common: help with an example, a form, one line of errors, a status, and manners."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest

from mainspring.cli.main import cli

from .conftest import Shell, Terminal

NOBODY = "00000000-0000-0000-0000-000000000000"
SECRET = "correct-horse"
WITHOUT_FORM = {"completion", "cron play", "dev", "serve", "worker"}  # they make, read or start nothing that has one
WORDS: dict[str, tuple[str, ...]] = {
    "jobs list": (),
    "jobs show": ("x",),
    "jobs put": ("x", "--every", "1m", "--task", "x"),
    "jobs edit": ("x", "--priority", "1"),
    "jobs pause": ("x",),
    "jobs resume": ("x",),
    "jobs trigger": ("x",),
    "jobs backfill": ("x", "--from", "1h", "--yes"),
    "jobs upcoming": ("x",),
    "jobs slots": ("x",),
    "jobs runs": ("x",),
    "jobs diff": ("x",),
    "jobs cancel": ("x", "--yes"),
    "jobs delete": ("x", "--yes"),
    "runs list": (),
    "runs show": (NOBODY,),
    "runs tail": (NOBODY,),
    "runs retry": (NOBODY,),
    "runs cancel": (NOBODY,),
    "dead-letters list": (),
    "dead-letters show": (NOBODY,),
    "dead-letters replay": (NOBODY,),
    "dead-letters discard": (NOBODY,),
    "workers list": (),
    "workers show": ("x",),
    "workers quiesce": ("x",),
    "workers stop": ("x",),
    "pools list": (),
    "pools pause": ("x",),
    "pools resume": ("x",),
    "cluster show": (),
    "secrets put": ("x",),
    "secrets list": (),
    "secrets delete": ("x",),
    "secrets rotate": (),
    "tenants list": (),
    "tenants show": ("x",),
    "tenants create": ("x",),
    "tenants edit": ("x", "--quota", "jobs=5"),
    "tenants suspend": ("x",),
    "tenants resume": ("x",),
    "tenants delete": ("x", "--yes"),
    "keys create": ("x",),
    "keys list": (),
    "keys revoke": (NOBODY,),
    "migrate": (),
    "audit": (),
    "explain": ("x", "2026-11-15T00:00:00Z"),
}


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name="mainspring")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


ALL = dict(commands(cli))


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_help_with_an_example(path: str) -> None:
    command = ALL[path]

    assert command.help
    assert re.search(rf"^ *(eval \"\$\()?mainspring {path}\b", command.help, re.MULTILINE), "no example"
    assert "\b" in command.help, "the example would be wrapped"
    assert command.help.split("\n", maxsplit=1)[0].endswith((".", "?")), "a sentence first"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in ("dialect", "engine", "output", "count"):
            assert parameter.help, parameter.name


@pytest.mark.parametrize("path", sorted(set(ALL) - WITHOUT_FORM))
def test_every_command_that_reads_has_a_form(path: str) -> None:
    options = {option for parameter in ALL[path].params for option in parameter.opts}

    assert {"-o", "--output"} <= options


@pytest.mark.parametrize("path", [path for path in ALL if path.endswith((" list", " show", " slots", " runs"))])
def test_lists_can_be_watched(path: str) -> None:
    if not path.startswith("config"):
        assert any(parameter.name == "watch" for parameter in ALL[path].params)


def test_groups_have_help_with_an_example(nowhere: Shell) -> None:
    for group in sorted({path.partition(" ")[0] for path in ALL if " " in path} - {"cron"}):
        assert f"mainspring {group}" in nowhere.good(group, "--help").out


def test_the_first_page_lists_everything(nowhere: Shell) -> None:
    page = nowhere.good("--help").out

    for name in {path.partition(" ")[0] for path in ALL}:
        assert re.search(rf"^  {name} +\w", page, re.MULTILINE)


@pytest.mark.parametrize("path", WORDS)
def test_without_a_database(path: str, nowhere: Shell) -> None:
    nowhere.refused(*path.split(), *WORDS[path], status=6, because="the database cannot be reached")


def test_every_command_that_needs_a_database_was_tried_without() -> None:
    needing = {path for path, command in ALL.items() if any(each.name == "dsn" for each in command.params)}

    assert needing - {"dev", "serve", "worker", "doctor"} == set(WORDS)


def test_a_dsn_that_is_none_shows_no_password(nowhere: Shell) -> None:
    said = nowhere("jobs", "list", "--dsn", f"mysql://root:{SECRET}@db/jobs")

    assert said.status == 2
    assert SECRET not in said.err


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("jobs", "list", "-o", "xml"), "'xml' is not one of"),
        (("jobs", "lst"), "No such command 'lst'"),
        (("jobs", "show"), "Missing argument 'JOB'"),
        (("runs", "list", "--watch", "often"), '"often" is not a duration'),
        (("jobs", "list", "--nosuch"), "No such option"),
        (("nosuch",), "No such command 'nosuch'"),
    ],
)
def test_a_command_that_is_none(words: tuple[str, ...], because: str, nowhere: Shell) -> None:
    said = nowhere(*words)

    assert said.status == 2
    assert said.err.startswith("error: ")
    assert because in said.err


def test_at_a_terminal_somebody_is_asked(shell: Shell) -> None:
    shell.given_job()
    shell.good("jobs", "trigger", "nightly")

    no = shell("jobs", "cancel", "nightly", stdin=Terminal("n\n"))
    yes = shell("jobs", "cancel", "nightly", stdin=Terminal("y\n"))

    assert (no.status, no.out) == (130, "")
    assert 'Cancel 1 runs of "nightly"? [y/N]' in no.err
    assert (yes.status, yes.out) == (0, "1 runs cancelled, or asked to stop\n")


def coloured(shell: Shell, **variables: str) -> bool:
    """Run a command at a terminal of its own, and look for colours."""
    del shell
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mainspring", "jobs", "list"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", **variables}
    subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "nightly" in shown
    return "\x1b[3" in shown


def test_no_color_is_honoured(shell: Shell) -> None:
    shell.given_job()

    assert coloured(shell)
    assert not coloured(shell, NO_COLOR="1")


def test_whoever_reads_may_stop(shell: Shell) -> None:
    shell.good("jobs", "put", "secondly", "--every", "1s", "--task", "noop")
    command = [sys.executable, "-m", "mainspring", "jobs", "upcoming", "secondly", "-n", "10000", "-o", "ndjson"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.readline()
        writing.stdout.close()
        complaint = writing.stderr.read()
        writing.wait(timeout=30)

    assert (complaint, writing.returncode) == ("", 141)


def test_without_a_dsn_the_embedded_server_is_started_and_its_schema_made(surroundings: Path) -> None:
    del surroundings
    with TemporaryDirectory(prefix="mainspring-test-") as parent:
        Path(parent).chmod(0o755)
        data = ("--data-dir", str(Path(parent) / "data"))
        shell = Shell("")

        shell.good("jobs", "put", "nightly", "--every", "1m", "--task", "noop", *data)

        assert [job["name"] for job in shell.json("jobs", "list", *data)["items"]] == ["nightly"]
        assert "no scheduler is alive" in shell("doctor", *data).out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion(name: str, nowhere: Shell) -> None:
    assert "_MAINSPRING_COMPLETE" in nowhere.good("completion", name).out


def test_completion_completes() -> None:
    variables = {"_MAINSPRING_COMPLETE": "bash_complete", "COMP_WORDS": "mainspring jobs trig", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "mainspring"]

    told = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **variables}
    )

    assert told.stdout == "plain,trigger\n"
