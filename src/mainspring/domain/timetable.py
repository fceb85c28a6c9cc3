"""Timetables: the instants a spec names, found forwards, backwards, and counted.

Instants are integer milliseconds since the epoch, so that a slot is the same number everywhere.
A timetable is immutable but for the piece it remembers; equal specs share one.

What is said in wall time (cron, RRULE) is searched in *wall seconds*, the wall clock read as if it
were UTC, and carried to the UTC line by the zone's pieces (``zones.py``). DST is decided in one
place, ``_Rules``, and only on the few pieces of a year where it applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from mainspring.domain import masks
from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.zones import DAY, Pass, Piece, Zone

LATEST: Final = 253_402_214_400  # 9999-12-31, in seconds: the last day a datetime can show in every zone
_OFFSETS_DIFFER: Final = 2 * DAY  # more than any two offsets of a zone do


class DstGap(StrEnum):
    """What becomes of a wall time that a clock going forward leaves out.

    >>> Dst(gap="skip").gap is DstGap.SKIP
    True
    """

    DEBIAN = "debian"  # fixed times: first_after; with a * in minute or hour, or beyond three hours: skip
    FIRST_AFTER = "first_after"
    SHIFT = "shift"
    SKIP = "skip"


class DstOverlap(StrEnum):
    """Which showing counts of a wall time that a clock going back shows twice.

    >>> Dst(overlap="both").overlap is DstOverlap.BOTH
    True
    """

    DEBIAN = "debian"  # fixed times: first; with a * in minute or hour, or beyond three hours: both
    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


_Choice = TypeVar("_Choice", bound=StrEnum)


def chosen(choices: type[_Choice], value: str, *, field: str) -> _Choice:
    """Return the member, also when its text was given: ``"quartz"`` equals the member but is not it."""
    try:
        return choices(value)
    except ValueError as unknown:
        allowed = f"use one of {', '.join(choices)}"
        raise InvalidSchedule(f'"{value}" is not a choice', field=field, value=value, allowed=allowed) from unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Dst:
    """What becomes of wall times at changes of the clock. The default is Debian's rule.

    >>> Dst().gap is DstGap.DEBIAN
    True
    """

    gap: DstGap = DstGap.DEBIAN
    overlap: DstOverlap = DstOverlap.DEBIAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", chosen(DstGap, self.gap, field="dst.gap"))
        object.__setattr__(self, "overlap", chosen(DstOverlap, self.overlap, field="dst.overlap"))


DEBIAN: Final = Dst()


class Timetable(Protocol):
    """Instants in strictly rising order, in milliseconds since the epoch."""

    @property
    def whole_minutes(self) -> bool:
        """Every instant stands at second 0 of the wall clock."""

    def after(self, instant: int) -> int | None:
        """Return the first instant later than ``instant``."""

    def before(self, instant: int) -> int | None:
        """Return the last instant earlier than ``instant``."""

    def count(self, start: int, end: int) -> int:
        """Return how many instants ``[start, end)`` holds."""

    def seconds(self, day: int) -> int:
        """Return those of its instants in a UTC day that are whole seconds, as a mask (``masks.py``)."""

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        """Return a ``[start, end)`` around one of its instants in which it names all there are.

        ``whole_minutes``: only instants at second 0 matter. It lets an exclusion of all December
        be stepped over day by day instead of minute by minute.
        """


class Walls(Protocol):
    """Wall seconds in rising order, counted from the epoch as if the wall clock showed UTC."""

    follows_real_time: bool  # by Debian's rule: repeated walls fire twice, missing ones not at all
    whole_minutes: bool

    def at_or_after(self, wall: int) -> int | None:
        """Return the first match not before ``wall``."""

    def upto(self, wall: int) -> int | None:
        """Return the last match not after ``wall``."""

    def count(self, start: int, end: int) -> int:
        """Return how many matches ``[start, end)`` holds."""

    def full_stretch(self, *, whole_minutes: bool) -> int:
        """Return the longest of day, hour, minute, second (in seconds) that is matched whole if touched.

        ``whole_minutes``: a minute counts as whole when its second 0 matches.
        """


class Single:
    """One instant."""

    whole_minutes = False

    def __init__(self, instant: int) -> None:
        self.instant = instant

    def after(self, instant: int) -> int | None:
        return self.instant if instant < self.instant else None

    def before(self, instant: int) -> int | None:
        return self.instant if instant > self.instant else None

    def count(self, start: int, end: int) -> int:
        return int(start <= self.instant < end)

    def seconds(self, day: int) -> int:
        second, rest = divmod(self.instant, 1000)
        return 1 << second % DAY if not rest and second // DAY == day else 0

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        return instant, instant + 1


class Never:
    """No instant."""

    whole_minutes = False

    def after(self, instant: int) -> int | None:
        del instant
        return None

    def before(self, instant: int) -> int | None:
        del instant
        return None

    def count(self, start: int, end: int) -> int:
        del start, end
        return 0

    def seconds(self, day: int) -> int:
        del day
        return 0

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        return instant, instant + 1


class Steady:
    """``origin + k * interval``, for every whole k: elapsed time, whatever the clocks show."""

    whole_minutes = False

    def __init__(self, interval: int, origin: int) -> None:
        self._interval = interval
        self._origin = origin % interval

    def after(self, instant: int) -> int | None:
        passed = (max(instant, -1) - self._origin) // self._interval
        found = self._origin + (passed + 1) * self._interval
        return found if found < LATEST * 1000 else None

    def before(self, instant: int) -> int | None:
        instant = min(instant, LATEST * 1000)
        passed = (instant - self._origin - 1) // self._interval
        return self._origin + passed * self._interval if passed >= 0 else None

    def count(self, start: int, end: int) -> int:
        return max(self._until(end) - self._until(start), 0)

    def seconds(self, day: int) -> int:
        interval = self._interval // 1000  # recurring slots are whole seconds
        first = (self._origin // 1000 - day * DAY) % interval
        if first >= DAY or not 0 <= day < LATEST // DAY:
            return 0
        return masks.comb(interval) << first & masks.EVERY_SECOND if first else masks.comb(interval)

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        return instant, instant + 1

    def _until(self, instant: int) -> int:
        instant = min(max(instant, 0), LATEST * 1000)
        return -((self._origin - instant) // self._interval)


class Zoned:
    """Wall times in a zone, under a choice of DST rules; ``seconds_of`` gives those of a day of the wall clock."""

    def __init__(self, walls: Walls, zone: Zone, dst: Dst, seconds_of: Callable[[int], int]) -> None:
        self._walls = walls
        self._seconds_of = seconds_of
        self._zone = zone
        self._rules = _Rules(dst, follows_real_time=walls.follows_real_time)
        self._plain = 0, 0, 0  # start, end and offset of the plain piece last searched; one read, so threads may share
        self.whole_minutes = walls.whole_minutes

    def after(self, instant: int) -> int | None:
        position = instant // 1000 + 1
        start, end, offset = self._plain
        if start <= position < end:  # nearly always: spares the loop of _search
            wall = self._walls.at_or_after(position + offset)
            if wall is not None and wall - offset < end:
                return (wall - offset) * 1000
        return self._search(max(position, 0))

    def before(self, instant: int) -> int | None:
        position = min(-(-instant // 1000), LATEST) - 1
        while position >= 0:
            piece = self._zone.piece_at(position)
            if not piece.plain:
                if candidates := self._unplain_upto(piece, position):
                    return max(candidates) * 1000
                position = piece.start - 1
                continue
            wall = self._walls.upto(position + piece.offset)
            if wall is None:
                return None
            found = wall - piece.offset
            if found >= max(piece.start, 0):
                return found * 1000
            # Nothing matches from here down to that wall: leave the years between unread.
            position = min(piece.start - 1, found + _OFFSETS_DIFFER)
        return None

    def count(self, start: int, end: int) -> int:
        position, stop = max(-(-start // 1000), 0), min(-(-end // 1000), LATEST)
        total = 0
        while position < stop:
            piece = self._zone.piece_at(position)
            until = min(piece.end, stop)
            if self._rules.plays(piece):
                total += self._walls.count(position + piece.offset, until + piece.offset)
            total += len(self._additions(piece, position, until))
            position = until
        return total

    def seconds(self, day: int) -> int:
        midnight = day * DAY
        position, stop = max(midnight, 0), min(midnight + DAY, LATEST)
        mask = 0
        while position < stop:
            piece = self._zone.piece_at(position)
            until = min(piece.end, stop)
            if self._rules.plays(piece):
                shown = self._shown(position + piece.offset, until - position)
                mask |= shown << position - midnight
            for added in self._additions(piece, position, until):
                mask |= 1 << added - midnight
            position = until
        return mask

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        piece = self._zone.piece_at(instant // 1000)
        length = self._walls.full_stretch(whole_minutes=whole_minutes)
        if length == 1 or not piece.plain:
            return instant, instant + 1
        wall = instant // 1000 + piece.offset
        start = wall - wall % length - piece.offset
        return max(start, piece.start) * 1000, min(start + length, piece.end) * 1000

    def _shown(self, wall: int, length: int) -> int:
        """Return the matching walls of ``length`` seconds from ``wall`` on; of no more than a day."""
        day, second = divmod(wall, DAY)
        mask = self._seconds_of(day)
        if not second and length == DAY:
            return mask
        mask >>= second
        if second + length > DAY:
            mask |= self._seconds_of(day + 1) << DAY - second
        return mask & (1 << length) - 1

    def _search(self, position: int) -> int | None:
        """Return the first instant not before ``position`` (in seconds), piece by piece."""
        while position < LATEST:
            piece = self._zone.piece_at(position)
            if not piece.plain:
                if candidates := self._unplain_from(piece, position):
                    return min(candidates) * 1000
                position = piece.end
                continue
            self._plain = piece.start, min(piece.end, LATEST), piece.offset
            wall = self._walls.at_or_after(position + piece.offset)
            if wall is None:
                return None
            found = wall - piece.offset
            if found < piece.end:
                return found * 1000 if found < LATEST else None
            # Nothing matches from here up to that wall, and later pieces only show later walls.
            position = max(piece.end, found - _OFFSETS_DIFFER)
        return None

    def _unplain_from(self, piece: Piece, position: int) -> list[int]:
        """Return candidates at or after ``position`` in a piece where DST rules apply."""
        found = self._additions(piece, position, piece.end)[:1]
        if self._rules.plays(piece):
            wall = self._walls.at_or_after(position + piece.offset)
            if wall is not None and wall - piece.offset < piece.end:
                found.append(wall - piece.offset)
        return found

    def _unplain_upto(self, piece: Piece, position: int) -> list[int]:
        found = self._additions(piece, piece.start, position + 1)[-1:]
        if self._rules.plays(piece):
            wall = self._walls.upto(position + piece.offset)
            if wall is not None and wall - piece.offset >= piece.start:
                found.append(wall - piece.offset)
        return found

    def _additions(self, piece: Piece, start: int, end: int) -> list[int]:
        """Return the instants in ``[start, end)`` that stand for missing wall times and nothing else."""
        match self._rules.gap(piece):
            case DstGap.FIRST_AFTER if piece.gap and start <= piece.start < end:
                opened = piece.start + piece.offset
                missed = self._walls.at_or_after(opened - piece.gap)
                if missed is None or missed >= opened or self._walls.at_or_after(opened) == opened:
                    return []  # nothing was missed, or the first instant after is a slot anyway
                return [piece.start]
            case DstGap.SHIFT if piece.shift is not None:
                return self._shifted(piece, piece.shift, start, end)
            case _:
                return []

    def _shifted(self, piece: Piece, offset: int, start: int, end: int) -> list[int]:
        found = []
        wall = self._walls.at_or_after(start + offset)
        while wall is not None and wall - offset < end:
            regular = wall - offset + piece.offset
            if self._walls.at_or_after(regular) != regular:  # else it is a slot anyway
                found.append(wall - offset)
            wall = self._walls.at_or_after(wall + 1)
        return found


class _Rules:
    """Which DST rule a piece falls under, for one spec."""

    def __init__(self, dst: Dst, *, follows_real_time: bool) -> None:
        self._follows_real_time = follows_real_time
        self._dst = dst

    def plays(self, piece: Piece) -> bool:
        """Say whether the wall times shown in this piece count."""
        if piece.shown is Pass.ONLY:
            return True
        overlap = self._dst.overlap
        if overlap is DstOverlap.DEBIAN:
            overlap = DstOverlap.BOTH if self._follows_real_time or piece.correction else DstOverlap.FIRST
        return overlap is DstOverlap.BOTH or overlap.value == piece.shown.value

    def gap(self, piece: Piece) -> DstGap:
        if self._dst.gap is not DstGap.DEBIAN:
            return self._dst.gap
        return DstGap.SKIP if self._follows_real_time or piece.correction else DstGap.FIRST_AFTER
