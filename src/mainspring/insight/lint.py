"""Lint: what is legal in a schedule and probably not what was meant.

Each finding has a name, the reason in words, and the next dates concerned. A finding is a warning,
never a refusal; what cannot work at all is refused by the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Final, TypeAlias

from mainspring.domain import cron
from mainspring.domain.durations import format_duration
from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.fields import Dialect, Expression, Field, LastOfWeekday, NthWeekday, Span
from mainspring.domain.schedule import Cron, Schedule
from mainspring.domain.timetable import DstGap, DstOverlap
from mainspring.insight.dst import Meeting, meetings
from mainspring.insight.wording import listed

LOOK_AHEAD_YEARS: Final = 2
_DATES: Final = 3  # how many a finding lists
_SAMPLE: Final = 400  # slots looked at for the shortest distance
_WEEKDAY_WORDS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_FEBRUARY: Final = 1 << 2
_SHORT_MONTHS: Final = _FEBRUARY | 1 << 4 | 1 << 6 | 1 << 9 | 1 << 11


Named: TypeAlias = tuple[str, str]  # a finding without its dates


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that deserves a second look: its name, the reason in words, and the dates it is about.

    >>> Finding("herd", "many jobs share this second").name
    'herd'
    """

    name: str
    reason: str
    dates: tuple[datetime, ...] = ()  # UTC, the next ones concerned


def lint(schedule: Schedule, *, now: datetime, at_least_apart: timedelta = timedelta(minutes=1)) -> list[Finding]:
    """Return what deserves a second look in a schedule, as of ``now``.

    ``at_least_apart``: the distance between slots below which a schedule counts as too frequent.

    >>> from datetime import UTC, datetime
    >>> from mainspring import Cron, Schedule
    >>> nightly = Schedule(specs=(Cron("30 2 * * *"),), timezone="America/New_York")
    >>> lint(nightly, now=datetime(2027, 1, 1, tzinfo=UTC))[0].name
    'dst-gap'
    """
    findings = [*_never_fires(schedule, now)]
    if findings:
        return findings  # nothing else matters then
    for spec in schedule.specs:
        if isinstance(spec, Cron):
            findings += _expression(cron.parse(spec.expression, spec.dialect, schedule.key), schedule, now)
    findings += _too_frequent(schedule, now, at_least_apart)
    findings += _clock_changes(schedule, now)
    return findings


def _never_fires(schedule: Schedule, now: datetime) -> Iterator[Finding]:
    try:
        upcoming, last = schedule.next_after(now), schedule.previous_before(now)
    except InvalidSchedule as excluded:  # what is left out is all there is
        yield Finding("never-fires", str(excluded))
        return
    if upcoming is None:
        before = f"; the last was {last:%Y-%m-%d %H:%M} UTC" if last else ""
        yield Finding("never-fires", f"no slot after {now:%Y-%m-%d %H:%M} UTC{before}")


def _expression(expression: Expression, schedule: Schedule, now: datetime) -> Iterator[Finding]:
    """Judge what is written; the next slots are the dates concerned."""
    upcoming = _upcoming(schedule, now)
    rounds = (
        (expression.second, "minute", _goes_on(expression.minute.mask, 60)),
        (expression.minute, "hour", _goes_on(expression.hour.mask, 24)),
        (expression.hour, "day", True),
        (expression.day, "month", True),
        (expression.month, "year", True),
        (expression.weekday, "week", True),
    )
    for name, reason in chain(
        _day_or_weekday(expression),
        *(_steps(field, after_end, goes_on=goes_on) for field, after_end, goes_on in rounds),
        _weekday_numbers(expression),
        _seconds(expression),
        _missing_days(expression),
    ):
        yield Finding(name, reason, upcoming)


def _day_or_weekday(expression: Expression) -> Iterator[Named]:
    day, weekday = expression.day, expression.weekday
    if day.everything or weekday.everything:
        return
    if expression.either_day:
        reason = (
            f'day-of-month "{day.text}" OR day-of-week "{weekday.text}": either is enough. '
            f"Only where one of the two begins with * must both match"
        )
    else:
        reason = (
            f'day-of-month "{day.text}" AND day-of-week "{weekday.text}": both must match, because one begins with *. '
            f"Without the * either would be enough"
        )
    yield "day-or-weekday", reason


def _steps(field: Field, after_end: str, *, goes_on: bool) -> Iterator[Named]:
    for item in field.items:
        if not isinstance(item, Span) or item.step == 1:
            continue
        values = list(range(item.first, item.last + 1, item.step))
        if len(values) == 1 and item.step > item.last - item.first:
            outcome = f"a step of {item.step} leaves the field at once, so only {values[0]} matches"
            reason = f'{field.unit.name} "{field.text}": {outcome}'
            yield "step-beyond-field", reason
        elif goes_on and _reaches_end(item, field) and (last_step := _wrap(values, field)) != item.step:
            within = "" if last_step is None else f", {last_step} after the one before instead of {item.step}"
            again = f"it starts again at {values[0]} in the next {after_end}{within}"
            reason = f'{field.unit.name} "{field.text}" is uneven: {again}'
            yield "uneven-step", reason


def _goes_on(mask: int, size: int) -> bool:
    """Say whether one matching round is ever followed by the next; else no step crosses its end."""
    return bool(mask & (mask >> 1 | (mask & 1) << size - 1))


def _reaches_end(span: Span, field: Field) -> bool:
    """Only a step that runs to the end of its field looks as if it went round evenly."""
    return span.first <= span.last and span.last >= (6 if field.unit.name == "day-of-week" else field.unit.high)


