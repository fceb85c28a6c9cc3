"""Bulk actions as they travel: what is to be done, to which, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from mainspring.domain.access import Scope
from mainspring.domain.asking import JobFilter, LetterFilter, RunFilter
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import JobId, Kind
from mainspring.domain.job import JobState, Json
from mainspring.domain.run import FINAL, DeadReason, State
from mainspring.rest.asked import LARGEST_BATCH, Asked
from mainspring.rest.definitions import Instant, Name, Text
from mainspring.rest.reading import read_as
from mainspring.rest.shapes import Answer

Ids: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=LARGEST_BATCH)]
PerSecond: TypeAlias = Annotated[int, Meta(ge=1, le=10_000, description="Not faster than this.")]


class Action(StrEnum):
    """What can be done to many at once: the names of the routes that do it to one."""

    JOBS_PAUSE = "jobs.pause"
    JOBS_RESUME = "jobs.resume"
    JOBS_DELETE = "jobs.delete"
    JOBS_TRIGGER = "jobs.trigger"
    RUNS_CANCEL = "runs.cancel"
    RUNS_RETRY = "runs.retry"
    LETTERS_REPLAY = "dead_letters.replay"
    LETTERS_DISCARD = "dead_letters.discard"


class JobsWhere(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs."""

    state: tuple[JobState, ...] = ()
    task: Name | None = None
    prefix: Name | None = None
    tag: tuple[Name, ...] = ()
    owner: Name | None = None


