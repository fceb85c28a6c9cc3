"""Loading: from where each setting has its value, and everything that is wrong with them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from mainspring.config.doubts import doubts
from mainspring.config.settings import READERS, SECTIONS, Settings
from mainspring.domain.errors import InvalidRequest

FILE: Final = "mainspring.toml"
FILE_VARIABLE: Final = "MAINSPRING_CONFIG"
DSN_VARIABLE: Final = "MAINSPRING_DSN"
DEFAULT: Final = "default"
FLAG: Final = "flag"
_PREFIX: Final = "MAINSPRING_"
_HIDDEN: Final = "***"
_FILE_FIELD: Final = "config"  # the name that problems with the file itself go by


class Severity(StrEnum):
    ERROR = "error"  # nothing starts
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong with a setting, and what to do about it."""

    severity: Severity
    field: str  # dotted; config: the file itself
    value: str  # as it may be printed
    reason: str
    remedy: str
    source: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was read, from where, and what is wrong with it."""

    settings: Settings
    sources: Mapping[str, str]  # dotted name to: default, the path of the file, a variable, flag
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)


class _Given(NamedTuple):
    value: object
    source: str


def load(
    file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Read the settings.

    Args:
        file: a TOML file; else the one that MAINSPRING_CONFIG names, else mainspring.toml here, if there is one.
        environ: variables; those of the process unless given.
        flags: by dotted name, as the command line has them; None is not given.
    """
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    given: dict[str, _Given] = {}
    path = _path(file, environ)
    if path is not None:
        given |= _of_file(path, problems)
    given |= _of_environment(environ, problems)
    given |= {name: _Given(value, FLAG) for name, value in (flags or {}).items() if value is not None}
    settings = _read(given, problems)
    sources = {name: given[name].source if name in given else DEFAULT for name in READERS}
    broken = {problem.field.partition(".")[0] for problem in problems}
    for name, reason, remedy in doubts(settings, environ):
        if name.partition(".")[0] not in broken:  # else it might doubt a default that nobody asked for
            doubt = _error(name, _shown(settings.shown()[name]), reason, remedy, sources[name])
            problems.append(replace(doubt, severity=Severity.WARNING))
    return Loaded(settings=settings, sources=sources, problems=tuple(problems))


def settings_or_raise(loaded: Loaded, *sections: str) -> Settings:
    """Return the settings if nothing is wrong with them, or with the given sections of them.

    Raises:
        InvalidRequest: something is; it names the first, and says how many more there are.
    """
    wrong = [
        problem
        for problem in loaded.errors
        if not sections or problem.field.partition(".")[0] in (_FILE_FIELD, *sections)
    ]
    if not wrong:
        return loaded.settings
    first, more = wrong[0], f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    allowed = f"{first.remedy}{more and f';{more}'}; mainspring config check lists them all"
    raise InvalidRequest(f"{first.reason} (from {first.source})", field=first.field, value=first.value, allowed=allowed)


def _path(file: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    named = file or environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    return Path(FILE) if Path(FILE).is_file() else None


def _of_file(path: Path, problems: list[Problem]) -> Iterator[tuple[str, _Given]]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
        problems.append(_error(_FILE_FIELD, str(path), reason, "correct the path, or make it readable", str(path)))
        return
    except ValueError as error:  # no TOML, or no UTF-8
        remedy = "correct that place; mainspring config show lists what can be set"
        problems.append(_error(_FILE_FIELD, str(path), f"it is no TOML: {error}", remedy, str(path)))
        return
    for section, content in document.items():
        if section not in SECTIONS:
            problems.append(_unknown(section, content, sorted(SECTIONS), str(path)))
        elif not isinstance(content, dict):
            remedy = f"begin a section, [{section}], and put settings below it"
            problems.append(_error(section, _shown(content), "it is a section, not a setting", remedy, str(path)))
        else:
            for name, value in content.items():
                yield from _if_known(f"{section}.{name}", _Given(value, str(path)), problems)


def _of_environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[tuple[str, _Given]]:
    if short := environ.get(DSN_VARIABLE):
        yield "database.dsn", _Given(short, DSN_VARIABLE)
    meant = {f"{_PREFIX}{name.replace('.', '_').upper()}": name for name in READERS}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(_PREFIX) or not value:  # empty is how a compose file says "not set"
            continue
        section, parted, name = variable.removeprefix(_PREFIX).lower().partition("__")
        if parted and section in SECTIONS:
            yield from _if_known(f"{section}.{name}", _Given(value, variable), problems)
        elif parted:
            problems.append(_unknown(f"{section}.{name}", value, sorted(SECTIONS), variable))
        elif variable in meant:
            remedy = f"write {_variable(meant[variable])}, with two underscores"
            problems.append(_error(meant[variable], _HIDDEN, f"{variable} has no effect", remedy, variable))


def _if_known(name: str, given: _Given, problems: list[Problem]) -> Iterator[tuple[str, _Given]]:
    if name in READERS:
        yield name, given
    else:
        problems.append(_unknown(name, given.value, list(READERS), given.source))


def _read(given: Mapping[str, _Given], problems: list[Problem]) -> Settings:
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, (value, source) in given.items():
        section, _, short = name.partition(".")
        if name not in READERS:
            problems.append(_unknown(name, value, list(READERS), source))
            continue
        try:
            sections[section][short] = READERS[name](value, name)
        except InvalidRequest as error:
            problems.append(_error(error.field, _shown(error.value), error.reason, error.allowed, source))
    return Settings(**{section: SECTIONS[section](**read) for section, read in sections.items()})


def _unknown(name: str, value: object, known: list[str], source: str) -> Problem:
    section = name.partition(".")[0]
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    there = [each for each in known if each.startswith(f"{section}.")] or known
    meant = near[0] if near else ""
    if source.startswith(_PREFIX) and "." in meant:
        meant = _variable(meant)
    remedy = f"did you mean {meant}?" if meant else f"use one of {', '.join(there)}"
    return _error(name, _HIDDEN if value else "", "there is no such setting", remedy, source)


def _variable(name: str) -> str:
    return f"{_PREFIX}{name.replace('.', '__').upper()}"


def _shown(value: object) -> str:
    return str(value)[:80]


def _error(name: str, value: str, reason: str, remedy: str, source: str) -> Problem:
    return Problem(severity=Severity.ERROR, field=name, value=value, reason=reason, remedy=remedy, source=source)
