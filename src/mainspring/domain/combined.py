"""Timetables made of timetables: the union of several, and one without another.

Work is counted, never timed: a search that asks too many exclusions in a row is given up, with the same answer on every
machine. What is crowded is dealt with by the day, as masks (``masks.py``): a per-second schedule that excludes all but
one second of each hour costs a look at 24 bits a day, not at 86,400 slots and each exclusion for every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import lru_cache
from typing import Final, Protocol

from mainspring.domain import masks
from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.fields import FIRST_YEAR, Expression, month_shape
from mainspring.domain.timetable import LATEST, Single, Timetable
from mainspring.domain.zones import DAY, Zone

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
MANY: Final = 8  # exclusions that are better asked together
_MOST_EXCLUDED: Final = 10_000  # candidates in a row; stretches and masks make real exclusions a few dozen
_MOST_WORK: Final = 25_000  # exclusions asked in one search; 10 to 40 ms
_MASK_WORK: Final = 16  # a day of an exclusion costs as much as asking about so many candidates
_CROWDED: Final = 32  # candidates left out in one day; more than its hours
_MOST_REMEMBERED: Final = 4096
_DAY: Final = DAY * 1000


class Union:
    """Every instant that any of the parts names, once."""

    def __init__(self, parts: Sequence[Timetable]) -> None:
        self._parts = parts
        # Masks hold whole seconds; instants between them are counted apart.
        self._between = {part.instant for part in parts if isinstance(part, Single) and part.instant % 1000}
        self.whole_minutes = all(part.whole_minutes for part in parts)

    def after(self, instant: int) -> int | None:
        return min((found for part in self._parts if (found := part.after(instant)) is not None), default=None)

    def before(self, instant: int) -> int | None:
        return max((found for part in self._parts if (found := part.before(instant)) is not None), default=None)

    def count(self, start: int, end: int) -> int:
        """Count the busiest part, then walk the others for what it does not name; or day by day, if that is less."""
        start, end = max(start, 0), min(end, LATEST * 1000)
        if start >= end:
            return 0
        counts = {part: part.count(start, end) for part in self._parts}
        parts = sorted(counts, key=lambda part: counts[part], reverse=True)
        total = counts[parts[0]]
        if sum(counts.values()) - total > 8 * ((end - start) // _DAY + 2):
            return sum(start <= instant < end for instant in self._between) + _count_by_day(self, start, end)
        for index, part in enumerate(parts[1:], 1):
            total += sum(not any(_names(other, found) for other in parts[:index]) for found in _walk(part, start, end))
        return total

    def seconds(self, day: int) -> int:
        mask = 0
        for part in self._parts:
            mask |= part.seconds(day)
        return mask

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        for part in self._parts:
            if _names(part, instant):
                return part.stretch(instant, whole_minutes=whole_minutes)
        return instant, instant + 1


class Exclusion(Protocol):
    """What a schedule leaves out."""

    work: int  # of asking whether an instant is covered, in lookups of one timetable
    day_work: int  # of a day as a mask

    def covers(self, instant: int) -> bool: ...

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        """Return a ``[start, end)`` around a covered instant that is covered whole."""

    def next_from(self, instant: int) -> int | None:
        """Return a time from ``instant`` on before which nothing is covered; None: nothing ever again."""

    def seconds(self, day: int) -> int:
        """Return which seconds of a UTC day are covered, as a mask."""


class Without:
    """The instants of one timetable that no exclusion covers. All of them are whole seconds.

    Candidates are asked about one by one, until several of one day are left out: then that day becomes a mask.
    """

    def __init__(self, base: Timetable, exclusions: Sequence[Exclusion]) -> None:
        self._base = base
        self._exclusions = exclusions
        self._asking = sum(exclusion.work for exclusion in exclusions)
        self._masking = 1 + sum(exclusion.day_work for exclusion in exclusions)
        self._crowded: tuple[int, int] = (-1, 0)  # the last such day, and what is left of it; one read, one write
        self.work = 0  # so far
        self.whole_minutes = base.whole_minutes

    def after(self, instant: int) -> int | None:
        found = self._base.after(instant)
        self.work += self._asking
        if found is None or (found // _DAY != self._crowded[0] and self._covered(found) is None):
            return found  # nearly always
        return self._search(instant, forwards=True)

    def before(self, instant: int) -> int | None:
        found = self._base.before(instant)
        self.work += self._asking
        if found is None or (found // _DAY != self._crowded[0] and self._covered(found) is None):
            return found
        return self._search(instant, forwards=False)

    def count(self, start: int, end: int) -> int:
        total, instant = 0, start - 1
        while (found := self.after(instant)) is not None and found < end:
            upcoming = [exclusion.next_from(found + 1) for exclusion in self._exclusions]
            clear = min((at for at in upcoming if at is not None and at < end), default=end)
            midnight = min((found // _DAY + 1) * _DAY, end)
            if clear >= midnight:
                total += self._base.count(found, clear)  # no exclusion begins before: count it at once
            else:
                clear = midnight
                total += _count_by_day(self, found, clear)
            instant = clear - 1
        return total

    def seconds(self, day: int) -> int:
        known, left = self._crowded
        if known == day:
            return left
        covered = 0
        for exclusion in self._exclusions:
            covered |= exclusion.seconds(day)
        return self._base.seconds(day) & ~covered

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        return instant, instant + 1

    def _covered(self, instant: int) -> tuple[int, int] | None:
        for exclusion in self._exclusions:
            if exclusion.covers(instant):
                return exclusion.stretch(instant, whole_minutes=self._base.whole_minutes)
        return None

    def _search(self, instant: int, *, forwards: bool) -> int | None:
        find, look = (self._base.after, masks.first_from) if forwards else (self._base.before, masks.last_upto)
        spent, here, last = 0, 0, -1  # candidates left out in the last day looked at
        for _ in range(_MOST_EXCLUDED):
            found = find(instant)
            if found is None:
                return None
            day = found // _DAY
            crowded, left = self._crowded
            if day == crowded:
                second = look(left, found // 1000 % DAY)
                if second >= 0:
                    return (day * DAY + second) * 1000
                start, end = day * _DAY, (day + 1) * _DAY
                here, last = _CROWDED - 1, day + 1 if forwards else day - 1  # likely to be another one
                spent += 1
            elif (covered := self._covered(found)) is None:
                return found
            else:
                start, end = covered
                here, last = here + 1 if day == last else 1, day
                spent += self._asking
                self.work += self._asking
                if here >= _CROWDED:
                    self._crowded = day, self.seconds(day)
                    spent += self._masking
                    self.work += self._masking
            if spent > _MOST_WORK:
                break
            instant = end - 1 if forwards else start
        raise self._too_much()

    @staticmethod
    def _too_much() -> InvalidSchedule:
        return InvalidSchedule(
            "leaves out too many slots in a row",
            field="exclude",
            value=None,
            allowed="exclude less, or narrow the schedule itself",
        )


class NamedInstants:
    """Excludes what another timetable names."""

    def __init__(self, timetable: Timetable, *, work: int = 1) -> None:
        self._timetable = timetable
        self.work = work
        self.day_work = work * _MASK_WORK

    def covers(self, instant: int) -> bool:
        return _names(self._timetable, instant)

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        return self._timetable.stretch(instant, whole_minutes=whole_minutes)

    def next_from(self, instant: int) -> int | None:
        return self._timetable.after(instant - 1)

    def seconds(self, day: int) -> int:
        return self._timetable.seconds(day)


class ManyCrons:
    """Excludes what many expressions name; they are asked together for the days of a month at one time of day."""

    def __init__(self, named: Sequence[tuple[Expression, Timetable]], zone: Zone) -> None:
        self._expressions = [(expression, _by_shape(expression)) for expression, _ in named]
        self._timetables = [timetable for _, timetable in named]
        self._zone = zone
        self._days: dict[tuple[int, int, int], int] = {}  # by time of day, year and month
        self.work = 2 + len(named) // 16  # as a month is looked up for some 16 days of it, if only once a day
        self.day_work = _MASK_WORK * len(named)

    def covers(self, instant: int) -> bool:
        second, rest = divmod(instant, 1000)
        if rest or second >= LATEST:
            return False
        piece = self._zone.piece_at(second)
        if not piece.plain:  # a rule about DST may apply
            return any(_names(timetable, instant) for timetable in self._timetables)
        day, time = divmod(second + piece.offset, DAY)
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        month = (time, at.year, at.month)
        days = self._days.get(month)
        if days is None:
            days = self._left_out(*month)
            if len(self._days) >= _MOST_REMEMBERED:
                self._days.clear()
            self._days[month] = days
        return bool(days >> at.day & 1)

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        return instant, instant + 1

    def next_from(self, instant: int) -> int | None:
        found = (timetable.after(instant - 1) for timetable in self._timetables)
        return min((at for at in found if at is not None), default=None)

    def seconds(self, day: int) -> int:
        mask = 0
        for timetable in self._timetables:
            mask |= timetable.seconds(day)
        return mask

    def _left_out(self, time: int, year: int, month: int) -> int:
        minute, second = divmod(time, 60)
        hour, minute = divmod(minute, 60)
        shape, days = month_shape(year, month), 0
        for one, by_shape in self._expressions:
            if (
                one.second.mask >> second & 1
                and one.minute.mask >> minute & 1
                and one.hour.mask >> hour & 1
                and one.month.mask >> month & 1
                and (one.year is None or (year >= FIRST_YEAR and one.year.mask >> year - FIRST_YEAR & 1))
            ):
                days |= by_shape(*shape)
        return days


class LocalDates:
    """Excludes whole days of the wall clock."""

    work = 1
    day_work = _MASK_WORK

    def __init__(self, dates: Iterable[date], zone: Zone) -> None:
        self._days = sorted({day.toordinal() - _EPOCH_ORDINAL for day in dates})
        self._known = frozenset(self._days)
        self._zone = zone

    def covers(self, instant: int) -> bool:
        second = instant // 1000
        return (second + self._zone.piece_at(second).offset) // DAY in self._known

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        second = instant // 1000
        piece = self._zone.piece_at(second)
        midnight = (second + piece.offset) // DAY * DAY - piece.offset
        return max(midnight, piece.start) * 1000, min(midnight + DAY, piece.end) * 1000

    def next_from(self, instant: int) -> int | None:
        # A day early, for offsets from UTC; from there on it is asked slot by slot.
        today = instant // 1000 // DAY
        upcoming = next((day for day in self._days if day >= today - 1), None)
        return None if upcoming is None else max(instant, (upcoming - 1) * DAY * 1000)

    def seconds(self, day: int) -> int:
        midnight, mask = day * DAY, 0
        second = midnight
        while second < midnight + DAY:
            start, end = (at // 1000 for at in self.stretch(second * 1000, whole_minutes=False))
            if self.covers(second * 1000):
                mask |= masks.stretch(max(start, midnight) - midnight, min(end, midnight + DAY) - midnight)
            second = end
        return mask


def _by_shape(expression: Expression) -> Callable[[int, int], int]:
    return lru_cache(maxsize=None)(expression.day_mask)  # 28 shapes of a month


def _count_by_day(timetable: Timetable, start: int, end: int) -> int:
    """Count the instants of ``[start, end)`` that are whole seconds, as masks of its days."""
    first, last = -(-start // 1000), -(-end // 1000)  # in seconds
    total = 0
    for day in range(first // DAY, -(-last // DAY)):
        mask = timetable.seconds(day)
        if first > day * DAY:
            mask &= ~masks.stretch(0, first - day * DAY)
        if last < (day + 1) * DAY:
            mask &= masks.stretch(0, last - day * DAY)
        total += mask.bit_count()
    return total


def _names(timetable: Timetable, instant: int) -> bool:
    return timetable.after(instant - 1) == instant


def _walk(timetable: Timetable, start: int, end: int) -> Iterable[int]:
    found = timetable.after(start - 1)
    while found is not None and found < min(end, LATEST * 1000):
        yield found
        found = timetable.after(found)