class RunsWhere(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which runs, by slot."""

    job: Name | None = None  # its name or its id
    state: tuple[State, ...] = ()
    pool: Name | None = None
    kind: Kind | None = None
    since: Instant | None = None
    until: Instant | None = None


class LettersWhere(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters, by when they died."""

    job: Name | None = None
    reason: DeadReason | None = None
    since: Instant | None = None
    until: Instant | None = None


Where: TypeAlias = JobsWhere | RunsWhere | LettersWhere


class NewBulk(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One action, on those with these ids, or on all that a filter finds: the filter of the list, {} for everything."""

    action: Action
    filter: dict[str, Any] | UnsetType = UNSET
    ids: Ids | UnsetType = UNSET  # of jobs names, too
    per_second: PerSecond = 100
    dry_run: bool = False
    reason: Text = ""
    until: Instant | None = None  # of jobs.pause: they go on by themselves then
    payload: Any | UnsetType = UNSET  # of jobs.trigger and dead_letters.replay, in place of their own


class DiscardLetters(Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Dead letters, by the ids of their runs or by a filter."""

    filter: LettersWhere | UnsetType = UNSET
    ids: Ids | UnsetType = UNSET
    per_second: PerSecond = 100
    dry_run: bool = False
    reason: Text = ""


class ReplayLetters(DiscardLetters, frozen=True, forbid_unknown_fields=True, kw_only=True):
    payload: Any | UnsetType = UNSET  # left out: to each its own


class BulkFailure(Answer, frozen=True, kw_only=True):
    id: str
    code: str  # as in a problem
    detail: str


class BulkAnswer(Answer, frozen=True, kw_only=True):
    """A bulk action as it stands. Ended as done it has ``total`` = ``done`` + ``skipped`` + ``failed``."""

    id: UUID
    action: Action
    state: str  # counting, going, then done, stopped or failed
    total: int | None  # null: not counted yet
    more: bool  # the total is at least this
    done: int
    skipped: int  # there was nothing to do: paused already, ended meanwhile
    failed: int
    failures: tuple[BulkFailure, ...]  # the first ones
    why: str | None  # of one that failed as a whole
    filter: dict[str, Any] | None
    ids: int | None  # how many were given
    per_second: int
    until: datetime | None
    author: str
    reason: str
    started_at: datetime
    changed_at: datetime
    ended_at: datetime | None


class BulkPage(Answer, frozen=True, kw_only=True):
    items: tuple[BulkAnswer, ...]
    next: str | None


class BulkSample(Answer, frozen=True, kw_only=True):
    id: UUID
    name: str


class BulkCounted(Answer, frozen=True, kw_only=True):
    """What a bulk action would be done to."""

    dry_run: bool = True
    action: Action
    count: int
    more: bool  # there are more than were counted
    samples: tuple[BulkSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What goes with an action."""

    where: type[Where]
    scope: Scope
    usual: tuple[StrEnum, ...] = ()  # states, if none is asked for; none: it does not go by states
    possible: tuple[StrEnum, ...] = ()
    takes: tuple[str, ...] = ()  # fields of the request that only some take


_JOBS: Final = tuple(state for state in JobState if state is not JobState.DELETED)
_MOVING: Final = tuple(state for state in State if state not in FINAL)

# The usual states are those in which the action does what its name says to something that waits for it: a paused job is
# not triggered, nor a run that succeeded done again, unless the filter says so.
RULES: Final[Mapping[Action, Rules]] = {
    Action.JOBS_PAUSE: Rules(
        where=JobsWhere,
        scope=Scope.JOBS_OPERATE,
        usual=(JobState.ACTIVE,),
        possible=(JobState.ACTIVE,),
        takes=("until",),
    ),
    Action.JOBS_RESUME: Rules(
        where=JobsWhere,
        scope=Scope.JOBS_OPERATE,
        usual=(JobState.PAUSED,),
        possible=(JobState.PAUSED, JobState.QUARANTINED),
    ),
    Action.JOBS_DELETE: Rules(where=JobsWhere, scope=Scope.JOBS_WRITE, usual=_JOBS, possible=_JOBS),
    Action.JOBS_TRIGGER: Rules(
        where=JobsWhere, scope=Scope.JOBS_OPERATE, usual=(JobState.ACTIVE,), possible=_JOBS, takes=("payload",)
    ),
    Action.RUNS_CANCEL: Rules(where=RunsWhere, scope=Scope.RUNS_OPERATE, usual=_MOVING, possible=_MOVING),
    Action.RUNS_RETRY: Rules(
        where=RunsWhere,
        scope=Scope.RUNS_OPERATE,
        usual=(State.WAITING, State.DEAD),
        possible=(State.WAITING, State.DEAD, State.CANCELLED, State.SUCCEEDED),
    ),
    Action.LETTERS_REPLAY: Rules(where=LettersWhere, scope=Scope.LETTERS_OPERATE, takes=("payload",)),
    Action.LETTERS_DISCARD: Rules(where=LettersWhere, scope=Scope.LETTERS_OPERATE),
}


def check_bulk(asked: NewBulk) -> Where | None:
    """Return the filter of a bulk action, with the states that it is about; None: it goes by ids.

    Raises:
        InvalidRequest: it has ids and a filter, or neither, or something that does not go with its action.
    """
    rules = RULES[asked.action]
    for name, given in (("until", asked.until is not None), ("payload", asked.payload is not UNSET)):
        if given and name not in rules.takes:
            raise InvalidRequest(f"it does not go with {asked.action}", field=name, value="", allowed="leave it out")
    if (asked.filter is UNSET) == (asked.ids is UNSET):
        both = "there is one of them too many" if asked.ids is not UNSET else "nothing says to which it is to be done"
        allowed = "give filter, {} for everything, or ids"
        raise InvalidRequest(both, field="filter", value="", allowed=allowed)
    if asked.filter is UNSET:
        return None
    try:
        where = read_as(asked.filter, rules.where)
    except InvalidRequest as error:
        field = f"filter.{error.field}"
        raise InvalidRequest(error.reason, field=field, value=error.value, allowed=error.allowed) from None
    if isinstance(where, LettersWhere):
        return where
    impossible = [state for state in where.state if state not in rules.possible]
    if impossible:
        reason = f"{asked.action} does nothing to what is {impossible[0]}"
        allowed = f"use {', '.join(rules.possible)}"
        raise InvalidRequest(reason, field="filter.state", value=impossible[0].value, allowed=allowed)
    return where if where.state else structs.replace(where, state=rules.usual)


def where_of(action: str, document: Json) -> Where:
    """Read a filter as it was kept."""
    return read_as(document, RULES[Action(action)].where)


def filter_of(where: Where) -> JobFilter | RunFilter | LetterFilter:
    """Return the filter that the store goes by; a job is named by its id here."""
    match where:
        case JobsWhere():
            return JobFilter(
                states=where.state, task=where.task, prefix=where.prefix, owner=where.owner, tags=where.tag
            )
        case RunsWhere():
            return RunFilter(
                job=_job(where),
                states=where.state,
                pool=where.pool,
                kind=where.kind,
                since=where.since,
                until=where.until,
            )
        case LettersWhere():
            return LetterFilter(job=_job(where), reason=where.reason, since=where.since, until=where.until)


def given(where: Struct) -> dict[str, Json]:
    """Return what a filter says, without what it leaves open."""
    return {name: value for name, value in structs.asdict(where).items() if value not in (None, ())}


def _job(where: RunsWhere | LettersWhere) -> JobId | None:
    return None if where.job is None else JobId(UUID(where.job))
