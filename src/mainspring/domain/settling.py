"""Settling: what becomes of a run when one of its attempts ends.

Promise. Whatever an attempt reports, ``plan_settle`` answers with one event of the transition
table, and with the same one whenever and wherever it is asked. It raises nothing: an outcome
that could not be settled would leave its run running for ever.

The rules, in the order in which they win.
  succeeded           is succeeded, also if a cancel was asked for: a cancel is a request, the work was done
  cancel requested    any other end is cancelled, and never tried again
  discarded           dead, refused
  error not retried   dead, refused
  failed, timed out   one failure more; waits for its next attempt, or dead, exhausted
  completed           the same, where it is still to be settled: its own transaction was not committed
  lost                one failure more, or a task that kills its workers would kill them for ever; queued
                      again at once, up to the budget or the third failure, whichever is later: a job without
                      retries asked for none after an error, not to be lost with a machine. Else dead, lost:
                      at the first loss if on_loss is "fail"
  snoozed, given back the budget is as it was
In all of these an attempt that could not start before the deadline is not waited for: dead, expired.

What is written about the attempt is what the attempt did; what became of the run may differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple, TypeAlias, assert_never
from uuid import UUID

from mainspring.domain.ids import JobId, RunId
from mainspring.domain.retry import LONGEST_WAIT, RetryPolicy
from mainspring.domain.run import FINAL, DeadReason, Event, State, after

LONGEST_MESSAGE: Final = 4_000
LONGEST_TRACEBACK: Final = 16_000
MOST_BASES: Final = 50
MOST_LOSSES: Final = 3  # of a job that allows fewer failures


class OnLoss(StrEnum):
    """What a job wants when the worker of a run is declared dead."""

    RETRY = "retry"  # user code starts at least once
    FAIL = "fail"  # user code starts at most once


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """An error as it is kept: text that any database can store, and no more of it than a person reads."""

    type: str  # with its module, as in app.mail.Bounced
    message: str
    bases: tuple[str, ...] = ()  # the types it inherits from, nearest first, with their modules
    traceback: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", _storable(self.type)[:LONGEST_MESSAGE])
        object.__setattr__(self, "message", _storable(self.message)[:LONGEST_MESSAGE])
        object.__setattr__(self, "bases", tuple(map(_storable, self.bases[:MOST_BASES])))
        object.__setattr__(self, "traceback", _storable(self.traceback)[-LONGEST_TRACEBACK:])  # its end says where


class JsonText(str):
    """A result that is JSON already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The task returned."""

    word: ClassVar[str] = "succeeded"
    result: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The task raised an error, or asked for another try."""

    word: ClassVar[str] = "failed"
    error: ErrorInfo
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The task was stopped because its time was up."""

    word: ClassVar[str] = "timed_out"


@dataclass(frozen=True, slots=True)
class Discarded:
    """The task says that trying again is of no use."""

    word: ClassVar[str] = "discarded"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The task is not ready to work yet, or the worker does not know it: another attempt later, free of charge."""

    word: ClassVar[str] = "snoozed"
    delay: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The worker is stopping politely and returned the run unfinished."""

    word: ClassVar[str] = "given_back"


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker was declared dead with the run in hand."""

    word: ClassVar[str] = "lost"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task stopped because it was told to."""

    word: ClassVar[str] = "cancelled"


@dataclass(frozen=True, slots=True)
class Completed:
    """The task recorded its own success in a transaction that it then committed; if it did not, that is a failure."""

    word: ClassVar[str] = "completed"


class Lease(NamedTuple):
    """One attempt in hand, as whoever settles it names it."""

    run_id: RunId
    job_id: JobId
    attempt: int
    token: UUID
    failures: int
    joined: bool  # a successor may be waiting for this run, or join it at this moment


_Unfinished: TypeAlias = Failed | TimedOut | Discarded | Snoozed | GivenBack | Lost | Cancelled | Completed
Outcome: TypeAlias = Succeeded | _Unfinished


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRun:
    """As much of a run, and of the job version it was fired under, as settling needs."""

    id: str  # seeds the jitter of its retries
    attempt: int
    failures: int  # before this attempt
    first_due: datetime  # when it could first have started; max_age counts from here
    deadline: datetime | None  # no attempt starts at or after this
    retry: RetryPolicy
    on_loss: OnLoss
    cancel_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What one attempt's end does to its run."""

    event: Event
    reason: DeadReason | None  # if and only if it is dead now
    failures: int  # this attempt included
    next_at: datetime | None  # if and only if it waits; a run that is queued again keeps its place in the queue
    attempt_outcome: str  # what the attempt did, for its own row
    state: State = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", after(State.RUNNING, self.event))


@lru_cache(maxsize=100)
def succeeded(failures: int) -> Settlement:
    """Return what a success does, whatever else the run is: the same for all, after so many failures."""
    return Settlement(event=Event.SUCCEED, reason=None, failures=failures, next_at=None, attempt_outcome=Succeeded.word)


def plan_settle(run: RunningRun, outcome: Outcome, *, now: datetime) -> Settlement:
    """Decide what becomes of ``run``; ``now`` is the database's time under the run's lock."""
    if isinstance(outcome, Succeeded):
        return succeeded(run.failures)
    failures = run.failures + isinstance(outcome, Failed | TimedOut | Lost | Completed)
    event, reason, next_at = _decide(run, outcome, failures, now)
    final = after(State.RUNNING, event) in FINAL
    if not final and run.deadline is not None and (next_at or now) >= run.deadline:
        event, reason, next_at = Event.EXHAUST, DeadReason.EXPIRED, None
    return Settlement(event=event, reason=reason, failures=failures, next_at=next_at, attempt_outcome=outcome.word)


# The event, why it is dead, and when it is tried again.
def _decide(
    run: RunningRun, outcome: _Unfinished, failures: int, now: datetime
) -> tuple[Event, DeadReason | None, datetime | None]:
    match outcome:
        case _ if run.cancel_requested:
            return Event.CANCEL, None, None
        case Cancelled():
            return Event.CANCEL, None, None
        case Discarded():
            return Event.EXHAUST, DeadReason.REFUSED, None
        case Failed(error=error) if run.retry.refuses((error.type, *error.bases)):
            return Event.EXHAUST, DeadReason.REFUSED, None
        case Failed() | TimedOut() | Completed():
            asked = outcome.retry_after if isinstance(outcome, Failed) else None
            next_at = now + run.retry.delay_after(failures, seed=run.id, asked=asked)
            if _spent(run, failures, next_at):
                return Event.EXHAUST, DeadReason.EXHAUSTED, None
            return Event.FAIL, None, next_at
        case Lost():
            if run.on_loss is OnLoss.FAIL or _spent(run, failures, now, at_least=MOST_LOSSES):
                return Event.EXHAUST, DeadReason.LOST, None
            return Event.LOSE, None, None
        case Snoozed(delay=delay):  # one that is too long wakes early, and may snooze again
            return Event.SNOOZE, None, now + min(max(delay, timedelta(0)), LONGEST_WAIT)
        case GivenBack():
            return Event.GIVE_BACK, None, None
        case _:
            assert_never(outcome)


def _spent(run: RunningRun, failures: int, next_at: datetime, *, at_least: int = 0) -> bool:
    old = run.retry.max_age is not None and next_at - run.first_due > run.retry.max_age
    return old or failures >= max(run.retry.budget, at_least)


def _storable(text: str) -> str:
    """Return ``text`` without what Postgres cannot hold: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
