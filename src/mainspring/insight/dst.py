"""What changes of the clock do to a schedule: which wall times are missing or shown twice, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.domain import cron
from mainspring.domain.schedule import Cron, RRule, Schedule, walls_of
from mainspring.domain.timetable import Walls
from mainspring.domain.zones import CORRECTION, DAY, Change, Pass, Piece

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Meeting:
    """A change of the clock that meets a spec: ``walls`` are missing (a gap) or shown twice."""

    at: datetime
    forward: bool
    walls: tuple[datetime, ...]  # naive: what the wall clock would show, or shows twice; the first few
    more: bool  # there are others
    clock_from: datetime
    clock_to: datetime
    follows_real_time: bool
    any_hour: bool
    correction: bool  # larger than three hours


def meetings(schedule: Schedule, after: datetime, *, years: int) -> Iterator[Meeting]:
    """Yield the changes after an instant, within some years, that touch a wall time of the schedule."""
    for year in range(after.year, after.year + years + 1):
        for change in schedule.zone.changes(year):
            if change.at >= after.timestamp():
                yield from _meet(schedule, change)


def note(schedule: Schedule, slot: datetime) -> str | None:
    """Say what the clock did to this slot; None where nothing happened."""
    second = int(slot.timestamp())
    piece = schedule.zone.piece_at(second)
    if piece.plain:
        return None
    shown = _clock(second + piece.offset)
    if piece.shown is not Pass.ONLY:
        return f"{piece.shown.value} of two {shown:%H:%M}s: the clock goes back"
    if any(walls.at_or_after(second + piece.offset) == second + piece.offset for _, walls in _walls(schedule)):
        return None  # the wall time itself is named: it would be a slot on any day
    return _moved(schedule, second, piece)


def _moved(schedule: Schedule, second: int, piece: Piece) -> str | None:
    """Name the missing wall time that a slot just after a gap stands for."""
    before = piece.shift if piece.shift is not None else piece.offset
    missing = second + before
    opened = piece.start + piece.offset
    for _, walls in _walls(schedule):
        wall = walls.at_or_after(missing)
        if wall is not None and wall < opened:
            form = "%H:%M" if opened - piece.start - before < DAY else "%Y-%m-%d %H:%M"  # Apia lost a whole day
            went = f"from {_clock(piece.start + before):{form}} to {_clock(opened):{form}}" if piece.gap else "forward"
            return f"for {_clock(wall):{form}}, which is missing: the clock goes {went}"
    return None


def _meet(schedule: Schedule, change: Change) -> Iterator[Meeting]:
    low, high = sorted((change.at + change.before, change.at + change.after))
    for spec, walls in _walls(schedule):
        met: list[datetime] = []
        wall = walls.at_or_after(low)
        while wall is not None and wall < high and len(met) < 3:
            met.append(_clock(wall))
            wall = walls.at_or_after(wall + 1)
        if met:
            yield Meeting(
                at=_EPOCH + timedelta(seconds=change.at),
                forward=change.after > change.before,
                walls=tuple(met),
                more=wall is not None and wall < high,
                clock_from=_clock(change.at + change.before),
                clock_to=_clock(change.at + change.after),
                follows_real_time=walls.follows_real_time,
                any_hour=_any_hour(spec, schedule),
                correction=high - low > CORRECTION,
            )


def _any_hour(spec: Cron | RRule, schedule: Schedule) -> bool:
    return isinstance(spec, Cron) and cron.parse(spec.expression, spec.dialect, schedule.key).hour.everything


def _walls(schedule: Schedule) -> Iterator[tuple[Cron | RRule, Walls]]:
    for spec in schedule.specs:
        if isinstance(spec, Cron | RRule):
            yield spec, walls_of(spec, schedule.zone, schedule.key)


def _clock(wall: int) -> datetime:
    return (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=None)
