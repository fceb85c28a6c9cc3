"""Submit: runs that somebody asks for, not a schedule.

Promise. One run per key: asking again, by whoever lost the answer, finds the run that is there. A run's id
follows from job, kind and key, so that even a database that lost its last second arrives at the same run.

By what. The key is taken in the transaction that writes the run. The job's row lock keeps edits and deletes
out. A job with a lane is locked alone, as a fire does it: what finds the lane taken is held, never dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final
from uuid import UUID

from mainspring.domain.asking import Request
from mainspring.domain.durations import later
from mainspring.domain.errors import NotFound
from mainspring.domain.ids import JobId, Kind, RunId, run_id
from mainspring.domain.job import AGEING, Job
from mainspring.domain.schedule import EPOCH
from mainspring.domain.views import RunView
from mainspring.environment import Environment
from mainspring.store.database import Connection, Database, columns
from mainspring.store.jobs import Definitions
from mainspring.store.queries import queries

_SQL = queries("submit")
_GOING: Final = queries("fire")["going"]
_RELEASE: Final = queries("settle")["release_held"]
AT_ONCE: Final = 25_000  # runs that are written or not, together
_IDS_AT_ONCE: Final = 500
_INSERTED_AT_ONCE: Final = 2_500
_COPIED: Final = (
    "id",
    "job_id",
    "tenant",
    "version",
    "kind",
    "slot",
    "fired_at",
    "ready_at",
    "rank",
    "expires_at",
    "pool",
    "task",
    "state",
    "payload",
)


@dataclass(frozen=True, slots=True)
class Known:
    """A job as whoever submits to it remembers it."""

    id: JobId
    version: int
    job: Job

    @property
    def exclusive(self) -> bool:
        return self.job.overlap.exclusive


async def submit(db: Database, env: Environment, known: Known, requests: Sequence[Request]) -> list[RunId] | None:
    """Write the runs that are asked for; return their ids in order, new ones and those that were there.

    None: the job has changed since it was remembered. Look again.
    """
    one_statement = not known.exclusive and not db.pooled
    async with db.statement() if one_statement else db.transaction() as tx:
        ids = await submit_in(tx, env, known, requests)
        if ids is None:
            db.nothing_done()
    if ids is not None and known.exclusive:
        await free_lane(db, known.id)
    return ids


async def submit_in(tx: Connection, env: Environment, known: Known, requests: Sequence[Request]) -> list[RunId] | None:
    """Do the same within the caller's transaction."""
    ids = run_ids(env, known.id, requests)
    if known.exclusive:
        return ids if await _submit_alone(tx, known, requests, ids) else None
    job = known.job
    shared = (known.id, known.version, job.tenant, job.task, _expires_in(job))
    if len(requests) == 1 and requests[0].key is None:
        one = requests[0]
        asked = (ids[0], one.due_at, one.delay, _lead(job, one), one.pool or job.pool, one.payload)
        return ids if await tx.fetchval(_SQL["submit_one"], *shared, *asked) is not None else None
    rows = [
        (run, one.key, one.due_at, one.delay, _lead(job, one), one.pool or job.pool, one.payload)
        for run, one in zip(ids, requests, strict=True)
    ]
    written = await tx.fetchrow(_SQL["submit"], *shared, *columns(rows, 7))
    return ids if written is not None and written["jobs"] else None


def run_ids(env: Environment, job: JobId, requests: Sequence[Request]) -> list[RunId]:
    """Return the ids of the runs asked for: by their keys, or new ones that sort by their time."""
    return [RunId(env.new_id()) if one.key is None else run_id(job, Kind.MANUAL, one.key, at=EPOCH) for one in requests]


class KeyedRequest(Exception):
    """One of very many requests has a key, which COPY cannot look up; none of its batch was written."""


async def submit_many(
    db: Database, env: Environment, known: Known, requests: Iterator[Request], seen: list[Request]
) -> list[RunId] | None:
    """Write up to ``AT_ONCE`` runs without keys by COPY, all or none; None as in :func:`submit`.

    Requests are taken one by one while the server writes those before; what was taken is in ``seen``.

    Raises:
        KeyedRequest: one has a key; submit those seen, and the rest, in the ordinary way.
    """
    async with db.transaction() as tx:
        locked = await tx.fetchrow(_SQL["lock_shared"], known.id)
        if locked is None or locked["version"] != known.version:
            return None
        ids: list[RunId] = []
        rows = _copied_rows(env, known, islice(requests, AT_ONCE), now=locked["now"], seen=seen, ids=ids)
        if db.tenant is None:
            await tx.copy_records_to_table("runs", records=rows, columns=_COPIED)
        else:  # Postgres copies nothing into a table whose row security applies
            while some := list(islice(rows, _INSERTED_AT_ONCE)):
                await tx.execute(_SQL["insert_many"], *columns(some, len(_COPIED)))
    return ids


