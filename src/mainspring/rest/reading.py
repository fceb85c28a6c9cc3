"""Strict JSON in, and what is wrong with it in our words.

Promise. What passes here has one reading: no name twice in an object, no NaN, no number that is none, nothing deeper
than the limit, no text that Postgres could not keep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from math import isinf
from typing import Any, Final, NoReturn, TypeVar

from msgspec import Struct, ValidationError, convert, inspect

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json, instant_text

_T = TypeVar("_T")
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_LONGEST_VALUE: Final = 200
LONGEST_NUMBER: Final = 400  # digits


class NotJson(InvalidRequest):
    """The body cannot be read at all."""

    code = "malformed_json"


class TooDeep(InvalidRequest):
    """The body nests deeper than anybody needs."""

    code = "too_deep"


def read_json(body: bytes, *, deepest: int = 64) -> Json:
    """Read a document.

    Raises:
        NotJson: it is none, or none that every reader would understand in the same way.
        TooDeep: it nests deeper than ``deepest``.
    """
    if body.count(b"[") + body.count(b"{") > deepest and _depth(body) > deepest:
        allowed = f"nest at most {deepest} levels"
        raise TooDeep("it nests too deep", field="body", value="", allowed=allowed)
    try:
        text = body.decode()
        value = _READER.decode(text)
    except UnicodeDecodeError:
        _refuse("it is not UTF-8")
    except RecursionError:
        _refuse("it nests too deep")
    except json.JSONDecodeError as error:
        _refuse(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except ValueError as error:
        _refuse(str(error))
    if "\\u" in text:  # only so can a text say what UTF-8 cannot, or NUL
        check_text(value)
    return value


def check_text(value: Json, field: str = "body") -> None:
    """Refuse texts that cannot be stored: with NUL, or with half a character.

    Raises:
        InvalidRequest: there is one.
    """
    match value:
        case str():
            if "\0" in value or not _encodes(value):
                allowed = "leave out NUL and unpaired surrogates"
                raise InvalidRequest("a text in it cannot be stored", field=field, value="", allowed=allowed)
        case dict():
            for name, each in value.items():
                check_text(name, field)
                check_text(each, field)
        case list():
            for each in value:
                check_text(each, field)


def read_as(value: Json, kind: type[_T], *, strict: bool = True) -> _T:
    """Turn a document into a shape.

    Raises:
        InvalidRequest: it does not fit; the field is named by its path.
    """
    try:
        read = convert(value, kind, strict=strict)
    except ValidationError as error:
        raise refusal(error, value, kind) from None
    if isinstance(read, Struct):
        _check_instants(read, "")
    return read


def _check_instants(read: Struct, where: str) -> None:
    """Refuse instants that no calendar has in every zone: to turn one into UTC would leave the years there are."""
    for name in _with_instants(type(read)):
        held = getattr(read, name)
        if isinstance(held, datetime):
            if not _EARLIEST <= held <= _LATEST:
                allowed = "use an instant from the year 1 to the year 9000"
                raise InvalidRequest("it is out of range", field=where + name, value=held.isoformat(), allowed=allowed)
        elif isinstance(held, Struct):
            _check_instants(held, f"{where}{name}.")
        elif isinstance(held, tuple):
            for place, each in enumerate(held):
                if isinstance(each, Struct):
                    _check_instants(each, f"{where}{name}[{place}].")


@cache
def _with_instants(kind: Any) -> tuple[str, ...]:
    """Return the fields that may hold an instant, or something that may."""
    return tuple(field.name for field in inspect.type_info(kind).fields if _may_hold_one(field.type))  # type: ignore[attr-defined]  # it is a struct


def _may_hold_one(kind: inspect.Type) -> bool:
    match kind:
        case inspect.Metadata():
            return _may_hold_one(kind.type)
        case inspect.UnionType():
            return any(map(_may_hold_one, kind.types))
        case inspect.VarTupleType():
            return _may_hold_one(kind.item_type)
    return isinstance(kind, inspect.DateTimeType | inspect.StructType)


def refusal(error: ValidationError, document: Json, kind: Any) -> InvalidRequest:
    """Say what a shape refused, where, and which value was there."""
    reason, _, path = str(error).partition(" - at ")
    where, value = _place(path.strip("`").removeprefix("key in ").removeprefix("$"), document)
    unknown = re.search(r"Object contains unknown field `([^`]*)`", reason)
    missing = re.search(r"Object missing required field `([^`]*)`", reason)
    if unknown or missing:
        name = (unknown or missing)[1]  # type: ignore[index]  # one of them is
        where = f"{where}.{name}" if where else name
        value = value.get(name) if unknown and isinstance(value, Mapping) else None
        if unknown:
            return InvalidRequest("there is no such field", field=where, value=shown(value), allowed="leave it out")
        return InvalidRequest("it is missing", field=where, value=None, allowed="give it")
    expected = re.match(r"Expected (.*), got (.*)", reason)
    if expected:
        found = f"{expected[2].strip('`')} is not what is expected"
        allowed = f"use {_plain(expected[1])}"
        return InvalidRequest(found, field=where or "body", value=shown(value), allowed=allowed)
    if reason.startswith("Expected "):
        allowed = f"use {_plain(reason.removeprefix('Expected '))}"
        return InvalidRequest("it is out of bounds", field=where or "body", value=shown(value), allowed=allowed)
    return InvalidRequest(_plain(reason), field=where or "body", value=shown(value), allowed=_words(kind, where))


def _words(kind: Any, where: str) -> str:
    """Return what may stand at a place where a word of an enum is expected."""
    wanted = inspect.type_info(kind)
    for name, _ in _STEP.findall(where):
        choices = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
        for choice in choices:
            if name and isinstance(choice, inspect.StructType):
                found = next((each.type for each in choice.fields if each.name == name), None)
            else:
                found = getattr(choice, "item_type", None)
            if found is not None:
                wanted = found
                break
    choices = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    words = [str(word.value) for choice in choices if isinstance(choice, inspect.EnumType) for word in choice.cls]
    return f"use {', '.join(words)}" if words else "see the description of the API"


def shown(value: Json) -> Json:
    """Return a value as a problem may repeat it: short, and without what is inside of it."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
    if isinstance(value, bool | int | float) or value is None:
        return value if not isinstance(value, int) or abs(value) < 1 << 53 else f"{value!s:.40}"
    return f"an object of {len(value)}" if isinstance(value, Mapping) else f"a list of {len(value)}"


