"""The wall seconds a recurrence rule names, without zones: the search proper.

A rule is split in two. Its *calendar* says which days match, as one mask per year: what the BY parts
leave of a year depends only on the year's shape, of which there are 28, and INTERVAL is laid over it.
Its *clock* says which seconds of such a day match: slots of a day, an hour, a minute or a second, and
offsets within a slot. Any wall second is reached by one look at its year, however long ago DTSTART was,
and a search ends with the year 9999, some 8,000 masks away at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, pairwise
from math import gcd
from typing import Final, NamedTuple, TypeVar

from mainspring.domain import masks
from mainspring.domain.rrule import Frequency, Rule, Weekday, refusal
from mainspring.domain.zones import DAY

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR: Final = 1970
_DAYS: Final = 2_932_897  # from 1970 to the end of 9999
_SLICE: Final = 376  # bits that hold a year wherever in a byte it begins
_SLOT: Final = {Frequency.SECONDLY: 1, Frequency.MINUTELY: 60, Frequency.HOURLY: 3600}  # in seconds; else a day
_LONG: Final = (Frequency.WEEKLY, Frequency.MONTHLY, Frequency.YEARLY)  # periods of more than a day
_T = TypeVar("_T")


class RRuleWalls:
    """Keeps :class:`mainspring.domain.timetable.Walls` for one rule from ``start`` (DTSTART) on.

    What the rule leaves open comes from DTSTART, as RFC 5545 has it: the time of day, the day of the
    month, the weekday. DTSTART itself is a match only if the rule matches it; python-dateutil does
    the same. BYSETPOS counts in whole periods, also in the one that DTSTART lies in the middle of.

    Raises:
        InvalidSchedule: nothing matches from DTSTART to UNTIL or to the year 9999.
    """

    def __init__(self, rule: Rule, start: int, until: int | None) -> None:
        complete = _completed(rule, start)
        self._clock = clock = _Clock(complete, start)
        self._calendar = _Calendar(complete, start, clock)
        self._start = start
        self._last = _DAYS * DAY - 1
        self._year = (0, 0, 0)  # first day, day after the last, mask of matching days with bit 0 for New Year
        self.follows_real_time = rule.freq in _SLOT
        self.whole_minutes = clock.whole_minutes  # may miss what only BYSETPOS or COUNT make true
        self._plain = clock.plain and rule.freq not in _LONG and not (rule.names_days or rule.by_month)
        self._limit(rule, until)

    def at_or_after(self, wall: int) -> int | None:
        """Return the first match not before ``wall``."""
        wall = max(wall, self._start)
        if wall > self._last:
            return None
        day, second = divmod(wall, DAY)
        first, end, mask = self._year_of(day)
        mask >>= day - first
        if mask & 1 and (time := self._clock.time_from(second, *self._times(day))) >= 0:
            found = day * DAY + time
        else:
            mask &= -2
            while not mask:
                if end * DAY > self._last:
                    return None
                day, end, mask = self._year_of(end)
            day += _lowest(mask)
            found = day * DAY + self._clock.time_from(0, *self._times(day))
        return found if found <= self._last else None

    def upto(self, wall: int) -> int | None:
        """Return the last match not after ``wall``."""
        wall = min(wall, self._last)
        if wall < self._start:
            return None
        day, second = divmod(wall, DAY)
        first, _, mask = self._year_of(day)
        mask &= (2 << day - first) - 1
        time = self._clock.time_upto(second, *self._times(day)) if mask >> day - first else -1
        if time < 0:
            mask &= (1 << day - first) - 1
            while not mask:
                if first * DAY <= self._start:
                    return None
                first, _, mask = self._year_of(first - 1)
            day = first + mask.bit_length() - 1
            time = self._clock.time_upto(DAY - 1, *self._times(day))
        found = day * DAY + time
        return found if found >= self._start else None

    def count(self, start: int, end: int) -> int:
        """Return how many matches ``[start, end)`` holds: year by year, or day by day where days differ."""
        start, end = max(start, self._start), min(end, self._last + 1)
        if start >= end:
            return 0
        if self._plain:
            return self._clock.ticks_before(end) - self._clock.ticks_before(start)
        (first, start_second), (last, end_second) = divmod(start, DAY), divmod(end, DAY)
        return self._whole(first, last) - self._part(first, start_second) + self._part(last, end_second)

    def seconds(self, day: int) -> int:
        """Return the matching seconds of a day, as a mask."""
        first, _, days = self._year_of(day)
        if not self._start // DAY <= day <= self._last // DAY or not days >> day - first & 1:
            return 0
        slots, offsets = self._times(day)
        if self._calendar.selects:
            mask = masks.marked(offsets)
        elif slots == 1:
            mask = self._clock.within()
        else:
            mask = _spread(slots, self._clock.slot) * self._clock.within()
        if day == self._start // DAY:
            mask &= ~masks.stretch(0, self._start % DAY)
        return mask & masks.stretch(0, self._last % DAY + 1) if day == self._last // DAY else mask

    def full_stretch(self, *, whole_minutes: bool) -> int:
        """Return 1: what a rule excludes is stepped over match by match."""
        del whole_minutes
        return 1

    def _limit(self, rule: Rule, until: int | None) -> None:
        """Find the last match that UNTIL or COUNT allows, and refuse a rule without any."""
        first = self.at_or_after(self._start) if self._clock.offsets else None
        if first is None:
            allowed = "choose values that come together on a date before the year 10000"
            raise refusal("RRULE", rule.text, "never comes", allowed)
        if rule.count is not None:
            self._last = self._nth(rule.count)
        if until is not None and until < first:
            raise refusal("UNTIL", rule.text, "never comes: UNTIL is before its first match", "use a later UNTIL")
        self._last = self._last if until is None else min(self._last, until)

    def _nth(self, number: int) -> int:
        """Return the wall of match ``number`` from 1, or the end of time: COUNT as an UNTIL."""
        position = self._start
        while position <= self._last:
            end = self._year_of(position // DAY)[1] * DAY
            found = self.count(position, end)
            if found >= number:
                walls = range(position, end)
                return walls[bisect_left(walls, number, key=lambda wall: self.count(position, wall + 1))]
            number -= found
            position = end
        return self._last

    def _whole(self, first: int, last: int) -> int:
        """Return how many matches the days ``[first, last)`` hold."""
        total, position = 0, first
        while position < last:
            start, end, mask = self._year_of(position)
            mask = mask >> position - start & (1 << min(end, last) - position) - 1
            if self._clock.same_daily and not self._calendar.selects:
                total += mask.bit_count() * self._in_day(position)
            else:
                total += sum(self._in_day(position + day) for day in _bits(mask))
            position = end
        return total

    def _in_day(self, day: int) -> int:
        slots, offsets = self._times(day)
        return slots.bit_count() * len(offsets)

    def _part(self, day: int, second: int) -> int:
        if not second:
            return 0
        first, _, mask = self._year_of(day)
        return self._clock.times_before(second, *self._times(day)) if mask >> day - first & 1 else 0

    def _times(self, day: int) -> tuple[int, Sequence[int]]:
        """Return the matching slots of a matching day, and the offsets within a slot."""
        if self._calendar.selects:
            return 1, self._calendar.selected(day)
        return self._clock.slots(day), self._clock.offsets

    def _year_of(self, day: int) -> tuple[int, int, int]:
        known = self._year  # one read: another thread may replace it
        if not known[0] <= day < known[1]:
            number = _year_number(day)
            first, shape = _year(number)
            known = self._year = (first, first + shape.length, self._calendar.days(number))
        return known


def _completed(rule: Rule, start: int) -> Rule:
    """Add what RFC 5545 derives from DTSTART."""
    second, at = start % DAY, _date(start)
    slot = _SLOT.get(rule.freq, DAY)
    rule = replace(
        rule,
        by_hour=rule.by_hour or ((second // 3600,) if slot > 3600 else tuple(range(24))),
        by_minute=rule.by_minute or ((second // 60 % 60,) if slot > 60 else tuple(range(60))),
        by_second=rule.by_second or ((second % 60,) if slot > 1 else tuple(range(60))),
    )
    weekday = (Weekday(at.weekday()),)
    if rule.by_week_no and not (rule.by_day or rule.by_month_day or rule.by_year_day):
        return replace(rule, by_day=weekday)
    if rule.names_days or rule.freq not in _LONG:
        return rule
    if rule.freq is Frequency.WEEKLY:
        return replace(rule, by_day=weekday)
    months = rule.by_month or ((at.month,) if rule.freq is Frequency.YEARLY else ())
    return replace(rule, by_month=months, by_month_day=(at.day,))


class _Clock:
    """The matching seconds of a day: every INTERVAL-th slot that the BY parts allow, and offsets in it.

    A slot is the period of a frequency up to DAILY, and the day for the others, whose INTERVAL is the
    calendar's affair. BYSETPOS is the same choice in every such slot, so it is made once, here.
    """

    def __init__(self, rule: Rule, start: int) -> None:
        self.slot = _SLOT.get(rule.freq, DAY)
        self.per_day = DAY // self.slot
        self.interval = rule.interval if rule.freq not in _LONG else 1
        self.anchor = start // self.slot
        self.offsets: Sequence[int] = [0]
        self._allowed = 1
        for unit, values in (3600, rule.by_hour), (60, rule.by_minute), (1, rule.by_second):
            if unit < self.slot:
                self.offsets = [offset + value * unit for offset in self.offsets for value in values]
        for unit, values in (1, rule.by_second), (60, rule.by_minute), (3600, rule.by_hour):
            if unit >= self.slot:
                self._allowed = sum(self._allowed << value * unit // self.slot for value in values)
        if rule.by_set_pos and rule.freq not in _LONG:
            self.offsets = sorted(set(_pick(self.offsets, rule.by_set_pos)))
        width = min(self.interval, self.per_day)
        self._comb = int(("0" * (width - 1) + "1") * -(-self.per_day // width), 2)
        self.plain = self._allowed.bit_count() == self.per_day
        self.same_daily = self.per_day % self.interval == 0 or self.slot == DAY
        seconds = rule.by_second if self.slot == 1 else [offset % 60 for offset in self.offsets]
        reached = gcd(self.interval, 60) if self.slot == 1 else 1
        self.whole_minutes = not any(second for second in seconds if (second - start) % reached == 0)
        self._within = 0

    def within(self) -> int:
        """Return the offsets within a slot, as a mask."""
        if not self._within:
            self._within = masks.marked(self.offsets)
        return self._within

    def slots(self, day: int) -> int:
        """Return the matching slots of a matching day."""
        if self.interval == 1 or self.slot == DAY:
            return self._allowed
        first = (self.anchor - day * self.per_day) % self.interval
        return self._allowed & self._comb << first if first < self.per_day else 0

    def days(self) -> tuple[list[int], int]:
        """Return the days with a matching slot, modulo the period that comes with them.

        Slot x of day d is an INTERVAL-th one if d * per_day + x = anchor, modulo INTERVAL: solved for d.
        """
        common = gcd(self.per_day, self.interval)
        period = self.interval // common
        inverse = pow(self.per_day // common, -1, period)
        allowed = f"{_folded(self._allowed, self.per_day, self.interval):0{self.per_day}b}"[::-1]
        anchor, first = divmod(self.anchor, common)
        slots = (x for x, flag in enumerate(allowed[first : self.interval : common]) if flag == "1")
        return [(anchor - x) * inverse % period for x in slots], period

    def time_from(self, second: int, slots: int, offsets: Sequence[int]) -> int:
        """Return the first matching second not before this one, or -1."""
        slot, rest = divmod(second, self.slot)
        slots >>= slot
        if slots & 1 and (at := bisect_left(offsets, rest)) < len(offsets):
            return slot * self.slot + offsets[at]
        slots &= -2
        return (slot + _lowest(slots)) * self.slot + offsets[0] if slots else -1

    def time_upto(self, second: int, slots: int, offsets: Sequence[int]) -> int:
        """Return the last matching second not after this one, or -1."""
        slot, rest = divmod(second, self.slot)
        if slots >> slot & 1 and (at := bisect_right(offsets, rest)):
            return slot * self.slot + offsets[at - 1]
        slots &= (1 << slot) - 1
        return (slots.bit_length() - 1) * self.slot + offsets[-1] if slots else -1

    def times_before(self, second: int, slots: int, offsets: Sequence[int]) -> int:
        slot, rest = divmod(second, self.slot)
        here = bisect_left(offsets, rest) if slots >> slot & 1 else 0
        return (slots & (1 << slot) - 1).bit_count() * len(offsets) + here

    def ticks_before(self, wall: int) -> int:
        """Return how many matches lie before ``wall``, from DTSTART's slot on, when only INTERVAL decides."""
        ticks, rest = divmod(wall - self.anchor * self.slot, self.interval * self.slot)
        return ticks * len(self.offsets) + bisect_left(self.offsets, rest)


