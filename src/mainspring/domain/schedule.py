"""Schedules: which instants a job is due.

A schedule is one or more specs (cron, every, at, rrule) in one time zone, less what is excluded,
within a window. It is a value: equal schedules are equal, and all of them share one timetable, so
that a batch of jobs with the same expression and zone costs one evaluation.

Promise. ``next_after(t)`` is strictly later than ``t``, the same on every node and in every year to
come: it depends on the schedule, its ``rules`` version and the zone data, never on the present.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias, assert_never

from mainspring.domain import cron, masks, rrule
from mainspring.domain.combined import MANY, Exclusion, LocalDates, ManyCrons, NamedInstants, Union, Without
from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.fields import Dialect
from mainspring.domain.recurrence import RRuleWalls
from mainspring.domain.timetable import DEBIAN, Dst, Never, Single, Steady, Timetable, Walls, Zoned, chosen
from mainspring.domain.walls import CronWalls
from mainspring.domain.zones import DAY, Zone, zone

RULES: Final = (
    1  # raised when the same text would name other instants; old schedules keep the version they were made under
)
MOST_SPECS: Final = 50
MOST_EXCLUSIONS: Final = 1000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_PAST_9999: Final = 253_402_300_800_000
_MOST_LISTED_WORK: Final = 2_000_000  # exclusions asked for one list of slots; about a second


@dataclass(frozen=True, slots=True)
class Cron:
    """Wall times by a cron expression. The dialect is stated, never guessed.

    >>> Schedule(specs=(Cron("0 0 12 ? * 6L", Dialect.QUARTZ),)).next_after(datetime(2026, 11, 16, tzinfo=UTC)).day
    27
    """

    expression: str
    dialect: Dialect = Dialect.UNIX

    def __post_init__(self) -> None:
        object.__setattr__(self, "dialect", chosen(Dialect, self.dialect, field="dialect"))


@dataclass(frozen=True, slots=True)
class Every:
    """``anchor + phase``, and every whole number of intervals before and after: elapsed time, not wall time.

    >>> Schedule(specs=(Every(timedelta(minutes=90)),)).next_after(datetime(2026, 11, 16, tzinfo=UTC)).isoformat()
    '2026-11-16T01:30:00+00:00'
    """

    interval: timedelta
    anchor: datetime = EPOCH
    phase: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class At:
    """One instant, to the millisecond.

    >>> At(datetime(2027, 3, 14, 9, tzinfo=UTC)).instant.isoformat()
    '2027-03-14T09:00:00+00:00'
    """

    instant: datetime


@dataclass(frozen=True, slots=True)
class RRule:
    """Wall times by an RFC 5545 recurrence rule; ``start`` is its DTSTART.

    >>> rule = RRule("FREQ=MONTHLY;BYDAY=-1FR", datetime(2026, 1, 1, 9, tzinfo=UTC))
    >>> Schedule(specs=(rule,)).next_after(datetime(2026, 11, 16, tzinfo=UTC)).isoformat()
    '2026-11-27T09:00:00+00:00'
    """

    rule: str
    start: datetime


@dataclass(frozen=True, slots=True)
class OnDemand:
    """No instant at all: its job runs when somebody asks for it.

    >>> Schedule(specs=(OnDemand(),)).next_after(datetime(2026, 11, 16, tzinfo=UTC)) is None
    True
    """


Spec: TypeAlias = Cron | Every | At | RRule | OnDemand


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job is due.

    >>> weekdays = Schedule(specs=(Cron("0 9 * * 1-5"),), timezone="Europe/Paris", exclude=(date(2026, 12, 25),))
    >>> weekdays.next_after(datetime(2026, 12, 24, 12, tzinfo=UTC)).isoformat()  # Friday is left out
    '2026-12-28T08:00:00+00:00'

    Raises:
        InvalidSchedule: it cannot be read, contradicts itself, or could never fire.
    """

    specs: tuple[Spec, ...]
    timezone: str = "UTC"
    dst: Dst = DEBIAN
    exclude: tuple[Spec | date, ...] = ()  # a date leaves out that whole day of the wall clock
    start: datetime | None = None  # the first instant allowed
    end: datetime | None = None  # the first instant no longer allowed
    max_fires: int | None = None
    key: str | None = None  # the job's; decides what H stands for in a cron expression
    rules: int = RULES
    _walk: _Walk = field(init=False, repr=False, compare=False)
    _unbounded: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        object.__setattr__(self, "exclude", tuple(self.exclude))
        _check(self)
        key = (
            self.key if any(isinstance(spec, Cron) and hashed(spec.expression) for spec in self._all_specs()) else None
        )
        walk = _shared(self.specs, self.exclude, self.timezone, self.dst, key)
        object.__setattr__(self, "_walk", walk)
        object.__setattr__(self, "_unbounded", (self.start, self.end, self.max_fires) == (None, None, None))

    def next_after(self, instant: datetime, *, fired: int = 0) -> datetime | None:
        """Return the first slot strictly after ``instant``; ``fired`` counts against ``max_fires``."""
        if self._unbounded:
            return self._walk.after(instant)
        if self.max_fires is not None and fired >= self.max_fires:
            return None
        found = self._after(_floor(instant))
        return None if found is None else _instant(found)

    def previous_before(self, instant: datetime) -> datetime | None:
        """Return the last slot strictly before ``instant``."""
        before = _ceil(instant)
        if self.end is not None:
            before = min(before, _ceil(self.end))
        found = self._walk.timetable.before(before)
        if found is None or (self.start is not None and found < _ceil(self.start)):
            return None
        return _instant(found)

    def between(self, start: datetime, end: datetime, limit: int, *, fired: int = 0) -> list[datetime]:
        """Return the slots in ``[start, end)``, oldest first, at most ``limit`` of them.

        Raises:
            InvalidSchedule: so much is excluded that listing them takes too long; ask for fewer.
        """
        if self.max_fires is not None:
            limit = min(limit, self.max_fires - fired)
        slots: list[datetime] = []
        without = self._walk.without
        most = 0 if without is None else without.work + _MOST_LISTED_WORK
        last, found = _ceil(end), self._after(_ceil(start) - 1)
        while found is not None and found < last and len(slots) < limit:
            if without is not None and without.work > most:
                allowed = f"ask for fewer at once than {len(slots)}, exclude less, or narrow the schedule itself"
                raise _refuse("exclude", len(self.exclude), "leaves out too much to list so many slots", allowed)
            slots.append(_instant(found))
            found = self._after(found)
        return slots

    def count(self, start: datetime, end: datetime, *, fired: int = 0) -> int:
        """Return how many slots ``[start, end)`` holds; by arithmetic, not by walking, wherever it can."""
        first = _ceil(start) if self.start is None else max(_ceil(start), _ceil(self.start))
        last = _ceil(end) if self.end is None else min(_ceil(end), _ceil(self.end))
        total = self._walk.timetable.count(first, last) if first < last else 0
        return total if self.max_fires is None else max(min(total, self.max_fires - fired), 0)

    @property
    def zone(self) -> Zone:
        return zone(self.timezone)

    def _after(self, instant: int) -> int | None:
        if self.start is not None:
            instant = max(instant, _ceil(self.start) - 1)
        found = self._walk.timetable.after(instant)
        return None if found is None or (self.end is not None and found >= _ceil(self.end)) else found

    def _all_specs(self) -> tuple[Spec | date, ...]:
        return self.specs + self.exclude


