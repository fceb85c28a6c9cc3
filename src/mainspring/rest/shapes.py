"""What is answered: jobs, runs, dead letters, nodes and the rest, as they travel; and back again for the client.

An answer has every field, null where there is nothing; durations that are measured are seconds.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, TypeAlias
from uuid import UUID

from msgspec import Meta, Struct

from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import JobState, Json
from mainspring.domain.run import DeadReason, State
from mainspring.domain.views import (
    AttemptView,
    DeadLetter,
    ErrorView,
    JobStatusView,
    JobView,
    Line,
    NodeView,
    PoolView,
    RunView,
    SlotView,
    VersionView,
)
from mainspring.rest.definitions import Definition, definition_of, job_of

Seconds: TypeAlias = Annotated[float, Meta(description="Seconds.")]


class Answer(Struct, frozen=True, kw_only=True):
    """The base of all that is answered."""


class JobStatus(Answer, frozen=True, kw_only=True):
    """How a job stands, without what it is."""

    id: UUID
    name: str
    state: JobState
    version: int
    next_fire_at: datetime | None
    last_slot: datetime | None
    resume_at: datetime | None
    fired: int


class JobAnswer(JobStatus, frozen=True, kw_only=True):
    """A job as it is now."""

    tenant: str
    definition: Definition
    schedule_in_words: str
    created_at: datetime
    changed_at: datetime
    author: str
    reason: str


class JobChanged(JobAnswer, frozen=True, kw_only=True):
    """A job after a change. From ``effective_at`` on, by the database clock, nothing of the old version fires."""

    effective_at: datetime


class JobPage(Answer, frozen=True, kw_only=True):
    items: tuple[JobAnswer, ...]
    next: str | None


class MadeJob(Answer, frozen=True, kw_only=True):
    id: UUID
    name: str


class MadeJobs(Answer, frozen=True, kw_only=True):
    """The jobs of a batch, in its order: all of them were made."""

    jobs: tuple[MadeJob, ...]


class VersionAnswer(Answer, frozen=True, kw_only=True):
    number: int
    state: JobState
    definition: Definition
    effective_at: datetime
    author: str
    reason: str


class Versions(Answer, frozen=True, kw_only=True):
    items: tuple[VersionAnswer, ...]


class UpcomingSlot(Answer, frozen=True, kw_only=True):
    at: datetime
    local: str  # on the wall clock of the job
    note: str | None  # when the clock changes nearby


class Upcoming(Answer, frozen=True, kw_only=True):
    timezone: str
    items: tuple[UpcomingSlot, ...]


class SlotAnswer(Answer, frozen=True, kw_only=True):
    slot: datetime
    first_slot: datetime
    disposition: str
    covers: int
    decided_at: datetime
    run_id: UUID | None


class Slots(Answer, frozen=True, kw_only=True):
    items: tuple[SlotAnswer, ...]


class Explained(Answer, frozen=True, kw_only=True):
    job: str
    at: datetime
    sentences: tuple[str, ...]


class Backfilled(Answer, frozen=True, kw_only=True):
    """What a backfill made, or would make."""

    dry_run: bool
    slots: int  # that the schedule names in the range
    runs: int  # new ones
    first: datetime | None
    last: datetime | None


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    type: str
    message: str
    traceback: str = ""


class AttemptAnswer(Answer, frozen=True, kw_only=True):
    number: int
    worker: UUID | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error: ErrorAnswer | None


class Attempts(Answer, frozen=True, kw_only=True):
    items: tuple[AttemptAnswer, ...]


class RunAnswer(Answer, frozen=True, kw_only=True):
    """A run: in motion, or as it ended. Payload and result are null for those who may not see them."""

    id: UUID
    job_id: UUID
    job: str
    tenant: str
    task: str
    kind: Kind
    state: State
    reason: DeadReason | None
    pool: str
    slot: datetime
    version: int
    attempt: int
    failures: int
    fired_at: datetime
    ready_at: datetime | None
    started_at: datetime | None
    settled_at: datetime | None
    worker: UUID | None
    cancel_requested: bool
    payload: Any
    result: Any
    error: ErrorAnswer | None


class RunPage(Answer, frozen=True, kw_only=True):
    items: tuple[RunAnswer, ...]
    next: str | None


class Submitted(Answer, frozen=True, kw_only=True):
    """The runs that were asked for, in the same order."""

    ids: tuple[UUID, ...]


class RunStopped(Answer, frozen=True, kw_only=True):
    """The state of a run that was asked to stop: cancelled, or running until its task has stopped."""

    id: UUID
    state: State


class Cancelled(Answer, frozen=True, kw_only=True):
    runs: int


class LineAnswer(Answer, frozen=True, kw_only=True):
    attempt: int
    number: int
    at: datetime
    stream: str
    level: str
    text: str


class Lines(Answer, frozen=True, kw_only=True):
    items: tuple[LineAnswer, ...]
    next: str | None  # where to go on; null while there is nothing
    ended: bool  # no more will come


class LetterAnswer(Answer, frozen=True, kw_only=True):
    """A run that came to nothing."""

    run_id: UUID
    job_id: UUID
    job: str
    tenant: str
    kind: Kind
    slot: datetime
    version: int
    reason: DeadReason
    error: ErrorAnswer | None
    payload: Any
    attempts: tuple[AttemptAnswer, ...]
    died_at: datetime
    closed_at: datetime | None
    closed_as: str | None
    replayed_as: UUID | None


class LetterPage(Answer, frozen=True, kw_only=True):
    items: tuple[LetterAnswer, ...]
    next: str | None


class Discarded(Answer, frozen=True, kw_only=True):
    discarded: bool  # false: somebody had dealt with it already


class NodeAnswer(Answer, frozen=True, kw_only=True):
    id: UUID
    role: str
    host: str
    pid: int
    version: str
    pools: tuple[str, ...]
    tasks: tuple[str, ...]
    rooms: dict[str, int]
    room: int
    running: int
    shards: tuple[int, ...]
    registered_at: datetime
    heartbeat_age: Seconds
    alive: bool


class ClusterAnswer(Answer, frozen=True, kw_only=True):
    version: str
    nodes: tuple[NodeAnswer, ...]


class PoolAnswer(Answer, frozen=True, kw_only=True):
    name: str
    workers: int
    room: int
    running: int
    ready: int
    waiting: int
    oldest_ready: Seconds | None
    unknown_tasks: tuple[str, ...]
    paused: str | None


class Pools(Answer, frozen=True, kw_only=True):
    items: tuple[PoolAnswer, ...]


class PoolResumed(Answer, frozen=True, kw_only=True):
    resumed: bool  # false: it was not paused


class Scaling(Answer, frozen=True, kw_only=True):
    """What an autoscaler wants to know: scale on the age of the oldest ready run, not on depth."""

    pool: str
    ready: int
    running: int
    room: int
    workers: int
    oldest_ready_seconds: float


class MeAnswer(Answer, frozen=True, kw_only=True):
    """Who is asking."""

    subject: str
    tenant: str
    role: str
    cluster: bool
    scopes: tuple[str, ...]


class ChangeAnswer(Answer, frozen=True, kw_only=True):
    """An entry of the log of changes: who did what, before, after, and why."""

    id: UUID
    at: datetime
    actor: str
    action: str
    subject: str
    before: Any
    after: Any
    reason: str
    request: str


class ChangePage(Answer, frozen=True, kw_only=True):
    items: tuple[ChangeAnswer, ...]
    next: str | None


class Health(Answer, frozen=True, kw_only=True):
    status: str


class Ready(Answer, frozen=True, kw_only=True):
    ready: bool
    database: str


def job_answer(view: JobView, in_words: str) -> JobAnswer:
    return JobAnswer(**_of_job(view, in_words))


def job_changed(view: JobView, in_words: str) -> JobChanged:
    return JobChanged(**_of_job(view, in_words), effective_at=view.changed_at)


def _of_job(view: JobView, in_words: str) -> dict[str, Any]:
    return {
        **_of_status(view),
        "tenant": view.tenant,
        "definition": definition_of(view.definition),
        "schedule_in_words": in_words,
        "created_at": view.created_at,
        "changed_at": view.changed_at,
        "author": view.author,
        "reason": view.reason,
    }


def job_status(view: JobStatusView) -> JobStatus:
    return JobStatus(  # each by its name: this is what is read most
        id=view.id,
        name=view.name,
        state=view.state,
        version=view.version,
        next_fire_at=view.next_fire_at,
        last_slot=view.last_slot,
        resume_at=view.resume_at,
        fired=view.fired,
    )


def _of_status(view: JobView | JobStatusView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in JobStatus.__struct_fields__}


def job_view(answer: JobAnswer) -> JobView:
    """Read a job as the server wrote it."""
    given = {name: getattr(answer, name) for name in JobView.__dataclass_fields__ if name not in ("id", "definition")}
    definition = job_of(answer.definition, tenant=answer.tenant, stored=True)
    return JobView(**given, id=JobId(answer.id), definition=definition)


def version_answer(view: VersionView) -> VersionAnswer:
    return VersionAnswer(**{**_fields(view), "definition": definition_of(view.definition)})


def version_view(answer: VersionAnswer, tenant: str) -> VersionView:
    return VersionView(**{**_fields(answer), "definition": job_of(answer.definition, tenant=tenant, stored=True)})


def run_answer(view: RunView, *, payloads: bool = True) -> RunAnswer:
    error = error_answer(view.error, payloads=payloads)
    hidden = {} if payloads else {"payload": None, "result": None}
    return RunAnswer(**{**_fields(view), "error": error, **hidden})


def run_view(answer: RunAnswer) -> RunView:
    given = _fields(answer)
    given |= {"id": RunId(answer.id), "job_id": JobId(answer.job_id), "worker": _node(answer.worker)}
    return RunView(**{**given, "error": error_view(answer.error)})


def error_answer(view: ErrorView | None, *, payloads: bool = True) -> ErrorAnswer | None:
    """Write an error; its message may repeat a payload, so that whoever may not see one sees its type only."""
    if view is None:
        return None
    return ErrorAnswer(**_fields(view)) if payloads else ErrorAnswer(type=view.type, message="")


def error_view(answer: ErrorAnswer | None) -> ErrorView | None:
    return None if answer is None else ErrorView(**_fields(answer))


def attempt_answer(view: AttemptView, *, payloads: bool = True) -> AttemptAnswer:
    return AttemptAnswer(**{**_fields(view), "error": error_answer(view.error, payloads=payloads)})


def attempt_view(answer: AttemptAnswer) -> AttemptView:
    return AttemptView(**{**_fields(answer), "worker": _node(answer.worker), "error": error_view(answer.error)})


def letter_answer(view: DeadLetter, *, payloads: bool = True) -> LetterAnswer:
    return LetterAnswer(
        **{
            **_fields(view),
            "payload": view.payload if payloads else None,
            "error": error_answer(view.error, payloads=payloads),
            "attempts": tuple(attempt_answer(each, payloads=payloads) for each in view.attempts),
        }
    )


def letter_view(answer: LetterAnswer) -> DeadLetter:
    attempts = tuple(map(attempt_view, answer.attempts))
    return DeadLetter(**{**_fields(answer), "error": error_view(answer.error), "attempts": attempts})


def line_answer(view: Line) -> LineAnswer:
    return LineAnswer(**_fields(view))


def line_view(answer: LineAnswer) -> Line:
    return Line(**_fields(answer))


def slot_answer(view: SlotView) -> SlotAnswer:
    return SlotAnswer(**_fields(view))


def slot_view(answer: SlotAnswer) -> SlotView:
    return SlotView(**_fields(answer))


def node_answer(view: NodeView) -> NodeAnswer:
    age = view.heartbeat_age.total_seconds()
    return NodeAnswer(**{**_fields(view), "rooms": dict(view.rooms), "heartbeat_age": age, "shards": ()})


def node_view(answer: NodeAnswer) -> NodeView:
    given = _fields(answer)
    del given["shards"]
    return NodeView(**{**given, "id": NodeId(answer.id), "heartbeat_age": timedelta(seconds=answer.heartbeat_age)})


def pool_answer(view: PoolView) -> PoolAnswer:
    oldest = None if view.oldest_ready is None else view.oldest_ready.total_seconds()
    return PoolAnswer(**{**_fields(view), "oldest_ready": oldest})


def pool_view(answer: PoolAnswer) -> PoolView:
    oldest = None if answer.oldest_ready is None else timedelta(seconds=answer.oldest_ready)
    return PoolView(**{**_fields(answer), "oldest_ready": oldest})


def _node(node: UUID | None) -> NodeId | None:
    return None if node is None else NodeId(node)


def _fields(value: Any) -> dict[str, Json]:
    names = value.__struct_fields__ if isinstance(value, Struct) else value.__dataclass_fields__
    return {name: getattr(value, name) for name in names}


def fields_of(value: Any, kind: type[Struct]) -> dict[str, Any]:
    """Return of a value what an answer of this kind has room for."""
    return {name: getattr(value, name) for name in kind.__struct_fields__}
