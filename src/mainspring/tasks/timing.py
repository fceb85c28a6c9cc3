"""When a task runs, as its author writes it: ``cron(...)``, ``every(...)``, ``at(...)``, with what belongs to that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.fields import Dialect
from mainspring.domain.firing import Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.schedule import At, Cron, Every, Schedule
from mainspring.domain.timetable import Dst

_E = TypeVar("_E", Overlaps, Misfires)
_OVERLAP: Final = Overlap()
_MISFIRE: Final = Misfire()


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A schedule, and what to do when slots were missed or runs would overlap."""

    schedule: Schedule
    overlap: Overlap = _OVERLAP
    misfire: Misfire = _MISFIRE
    jitter: timedelta = timedelta(0)


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    dialect: Dialect | str = Dialect.UNIX,
    overlap: Overlap | str = "skip",
    misfire: Misfire | str = "all",
    jitter: timedelta | str = timedelta(0),
    dst: Dst | None = None,
) -> When:
    """Run by a cron expression.

    >>> cron("30 2 * * *", tz="Europe/London", misfire="latest").schedule.timezone
    'Europe/London'
    """
    schedule = Schedule(specs=(Cron(expression, Dialect(dialect)),), timezone=tz, dst=dst or Dst())
    return _when(schedule, overlap, misfire, jitter)


def every(
    interval: timedelta | str,
    *,
    overlap: Overlap | str = "skip",
    misfire: Misfire | str = "all",
    jitter: timedelta | str = timedelta(0),
) -> When:
    """Run at a fixed interval of elapsed time.

    >>> every("1h", jitter="2m").jitter
    datetime.timedelta(seconds=120)
    """
    return _when(Schedule(specs=(Every(duration_of(interval, "every")),)), overlap, misfire, jitter)


def at(instant: datetime | str, *, misfire: Misfire | str = "all") -> When:
    """Run once, at an instant with an offset.

    >>> at("2027-03-14T09:00:00Z").schedule.specs[0].instant.isoformat()
    '2027-03-14T09:00:00+00:00'
    """
    return _when(Schedule(specs=(At(instant_of(instant, field="at")),)), "skip", misfire, timedelta(0))


def _when(schedule: Schedule, overlap: Overlap | str, misfire: Misfire | str, jitter: timedelta | str) -> When:
    return When(
        schedule=schedule,
        overlap=Overlap(policy=_chosen(Overlaps, overlap, "overlap")) if isinstance(overlap, str) else overlap,
        misfire=Misfire(policy=_chosen(Misfires, misfire, "misfire")) if isinstance(misfire, str) else misfire,
        jitter=duration_of(jitter, "jitter"),
    )


def _chosen(kind: type[_E], word: str, field: str) -> _E:
    try:
        return kind(word)
    except ValueError:
        allowed = f"use {', '.join(kind)}"
        raise InvalidRequest(f'"{word}" is no choice', field=field, value=word, allowed=allowed) from None


def duration_of(given: timedelta | str, field: str) -> timedelta:
    """Read a length of time, as ``10m`` or as a timedelta."""
    return parse_duration(given, field=field) if isinstance(given, str) else given


def instant_of(given: datetime | str, *, field: str) -> datetime:
    """Read an instant, as RFC 3339 or as an aware datetime.

    Raises:
        InvalidRequest: it is none, or has no offset.
    """
    try:
        instant = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        allowed = "write it as 2026-11-15T09:30:00Z"
        raise InvalidRequest(f'"{given}" is not an instant', field=field, value=given, allowed=allowed) from None
    if instant.tzinfo is None:
        allowed = "add Z for UTC, or one such as +01:00"
        raise InvalidRequest(f'"{given}" has no offset', field=field, value=str(given), allowed=allowed)
    return instant
