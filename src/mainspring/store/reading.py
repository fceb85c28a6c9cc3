"""Reading: jobs, runs, slots, nodes and pools, as people and programs look at them. Decides nothing."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg

from mainspring.domain.asking import JobFilter, RunFilter
from mainspring.domain.errors import InvalidRequest, NotFound
from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import JobState, Json, job_from_json
from mainspring.domain.run import DeadReason, State
from mainspring.domain.views import (
    AttemptView,
    ErrorView,
    JobStatusView,
    JobView,
    NodeView,
    Page,
    PoolView,
    RunView,
    SlotView,
    VersionView,
)
from mainspring.store.database import Connection, Database
from mainspring.store.queries import queries

_SHORTEST_ID = 32  # hexadecimal digits
_SQL = queries("reading")
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_HIGHEST: Final = UUID(int=(1 << 128) - 1)
_MANY: Final = 10_000
_T = TypeVar("_T")


async def find_job(connection: Connection, tenant: str, name_or_id: str | UUID) -> JobView:
    """Return a job by its name or its id; one that was deleted by its id only.

    Raises:
        NotFound: this tenant has no such job.
    """
    row = await connection.fetchrow(_SQL["job_by_name"], tenant, str(name_or_id))
    if row is None and (job_id := as_id(name_or_id)) is not None:
        row = await connection.fetchrow(_SQL["job_by_id"], tenant, job_id)
    if row is None:
        raise NotFound(f'there is no job "{name_or_id}"')
    return _job(row)


def as_id(text: str | UUID) -> UUID | None:
    """Return the id that this is, if it is one."""
    if isinstance(text, UUID):
        return text
    if len(text) < _SHORTEST_ID:  # most names: an exception costs more than all else that is done with one
        return None
    try:
        return UUID(text)
    except ValueError:
        return None


async def list_jobs(db: Database, tenant: str, wanted: JobFilter, *, limit: int, after: str | None) -> Page[JobView]:
    """Return jobs by name, after the cursor of the page before."""
    last = "" if after is None else _decoded(after)
    states = [state.value for state in wanted.states] or None
    async with db.connection() as connection:
        rows = await connection.fetch(
            _SQL["jobs"],
            tenant,
            last,
            limit + 1,
            states,
            wanted.task,
            wanted.prefix,
            wanted.owner,
            list(wanted.tags) or None,
        )
    more = len(rows) > limit
    items = tuple(_job(row) for row in rows[:limit])
    return Page(items=items, next=_encoded(items[-1].name) if more else None)


async def statuses(db: Database, tenant: str, names_or_ids: Collection[str]) -> dict[str, JobStatusView]:
    """Return how jobs stand, by what they were asked for under; what is not there is left out.

    A name that looks like an id counts as a name first, as it does in :func:`find_job`. The database is the owner's;
    the statement becomes the role of the tenant by itself.
    """
    ids = {text: job_id for text in names_or_ids if (job_id := as_id(text)) is not None}
    async with db.statement() as connection:
        rows = await connection.fetch(_SQL["statuses"], tenant, list(ids.values()), list(names_or_ids))
    views = {row["id"]: _status(row) for row in rows}
    found = {text: views[job_id] for text, job_id in ids.items() if job_id in views}
    return found | {view.name: view for view in views.values() if view.name in names_or_ids}


def _status(row: asyncpg.Record) -> JobStatusView:
    return JobStatusView(
        id=JobId(row["id"]),
        name=row["name"],
        state=JobState(row["state"]),
        version=row["version"],
        next_fire_at=row["next_fire_at"],
        last_slot=row["last_slot"],
        resume_at=row["resume_at"],
        fired=row["fired"],
    )


async def find_run(db: Database, tenant: str, run_id: UUID) -> RunView:
    """Return a run, in motion or not.

    Raises:
        NotFound: this tenant has no such run, or its history was dropped.
    """
    async with db.connection() as connection:
        row = await connection.fetchrow(_SQL["run"], tenant, run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}; history is kept for a while only")
    return _run(row)


async def list_runs(db: Database, tenant: str, wanted: RunFilter, *, limit: int, after: str | None) -> Page[RunView]:
    """Return runs, newest slot first, after the cursor of the page before."""
    shared = (
        tenant,
        *place_of(after),
        limit + 1,
        [state.value for state in wanted.states] or None,
        wanted.pool,
        None if wanted.kind is None else wanted.kind.value,
        wanted.since or _EARLIEST,
        wanted.until or _LATEST,
    )
    async with db.connection() as connection:
        if wanted.job is None:
            rows = await connection.fetch(_SQL["runs_newest"], *shared)
        else:
            rows = await connection.fetch(_SQL["runs_of_job"], *shared, wanted.job)
    return page_of([_run(row) for row in rows], limit, lambda run: (run.slot, run.id))


async def attempts_of(db: Database, run: RunView) -> list[AttemptView]:
    """Return every attempt of a run, oldest first."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["attempts"], run.id, run.slot)
    found = [attempt_view(dict(row)) for row in rows]
    if run.started_at is not None and run.attempt > len(found):
        outcome = "running" if run.state is State.RUNNING else _last_outcome(run)
        found.append(
            AttemptView(
                number=run.attempt,
                worker=run.worker,
                started_at=run.started_at,
                ended_at=run.settled_at,
                outcome=outcome,
                error=run.error,
            )
        )
    return found


def _last_outcome(run: RunView) -> str:
    return run.error.type if run.error is not None and run.state is not State.DEAD else run.state.value


