"""Parse a cron expression into the plainest thing that can say whether a wall time matches.

Every field becomes the set of its values, every special day (``L``, ``15W``, ``5#3``) a question asked of
one date. Nothing here can look for the *next* match; that is the point.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Literal, NamedTuple, assert_never

Dialect = Literal["unix", "quartz"]


class Date(NamedTuple):
    """A calendar day with what the day fields ask about it."""

    year: int
    month: int
    day: int
    weekday: int  # 0 is Sunday
    last: int  # the month's last day


class Wall(NamedTuple):
    """What the wall clock and the calendar beside it show."""

    second: int
    minute: int
    hour: int
    date: Date


DayTest = Callable[[Date], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A parsed expression, one field beside the other."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: tuple[DayTest, ...]
    months: frozenset[int]
    weekdays: tuple[DayTest, ...]
    years: frozenset[int] | None  # None: every year
    both_days: bool  # day and weekday must both match, not just one of them
    wildcard: bool  # follows real time; otherwise it is at fixed times
    _known: dict[Date, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def step(self) -> Literal[1, 60]:
        """How many seconds a scan may advance without passing over a match."""
        return 60 if self.seconds == {0} else 1

    def matches(self, wall: datetime) -> bool:
        """Say whether the wall time given (naive) matches."""
        if wall.tzinfo is not None:
            raise ValueError("a wall time has no zone")
        return wall.microsecond == 0 and self.shows(wall_at(wall))

    def shows(self, wall: Wall) -> bool:
        """Say whether the wall time matches; the minute first, because it rules out most."""
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self._matches_date(wall.date)
        )

    def _matches_date(self, day: Date) -> bool:
        # Asked 1,440 times a day with the same answer.
        known = self._known.get(day)
        if known is None:
            known = self._known[day] = self._judge_date(day)
        return known

    def _judge_date(self, day: Date) -> bool:
        if day.month not in self.months or (self.years is not None and day.year not in self.years):
            return False
        by_day = any(test(day) for test in self.days)
        by_weekday = any(test(day) for test in self.weekdays)
        return (by_day and by_weekday) if self.both_days else (by_day or by_weekday)


def wall_at(wall: datetime) -> Wall:
    """Take a naive datetime apart."""
    return Wall(wall.second, wall.minute, wall.hour, date_at(wall.toordinal()))


@lru_cache(maxsize=4096)
def date_at(ordinal: int) -> Date:
    """Describe a day, given as a proleptic Gregorian ordinal."""
    day = date.fromordinal(ordinal)
    return Date(day.year, day.month, day.day, day.isoweekday() % 7, calendar.monthrange(day.year, day.month)[1])


def parse(expression: str, dialect: Dialect) -> Expression:
    """Parse an expression of either dialect.

    ``H`` and ``@every`` are refused too: they are not wall times. Whether it can ever match is not asked.

    Raises:
        ValueError: the dialect refuses it.
    """
    if not expression.isascii() or len(expression) > 256:
        raise ValueError("an expression is ASCII, at most 256 characters")
    fields = [text for text in re.split("[ \t]+", expression.upper()) if text]
    match dialect:
        case "unix":
            return _unix(fields)
        case "quartz":
            return _quartz(fields)
        case _:
            assert_never(dialect)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    wraps_at: int  # the last value before the dial starts again
    largest_step: int | None = None
    names: Mapping[str, int] = field(default_factory=dict)
    numbers_wrap: bool = False


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def _numbered(names: tuple[str, ...], first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names, first)}


_UNIX = {
    "second": _Field(name="second", low=0, high=59, wraps_at=59),
    "minute": _Field(name="minute", low=0, high=59, wraps_at=59),
    "hour": _Field(name="hour", low=0, high=23, wraps_at=23),
    "day": _Field(name="day", low=1, high=31, wraps_at=31),
    "month": _Field(name="month", low=1, high=12, wraps_at=12, names=_numbered(_MONTHS, 1)),
    # 7 is Sunday again, so the dial starts again after 6.
    "weekday": _Field(name="weekday", low=0, high=7, wraps_at=6, names=_numbered(_WEEKDAYS, 0)),
}


def _quartz_field(name: str, low: int, high: int, names: Mapping[str, int] | None = None) -> _Field:
    return _Field(name=name, low=low, high=high, wraps_at=high, largest_step=high, names=names or {}, numbers_wrap=True)


_QUARTZ = {
    "second": _quartz_field("second", 0, 59),
    "minute": _quartz_field("minute", 0, 59),
    "hour": _quartz_field("hour", 0, 23),
    "day": _quartz_field("day", 1, 31),
    "month": _quartz_field("month", 1, 12, _numbered(_MONTHS, 1)),
    "weekday": _quartz_field("weekday", 1, 7, _numbered(_WEEKDAYS, 1)),
    "year": _Field(name="year", low=1970, high=2099, wraps_at=2099, largest_step=130),
}

_ALIASES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}

_ENTRY = re.compile(r"(?:\*|([0-9A-Z]+)(?:-([0-9A-Z]+))?)(?:/([0-9]+))?")


def _unix(fields: list[str]) -> Expression:
    if len(fields) == 1 and fields[0] in _ALIASES:
        fields = _ALIASES[fields[0]].split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise ValueError("the unix dialect has five fields, or six with seconds first")
    day, weekday = fields[3], fields[5]
    # Vixie's rule looks at the first character only: "*/2" is a star, "1,*" is not.
    both = day.startswith("*") or weekday.startswith("*") or "?" in (day, weekday)
    return _build(_UNIX, fields, years=None, both=both, to_weekday=lambda value: value % 7, quartz=False)


def _quartz(fields: list[str]) -> Expression:
    if len(fields) not in (6, 7):
        raise ValueError("the quartz dialect has six fields, or seven with the year")
    if (fields[3], fields[5]).count("?") != 1:
        raise ValueError("exactly one of day-of-month and day-of-week is '?'")
    years = _values(fields[6], _QUARTZ["year"]) if len(fields) == 7 else None
    return _build(_QUARTZ, fields, years=years, both=True, to_weekday=lambda value: value - 1, quartz=True)


def _build(
    dials: Mapping[str, _Field],
    fields: list[str],
    *,
    years: frozenset[int] | None,
    both: bool,
    to_weekday: Callable[[int], int],
    quartz: bool,
) -> Expression:
    second, minute, hour, day, month, weekday = fields[:6]
    return Expression(
        seconds=_values(second, dials["second"]),
        minutes=_values(minute, dials["minute"]),
        hours=_values(hour, dials["hour"]),
        days=tuple(_day_test(entry, dials["day"], quartz=quartz) for entry in _day_entries(day)),
        months=_values(month, dials["month"]),
        weekdays=tuple(
            _weekday_test(entry, dials["weekday"], to_weekday, quartz=quartz) for entry in _day_entries(weekday)
        ),
        years=years,
        both_days=both,
        wildcard="*" in minute or "*" in hour,
    )


def _day_entries(text: str) -> list[str]:
    return ["*"] if text == "?" else text.split(",")


def _values(text: str, dial: _Field) -> frozenset[int]:
    return frozenset(value for entry in text.split(",") for value in _entry(entry, dial))


def _entry(text: str, dial: _Field) -> list[int]:
    """List the values of ``*``, ``a`` or ``a-b``, each with or without ``/n``."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(f"cannot read {text!r} in the {dial.name} field")
    first, last, step = match.groups()
    return _run(first, last, step, dial)[:: _step(step, dial)]


