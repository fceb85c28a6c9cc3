"""What can be seen of jobs, runs, dead letters and nodes: the same shapes in SDK, CLI and API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import Job, JobState, Json
from mainspring.domain.run import DeadReason, State

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_T]):
    """Some of a list, and where the rest begins."""

    items: tuple[_T, ...]
    next: str | None  # None: that was all


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as it is now."""

    id: JobId
    name: str
    tenant: str
    state: JobState
    version: int
    definition: Job
    next_fire_at: datetime | None
    last_slot: datetime | None
    resume_at: datetime | None  # a paused job goes on by itself then
    fired: int
    created_at: datetime
    changed_at: datetime
    author: str
    reason: str  # of the last change


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatusView:
    """How a job stands, without what it is."""

    id: JobId
    name: str
    state: JobState
    version: int
    next_fire_at: datetime | None
    last_slot: datetime | None
    resume_at: datetime | None
    fired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """What a job was from an instant on."""

    number: int
    state: JobState
    definition: Job
    effective_at: datetime
    author: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorView:
    """Why an attempt failed."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One try of a run."""

    number: int
    worker: NodeId | None
    started_at: datetime
    ended_at: datetime | None  # None: it is at work
    outcome: str
    error: ErrorView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run: in motion, or as it ended."""

    id: RunId
    job_id: JobId
    job: str
    tenant: str
    task: str
    kind: Kind
    state: State
    reason: DeadReason | None  # why it is dead
    pool: str
    slot: datetime
    version: int
    attempt: int
    failures: int
    fired_at: datetime
    ready_at: datetime | None  # of one in motion
    started_at: datetime | None
    settled_at: datetime | None
    worker: NodeId | None
    cancel_requested: bool
    payload: Json  # its own, or its job's
    result: Json
    error: ErrorView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A run that came to nothing, with all that is needed to judge it."""

    run_id: RunId
    job_id: JobId
    job: str
    tenant: str
    kind: Kind
    slot: datetime
    version: int
    reason: DeadReason
    error: ErrorView | None
    payload: Json
    attempts: tuple[AttemptView, ...]
    died_at: datetime
    closed_at: datetime | None  # None: nobody has dealt with it
    closed_as: str | None  # replayed or discarded
    replayed_as: RunId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something an attempt said."""

    attempt: int
    number: int
    at: datetime
    stream: str  # log, stdout, stderr, progress
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """What became of a slot, or of a stretch of slots that share one fate."""

    slot: datetime
    first_slot: datetime
    disposition: str
    covers: int
    decided_at: datetime
    run_id: RunId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A process that is alive, or was a moment ago."""

    id: NodeId
    role: str
    host: str
    pid: int
    version: str
    pools: tuple[str, ...]
    tasks: tuple[str, ...]
    rooms: Mapping[str, int]  # runs of each pool that it may have in hand at once
    room: int  # in all
    running: int
    registered_at: datetime
    heartbeat_age: timedelta
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool: what waits in it, and who works for it."""

    name: str
    workers: int
    room: int
    running: int
    ready: int  # could start now, had a worker room for it
    waiting: int  # for its time, its next attempt or its turn
    oldest_ready: timedelta | None  # how long the first of them has waited
    unknown_tasks: tuple[str, ...]  # asked for by its runs, and known to none of its workers
    paused: str | None = None  # why nothing is claimed from it; None: it is not paused


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, for whoever looks on."""

    kind: str  # run: it is in another state; change: somebody changed something
    at: datetime
    id: str  # sorts by when it happened
    data: Mapping[str, Json]
