"""The tree of a cron expression: fields, the items in them, and the days of a month they match.

In weekday fields 0 is Sunday whatever the dialect, and bit d of a day mask is day d of the month.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2099  # Quartz's own bound; expressions without a year have none
MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Dialect(StrEnum):
    """How a cron expression is read: which fields it has and how weekdays are counted.

    >>> Dialect("quartz") is Dialect.QUARTZ
    True
    """

    UNIX = "unix"
    QUARTZ = "quartz"


@dataclass(frozen=True, slots=True)
class Unit:
    """What a field counts, and between which bounds."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        spelled = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"use {self.low}-{self.high}{spelled}"


SECOND: Final = Unit("second", 0, 59)
MINUTE: Final = Unit("minute", 0, 59)
HOUR: Final = Unit("hour", 0, 23)
DAY: Final = Unit("day-of-month", 1, 31)
MONTH: Final = Unit("month", 1, 12, MONTHS)
WEEKDAY: Final = Unit("day-of-week", 0, 7, WEEKDAYS)
QUARTZ_WEEKDAY: Final = Unit("day-of-week", 1, 7, WEEKDAYS)
YEAR: Final = Unit("year", FIRST_YEAR, LAST_YEAR)


@dataclass(frozen=True, slots=True)
class Span:
    """``first``, ``first + step``, … up to ``last``; a single value is a span of one.

    In weekday fields 0 is Sunday whatever the dialect, and 7 may end a span as the Sunday after
    Saturday. ``first > last`` wraps round the field.
    """

    first: int
    last: int
    step: int = 1
    star: bool = False  # written as * or H/n: "every", so it follows real time across DST changes


@dataclass(frozen=True, slots=True)
class LastDay:
    """``L``, ``L-3``; with ``weekday`` the Monday-to-Friday day nearest to it: ``LW``, ``L-3W``."""

    before: int = 0
    weekday: bool = False


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """``15W``: the Monday-to-Friday day nearest to the 15th, never in another month."""

    day: int


@dataclass(frozen=True, slots=True)
class LastOfWeekday:
    """``5L``: the last Friday of the month."""

    weekday: int


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """``5#3``: the third Friday of the month."""

    weekday: int
    nth: int


Item: TypeAlias = Span | LastDay | NearestWeekday | LastOfWeekday | NthWeekday


@dataclass(frozen=True, slots=True)
class Field:
    """One field as written, as a list of items, and as the mask of its plain values."""

    unit: Unit
    text: str
    items: tuple[Item, ...]
    mask: int

    @property
    def any(self) -> bool:
        """Vixie's star flag: the field begins with ``*`` (so ``*/2`` too) or is ``?``."""
        return self.text[0] in "*?"

    @property
    def everything(self) -> bool:
        """Every value of the unit matches: the field says nothing."""
        return self.text in ("*", "?")

    @property
    def star(self) -> bool:
        return any(isinstance(item, Span) and item.star for item in self.items)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed cron expression."""

    text: str
    dialect: Dialect
    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    year: Field | None
    written_seconds: bool  # six fields in unix, always in quartz

    @property
    def wildcard(self) -> bool:
        """Follows real time across DST changes, by Debian's rule: a ``*`` in minute or hour."""
        return self.minute.star or self.hour.star

    @property
    def either_day(self) -> bool:
        """Day-of-month *or* day-of-week is enough. With a star in front of either, both must match."""
        return not (self.day.any or self.weekday.any)

    def day_mask(self, length: int, first_weekday: int) -> int:
        """Return the matching days (bit d is day d) of a month of this shape."""
        return _day_mask(self.day, self.weekday, length, first_weekday)


def month_shape(year: int, month: int) -> tuple[int, int]:
    """Return a month's length and the weekday of its 1st, Sunday = 0."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 28 + leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    # Sakamoto's congruence
    shifted = year - (month < 3)
    weekday = (shifted + shifted // 4 - shifted // 100 + shifted // 400 + _WEEKDAY_TERMS[month - 1] + 1) % 7
    return length, weekday


def _day_mask(day: Field, weekday: Field, length: int, first_weekday: int) -> int:
    by_day = day.mask & _up_to(length)
    by_weekday = _weekday_mask(weekday.mask, length, first_weekday)
    for item in day.items:
        match item:
            case LastDay(before, weekday=False):
                by_day |= 1 << length - before if before < length else 0
            case LastDay(before, weekday=True):
                by_day |= _nearest_weekday(length - before, length, first_weekday)
            case NearestWeekday(wanted):
                by_day |= _nearest_weekday(wanted, length, first_weekday)
            case _:
                pass
    for item in weekday.items:
        match item:
            case LastOfWeekday(wanted):
                by_weekday |= _weekday_mask(1 << wanted, length, first_weekday) & ~_up_to(length - 7)
            case NthWeekday(wanted, nth):
                one_week = _up_to(7 * nth) & ~_up_to(7 * nth - 7)
                by_weekday |= _weekday_mask(1 << wanted, length, first_weekday) & one_week
            case _:
                pass
    return by_day | by_weekday if not (day.any or weekday.any) else by_day & by_weekday


def _up_to(day: int) -> int:
    return (1 << day + 1) - 2  # days 1..day; bit 0 is no day


def _weekday_mask(weekdays: int, length: int, first_weekday: int) -> int:
    """Lay the week over the month: rotate it to the weekday of the 1st, then repeat it five times."""
    week = (weekdays >> first_weekday | weekdays << 7 - first_weekday) & 0x7F
    return (week * 0x10204081) << 1 & _up_to(length)


def _nearest_weekday(day: int, length: int, first_weekday: int) -> int:
    if not 1 <= day <= length:
        return 0
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        day += -1 if day > 1 else 2
    elif weekday == 0:
        day += 1 if day < length else -2
    return 1 << day


_WEEKDAY_TERMS: Final = (0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4)