def text_of(value: Any) -> Json:
    """Return an instant or a word as the ledger writes it; anything else as it is."""
    if isinstance(value, datetime):
        return instant_text(value)
    return value.value if isinstance(value, Enum) else value


def _place(path: str, document: Json) -> tuple[str, Json]:
    """Return the field that a path of msgspec's names, and what is there."""
    where, value = "", document
    for step in _STEP.finditer(path):
        name, place = step[1], step[2]
        if name is not None:
            value = value.get(name) if isinstance(value, Mapping) else None
            where += f".{name}" if where else name
        elif place == "...":  # any value of an object
            where, value = f"{where}.*", None
        else:
            inside = isinstance(value, Sequence) and not isinstance(value, str) and int(place) < len(value)
            value = value[int(place)] if inside else None
            where += f"[{place}]"
    return where, value


def _plain(reason: str) -> str:
    return reason.replace("`", "").replace(" | null", "").replace("null", "nothing")


def _depth(body: bytes) -> int:
    deep = deepest = 0
    for token in _TOKENS.finditer(body):
        if token[0] in b"[{":
            deep += 1
            deepest = max(deepest, deep)
        elif token[0] in b"]}":
            deep -= 1
    return deepest


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        last = {name: place for place, (name, _) in enumerate(pairs)}
        twice = next(name for place, (name, _) in enumerate(pairs) if last[name] != place)
        raise ValueError(f'"{twice[:60]}" is there twice in one object')
    return found


def _number(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _refuse(reason: str) -> NoReturn:
    raise NotJson(reason, field="body", value="", allowed="send one JSON document, UTF-8, each name once")


_READER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_number, parse_int=_whole, parse_constant=_no_constant
)
