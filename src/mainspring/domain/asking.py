"""What may be asked of the ledger: a run, a change, a list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Self

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import JobId, Kind
from mainspring.domain.job import Job, JobState, check_name, check_priority
from mainspring.domain.run import DeadReason, State

_LAST_YEAR: Final = 9980  # so that every deadline after it is on the calendar
LONGEST_DELAY: Final = timedelta(days=3650)


class Request(NamedTuple):
    """One run that is asked for. A tuple, because there may be very many."""

    key: str | None = None  # None: a run of its own, whatever else was asked for
    payload: str | None = None  # as JSON; None: the job's
    due_at: datetime | None = None  # None: now, or after the delay
    delay: timedelta | None = None
    priority: int | None = None  # None: the job's
    pool: str | None = None  # None: the job's

    def checked(self) -> Self:
        """Return this request if it can be met.

        Raises:
            InvalidRequest: a field is out of bounds.
        """
        for field, value in (("key", self.key), ("pool", self.pool)):
            if value is not None:
                check_name(value, field)
        if self.priority is not None:
            check_priority(self.priority)
        if self.due_at is not None and (self.due_at.tzinfo is None or not 1970 <= self.due_at.year <= _LAST_YEAR):
            allowed = f"use an aware datetime from 1970 to {_LAST_YEAR}"
            raise InvalidRequest(f"{self.due_at} is no instant", field="at", value=str(self.due_at), allowed=allowed)
        if self.delay is not None and not timedelta(0) <= self.delay <= LONGEST_DELAY:
            allowed = f"use 0 to {LONGEST_DELAY.days} days"
            raise InvalidRequest(
                f"{self.delay} is out of bounds", field="delay", value=str(self.delay), allowed=allowed
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change of a job; what is not given stays as it is."""

    definition: Job | None = None
    state: JobState | None = None
    if_version: int | None = None  # refuse if somebody else was quicker
    only_from: JobState | None = None  # refuse from any other state
    resume_at: datetime | None = None  # a pause that ends by itself
    author: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs; what is not given does not matter."""

    states: tuple[JobState, ...] = ()
    task: str | None = None
    prefix: str | None = None  # of the name
    owner: str | None = None
    tags: tuple[str, ...] = ()  # all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs, by slot; what is not given does not matter."""

    job: JobId | None = None
    states: tuple[State, ...] = ()
    pool: str | None = None
    kind: Kind | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which of the open dead letters, by when they died; what is not given does not matter."""

    job: JobId | None = None
    reason: DeadReason | None = None
    since: datetime | None = None
    until: datetime | None = None
