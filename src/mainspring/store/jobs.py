"""Jobs: definitions in, definitions out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import asyncpg

from mainspring.domain.errors import BrokenInvariant
from mainspring.domain.ids import JobId, shard_of
from mainspring.domain.job import Job, JobState, Json, job_from_json, job_to_json, schedule_from_json
from mainspring.domain.schedule import Schedule
from mainspring.domain.views import JobView
from mainspring.store.database import Connection, columns
from mainspring.store.queries import queries

_SQL = queries("jobs")

_AT_ONCE: Final = 1000
_T = TypeVar("_T")
_Pair: TypeAlias = tuple[UUID, int]  # job and version


async def insert_jobs(
    tx: Connection,
    jobs: Sequence[tuple[JobId, Job]],
    *,
    author: str = "",
    reason: str = "",
    declared: bool = False,
) -> set[JobId]:
    """Write new jobs with their first version and cursor; a job whose schedule has no slot left is finished.

    Returns those that are written. A job whose name is taken is not.
    """
    now = await tx.fetchval(_SQL["clock"])
    made: set[JobId] = set()
    for first in range(0, len(jobs), _AT_ONCE):  # or the server would take us for idle while we write definitions
        rows = [_row(job_id, job, now) for job_id, job in jobs[first : first + _AT_ONCE]]
        found = await tx.fetch(_SQL["insert_jobs"], *columns(rows, 9), now, declared, author, reason)
        made.update(row[0] for row in found)
    return made


async def make_jobs(
    tx: Connection, jobs: Sequence[tuple[JobId, Job]], *, author: str, reason: str
) -> dict[JobId, JobView]:
    """Write new jobs, as :func:`insert_jobs` does, and return each as it stands then."""
    now = await tx.fetchval(_SQL["clock"])
    made: dict[JobId, JobView] = {}
    for first in range(0, len(jobs), _AT_ONCE):
        few = jobs[first : first + _AT_ONCE]
        rows = [_row(job_id, job, now) for job_id, job in few]
        found = await tx.fetch(_SQL["insert_jobs"], *columns(rows, 9), now, False, author, reason)
        written = {row[0] for row in found}
        for (job_id, job), row in zip(few, rows, strict=True):
            if job_id in written:
                made[job_id] = _new(row, job, now, author=author, reason=reason)
    return made


def _new(row: tuple[Any, ...], job: Job, now: datetime, *, author: str, reason: str) -> JobView:
    return JobView(
        id=JobId(row[0]),
        name=job.name,
        tenant=job.tenant,
        state=JobState(row[7]),
        version=1,
        definition=job,
        next_fire_at=row[5],
        last_slot=None,
        resume_at=None,
        fired=0,
        created_at=now,
        changed_at=now,
        author=author,
        reason=reason,
    )


async def taken_names(tx: Connection, tenant: str, names: Sequence[str]) -> list[str]:
    """Return those of the names that jobs of a tenant have."""
    return [row["name"] for row in await tx.fetch(_SQL["taken"], [tenant] * len(names), list(names))]


def _row(job_id: JobId, job: Job, now: datetime) -> tuple[Any, ...]:
    written = json.dumps(job_to_json(job))
    next_fire_at = job.schedule.next_after(now)
    state = job.state_with(next_fire_at).value
    named = (job_id, job.tenant, job.name, shard_of(job_id), written)
    return *named, next_fire_at, job.delete_when_done, state, job.on_demand


class Definition(NamedTuple):
    """One version of a job. What many jobs have in common is one object."""

    name: str
    payload: Json
    shared: Job  # all but name and payload, which mean nothing here


class Definitions:
    """Job versions by id, mostly from memory: a version never changes once written.

    Distinct policies are few beside the jobs that share them: each text is parsed once. Firing needs no more; where
    the runs are worked on in the same process, ``whole`` reads the rest along with it, instead of once again.
    """

    def __init__(self, *, whole: bool = False, keep: int = 200_000) -> None:
        self._firing_reads_whole = whole
        self._shared = _Kept(_SQL["shared"], _shared_of, keep)
        self._whole = _Kept(_SQL["definitions"], _definition_of, keep)

    async def shared(self, tx: Connection, wanted: Sequence[_Pair]) -> dict[UUID, Job]:
        """Return for each (job, version) the object that it shares with its like."""
        if self._firing_reads_whole:
            return {job: definition.shared for job, definition in (await self._whole.of(tx, wanted)).items()}
        return await self._shared.of(tx, wanted)

    async def of(self, tx: Connection, wanted: Sequence[_Pair]) -> dict[UUID, Definition]:
        """Return the definition of each (job, version)."""
        return await self._whole.of(tx, wanted)


class _Kept(Generic[_T]):
    """What was read of the database, by job and version."""

    def __init__(self, query: str, read: Callable[[asyncpg.Record], _T], keep: int) -> None:
        self._query = query
        self._read = read
        self._keep = keep
        self._known: dict[_Pair, _T] = {}

    async def of(self, tx: Connection, pairs: Sequence[_Pair]) -> dict[UUID, _T]:
        known = self._known
        unknown = [pair for pair in pairs if pair not in known]
        if unknown:
            if len(known) + len(unknown) > self._keep:
                known.clear()  # a cold read costs one indexed query; bookkeeping for a better choice costs always
                unknown = list(pairs)
            for row in await tx.fetch(self._query, *columns(unknown, 2)):
                known[row[0], row[1]] = self._read(row)
        try:
            return {pair[0]: known[pair] for pair in pairs}
        except KeyError as missing:
            raise BrokenInvariant(f"there is no definition for {missing.args[0]}") from missing


def _shared_of(row: asyncpg.Record) -> Job:
    return _prototype(row["rest"], row["schedule"])


def _definition_of(row: asyncpg.Record) -> Definition:
    payload = None if row["payload"] is None else json.loads(row["payload"])
    return Definition(row["name"], payload, _prototype(row["rest"], row["schedule"]))


@lru_cache(maxsize=50_000)
def _prototype(rest: str, schedule: str) -> Job:
    return job_from_json({**json.loads(rest), "name": "-"}, schedule=_schedule(schedule))


@lru_cache(maxsize=50_000)
def _schedule(text: str) -> Schedule:
    return schedule_from_json(json.loads(text))


async def put_missing(tx: Connection, jobs: Sequence[tuple[JobId, Job]]) -> int:
    """Write the jobs whose (tenant, name) is not taken; return how many were."""
    names = [(job.tenant, job.name) for _, job in jobs]
    taken = {(row["tenant"], row["name"]) for row in await tx.fetch(_SQL["taken"], *columns(names, 2))}
    missing = [(job_id, job) for job_id, job in jobs if (job.tenant, job.name) not in taken]
    return len(await insert_jobs(tx, missing))