def _run(first: str | None, last: str | None, step: str | None, dial: _Field) -> list[int]:
    if first is None:
        return list(range(dial.low, dial.high + 1))
    start = _value(first, dial)
    if last is None:
        return list(range(start, dial.high + 1)) if step else [start]
    stop = _value(last, dial)
    if start <= stop:
        return list(range(start, stop + 1))
    if not (dial.numbers_wrap or (first in dial.names and last in dial.names)):
        raise ValueError(f"{first}-{last} runs backwards in the {dial.name} field")
    return [*range(start, dial.wraps_at + 1), *range(dial.low, stop + 1)]


def _value(text: str, dial: _Field) -> int:
    if text in dial.names:
        return dial.names[text]
    if not text.isdigit() or not dial.low <= int(text) <= dial.high:
        raise ValueError(f"{text!r} is no {dial.name} ({dial.low}-{dial.high})")
    return int(text)


def _step(text: str | None, dial: _Field) -> int:
    step = 1 if text is None else int(text)
    if step < 1 or (dial.largest_step is not None and step > dial.largest_step):
        raise ValueError(f"a step of {step} does not fit the {dial.name} field")
    return step


def _day_test(text: str, dial: _Field, *, quartz: bool) -> DayTest:
    if text == "LW":
        return lambda date: date.day == max(_working_days(date))
    if match := re.fullmatch("L(?:-([0-9]+))?(W?)", text):
        before = int(match[1] or 0)
        if before > 30 or (match[2] and not quartz):
            raise ValueError(f"cannot read {text!r} in the day field")
        if match[2]:
            return lambda date: date.day == _nearest_working_day(date, date.last - before)
        return lambda date: date.day == date.last - before
    if match := re.fullmatch("([0-9]+)W", text):
        target = _value(match[1], dial)
        return lambda date: date.day == _nearest_working_day(date, target)
    values = frozenset(_entry(text, dial))
    return lambda date: date.day in values


def _weekday_test(text: str, dial: _Field, to_weekday: Callable[[int], int], *, quartz: bool) -> DayTest:
    if text == "L" and quartz:
        text = "7"
    if match := re.fullmatch("([0-9A-Z]+)L", text):
        weekday = to_weekday(_value(match[1], dial))
        return lambda date: date.weekday == weekday and date.day + 7 > date.last
    if match := re.fullmatch("([0-9A-Z]+)#([1-5])", text):
        weekday, which = to_weekday(_value(match[1], dial)), int(match[2])
        return lambda date: date.weekday == weekday and which * 7 - 6 <= date.day <= which * 7
    weekdays = frozenset(to_weekday(value) for value in _entry(text, dial))
    return lambda date: date.weekday in weekdays


def _working_days(date: Date) -> list[int]:
    """List the days of the date's month that are Monday to Friday."""
    return [day for day in range(1, date.last + 1) if 1 <= (date.weekday + day - date.day) % 7 <= 5]


def _nearest_working_day(date: Date, target: int) -> int | None:
    """Find the working day of the same month nearest to ``target``; none if the month has no such day."""
    if not 1 <= target <= date.last:
        return None
    return min(_working_days(date), key=lambda day: abs(day - target))
