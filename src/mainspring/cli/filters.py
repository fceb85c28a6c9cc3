"""``--where 'state=dead job=etl since=1h'``: which runs, or which dead letters; and the same as plain options."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import wraps
from typing import Any, Final, TypeAlias, TypeVar

import click

from mainspring.cli.params import Moment, moment
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.run import DeadReason, State

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Read: TypeAlias = Callable[[str], Any]


def words_of(kind: type[StrEnum], field: str) -> _Read:
    """Return what reads one word of an enum, or several with commas between."""

    def read(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in list(kind):
                raise _refuse(f'"{word}" is no {field}', text, _suggest(word, list(kind)))
        return words

    return read


def word_of(kind: type[StrEnum], field: str) -> _Read:
    def read(text: str) -> str:
        (word, *more) = words_of(kind, field)(text)
        if more:
            raise _refuse(f"only one {field} at a time", text, f"ask once for {word}, then for {', '.join(more)}")
        return str(word)

    return read


def _time(text: str) -> Any:
    return moment(text, field="where")


RUNS: Final[Mapping[str, _Read]] = {
    "job": str,
    "state": words_of(State, "state"),
    "pool": str,
    "since": _time,
    "until": _time,
}
LETTERS: Final[Mapping[str, _Read]] = {
    "job": str,
    "reason": word_of(DeadReason, "reason"),
    "since": _time,
    "until": _time,
}


def parse(text: str, known: Mapping[str, _Read]) -> dict[str, Any]:
    """Read a filter: ``name=value`` pairs with blanks between, all of which have to hold.

    >>> parse("state=dead,cancelled job='nightly etl'", RUNS)
    {'state': ['dead', 'cancelled'], 'job': 'nightly etl'}

    Raises:
        InvalidRequest: a name or a word that is not known, a time that cannot be read, something given twice.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise _refuse(str(error).lower(), text, "close the quotation") from None
    found: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise _refuse(f'"{part}" is no name=value', text, f"use {', '.join(known)}, each with a value")
        if name not in known:
            raise _refuse(f'there is no field "{name}"', text, _suggest(name, list(known)))
        if name in found:
            raise _refuse(f'"{name}" is given twice', text, "say it once; several states have commas between")
        found[name] = known[name](value)
    if not found:
        raise _refuse("it is empty", text, f"use {', '.join(known)}, each with a value")
    return found


def filter_options(known: Mapping[str, _Read]) -> Callable[[_Command], _Command]:
    """Add ``--where`` and an option per field; the command receives them as one ``wanted``."""

    def added(command: _Command) -> _Command:
        @wraps(command)
        def wrapped(*args: Any, where: str | None, **rest: Any) -> Any:
            plain = {name: rest.pop(name) for name in known}
            return command(*args, wanted=_merged(where, plain, known), **rest)

        given: Any = wrapped
        for name in reversed(list(known)):
            given = _OPTIONS[name](given)
        help_text = f"A filter: {', '.join(known)}, each as name=value, with blanks between."
        return click.option("--where", metavar="FILTER", help=help_text)(given)  # type: ignore[no-any-return]  # as given

    return added


def _merged(where: str | None, plain: Mapping[str, Any], known: Mapping[str, _Read]) -> dict[str, Any]:
    found = {} if where is None else parse(where, known)
    for name, value in plain.items():
        if value is None or value == ():
            continue
        if name in found:
            raise _refuse(f'"{name}" is given twice', where, f"leave out --{name}, or {name}= in the filter")
        found[name] = value
    return found


def _suggest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}? There are {', '.join(known)}" if near else f"use {', '.join(known)}"


def _refuse(reason: str, value: str | None, allowed: str) -> InvalidRequest:
    return InvalidRequest(reason, field="where", value=value, allowed=allowed)


_OPTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "job": click.option("--job", metavar="JOB", help="Of this job, by name or id."),
    "state": click.option(
        "--state", multiple=True, type=click.Choice([state.value for state in State]), help="In this state; repeatable."
    ),
    "pool": click.option("--pool", help="In this pool."),
    "reason": click.option("--reason", type=click.Choice([why.value for why in DeadReason]), help="Dead for this."),
    "since": click.option("--since", type=Moment(), help="From this instant on, or that long ago."),
    "until": click.option("--until", type=Moment(), help="Before this instant, or that long ago."),
}
