"""The wall seconds a cron expression matches, without zones: the search proper.

A wall second is what the wall clock shows, counted as if it were UTC. Masks and small tables lead
from any wall second to the next match without stepping through time; a month's matching days are
one mask, worked out once for each of the 28 shapes a month can have.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import date
from functools import lru_cache
from typing import Final

from mainspring.domain.fields import FIRST_YEAR, Expression, month_shape
from mainspring.domain.zones import DAY

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_CYCLE_MONTHS: Final = 4800  # the calendar repeats after 400 years: what is not found by then never comes
_SIXTY: Final = (1 << 60) - 1
_NEVER: Final = 1440  # a minute past the end of the day


class CronWalls:
    """Keeps :class:`mainspring.domain.timetable.Walls` for one expression."""

    def __init__(self, expression: Expression) -> None:
        self.follows_real_time = expression.wildcard
        self.whole_minutes = expression.second.mask == 1
        self._expression = expression
        self._masks = (expression.second.mask, expression.minute.mask, expression.hour.mask)
        self._seconds = _table(expression.second.mask, 60)
        self._minutes = _minutes(expression.hour.mask, expression.minute.mask)
        self._months = _table(expression.month.mask, 13)
        self._years = expression.year.mask if expression.year else None
        self._shapes: dict[tuple[int, int], int] = {}
        self._first_second = self._seconds[0]
        self._round_up = 60 - expression.second.mask.bit_length()  # 59 less the last matching second
        self._first_in_day = self._minutes[0] * 60 + self._first_second
        self._month = (0, 0, 0)  # first day, day after the last, mask with bit 0 for the 1st
        self._today = -DAY  # midnight of a day known to match: most questions are about the day of the last answer

    def at_or_after(self, wall: int) -> int | None:
        """Return the first match not before ``wall``."""
        today = self._today
        second = wall - today
        if not 0 <= second < DAY:
            day = self._day_from(wall // DAY)
            if day is None:
                return None
            self._today = today = day * DAY
            second = max(wall - today, 0)
        # The first matching minute that ends with its last matching second at or after this one.
        minutes = self._minutes
        found = minutes[bisect_left(minutes, (second + self._round_up) // 60)]
        if found < _NEVER:
            start = today + found * 60
            return start + (self._seconds[wall - start] if wall > start else self._first_second)
        day = self._day_from(today // DAY + 1)
        return None if day is None else day * DAY + self._first_in_day

    def upto(self, wall: int) -> int | None:
        """Return the last match not after ``wall``."""
        day, second = divmod(wall, DAY)
        if day < 0:
            return None
        first, _, mask = self._month_of(day)
        mask &= (2 << day - first) - 1
        if mask >> day - first & 1:
            if (time := self._time_upto(second)) >= 0:
                return day * DAY + time
            mask ^= 1 << day - first
        while not mask:
            if first <= 0:
                return None
            first, _, mask = self._month_of(first - 1)
        return (first + mask.bit_length() - 1) * DAY + self._time_upto(DAY - 1)

    def count(self, start: int, end: int) -> int:
        """Return how many matches ``[start, end)`` holds, day by day only at its two ends."""
        (first, start_second), (last, end_second) = divmod(start, DAY), divmod(end, DAY)
        whole = self._times_before(DAY)
        total = -self._times_before(start_second) if self._days(first, first + 1) else 0
        total += self._times_before(end_second) if self._days(last, last + 1) else 0
        return total + self._days(first, last) * whole

    def full_stretch(self, *, whole_minutes: bool) -> int:
        """Return the longest of day, hour, minute, second that is matched whole wherever it is touched."""
        second, minute, hour = self._masks
        if second != _SIXTY and not (whole_minutes and second & 1):
            return 1
        if minute != _SIXTY:
            return 60
        return DAY if hour == (1 << 24) - 1 else 3600

    def _day_from(self, day: int) -> int | None:
        """Return the first matching day not before ``day``."""
        first, end, mask = self._month  # one read: another thread may replace it
        if not first <= day < end:
            first, end, mask = self._month = self._month_of(day)
        mask >>= day - first
        if mask:
            return day + (mask & -mask).bit_length() - 1
        following = self._month_after(end)
        if following is None:
            return None
        first, end, mask = self._month = following
        return first + (mask & -mask).bit_length() - 1

    def _time_upto(self, second: int) -> int:
        """Return the last matching second of a day not after this one, or -1."""
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        seconds, minutes, hours = self._masks
        if hours >> hour & 1:
            if minutes >> minute & 1 and (at := seconds & (2 << second) - 1):
                return hour * 3600 + minute * 60 + at.bit_length() - 1
            if at := minutes & (1 << minute) - 1:
                return hour * 3600 + (at.bit_length() - 1) * 60 + seconds.bit_length() - 1
        if at := hours & (1 << hour) - 1:
            return (at.bit_length() - 1) * 3600 + (minutes.bit_length() - 1) * 60 + seconds.bit_length() - 1
        return -1

    def _times_before(self, second: int) -> int:
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        seconds, minutes, hours = self._masks
        per_minute = seconds.bit_count()
        total = (hours & (1 << hour) - 1).bit_count() * minutes.bit_count() * per_minute
        if hours >> hour & 1:
            total += (minutes & (1 << minute) - 1).bit_count() * per_minute
            if minutes >> minute & 1:
                total += (seconds & (1 << second) - 1).bit_count()
        return total

    def _days(self, start: int, end: int) -> int:
        total = 0
        while start < end:
            first, after, mask = self._month_of(start)
            mask >>= start - first
            if end < after:
                mask &= (1 << end - start) - 1
            total += mask.bit_count()
            start = after
        return total

    def _month_of(self, day: int) -> tuple[int, int, int]:
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        return self._month_at(at.year, at.month)

    def _month_after(self, day: int) -> tuple[int, int, int] | None:
        """Return the first month with a matching day from the one that begins on ``day`` on."""
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month = at.year, at.month
        for _ in range(_CYCLE_MONTHS):
            month = self._months[month] if month < 13 else -1
            if month < 0:
                year, month = year + 1, self._months[1]
            if year > 9999 or (self._years is not None and not self._years >> max(year - FIRST_YEAR, 0)):
                return None
            found = self._month_at(year, month)
            if found[2]:
                return found
            month += 1
        return None

    def _month_at(self, year: int, month: int) -> tuple[int, int, int]:
        first, length, shape = _month(year, month)
        if not self._expression.month.mask >> month & 1:
            return first, first + length, 0
        if self._years is not None and (year < FIRST_YEAR or not self._years >> year - FIRST_YEAR & 1):
            return first, first + length, 0
        mask = self._shapes.get(shape)
        if mask is None:
            mask = self._shapes[shape] = self._expression.day_mask(*shape) >> 1
        return first, first + length, mask


@lru_cache(maxsize=8192)
def _month(year: int, month: int) -> tuple[int, int, tuple[int, int]]:
    shape = month_shape(year, month)
    return date(year, month, 1).toordinal() - _EPOCH_ORDINAL, shape[0], shape


@lru_cache(maxsize=1024)
def _minutes(hours: int, minutes: int) -> tuple[int, ...]:
    """Return the matching minutes of a day, and one that never comes. Shared by all that have the same times."""
    return (
        *(
            hour * 60 + minute
            for hour in range(24)
            if hours >> hour & 1
            for minute in range(60)
            if minutes >> minute & 1
        ),
        _NEVER,
    )


@lru_cache(maxsize=4096)
def _table(mask: int, size: int) -> tuple[int, ...]:
    """Return, for each value of a field and one past its end, the first match not below it, or -1."""
    table = [-1]
    for value in range(size - 1, -1, -1):
        table.append(value if mask >> value & 1 else table[-1])
    return tuple(reversed(table))