async def slots_of(db: Database, job: JobId, *, start: datetime, end: datetime, limit: int) -> list[SlotView]:
    """Return the decisions about a job's slots, newest first."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["slots"], job, start, end, limit)
    return [
        SlotView(
            slot=row["scheduled_at"],
            first_slot=row["first_slot"],
            disposition=row["disposition"],
            covers=row["covers_count"],
            decided_at=row["fired_at"],
            run_id=row["run_id"],
        )
        for row in rows
    ]


async def list_nodes(db: Database, *, dead_for: timedelta = timedelta(minutes=1)) -> list[NodeView]:
    """Return the processes that are alive, and those that died within ``dead_for``."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["nodes"], dead_for)
    return [
        NodeView(
            id=NodeId(row["id"]),
            role=row["role"],
            host=row["host"],
            pid=row["pid"],
            version=row["version"],
            pools=tuple(row["pools"]),
            tasks=tuple(row["tasks"]),
            rooms=dict(zip(row["pools"], row["rooms"], strict=False)),
            room=sum(row["rooms"]),
            running=row["running"],
            registered_at=row["registered_at"],
            heartbeat_age=row["heartbeat_age"],
            alive=row["alive"],
        )
        for row in rows
    ]


async def list_pools(db: Database) -> list[PoolView]:
    """Return the pools that have work or workers."""
    nodes = [node for node in await list_nodes(db, dead_for=timedelta(0)) if node.alive]
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["pools"], _MANY)
    pools = []
    for row in rows:
        workers = [node for node in nodes if row["name"] in node.pools]
        known = {task for node in workers for task in node.tasks}
        pools.append(
            PoolView(
                name=row["name"],
                workers=len(workers),
                room=sum(node.rooms.get(row["name"], 0) for node in workers),
                running=row["running"],
                ready=row["ready"],
                waiting=row["waiting"],
                oldest_ready=row["oldest_ready"],
                unknown_tasks=tuple(sorted(set(row["tasks"] or ()) - known)),
                paused=row["paused"],
            )
        )
    return pools


def _job(row: asyncpg.Record) -> JobView:
    return JobView(
        id=JobId(row["id"]),
        name=row["name"],
        tenant=row["tenant"],
        state=JobState(row["state"]),
        version=row["version"],
        definition=job_from_json(json.loads(row["definition"])),
        next_fire_at=row["next_fire_at"],
        last_slot=row["last_slot"],
        resume_at=row["resume_at"],
        fired=row["fired"],
        created_at=row["created_at"],
        changed_at=row["effective_at"],
        author=row["author"],
        reason=row["reason"],
    )


def _run(row: asyncpg.Record) -> RunView:
    payload = row["payload"] if row["payload"] is not None else row["job_payload"]
    return RunView(
        id=RunId(row["id"]),
        job_id=JobId(row["job_id"]),
        job=row["job"],
        tenant=row["tenant"],
        task=row["task"],
        kind=Kind(row["kind"]),
        state=State(row["state"]),
        reason=None if row["reason"] is None else DeadReason(row["reason"]),
        pool=row["pool"],
        slot=row["slot"],
        version=row["version"],
        attempt=row["attempt"],
        failures=row["failures"],
        fired_at=row["fired_at"],
        ready_at=row["ready_at"],
        started_at=row["started_at"],
        settled_at=row["settled_at"],
        worker=row["worker"],
        cancel_requested=row["cancel_requested"],
        payload=parsed(payload),
        result=parsed(row["result"]),
        error=error_view(row["error"]),
    )


def parsed(text: str | None) -> Json:
    return None if text is None else json.loads(text)


def error_view(text: str | None) -> ErrorView | None:
    """Read an error as settling wrote it."""
    return None if text is None else ErrorView(**json.loads(text))


def attempt_view(row: dict[str, Any]) -> AttemptView:
    return AttemptView(
        number=row["attempt"],
        worker=None if row["worker"] is None else NodeId(_uuid(row["worker"])),
        started_at=_instant(row["started_at"]),
        ended_at=_instant(row["ended_at"]),
        outcome=row["outcome"],
        error=error_view(row["error"]),
    )


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _instant(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _encoded(place: str) -> str:
    return urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise _no_cursor(cursor) from None
    if "\0" in text:  # which no text in Postgres has
        raise _no_cursor(cursor)
    return text


def page_of(found: Sequence[_T], limit: int, place: Callable[[_T], tuple[datetime, UUID]]) -> Page[_T]:
    """Make a page of what was found, which is one more than the limit if there is more."""
    items = tuple(found[:limit])
    if len(found) <= limit:
        return Page(items=items, next=None)
    at, last = place(items[-1])
    return Page(items=items, next=_encoded(f"{at.isoformat()} {last}"))


def place_of(cursor: str | None) -> tuple[datetime, UUID]:
    """Return where the page before ended: by time and id, so that equal times lose no row."""
    if cursor is None:
        return _LATEST, _HIGHEST
    try:
        at, last = _decoded(cursor).split(" ")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(last)
    except (ValueError, OverflowError):
        raise _no_cursor(cursor) from None


def _no_cursor(cursor: str) -> InvalidRequest:
    allowed = "use the one that the page before gave as next"
    return InvalidRequest(f'"{cursor[:40]}" is no cursor', field="after", value=cursor, allowed=allowed)


async def last_success(connection: Connection, job: UUID, before: datetime) -> asyncpg.Record | None:
    """Return the newest success of a job whose slot is before this one."""
    return await connection.fetchrow(_SQL["last_success"], job, before)


async def versions_of(db: Database, job: JobId, *, limit: int = 20) -> list[VersionView]:
    """Return the versions of a job, newest first."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["versions"], job, limit)
    return [
        VersionView(
            number=row["version"],
            state=JobState(row["state"]),
            definition=job_from_json(json.loads(row["definition"])),
            effective_at=row["effective_at"],
            author=row["author"],
            reason=row["reason"],
        )
        for row in rows
    ]