def _wrap(values: list[int], field: Field) -> int | None:
    """Return the distance from the last value to the first of the next round; None where rounds differ in length."""
    if field.unit.name == "day-of-month":
        return None
    size = 7 if field.unit.name == "day-of-week" else field.unit.high - field.unit.low + 1
    return values[0] + size - values[-1]


def _weekday_numbers(expression: Expression) -> Iterator[Named]:
    text = expression.weekday.text
    digits = any(character.isdigit() for character in text.partition("#")[0])
    if not digits or not expression.written_seconds:
        return  # five fields: everybody counts from Sunday = 0 there
    named = {value for value in range(7) if expression.weekday.mask >> value & 1}
    named |= {item.weekday % 7 for item in expression.weekday.items if isinstance(item, LastOfWeekday | NthWeekday)}
    means = listed([_WEEKDAY_WORDS[value] for value in sorted(named)])
    here, there = ("1 is Sunday", "0 is") if expression.dialect is Dialect.QUARTZ else ("0 is Sunday", "1 is")
    other = "unix" if expression.dialect is Dialect.QUARTZ else "quartz"
    counting = f"{here} in {expression.dialect}, {there} in {other}; names say the same in both"
    reason = f'day-of-week "{text}" means {means}: {counting}'
    yield "weekday-numbering", reason


def _seconds(expression: Expression) -> Iterator[Named]:
    if not expression.written_seconds:
        return
    if expression.second.everything:
        reason = 'second "*": fires 60 times in every matching minute; use 0 for once a minute'
        yield "seconds-field", reason
    elif expression.dialect is Dialect.UNIX:
        reason = (
            f'six fields: the first, "{expression.second.text}", is the second. '
            f"Where seconds come last, as in some libraries, this text means something else"
        )
        yield "seconds-field", reason


def _missing_days(expression: Expression) -> Iterator[Named]:
    """Point out days that not every matching month has."""
    days = expression.day
    if not all(isinstance(item, Span) for item in days.items) or not expression.weekday.everything:
        return
    first = (days.mask & -days.mask).bit_length() - 1
    if first == 29 and expression.month.mask == _FEBRUARY:
        reason = "29 February: fires in leap years only"
        yield "leap-day", reason
    elif first >= 29 and expression.month.mask & (_SHORT_MONTHS if first == 31 else _FEBRUARY):
        reason = f'day-of-month "{days.text}": months without that day are left out; L is the last day of every month'
        yield "short-months", reason


def _too_frequent(schedule: Schedule, now: datetime, at_least_apart: timedelta) -> Iterator[Finding]:
    slots = [now]
    while len(slots) <= _SAMPLE and (found := schedule.next_after(slots[-1])) is not None:
        slots.append(found)
    close = [(later - earlier, earlier) for earlier, later in pairwise(slots[1:]) if later - earlier < at_least_apart]
    if close:
        shortest, where = min(close)
        reason = f"slots as close as {format_duration(shortest)} apart; the limit is {format_duration(at_least_apart)}"
        yield Finding("too-frequent", reason, (where,))


def _clock_changes(schedule: Schedule, now: datetime) -> Iterator[Finding]:
    """Group the changes by what they will do, so that a finding's dates all share its reason."""
    grouped: dict[tuple[str, str], list[Meeting]] = {}
    for meeting in meetings(schedule, now, years=LOOK_AHEAD_YEARS):
        if _notable(meeting):
            outcome = _gap_outcome(schedule, meeting) if meeting.forward else _overlap_outcome(schedule, meeting)
            grouped.setdefault(("dst-gap" if meeting.forward else "dst-overlap", outcome), []).append(meeting)
    for (name, outcome), met in sorted(grouped.items()):
        yield Finding(name, f"{_what_happens(met[0], schedule)}; {outcome}", tuple(m.at for m in met[:_DATES]))


def _notable(meeting: Meeting) -> bool:
    """A schedule for every hour that follows real time does not care; it just goes on."""
    return not (meeting.follows_real_time and meeting.any_hour)


def _what_happens(meeting: Meeting, schedule: Schedule) -> str:
    walls = [f"{wall:%H:%M}" for wall in meeting.walls] + (["others"] if meeting.more else [])
    missing, twice = ("does not exist", "is shown twice") if len(walls) == 1 else ("do not exist", "are shown twice")
    verb = missing if meeting.forward else twice
    return (
        f"{listed(walls)} {verb} on {meeting.walls[0]:%Y-%m-%d} in {schedule.timezone} "
        f"(the clock goes from {meeting.clock_from:%H:%M} to {meeting.clock_to:%H:%M})"
    )


def _gap_outcome(schedule: Schedule, meeting: Meeting) -> str:
    gap = schedule.dst.gap
    if gap is DstGap.DEBIAN:
        gap = DstGap.SKIP if meeting.follows_real_time or meeting.correction else DstGap.FIRST_AFTER
    if gap is DstGap.FIRST_AFTER:
        return f"it runs once at {meeting.clock_to:%H:%M} instead"
    return "it runs as much later as the clock was moved" if gap is DstGap.SHIFT else "it does not run then"


def _overlap_outcome(schedule: Schedule, meeting: Meeting) -> str:
    overlap = schedule.dst.overlap
    if overlap is DstOverlap.DEBIAN:
        overlap = DstOverlap.BOTH if meeting.follows_real_time or meeting.correction else DstOverlap.FIRST
    return "it runs both times" if overlap is DstOverlap.BOTH else f"it runs the {overlap} time only"


def _upcoming(schedule: Schedule, now: datetime) -> tuple[datetime, ...]:
    dates: list[datetime] = []
    slot = schedule.next_after(now)
    while slot is not None and len(dates) < _DATES:
        dates.append(slot)
        slot = schedule.next_after(slot)
    return tuple(dates)