def parse_spec(text: str, dialect: Dialect = Dialect.UNIX, *, start: datetime = EPOCH) -> Spec:
    """Read one spec as people write it: a cron expression, ``@every 90s``, or ``RRULE:FREQ=…``.

    ``start`` is the DTSTART of an RRULE, which carries none itself.

    >>> parse_spec("@every 90s").interval
    datetime.timedelta(seconds=90)
    """
    bare = text.strip()
    if bare[:7].lower() == "@every ":
        return Every(parse_duration(bare[7:], field="@every"))
    if bare[:6].upper() == "RRULE:" or bare[:5].upper() == "FREQ=":
        return RRule(bare, start)
    return Cron(text, dialect)


def jitter(key: str, slot: datetime, window: timedelta) -> timedelta:
    """Return how long after its slot a run may start: fixed for (job, slot), in ``[0, window)``.

    It delays the start and nothing else. The slot, and so the run's identity, stays as the schedule
    names it, which is why every node and every retry arrives at the same delay.

    >>> jitter("job", datetime(2026, 11, 16, tzinfo=UTC), timedelta(0))
    datetime.timedelta(0)
    """
    span = window // _MILLISECOND
    if span < 0:
        raise _refuse("jitter", window, f"{window} is negative", "use a length of 0 or more")
    if span == 0:
        return timedelta(0)
    digest = blake2b(f"{key}/{_ceil(slot)}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % span * _MILLISECOND


def _floor(instant: datetime) -> int:
    try:
        since = instant - EPOCH
    except TypeError as naive:
        raise _without_offset("instant", instant) from naive
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000  # twice as fast as since // 1 ms


def _ceil(instant: datetime) -> int:
    below = _floor(instant)
    return below + (instant - EPOCH > below * _MILLISECOND)


def _instant(milliseconds: int) -> datetime:
    return EPOCH + milliseconds * _MILLISECOND  # half the cost of fromtimestamp, and exact


def _check(schedule: Schedule) -> None:
    if schedule.rules != RULES:
        raise _refuse(
            "rules", schedule.rules, f"{schedule.rules} is not known here", f"this release has version {RULES}"
        )
    if schedule.max_fires is not None and schedule.max_fires < 1:
        raise _refuse("max_fires", schedule.max_fires, f"{schedule.max_fires} is no number of fires", "use 1 or more")
    _check_parts(schedule)
    start, end = schedule.start, schedule.end
    if start is not None:
        _check_instant("start", start)
    if end is not None:
        _check_instant("end", end)
    if start is not None and end is not None and end <= start:
        raise _refuse("end", end, f"{end.isoformat()} is not after start", "put the end after the start")


def _check_parts(schedule: Schedule) -> None:
    specs, exclude = schedule.specs, schedule.exclude
    if not 1 <= len(specs) <= MOST_SPECS:
        raise _refuse("specs", len(specs), f"there are {len(specs)}", f"give 1 to {MOST_SPECS}")
    if len(exclude) > MOST_EXCLUSIONS:
        raise _refuse("exclude", len(exclude), f"there are {len(exclude)}", f"give at most {MOST_EXCLUSIONS}")
    for spec in specs:
        if not isinstance(spec, Spec):
            raise _refuse("specs", spec, f"{spec!r} is not a spec", "use Cron, Every, At, RRule or parse_spec")
    for left_out in exclude:
        # A datetime is a date to isinstance, and would leave out the whole day.
        if isinstance(left_out, datetime) or not isinstance(left_out, Spec | date):
            wanted = "use a date, or Cron, Every, At, RRule"
            raise _refuse("exclude", left_out, f"{left_out!r} is neither a spec nor a date", wanted)


def _check_instant(name: str, instant: datetime) -> None:
    if instant.tzinfo is None:
        raise _without_offset(name, instant)
    if instant < EPOCH:
        raise _refuse(name, instant, f"{instant.isoformat()} is before 1970", "slots begin with 1970-01-01T00:00:00Z")
    if _floor(instant) >= _PAST_9999:
        raise _after_9999(name, instant)


def _after_9999(name: str, instant: datetime) -> InvalidSchedule:
    return _refuse(name, instant, f"{instant.isoformat()} is after 9999 in UTC", "slots end with 9999-12-31")


def _without_offset(name: str, instant: datetime) -> InvalidSchedule:
    return _refuse(name, instant, f"{instant.isoformat()} has no offset", "give it a tzinfo, such as datetime.UTC")


def _refuse(field: str, value: object, reason: str, allowed: str) -> InvalidSchedule:
    return InvalidSchedule(reason, field=field, value=value, allowed=allowed)


def hashed(expression: str) -> bool:
    """Return whether an expression has an H, which the job's key decides."""
    return "H" in expression.upper().replace("THU", "")


class _Walk:
    """A timetable in datetimes, with its last answer.

    Converting to and from a datetime costs as much as the search. A batch of jobs asks the same
    question, and a walk from slot to slot asks for what follows the last answer: both are spared it.
    """

    __slots__ = ("_memo", "timetable", "without")

    def __init__(self, timetable: Timetable, without: Without | None = None) -> None:
        self.timetable = timetable
        self.without = without
        self._memo: tuple[datetime | None, datetime | None, int] = (None, None, 0)  # asked, answer, answer again

    def after(self, instant: datetime) -> datetime | None:
        asked, answer, milliseconds = self._memo  # one read: threads may share it
        if instant is answer and answer is not None:
            found = self.timetable.after(milliseconds)
            slot = None if found is None else answer + _length(found - milliseconds)
        elif instant == asked:
            return answer
        else:
            found = self.timetable.after(_floor(instant))
            slot = None if found is None else _instant(found)
        self._memo = instant, slot, found or 0
        return slot


@lru_cache(maxsize=1024)
def _length(milliseconds: int) -> timedelta:
    return milliseconds * _MILLISECOND  # distances between slots are few; looking one up is twice as fast


@lru_cache(maxsize=16_384)
def _shared(
    specs: tuple[Spec, ...], exclude: tuple[Spec | date, ...], timezone: str, dst: Dst, key: str | None
) -> _Walk:
    where = zone(timezone)
    parts = [_spec_timetable(spec, where, dst, key) for spec in specs]
    exclusions = _exclusions(exclude, where, dst, key)
    if not exclusions:
        return _Walk(parts[0] if len(parts) == 1 else Union(parts))
    # Single instants are left out or not once and for all; the rest has whole seconds only, which masks can hold.
    single = [part for part in parts if isinstance(part, Single)]
    single = [part for part in single if not any(exclusion.covers(part.instant) for exclusion in exclusions)]
    recurring = [part for part in parts if not isinstance(part, Single)]
    if not recurring:
        return _Walk(Union(single) if single else Never())
    without = Without(recurring[0] if len(recurring) == 1 else Union(recurring), exclusions)
    return _Walk(Union([without, *single]) if single else without, without)


def _exclusions(exclude: tuple[Spec | date, ...], where: Zone, dst: Dst, key: str | None) -> list[Exclusion]:
    dates = [day for day in exclude if isinstance(day, date)]
    specs = [spec for spec in exclude if not isinstance(spec, date)]
    exclusions: list[Exclusion] = [LocalDates(dates, where)] if dates else []
    crons = [spec for spec in specs if isinstance(spec, Cron)]
    if len(crons) >= MANY:
        named = [
            (cron.parse(spec.expression, spec.dialect, key), _spec_timetable(spec, where, dst, key)) for spec in crons
        ]
        exclusions.append(ManyCrons(named, where))
        specs = [spec for spec in specs if not isinstance(spec, Cron)]
    return exclusions + [
        NamedInstants(_spec_timetable(spec, where, dst, key), work=3 if isinstance(spec, RRule) else 1)
        for spec in specs
    ]


@lru_cache(maxsize=16_384)
def _spec_timetable(spec: Spec, where: Zone, dst: Dst, key: str | None) -> Timetable:
    match spec:
        case Cron() | RRule():
            walls = walls_of(spec, where, key)
            return Zoned(walls, where, dst, _seconds_of(spec, walls, key))
        case Every(interval, anchor, phase):
            return _steady(interval, anchor, phase)
        case At(instant):
            _check_instant("at", instant)
            if _ceil(instant) >= _PAST_9999:
                raise _after_9999("at", instant)
            return Single(_ceil(instant))
        case OnDemand():
            return Never()
        case _:
            assert_never(spec)


def walls_of(spec: Cron | RRule, where: Zone, key: str | None) -> Walls:
    """Return the wall times of a spec that is written in wall time."""
    match spec:
        case Cron(expression, dialect):
            return CronWalls(cron.parse(expression, dialect, key))
        case RRule(text, start):
            _check_instant("start", start)
            rule = rrule.parse(text)
            opened = _ceil(start) // 1000
            until = rrule.until_wall(rule, lambda at: where.piece_at(at).offset)
            return RRuleWalls(rule, opened + where.piece_at(opened).offset, until)
        case _:
            assert_never(spec)


def _seconds_of(spec: Cron | RRule, walls: Walls, key: str | None) -> Callable[[int], int]:
    """Return what gives the matching seconds of a wall clock's day. Those of cron are the same on every such day."""
    if isinstance(walls, RRuleWalls):
        return walls.seconds
    assert isinstance(spec, Cron)
    expression = cron.parse(spec.expression, spec.dialect, key)
    fields = expression.second.mask, expression.minute.mask, expression.hour.mask

    def seconds(day: int) -> int:
        found = walls.at_or_after(day * DAY)
        return masks.times(*fields) if found is not None and found // DAY == day else 0

    return seconds


def _steady(interval: timedelta, anchor: datetime, phase: timedelta) -> Steady:
    if interval < _SECOND or interval % _SECOND:
        reason = f"{format_duration(interval)} is not a whole number of seconds"
        raise _refuse("interval", interval, reason, "use 1s or more")
    _check_instant("anchor", anchor)
    if phase < timedelta(0):
        raise _refuse("phase", phase, f"{phase} is negative", "use a length of 0 or more")
    if (anchor - EPOCH + phase % interval) % _SECOND:  # as lengths: their sum may be past the calendar
        reason = f"{anchor.isoformat()} and {phase} make no whole second"
        raise _refuse("anchor", anchor, reason, "recurring slots are whole seconds")
    return Steady(interval // _MILLISECOND, _floor(anchor) + phase // _MILLISECOND)