def _copied_rows(
    env: Environment,
    known: Known,
    requests: Iterator[Request],
    *,
    now: datetime,
    seen: list[Request],
    ids: list[RunId],
) -> Iterator[tuple[Any, ...]]:
    job_id, job, version = known.id, known.job, known.version
    tenant, task, lead, expires_in = job.tenant, job.task, job.priority * AGEING, _expires_in(job)
    fresh: Iterator[RunId] = iter(())
    for request in requests:
        seen.append(request)
        key, payload, due_at, delay, priority, pool = request
        if key is not None:
            raise KeyedRequest
        run = next(fresh, None)
        if run is None:
            fresh = map(RunId, env.new_ids(_IDS_AT_ONCE))
            run = next(fresh)
        ids.append(run)
        ready_at = due_at or (now if delay is None else now + delay)
        rank = ready_at - (lead if priority is None else priority * AGEING)
        expires_at = None if expires_in is None else later(ready_at, expires_in)
        times = (ready_at, now, ready_at, rank, expires_at)
        yield (run, job_id, tenant, version, "manual", *times, pool or job.pool, task, "queued", payload)


async def _submit_alone(tx: Connection, known: Known, requests: Sequence[Request], ids: Sequence[RunId]) -> bool:
    locked = await tx.fetchrow(_SQL["lock_alone"], known.id)
    if locked is None or locked["version"] != known.version:
        return False
    now: datetime = locked["now"]
    fresh = await _fresh(tx, known.id, now, requests, ids)
    planned = []
    for run, one in zip(ids, requests, strict=True):
        if run in fresh:
            fresh.remove(run)  # the same key twice in one call is one run
            ready_at = one.due_at or now + (one.delay or timedelta(0))
            planned.append(Planned(run, Kind.MANUAL, ready_at, ready_at, _lead(known.job, one), one.pool, one.payload))
    await write_runs(tx, known, planned, now)
    return True


async def _fresh(
    tx: Connection, job: JobId, now: datetime, requests: Sequence[Request], ids: Sequence[RunId]
) -> set[RunId]:
    """Return which of these runs nobody has asked for before."""
    keyed = {one.key: run for one, run in zip(requests, ids, strict=True) if one.key is not None}
    fresh = set(ids) - set(keyed.values())
    if keyed:
        taken = await tx.fetch(_SQL["take_keys"], job, now, list(keyed), list(keyed.values()))
        fresh |= {RunId(row["run_id"]) for row in taken}
    return fresh


@dataclass(frozen=True, slots=True)
class Planned:
    """One run to write under its job's lock."""

    id: RunId
    kind: Kind
    slot: datetime
    ready_at: datetime
    lead: timedelta
    pool: str | None
    payload: str | None


async def write_runs(tx: Connection, known: Known, planned: Sequence[Planned], now: datetime) -> int:
    """Write runs of a job that is locked alone; those that find its lane taken are held. Return how many are new."""
    job = known.job
    busy = job.overlap.exclusive and bool(await tx.fetch(_GOING, [known.id]))
    rows = []
    for one in planned:
        rank, expires_in = max(one.ready_at, now) - one.lead, _expires_in(job)
        expires_at = None if expires_in is None else later(one.ready_at, expires_in)
        lane = job.overlap.exclusive and not busy
        times = (one.slot, one.ready_at, rank, expires_at)
        rows.append((one.id, one.kind.value, *times, one.pool or job.pool, busy, lane, one.payload))
        busy = busy or job.overlap.exclusive
    if not rows:
        return 0
    shared = (known.id, job.tenant, known.version, now, job.task)
    done = await tx.execute(_SQL["write_runs"], *shared, *columns(rows, 10))
    return int(done.rpartition(" ")[2])


async def free_lane(db: Database, job: JobId) -> None:
    """Let a held run go whose predecessor ended while it was being written; the guardian would, only later."""
    async with db.transaction() as tx:
        await tx.execute(_SQL["free_lane"], job)
        await tx.execute(_RELEASE, [job])


async def lock_known(tx: Connection, definitions: Definitions, job: JobId) -> tuple[Known, datetime]:
    """Lock a job alone and return it as it is now, with the time of the lock.

    Raises:
        NotFound: there is no such job, or it was deleted.
    """
    locked = await tx.fetchrow(_SQL["lock_alone"], job)
    if locked is None:
        raise NotFound(f"there is no job {job}")
    pair: tuple[UUID, int] = (job, locked["version"])
    definition = (await definitions.of(tx, [pair]))[job]
    return Known(job, locked["version"], definition.shared), locked["now"]


def _lead(job: Job, one: Request) -> timedelta:
    return (job.priority if one.priority is None else one.priority) * AGEING


def _expires_in(job: Job) -> timedelta | None:
    """Return how long after it is due a run may still start: its slot is when it is due."""
    return min((limit for limit in (job.deadline, job.wait_timeout) if limit is not None), default=None)


async def replay_run(
    db: Database, definitions: Definitions, env: Environment, run: RunView, *, key: str | None = None
) -> RunId:
    """Run again what has ended, with the same slot and payload and a fresh budget; with a key, once for that key.

    Raises:
        NotFound: its job was deleted.
    """
    again = run_id(run.job_id, Kind.REPLAY, f"{run.id}/{key or env.new_id().hex}", at=run.slot)
    async with db.transaction() as tx:
        known, now = await lock_known(tx, definitions, run.job_id)
        if key is None or await tx.fetch(_SQL["take_keys"], run.job_id, now, [f"{run.id}/{key}"], [again]):
            payload = None if run.payload is None else json.dumps(run.payload)
            planned = Planned(again, Kind.REPLAY, run.slot, now, known.job.priority * AGEING, None, payload)
            await write_runs(tx, known, [planned], now)
        else:
            db.nothing_done()
    if known.exclusive:
        await free_lane(db, run.job_id)
    return again
