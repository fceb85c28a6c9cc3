"""Changes to a job: edit, pause, resume, delete. Each is a version, appended under the job's row lock.

Promise. A change and a fire of the same job are one after the other. After ``effective_at``, stamped by the
database clock under that lock, nothing of the old version fires (I3); what was due before it and had not
fired is recorded as superseded in the same transaction, so that no slot is left without a decision (I1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from mainspring.domain.asking import Change
from mainspring.domain.errors import AlreadyExists, Conflict, InvalidRequest, NotFound, StaleVersion, StoreUnavailable
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job, JobState, job_from_json, job_to_json
from mainspring.environment import Environment
from mainspring.store.database import Connection, Database
from mainspring.store.jobs import insert_jobs
from mainspring.store.queries import queries
from mainspring.store.runs import stop_runs_of

_SQL = queries("changes")
_JOBS = queries("jobs")
_CODE: Final = "code"
_DECLARED: Final = "declared by @task"
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    version: int
    effective_at: datetime
    superseded: int  # slots that were due and had not fired


async def change_job(db: Database, env: Environment, job_id: JobId, change: Change) -> Changed:
    """Append a version to a job.

    Resuming does not catch up: the next slot is the first after ``effective_at``.

    Raises:
        NotFound: there is no such job, or it was deleted.
        StaleVersion: it is not at ``if_version`` any more.
        Conflict: a finished job cannot be paused or resumed; edit its schedule. Or it is not in ``only_from``.
        AlreadyExists: another job has the new name.
    """
    with _naming(change):
        return await _change_job(db, env, job_id, change)


@contextmanager
def _naming(change: Change) -> Iterator[None]:
    """Say that a name is taken, where only the database knows."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        if change.definition is None or error.constraint_name != "jobs_name":
            raise
        raise AlreadyExists(f'there is a job "{change.definition.name}" already; choose another name') from error


async def _change_job(db: Database, env: Environment, job_id: JobId, change: Change) -> Changed:
    async with db.transaction() as tx:
        row = await _lock(tx, job_id, change)
        effective_at: datetime = await tx.fetchval(_SQL["clock"])
        await env.reach("change.locked")
        old = job_from_json(json.loads(await tx.fetchval(_SQL["definition"], job_id, row["version"])))
        if change.definition is not None and change.definition.tenant != old.tenant:  # its secrets would be theirs
            allowed = f'leave it with "{old.tenant}", or put a new job'
            raise InvalidRequest("a job stays with its tenant", field="tenant", value=old.tenant, allowed=allowed)
        if change.state is JobState.PAUSED and (change.definition or old).on_demand:
            raise Conflict(f'job "{old.name}" runs only when asked for: there is nothing to pause')
        superseded, last_slot = await _supersede(tx, row, old, effective_at)
        new, state = change.definition or old, change.state or JobState(row["state"])
        if change.definition is not None and state is JobState.FINISHED:
            state = JobState.ACTIVE  # a new schedule may have slots again
        next_fire_at = None
        if state is JobState.ACTIVE:
            next_fire_at = new.schedule.next_after(max(effective_at, last_slot or effective_at), fired=row["fired"])
            state = new.state_with(next_fire_at)
        version = row["version"] + 1
        await tx.execute(
            _SQL["append_version"],
            job_id,
            version,
            state.value,
            json.dumps(job_to_json(new)),
            effective_at,
            change.author,
            change.reason,
            next_fire_at,
            last_slot,
            new.name,
            new.delete_when_done,
            change.resume_at,
            new.on_demand,
        )
        if state is JobState.DELETED:
            await stop_runs_of(tx, [job_id])
        await env.reach("change.commit")
    return Changed(version=version, effective_at=effective_at, superseded=superseded)


async def _lock(tx: Connection, job_id: JobId, change: Change) -> asyncpg.Record:
    row = await tx.fetchrow(_SQL["lock_job"], job_id)
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    if change.if_version is not None and row["version"] != change.if_version:
        raise StaleVersion(f"job {job_id} is at version {row['version']}, not at {change.if_version}; look again")
    if change.only_from is not None and row["state"] != change.only_from:
        raise Conflict(f"job {job_id} is {row['state']}, not {change.only_from}; look again")
    pausing = change.state in (JobState.ACTIVE, JobState.PAUSED)
    if pausing and row["state"] == JobState.FINISHED and change.definition is None:
        raise Conflict(f"job {job_id} is finished: no slot is left; edit its schedule instead")
    return row


async def _supersede(
    tx: Connection, row: asyncpg.Record, old: Job, effective_at: datetime
) -> tuple[int, datetime | None]:
    """Record what is due and undecided; return how many slots that is, and the newest of them."""
    due_from = row["next_fire_at"]
    if row["state"] != JobState.ACTIVE or due_from is None or due_from > effective_at:
        return 0, row["last_slot"]
    newest = old.schedule.previous_before(effective_at + _TICK) or due_from
    covers = old.schedule.count(due_from, newest + _TICK) or 1
    await tx.execute(_SQL["supersede"], row["job_id"], newest, due_from, covers, row["version"], effective_at)
    return covers, newest


async def jobs_to_resume(db: Database, limit: int = 100) -> list[JobId]:
    """Return paused jobs whose pause is over."""
    async with db.connection() as connection:
        return [JobId(row["job_id"]) for row in await connection.fetch(_SQL["to_resume"], limit)]


async def put_job(db: Database, env: Environment, job: Job, *, author: str = "", reason: str = "") -> JobId:
    """Write a job under its name: new, or as the next version of the one that has it. What is equal stays as it is."""
    async with db.transaction() as tx:
        made = await insert_jobs(tx, [(JobId(env.new_id()), job)], author=author, reason=reason)
        if made:
            return made.pop()
        found = await _of_that_name(tx, job)
    if json.loads(found["definition"]) != job_to_json(job):
        await change_job(db, env, found["id"], Change(definition=job, author=author, reason=reason))
    return JobId(found["id"])


async def declare_job(db: Database, env: Environment, job: Job) -> JobId:
    """Write what code declares. An edit by hand stays until the declaration itself changes; a pause stays anyway.

    Raises:
        Conflict: a job of that name runs another task.
    """
    declared = job_to_json(job)
    async with db.transaction() as tx:
        made = await insert_jobs(tx, [(JobId(env.new_id()), job)], author=_CODE, reason=_DECLARED, declared=True)
        if made:
            return made.pop()
        found = await _of_that_name(tx, job)
    job_id, definition = JobId(found["id"]), json.loads(found["definition"])
    if definition["task"] != job.task:
        reason = f'the job "{job.name}" runs task "{definition["task"]}", not "{job.task}"'
        raise Conflict(f"{reason}; rename the task, or that job")
    if found["declared"] is None or json.loads(found["declared"]) != declared:
        if definition != declared:
            await change_job(db, env, job_id, Change(definition=job, author=_CODE, reason=_DECLARED))
        async with db.transaction() as tx:
            await tx.execute(_JOBS["set_declared"], job_id, json.dumps(declared))
    return job_id


async def _of_that_name(tx: Connection, job: Job) -> asyncpg.Record:
    found = await tx.fetchrow(_JOBS["find_declared"], job.tenant, job.name)
    if found is None:
        raise StoreUnavailable(f'job "{job.name}" was deleted at this moment; try again')
    return found
