"""Timetables made of timetables: the union of several, and one without another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final, Protocol

from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.timetable import LATEST, Timetable
from mainspring.domain.zones import DAY, Zone

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MOST_EXCLUDED: Final = 10_000  # candidates in a row; about 40 ms. Stretches make real exclusions a few dozen


class Union:
    """Every instant that any of the parts names, once."""

    def __init__(self, parts: Sequence[Timetable]) -> None:
        self._parts = parts
        self.whole_minutes = all(part.whole_minutes for part in parts)

    def after(self, instant: int) -> int | None:
        return min((found for part in self._parts if (found := part.after(instant)) is not None), default=None)

    def before(self, instant: int) -> int | None:
        return max((found for part in self._parts if (found := part.before(instant)) is not None), default=None)

    def count(self, start: int, end: int) -> int:
        """Count the busiest part, then walk the others for what it does not name."""
        parts = sorted(self._parts, key=lambda part: part.count(start, end), reverse=True)
        total = parts[0].count(start, end)
        for index, part in enumerate(parts[1:], 1):
            total += sum(not any(_names(other, found) for other in parts[:index]) for found in _walk(part, start, end))
        return total

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        for part in self._parts:
            if _names(part, instant):
                return part.stretch(instant, whole_minutes=whole_minutes)
        return instant, instant + 1


class Exclusion(Protocol):
    """What a schedule leaves out."""

    def covers(self, instant: int) -> bool: ...

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        """Return a ``[start, end)`` around a covered instant that is covered whole."""

    def next_from(self, instant: int) -> int | None:
        """Return a time from ``instant`` on before which nothing is covered; None: nothing ever again."""


class Without:
    """The instants of one timetable that no exclusion covers."""

    def __init__(self, base: Timetable, exclusions: Sequence[Exclusion]) -> None:
        self._base = base
        self._exclusions = exclusions
        self.whole_minutes = base.whole_minutes

    def after(self, instant: int) -> int | None:
        for _ in range(_MOST_EXCLUDED):
            found = self._base.after(instant)
            if found is None or (covered := self._covered(found)) is None:
                return found
            instant = covered[1] - 1
        raise self._too_much()

    def before(self, instant: int) -> int | None:
        for _ in range(_MOST_EXCLUDED):
            found = self._base.before(instant)
            if found is None or (covered := self._covered(found)) is None:
                return found
            instant = covered[0]
        raise self._too_much()

    def count(self, start: int, end: int) -> int:
        total, instant = 0, start - 1
        while (found := self.after(instant)) is not None and found < end:
            upcoming = [exclusion.next_from(found + 1) for exclusion in self._exclusions]
            clear = min((at for at in upcoming if at is not None and at < end), default=end)
            total += self._base.count(found, clear)  # no exclusion begins before: count it at once
            instant = clear - 1
        return total

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        del whole_minutes
        return instant, instant + 1

    def _covered(self, instant: int) -> tuple[int, int] | None:
        for exclusion in self._exclusions:
            if exclusion.covers(instant):
                return exclusion.stretch(instant, whole_minutes=self._base.whole_minutes)
        return None

    @staticmethod
    def _too_much() -> InvalidSchedule:
        return InvalidSchedule(
            f"leaves out {_MOST_EXCLUDED} slots in a row",
            field="exclude",
            value=None,
            allowed="exclude less, or narrow the schedule itself",
        )


class NamedInstants:
    """Excludes what another timetable names."""

    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable

    def covers(self, instant: int) -> bool:
        return _names(self._timetable, instant)

    def stretch(self, instant: int, *, whole_minutes: bool) -> tuple[int, int]:
        return self._timetable.stretch(instant, whole_minutes=whole_minutes)

    def next_from(self, instant: int) -> int | None:
        return self._timetable.after(instant - 1)


class LocalDates:
    """Excludes whole days of the wall clock."""

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


def _names(timetable: Timetable, instant: int) -> bool:
    return timetable.after(instant - 1) == instant


def _walk(timetable: Timetable, start: int, end: int) -> Iterable[int]:
    found = timetable.after(start - 1)
    while found is not None and found < min(end, LATEST * 1000):
        yield found
        found = timetable.after(found)
