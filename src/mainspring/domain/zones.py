"""Time zones as pieces: stretches of the UTC line on which the wall clock runs evenly.

Everything that is hard about DST happens where two pieces meet. So a piece says what happened at
its start (a gap of wall times that never were) and whether its wall times are shown twice; inside
a piece, wall time is UTC plus a constant, and no rule is needed.

Zones come from the ``tzdata`` package, not from the machine: every node of a fleet then reads the
same rules, and ``TZDATA_VERSION`` names them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

import tzdata

from mainspring.domain.errors import UnknownZone

TZDATA_VERSION: Final[str] = tzdata.IANA_VERSION
DAY: Final = 86_400
CORRECTION: Final = 3 * 3600  # Debian: a change of more than three hours is a correction of the clock, not DST
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR, _LAST_YEAR = 1970, 9999
_CYCLE: Final = 146_097 * DAY  # the Gregorian calendar repeats after 400 years, weekdays included
_LOOK_EVERY: Final = 4 * DAY  # no two changes of any zone since 1970 are nearer than six days (a test says so)
# By then every zone follows a yearly rule, so that a year's changes depend on its shape alone: one of fourteen,
# all of which occur in the 28 years from 2201 (2200 is no leap year).
_REGULAR_FROM: Final = 2201


class Pass(Enum):
    """Whether the wall times of a piece are shown once, or twice because the clock went back."""

    ONLY = "only"
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class Change:
    """The clock was moved at ``at``: seconds since the epoch, offsets in seconds east of UTC."""

    at: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Piece:
    """``[start, end)`` in seconds since the epoch, where wall = UTC + ``offset``."""

    start: int
    end: int
    offset: int
    shown: Pass = Pass.ONLY
    correction: bool = False  # the change that made the gap or the repetition was larger than three hours
    gap: int = 0  # length of the stretch of wall times missing just before ``start``
    shift: int | None = None  # the offset before a gap, while the wall times missing in it would have come
    plain: bool = True  # no rule applies: each wall time is shown once, and none is missing


class Zone:
    """One IANA zone, read a year at a time and remembered."""

    def __init__(self, key: str, info: ZoneInfo) -> None:
        self.key = key
        self.info = info
        self._changes: dict[int, tuple[Change, ...]] = {}
        self._pieces: dict[int, tuple[list[int], list[Piece]]] = {}

    def piece_at(self, instant: int) -> Piece:
        """Return the piece that holds ``instant``, in seconds since the epoch."""
        year = _year_of(instant)
        pieces = self._pieces.get(year) or self._read(year)
        starts, found = pieces
        return found[bisect_right(starts, instant) - 1]

    def changes(self, year: int) -> tuple[Change, ...]:
        """Return the changes of offset in a UTC year."""
        if not _FIRST_YEAR <= year <= _LAST_YEAR:
            return ()
        if year >= _REGULAR_FROM + 28:
            like = _same_shape(year)
            shift = _year_start(year) - _year_start(like)
            return tuple(Change(change.at + shift, change.before, change.after) for change in self.changes(like))
        if year not in self._changes:
            self._changes[year] = tuple(_find_changes(self.info, year))
        return self._changes[year]

    def offset_at(self, instant: int) -> int:
        return self.piece_at(instant).offset

    def _read(self, year: int) -> tuple[list[int], list[Piece]]:
        start, end = _year_start(year), _year_start(year + 1)
        # Neighbouring years too: a repetition or a shift may reach over New Year.
        changes = [change for near in (year - 1, year, year + 1) for change in self.changes(near)]
        offset = changes[0].before if changes else _offset(self.info, start)
        pieces = [
            _clip(piece, start, end) for piece in _pieces(changes, offset) if piece.end > start and piece.start < end
        ]
        self._pieces[year] = ([piece.start for piece in pieces], pieces)
        return self._pieces[year]


@cache
def zone(key: str) -> Zone:
    """Return a zone by its IANA name.

    Raises:
        UnknownZone: no such zone in this version of the IANA database.
    """
    if key not in zone_names():
        raise UnknownZone(
            f'"{key[:60]}" is not a time zone', field="timezone", value=key, allowed=f"use an IANA name{_nearest(key)}"
        )
    source = resources.files("tzdata").joinpath("zoneinfo", *key.split("/"))
    with source.open("rb") as file:
        return Zone(key, ZoneInfo.from_file(file, key=key))


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return every name of the IANA database, links included."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


def _nearest(key: str) -> str:
    wanted = key.lower().replace(" ", "_")
    alike = sorted(name for name in zone_names() if name.lower() == wanted or name.lower().endswith("/" + wanted))
    return f", such as {alike[0]}" if alike else ", such as Europe/Paris"


def _find_changes(info: ZoneInfo, year: int) -> list[Change]:
    """Ask for the offset every few days and close in on each difference."""
    start, end = _year_start(year), _year_start(year + 1)
    changes = []
    at, known = start - 1, _offset(info, start - 1)
    while at < end - 1:
        earlier, at = at, min(at + _LOOK_EVERY, end - 1)
        if (offset := _offset(info, at)) != known:
            changes.append(_close_in(info, earlier, at, known))
            known = offset
    return changes


def _close_in(info: ZoneInfo, low: int, high: int, before: int) -> Change:
    """Halve ``(low, high]`` until the first second with another offset is left."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(info, middle) == before:
            low = middle
        else:
            high = middle
    return Change(high, before, _offset(info, high))


