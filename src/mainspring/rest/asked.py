"""What is asked: the bodies and the query parameters of requests."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.domain.access import Role
from mainspring.domain.ids import Kind
from mainspring.domain.job import JobState
from mainspring.domain.run import DeadReason, State
from mainspring.rest.definitions import Definition, Duration, Instant, Name, Priority, Text

LARGEST_PAGE: Final = 500
LARGEST_BATCH: Final = 10_000

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=LARGEST_PAGE, description="At most so many.")]
Cursor: TypeAlias = Annotated[str, Meta(max_length=1_000, description="Where the page before said to go on.")]


class Asked(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of all that is asked."""


class NewJobs(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Jobs to be made, all or none of them."""

    jobs: Annotated[tuple[Definition, ...], Meta(min_length=1, max_length=LARGEST_BATCH)]
    reason: Text = ""


class Why(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reason, for the log of changes."""

    reason: Text = ""


class Pause(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    until: Instant | None = None  # it goes on by itself then


class NewStatus(Pause, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a job shall be: active goes on with the next slot, paused fires nothing."""

    state: Literal["active", "paused"]


class Trigger(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run besides the schedule."""

    payload: Any | UnsetType = UNSET  # left out: the job's
    priority: Priority | None = None
    key: Name | None = None  # the same key again is answered with the same run
    reason: Text = ""


class RunRequest(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run of those that are asked for."""

    payload: Any | UnsetType = UNSET
    key: Name | None = None
    due_at: Instant | None = None
    delay: Duration | None = None
    priority: Priority | None = None
    pool: Name | None = None


class Submit(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Runs of a job by its name; the job is made if there is none."""

    job: Definition
    runs: Annotated[tuple[RunRequest, ...], Meta(min_length=1, max_length=LARGEST_BATCH)]
    reason: Text = ""


class Backfill(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Slots of the past that are to run after all, from start up to and without end."""

    start: Instant
    end: Instant
    pace: Duration | None = None  # between their starts
    key: Name | None = None
    dry_run: bool = False
    reason: Text = ""


class Again(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    payload: Any | UnsetType = UNSET  # left out: as before
    reason: Text = ""


class NewTenant(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    quotas: dict[str, Any] = {}
    note: Text = ""
    reason: Text = ""


class TenantEdit(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    quotas: dict[str, Any] | UnsetType = UNSET
    note: Text | UnsetType = UNSET
    state: Literal["active", "suspended"] | UnsetType = UNSET
    reason: Text = ""


class NewKey(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Name
    role: Role
    expires_at: Instant | None = None
    cluster: bool = False
    reason: Text = ""


class NewSecret(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    value: Annotated[str, Meta(min_length=1, max_length=65_536)]
    reason: Text = ""


class AuditRange(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    start: Instant
    end: Instant


class JobsQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: tuple[JobState, ...] = ()
    task: Name | None = None
    prefix: Name | None = None
    tag: tuple[Name, ...] = ()
    owner: Name | None = None
    limit: Limit = 100
    after: Cursor | None = None


class RunsOfJobQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: tuple[State, ...] = ()
    pool: Name | None = None
    kind: Kind | None = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    after: Cursor | None = None


class RunsQuery(RunsOfJobQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    job: Name | None = None  # its name or its id


class LettersQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    job: Name | None = None
    reason: DeadReason | None = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    after: Cursor | None = None


class WhyQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reason: Text = ""


class SlotsQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    start: Instant
    end: Instant
    limit: Limit = 100


class UpcomingQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = 20
    after: Instant | None = None


class ExplainQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    at: Instant


class VersionsQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 20  # there is no page behind it


class LinesQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


class PageQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 100
    after: Cursor | None = None


class ChangesQuery(PageQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    action: Name | None = None
    subject: Name | None = None
    actor: Name | None = None
    since: Instant | None = None
    until: Instant | None = None


class EventsQuery(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    job: Name | None = None  # its name or its id: every state of its runs
    run: UUID | None = None