class _Calendar:
    """The matching days, as one mask per year with bit 0 for New Year's Day."""

    def __init__(self, rule: Rule, start: int, clock: _Clock) -> None:
        self._rule = rule
        self._offsets = clock.offsets
        self.selects = bool(rule.by_set_pos) and rule.freq in _LONG
        self._shapes: dict[_Shape, tuple[int, dict[int, list[int]]]] = {}
        at = _date(start)
        self._month = at.year * 12 + at.month - 1
        self._period, self._recurring = 1, b""
        if rule.freq is Frequency.WEEKLY:
            week = start // DAY - (at.weekday() - rule.week_start) % 7
            self._period = 7 * rule.interval
            self._recurring = _recurring([(week + day) % self._period for day in range(7)], self._period)
        elif rule.freq not in _LONG:
            days, self._period = clock.days()
            self._recurring = _recurring(days, self._period)

    def days(self, number: int) -> int:
        """Return the days of a year on which anything matches."""
        first, shape = _year(number)
        mask, _ = self._shapes.get(shape) or self._read(number)
        interval = self._rule.interval
        if self._recurring:
            byte, bit = divmod(first % self._period, 8)
            return mask & int.from_bytes(self._recurring[byte : byte + _SLICE // 8], "little") >> bit
        if self._rule.freq is Frequency.YEARLY:
            return mask if (number - self._month // 12) % interval == 0 else 0
        if self._rule.freq is Frequency.MONTHLY and interval > 1:
            months = _months(shape.length)
            return mask & sum(_span(months[at]) for at in range((self._month - number * 12) % interval, 12, interval))
        return mask

    def selected(self, day: int) -> list[int]:
        """Return the times that BYSETPOS chose on a matching day."""
        number = _year_number(day)
        first, shape = _year(number)
        return (self._shapes.get(shape) or self._read(number))[1][day - first]

    def _read(self, number: int) -> tuple[int, dict[int, list[int]]]:
        shape = _year(number).shape
        selection = self._select(number) if self.selects else {}
        mask = _mask(selection) if self.selects else _matching(self._rule, shape)
        self._shapes[shape] = mask, selection
        return mask, selection

    def _select(self, number: int) -> dict[int, list[int]]:
        """Apply BYSETPOS to each period of a year, to weeks together with their days in the years beside it."""
        before, shape, after = (_year(near).shape for near in (number - 1, number, number + 1))
        wide = _matching(self._rule, before) >> before.length - 7 | _matching(self._rule, shape) << 7
        wide |= _matching(self._rule, after) << 7 + shape.length
        chosen: dict[int, list[int]] = {}
        for period in self._periods(shape):
            days = [day for day in period if wide >> day + 7 & 1]
            instances = range(len(days) * len(self._offsets))
            for at in sorted(set(_pick(instances, self._rule.by_set_pos))):
                day, time = divmod(at, len(self._offsets))
                if 0 <= days[day] < shape.length:
                    chosen.setdefault(days[day], []).append(self._offsets[time])
        return chosen

    def _periods(self, shape: _Shape) -> Sequence[range]:
        if self._rule.freq is Frequency.YEARLY:
            return [range(shape.length)]
        if self._rule.freq is Frequency.MONTHLY:
            return _months(shape.length)
        lead = (shape.weekday - self._rule.week_start) % 7
        return [range(first, first + 7) for first in range(-lead, shape.length, 7)]


class _Shape(NamedTuple):
    """All there is to know of a year: the weekday of New Year, and how long it and its neighbours are."""

    weekday: int
    before: int
    length: int
    after: int


class _Year(NamedTuple):
    first: int  # days since the epoch
    shape: _Shape


@lru_cache(maxsize=8192)
def _year(number: int) -> _Year:
    past = number - 1
    first = past * 365 + past // 4 - past // 100 + past // 400 - 719_162
    return _Year(first, _Shape((first + 3) % 7, _length(past), _length(number), _length(number + 1)))


def _length(year: int) -> int:
    return 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365


def _year_number(day: int) -> int:
    number = _FIRST_YEAR + day * 400 // 146_097  # right, or one too late around New Year
    return number - 1 if day < _year(number).first else number + (day >= _year(number + 1).first)


@lru_cache(maxsize=2)
def _months(length: int) -> Sequence[range]:
    ends = accumulate((31, length - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), initial=0)
    return [range(first, end) for first, end in pairwise(ends)]


def _matching(rule: Rule, shape: _Shape) -> int:
    """Return the days of a year that every BY part about days agrees to."""
    days = range(shape.length)
    months = _months(shape.length)
    mask = _span(days)
    if rule.by_month:
        mask &= sum(_span(months[month - 1]) for month in rule.by_month)
    if rule.by_month_day:
        mask &= _mask(day for month in months for day in _pick(month, rule.by_month_day))
    if rule.by_year_day:
        mask &= _mask(_pick(days, rule.by_year_day))
    if rule.by_week_no:
        mask &= _mask(day for day in _numbered_weeks(rule, shape) if day in days)
    if rule.by_day:
        within = months if rule.freq is Frequency.MONTHLY or rule.by_month else [days]
        mask &= _mask(day for part in within for day in _weekdays(rule, shape, part))
    return mask


def _numbered_weeks(rule: Rule, shape: _Shape) -> Iterator[int]:
    """Give the days of the weeks chosen, counted from New Year, of this year and the two beside it.

    Week 1 is the first with four days in its year, so a week may reach into a year that it is not of.
    """
    new_years = (-shape.before, 0, shape.length, shape.length + shape.after)
    first_weeks = [day + 3 - (shape.weekday + day + 3 - rule.week_start) % 7 for day in new_years]
    for first, end in pairwise(first_weeks):
        for week in _pick(range(first, end, 7), rule.by_week_no):
            yield from range(week, week + 7)


def _weekdays(rule: Rule, shape: _Shape, within: range) -> Iterator[int]:
    for weekday, nth in rule.by_day:
        first = within.start + (weekday - shape.weekday - within.start) % 7
        candidates = range(first, within.stop, 7)
        yield from _pick(candidates, (nth,)) if nth else candidates


def _recurring(days: list[int], period: int) -> bytes:
    """Return a bit for each day of the period, and of a year more so that a year is one slice; b"" if all match."""
    if len(days) == period:
        return b""
    size = min(period, _DAYS)
    marks = bytearray(b"0") * size
    for day in days:
        if day < size:
            marks[day] = ord("1")
    marks *= 1 + -(-_SLICE // size)
    del marks[size + _SLICE :]
    return int(marks[::-1], 2).to_bytes(len(marks) // 8 + 1, "little")


@lru_cache(maxsize=64)
def _spread(slots: int, apart: int) -> int:
    return masks.spread(slots, apart)


def _folded(mask: int, width: int, interval: int) -> int:
    """Lay the stretches of ``interval`` bits over each other, half of them at a time."""
    while width > interval:
        width = -(-width // (2 * interval)) * interval
        mask = mask & (1 << width) - 1 | mask >> width
    return mask


def _pick(items: Sequence[_T], positions: Iterable[int]) -> Iterator[_T]:
    """Give the items at these positions: from 1 on, or from -1 backwards; those beyond are left out."""
    for position in positions:
        if abs(position) <= len(items):
            yield items[position - 1 if position > 0 else position]


def _span(days: range) -> int:
    return (1 << days.stop) - (1 << days.start)


def _mask(days: Iterable[int]) -> int:
    mask = 0
    for day in days:
        mask |= 1 << day
    return mask


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield _lowest(mask)
        mask &= mask - 1


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _date(wall: int) -> datetime:
    return _EPOCH + timedelta(days=min(wall // DAY, _DAYS - 1))