def _pieces(changes: list[Change], offset: int) -> list[Piece]:
    """Cut the line at every change, and where a repetition or a shift caused by one begins or ends."""
    cuts = {change.at for change in changes}
    for change in changes:
        moved = change.after - change.before
        cuts.add(change.at + abs(moved))  # a repetition ends here, or a shift of missing wall times
        if moved < 0:
            cuts.add(change.at + moved)  # what will be shown again begins here
    edges = [-(1 << 62), *sorted(cuts), 1 << 62]
    pieces = []
    for start, end in pairwise(edges):
        in_force = offset
        shown, correction, gap, shift = Pass.ONLY, False, 0, None
        for change in changes:
            moved = change.after - change.before
            if change.at <= start:
                in_force = change.after
            if moved < 0 and change.at + moved <= start < change.at - moved:
                shown = Pass.FIRST if start < change.at else Pass.SECOND
                correction = -moved > CORRECTION
            if moved > 0 and change.at <= start < change.at + moved:
                shift, correction = change.before, moved > CORRECTION
                gap = moved if start == change.at else 0
        plain = shown is Pass.ONLY and shift is None
        pieces.append(Piece(start, end, in_force, shown, correction, gap, shift, plain))
    return pieces


def _clip(piece: Piece, start: int, end: int) -> Piece:
    """Cut a piece to a year. A piece that begins with the year does not begin with a gap."""
    if start <= piece.start and piece.end <= end:
        return piece
    gap = piece.gap if piece.start >= start else 0
    return replace(piece, start=max(start, piece.start), end=min(end, piece.end), gap=gap)


def _offset(info: ZoneInfo, instant: int) -> int:
    moment = (_EPOCH + timedelta(seconds=instant)).astimezone(info)
    offset = moment.utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


def _year_of(instant: int) -> int:
    if instant < 0:
        return _FIRST_YEAR
    year = 1970 + instant * 400 // _CYCLE  # right, or one too late around New Year
    return year - 1 if instant < _year_start(year) else year + (instant >= _year_start(year + 1))


@lru_cache(maxsize=8192)
def _same_shape(year: int) -> int:
    """Return the first year from 2201 on with as many days and the same weekdays."""
    length, weekday = _year_start(year + 1) - _year_start(year), _year_start(year) // DAY % 7
    for like in range(_REGULAR_FROM, _REGULAR_FROM + 28):
        if (_year_start(like + 1) - _year_start(like), _year_start(like) // DAY % 7) == (length, weekday):
            return like
    raise AssertionError(f"{year} has a shape that no year has")


@lru_cache(maxsize=16_384)
def _year_start(year: int) -> int:
    past = year - 1
    return (past * 365 + past // 4 - past // 100 + past // 400 - 719_162) * DAY
