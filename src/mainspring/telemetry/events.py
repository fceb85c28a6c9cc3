"""Typed events in the past tense, and the hub that hands them on.

An event says what has happened, after it has: emitted when the transaction is committed, not before.
It carries counts and bounded words for metrics; ids only where a person will look for that one thing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistered:
    node: UUID
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The API can be reached."""

    url: str
    authenticated: bool  # False: no key is asked for, and only this machine can reach it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeclaredDead:
    """A peer whose lease had run out was declared dead, for good, by this node."""

    node: UUID
    by: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipTaken:
    node: UUID
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipLost:
    node: UUID
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """One batch of due jobs was decided."""

    engine: str
    jobs: int
    runs: int  # slots that became runs
    skips: int  # slots that were decided otherwise, with a reason in the ledger
    lag_p50: timedelta  # from the slot to the lock, over the runs
    lag_max: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    pool: str
    runs: int


@dataclass(slots=True, kw_only=True)  # not frozen, at a third of the cost: there is one for every attempt
class Started:
    """A task began to work on one attempt."""

    run: UUID
    job: UUID
    task: str
    pool: str
    attempt: int
    slot: datetime | None  # None: asked for by hand
    late: timedelta  # behind the slot, or behind the request


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One batch of outcomes was written."""

    succeeded: int
    failed: int  # attempts that will be repeated
    dead: int  # runs that will not
    cancelled: int
    late: int  # results of replaced attempts: recorded, not applied


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStalled:
    """The event loop of this process did not turn for a while: a task on it blocks or burns the CPU."""

    lasted: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    kind: str  # what was left behind: a bounded word
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuarantined:
    """A job whose plan raised was set aside, alone."""

    job: UUID
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStarted:
    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInterrupted:
    """Something a service needs could not be reached."""

    service: str
    error: str
    again_in: timedelta | None  # None: not again, everything is stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFailed:
    """A service raised what nobody expects, and everything ends."""

    service: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStopped:
    service: str
    forced: bool  # it was cancelled: by a second signal, the end of its grace, or the failure of another


AnyEvent: TypeAlias = (
    NodeRegistered
    | Listening
    | NodeDeclaredDead
    | LeadershipTaken
    | LeadershipLost
    | Fired
    | Claimed
    | Started
    | Settled
    | LoopStalled
    | Recovered
    | JobQuarantined
    | ServiceStarted
    | ServiceInterrupted
    | ServiceFailed
    | ServiceStopped
)
Subscriber: TypeAlias = Callable[[AnyEvent], None]


class Events:
    """The hub: each event goes to every subscriber, in the order they came, before ``emit`` returns."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscriptions = tuple(map(_Subscription, subscribers))

    def emit(self, event: AnyEvent) -> None:
        for subscription in self._subscriptions:
            subscription.hand(event)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Add a subscriber and return the function that takes it away again."""
        added = _Subscription(subscriber)
        self._subscriptions = (*self._subscriptions, added)

        def unsubscribe() -> None:
            self._subscriptions = tuple(kept for kept in self._subscriptions if kept is not added)

        return unsubscribe


class _Subscription:
    """One subscriber, whose errors stay its own: reported the first time, then swallowed."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._reported = False

    def hand(self, event: AnyEvent) -> None:
        try:
            self._subscriber(event)
        except Exception:
            if not self._reported:
                self._reported = True
                _logger.exception("a subscriber failed on %s; further failures of it are not shown", event)
