"""Judge cron schedules by walking the UTC line, instant by instant, with an eye on the wall clock.

Promise. What ``occurrences`` returns is what a patient observer would write down: at each instant read the
wall clock, compare it with the fields, and remember what the wall clock did, in the manner of Vixie's daemon.
A wall that shows a time it has shown before has been set back; a wall that passes over a time has been set
forward. Nothing is searched for, nothing is computed for the next day, so nothing can be missed on the way.

By what. ``Window`` makes the walk once for a zone and a stretch of time; any number of expressions and
policies are then judged on it. It walks from 50 hours before to 50 hours after the stretch, since what was
shown or passed over there decides some instants inside.

Not promised. Speed over long stretches: a year minute by minute is half a million readings.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal, NamedTuple, assert_never

from checker.expression import Dialect, Expression, Wall, date_at, parse
from checker.zones import EPOCH, Span, Transition, spans, transitions, zone_info, zones

__all__ = [
    "Dialect",
    "Expression",
    "Gap",
    "Instant",
    "Jump",
    "Overlap",
    "Transition",
    "Wall",
    "Window",
    "occurrences",
    "parse",
    "scan",
    "transitions",
    "zone_info",
    "zones",
]

Gap = Literal["debian", "first_after", "shift", "skip"]
Overlap = Literal["debian", "first", "second", "both"]

DST_AT_MOST = 3 * 3600  # a larger change is a correction of the clock
# The largest change ever is 24 h (Kwajalein, Kiritimati, Apia), and 26 h lie between the outermost offsets.
MARGIN = (24 + 26) * 3600
DAY = 86_400
EPOCH_ORDINAL = EPOCH.toordinal()


class Instant(NamedTuple):
    """One instant of a window, and what its wall clock shows."""

    utc: int  # seconds since the epoch
    wall: Wall
    again_after: int | None  # seconds since the wall last showed this time; None: never before
    once_more: bool  # the wall will show this time again


class Missing(NamedTuple):
    """A wall time that was passed over."""

    wall: Wall
    shifted: int  # its instant, had the clock not been set forward


class Jump(NamedTuple):
    """The wall clock set forward."""

    at: int  # the first instant after
    size: int
    missing: list[Missing]


class Window:
    """Every instant of [start, end) in one zone, read off the wall clock once."""

    def __init__(self, tz: str, start: datetime, end: datetime, step: int) -> None:
        if step not in (1, 60):
            raise ValueError("a step is 1 or 60 seconds")
        self.tz = tz
        self.step = step
        # Slots begin with the epoch, on whole steps.
        self._start = max(_up(_timestamp(start), step), 0)
        self._end = max(_up(_timestamp(end), step), self._start)
        walk = _Walk(spans(tz, self._start - MARGIN, self._end + MARGIN), step)
        self.instants = self._read(walk)
        self.jumps = [jump for jump in walk.jumps if jump.at < self._end and jump.at + jump.size > self._start]
        self._compare_with_zoneinfo()

    def holds(self, utc: int) -> bool:
        return self._start <= utc < self._end

    def _read(self, walk: _Walk) -> list[Instant]:
        ago, once_more = walk.ago, walk.once_more
        return [
            Instant(utc, _wall(utc + span.offset), ago.get(utc), utc in once_more)
            for span in walk.spans
            for utc in range(max(span.start, self._start), min(span.end, self._end), self.step)
        ]

    def _compare_with_zoneinfo(self) -> None:
        # Two readers of the same file: a cheap guard against this one misreading it.
        for instant in (*self.instants[:1], *self.instants[-1:]):
            wall = (EPOCH + timedelta(seconds=instant.utc)).astimezone(zone_info(self.tz))
            if _wall(instant.utc + int((wall.utcoffset() or timedelta()).total_seconds())) != instant.wall:
                raise AssertionError(f"{self.tz} at {wall.isoformat()}: read {instant.wall}")


class _Walk:
    """What the wall clock did on the way: times shown again, times passed over."""

    def __init__(self, line: list[Span], step: int) -> None:
        for span in line:
            if span.offset % step or span.start % step:
                raise ValueError("an offset that is not in whole minutes can only be walked second by second")
        self.spans = line
        self.step = step
        self.ago: dict[int, int] = {}  # instant -> seconds since its wall time was last shown
        self.once_more: set[int] = set()  # instants whose wall time is shown again
        self.jumps: list[Jump] = []
        # With one offset all along, no time is shown twice or passed over.
        if len(line) > 1:
            shown = self._walk()
            self.jumps = self._find_jumps(shown)

    def _walk(self) -> dict[int, int]:
        shown: dict[int, int] = {}
        for start, end, offset in self.spans:
            for utc in range(start, end, self.step):
                wall = utc + offset
                before = shown.get(wall)
                if before is not None:
                    self.ago[utc] = utc - before
                    self.once_more.add(before)
                shown[wall] = utc
        return shown

    def _find_jumps(self, shown: dict[int, int]) -> list[Jump]:
        jumps = []
        for left, right in pairwise(self.spans):
            expected, found = right.start + left.offset, right.start + right.offset
            if found > expected:
                # Set back again soon after, a time passed over may still be shown.
                missed = [wall for wall in range(expected, found, self.step) if wall not in shown]
                missing = [Missing(_wall(wall), wall - left.offset) for wall in missed]
                jumps.append(Jump(right.start, found - expected, missing))
        return jumps


def occurrences(
    expression: Expression, window: Window, *, gap: Gap = "debian", overlap: Overlap = "debian"
) -> list[datetime]:
    """List the instants of the window at which the expression fires, oldest first."""
    if window.step > expression.step:
        raise ValueError("the expression has seconds: walk the window second by second")
    shows = expression.shows
    slots = {
        instant.utc
        for instant in window.instants
        if shows(instant.wall) and _fires(instant, overlap, wildcard=expression.wildcard)
    }
    for jump in window.jumps:
        slots.update(_made_up(expression, jump, gap))
    return [EPOCH + timedelta(seconds=utc) for utc in sorted(slots) if window.holds(utc)]


def scan(
    expression: str,
    *,
    dialect: Dialect,
    tz: str,
    start: datetime,
    end: datetime,
    gap: Gap = "debian",
    overlap: Overlap = "debian",
) -> list[datetime]:
    """Judge one expression over [start, end)."""
    parsed = parse(expression, dialect)
    return occurrences(parsed, Window(tz, start, end, parsed.step), gap=gap, overlap=overlap)


def _fires(instant: Instant, overlap: Overlap, *, wildcard: bool) -> bool:
    """Say whether a matching instant fires, given which pass of its wall time it is."""
    match overlap:
        case "debian":
            set_back = instant.again_after is not None and instant.again_after <= DST_AT_MOST
            return wildcard or not set_back
        case "first":
            return instant.again_after is None
        case "second":
            return not instant.once_more
        case "both":
            return True
        case _:
            assert_never(overlap)


def _made_up(expression: Expression, jump: Jump, gap: Gap) -> set[int]:
    """List the instants that stand for matching wall times the jump passed over."""
    missed = [missing for missing in jump.missing if expression.shows(missing.wall)]
    match gap:
        case "debian":
            ignored = expression.wildcard or jump.size > DST_AT_MOST
            return {jump.at for _ in missed if not ignored}
        case "first_after":
            return {jump.at for _ in missed}
        case "shift":
            return {missing.shifted for missing in missed}
        case "skip":
            return set()
        case _:
            assert_never(gap)


def _wall(seconds: int) -> Wall:
    days, rest = divmod(seconds, DAY)
    return Wall(rest % 60, rest // 60 % 60, rest // 3600, date_at(EPOCH_ORDINAL + days))


def _timestamp(instant: datetime) -> int:
    if instant.utcoffset() != timedelta():
        raise ValueError("a window begins and ends in UTC")
    # Rounded up: a start within a second begins with the next one.
    return -((EPOCH - instant) // timedelta(seconds=1))


def _up(seconds: int, step: int) -> int:
    return -(-seconds // step) * step
