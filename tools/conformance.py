"""Write docs/conformance.md from tests/vectors: how we compare with public cron suites, and where we differ on purpose.

python tools/conformance.py           writes the page
python tools/conformance.py --check   exits with 1 if the page is not what the vectors say
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
VECTORS: Final = ROOT / "tests" / "vectors"
PAGE: Final = ROOT / "docs" / "conformance.md"
NAMES: Final = {  # what the suites are called by those who keep them
    "cron_utils": "cron-utils",
    "croniter": "croniter",
    "cronsim": "cronsim",
    "ocps": "Open Cron Pattern Specification",
    "quartz": "Quartz",
    "robfig": "robfig/cron",
    "vixie": "Vixie cron",
}
_SHOWN: Final = 2  # instants per cell
_LONGEST: Final = 60  # characters of an expression per cell
_INTRODUCTION: Final = """\
# Conformance

Mainspring is tested against facts taken from public cron suites: an expression, a zone, a start and the slots that
follow. The facts are kept as data in `tests/vectors`; no code is copied. A case *agrees* when Mainspring gives what the
suite expects. Every case that differs does so on purpose, and is listed here with the reason.

This page is written by `tools/conformance.py`. Do not edit it by hand. How schedules behave is explained in
[Schedules](schedules.md).

In the tables *theirs* is what the suite expects and *ours* is what Mainspring answers. Instants are UTC. Only two
instants are shown, from the first one that differs; an ellipsis stands for the rest.
"""

Case: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    about: str
    cases: tuple[Case, ...]

    @property
    def differing(self) -> list[Case]:
        return [case for case in self.cases if "why" in case]

    @property
    def levels(self) -> list[str]:
        return sorted({case["level"] for case in self.cases if "level" in case})

    def at(self, level: str) -> Suite:
        return Suite(level, self.about, tuple(case for case in self.cases if case.get("level") == level))


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` compare it; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: conformance.py [--check]\n")
        return 2
    wanted = page(read(VECTORS))
    if not arguments:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is not up to date; run python tools/conformance.py\n")
        return 1
    return 0


def read(folder: Path) -> list[Suite]:
    """Read every suite, by file name."""
    suites = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        suites.append(Suite(NAMES.get(content["suite"], content["suite"]), content["about"], tuple(content["cases"])))
    return suites


def page(suites: Sequence[Suite]) -> str:
    """Return the page as Markdown."""
    counts = [[suite.name, *_counts(suite)] for suite in suites]
    parts = [_INTRODUCTION, _table(["suite", "cases", "agree", "differ"], counts)]
    for suite in suites:
        parts += [f"## {suite.name}\n", f"{_prose(suite.about)}\n", _summary(suite)]
        if suite.levels:
            levels = [[level, *_counts(suite.at(level))] for level in suite.levels]
            parts.append(_table(["level", "cases", "agree", "differ"], levels))
        if suite.differing:
            parts.append(_differences(suite))
    return "\n".join(parts)


def _counts(suite: Suite) -> list[str]:
    differing = len(suite.differing)
    return [str(len(suite.cases)), str(len(suite.cases) - differing), str(differing)]


def _summary(suite: Suite) -> str:
    cases, agree, differ = _counts(suite)
    return f"Of {cases} cases {agree} agree and {differ} differ.\n"


def _differences(suite: Suite) -> str:
    level = ["level"] if suite.levels else []
    rows = [
        [
            *([case.get("level", "")] if level else []),
            _code(case["expression"]),
            _setting(case),
            case.get("from", ""),
            _theirs(case),
            _ours(case),
            _prose(case["why"]),
        ]
        for case in suite.differing
    ]
    return _table([*level, "expression", "dialect and zone", "from", "theirs", "ours", "why"], rows)


def _setting(case: Case) -> str:
    chosen = (f"{name} {case[name]}" for name in ("gap", "overlap", "key") if name in case)
    zone = [case["tz"]] if "tz" in case else []
    return _prose(", ".join([case["dialect"], *zone, *chosen]))


def _theirs(case: Case) -> str:
    if case.get("theirs_refused"):
        return "refused"
    if case.get("theirs_accepted"):
        return "accepted"
    if "theirs_previous" in case:
        return "before: " + _instants(case["theirs_previous"], case["previous"])
    return _instants(case["theirs"], case.get("next", []))


def _ours(case: Case) -> str:
    if case.get("refused"):
        return "refused"
    if "theirs_previous" in case:
        return "before: " + _instants(case["previous"], case["theirs_previous"])
    return _instants(case["next"], case.get("theirs", []))


def _instants(shown: Sequence[str], other: Sequence[str]) -> str:
    """Show two instants from the first one that differs, or the last two where ``shown`` just ends earlier."""
    if not shown:
        return "none"
    common = next((at for at, (mine, yours) in enumerate(zip(shown, other, strict=False)) if mine != yours), None)
    if common is None:
        common = min(len(shown), len(other))
        common = common if common < len(shown) else max(len(shown) - _SHOWN, 0)
    rest = shown[common : common + _SHOWN]
    return ("… " if common else "") + ", ".join(rest) + (" …" if common + len(rest) < len(shown) else "")


def _code(text: str) -> str:
    """Put an expression into a code span; one that a table would break at its bars is spelled with entities."""
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    if text.strip() == text and text and not set(text) & set("|`\n"):
        return f"`{text}`"
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    for character in "|*`_":
        plain = plain.replace(character, f"&#{ord(character)};")
    return f"<code>{plain}</code>"


def _prose(text: str) -> str:
    for character in r"\|*_`<[":
        text = text.replace(character, f"\\{character}")
    return text


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| {' | '.join(heads)} |"
        yield f"|{'---|' * len(heads)}"
        for row in rows:
            yield f"| {' | '.join(row)} |"

    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
