"""Read zone changes from the ``tzdata`` wheel by hand, byte by byte.

The wheel's TZif files are *slim*: explicit changes up to the last irregular one, then a footer with
the rule that holds for ever after (``EST5EDT,M3.2.0,M11.1.0``). Both parts are read here, so that the
judge shares no search for changes with whoever is judged.
"""

from __future__ import annotations

import calendar
import re
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LAST = int((datetime(9999, 12, 31, tzinfo=UTC) - EPOCH).total_seconds())
_HEADER = struct.Struct(">4sc15x6l")
_OFFSET = r"([+-]?\d{1,3}(?::\d\d){0,2})"
_NAME = r"(?:<[A-Za-z0-9+-]+>|[A-Za-z]+)"
_RULE = rf"M(\d+)\.(\d)\.(\d)(?:/{_OFFSET})?"
_FOOTER = re.compile(rf"{_NAME}{_OFFSET}(?:{_NAME}{_OFFSET}?,{_RULE},{_RULE})?")


class Transition(NamedTuple):
    """One change of the offset from UTC, whatever its cause."""

    at: datetime  # UTC; the first instant with the new offset
    before: timedelta
    after: timedelta

    @property
    def change(self) -> timedelta:
        """How far the wall clock jumped: forward when positive."""
        return self.after - self.before


class Span(NamedTuple):
    """A stretch of the UTC line with one offset, in seconds since the epoch."""

    start: int
    end: int
    offset: int


class _Rule(NamedTuple):
    month: int
    week: int  # 5 is the last
    weekday: int  # 0 is Sunday
    time: int  # seconds after local midnight, may be negative or past 24 h


class _Footer(NamedTuple):
    standard: int
    summer: int
    starts: _Rule | None  # None: one offset for ever
    ends: _Rule | None


class _Explicit(NamedTuple):
    first_offset: int
    changes: list[tuple[int, int]]  # (instant, offset from then on)
    footer: _Footer


@cache
def zones() -> list[str]:
    """List every zone name in the wheel, aliases included."""
    return sorted((files("tzdata") / "zones").read_text("ascii").split())


@cache
def zone_info(tz: str) -> ZoneInfo:
    """Load the wheel's own zone, never the system's."""
    with _resource(tz).open("rb") as file:
        return ZoneInfo.from_file(file, key=tz)


def transitions(tz: str, first_year: int, last_year: int) -> list[Transition]:
    """List the real changes of the offset in the UTC years given, both included."""
    changes = [_transition(left, right) for left, right in pairwise(_all_spans(tz, _horizon(last_year)))]
    return [change for change in changes if first_year <= change.at.year <= last_year]


def spans(tz: str, start: int, end: int) -> list[Span]:
    """Cut [start, end) at the changes of the offset."""
    last_year = (EPOCH + timedelta(seconds=min(end, _LAST))).year
    return [
        Span(max(span.start, start), min(span.end, end), span.offset)
        for span in _all_spans(tz, _horizon(last_year))
        if span.start < end and span.end > start
    ]


def _horizon(year: int) -> int:
    # Rounded up, so that neighbouring windows share one cached answer.
    return (year // 50 + 1) * 50


def _transition(left: Span, right: Span) -> Transition:
    at = EPOCH + timedelta(seconds=right.start)
    return Transition(at, timedelta(seconds=left.offset), timedelta(seconds=right.offset))


@cache
def _all_spans(tz: str, last_year: int) -> list[Span]:
    explicit = _read(_resource(tz).read_bytes())
    changes = explicit.changes + _after(explicit, last_year)
    line = [(-(2**62), explicit.first_offset)]
    # Changes of the name or of isdst alone move no clock.
    for at, offset in changes:
        if offset != line[-1][1]:
            line.append((at, offset))
    ends = [at for at, _ in line[1:]] + [2**62]
    return [Span(at, end, offset) for (at, offset), end in zip(line, ends, strict=True)]


def _resource(tz: str) -> Traversable:
    if tz not in zones():
        raise ValueError(f"no zone named {tz!r} in the tzdata wheel")
    return (files("tzdata") / "zoneinfo").joinpath(*tz.split("/"))


def _read(data: bytes) -> _Explicit:
    """Read the second data block (64-bit instants) and the footer; RFC 9636 gives the layout."""
    magic, version, isutc, isstd, leap, count, types, chars = _HEADER.unpack_from(data, 0)
    if magic != b"TZif" or version < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    second = _HEADER.size + count * 5 + types * 6 + chars + leap * 8 + isstd + isutc
    _, _, isutc, isstd, leap, count, types, chars = _HEADER.unpack_from(data, second)
    at = second + _HEADER.size
    instants = struct.unpack_from(f">{count}q", data, at)
    indices = data[at + count * 8 : at + count * 9]
    offsets = [struct.unpack_from(">lBB", data, at + count * 9 + 6 * i)[0] for i in range(types)]
    footer = data[at + count * 9 + types * 6 + chars + leap * 12 + isstd + isutc :]
    changes = [(instant, offsets[index]) for instant, index in zip(instants, indices, strict=True)]
    return _Explicit(offsets[0], changes, _footer(footer.decode("ascii").strip("\n")))


def _footer(text: str) -> _Footer:
    match = _FOOTER.fullmatch(text)
    if match is None:
        raise ValueError(f"unsupported footer {text!r}")
    standard = -_seconds(match[1])  # POSIX counts westward
    if match[3] is None:
        return _Footer(standard, standard, None, None)
    summer = standard + 3600 if match[2] is None else -_seconds(match[2])
    return _Footer(standard, summer, _rule(match.groups()[2:6]), _rule(match.groups()[6:10]))


def _rule(groups: tuple[str | None, ...]) -> _Rule:
    month, week, weekday, time = groups
    return _Rule(int(month or 0), int(week or 0), int(weekday or 0), 7200 if time is None else _seconds(time))


def _seconds(text: str) -> int:
    parts = [int(part) for part in text.lstrip("+-").split(":")] + [0, 0]
    total = parts[0] * 3600 + parts[1] * 60 + parts[2]
    return -total if text.startswith("-") else total


def _after(explicit: _Explicit, last_year: int) -> list[tuple[int, int]]:
    """Spell out the footer's changes, from the last explicit one to the end of ``last_year``."""
    footer = explicit.footer
    if footer.starts is None or footer.ends is None:
        return []
    last = explicit.changes[-1][0] if explicit.changes else 0
    spelled = []
    for year in range((EPOCH + timedelta(seconds=last)).year, min(last_year, 9999) + 1):
        spelled.append((_local(footer.starts, year) - footer.standard, footer.summer))
        spelled.append((_local(footer.ends, year) - footer.summer, footer.standard))
    return sorted(change for change in spelled if change[0] > last)


def _local(rule: _Rule, year: int) -> int:
    """Say when the rule applies in that year, as if the wall clock were UTC."""
    length = calendar.monthrange(year, rule.month)[1]
    candidates = [datetime(year, rule.month, day, tzinfo=UTC) for day in range(1, length + 1)]
    days = [day for day in candidates if day.isoweekday() % 7 == rule.weekday]
    day = days[-1] if rule.week == 5 else days[rule.week - 1]
    return int((day - EPOCH).total_seconds()) + rule.time
