"""Recover: what was left behind is set in motion again. Run by the guardian, on every scheduler node.

Promise (I7). With faults over, no run stays in the hands of a dead worker and no held run waits for a lane
that is free. Several nodes may recover at once: SKIP LOCKED and the attempt number make it one transition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import asyncpg

from mainspring.domain.ids import JobId, NodeId, RunId
from mainspring.domain.settling import GivenBack, Lost, Outcome
from mainspring.environment import Environment
from mainspring.store.claim import claimed_run
from mainspring.store.database import Connection, Database
from mainspring.store.jobs import Definitions
from mainspring.store.queries import queries
from mainspring.store.settle import NOTHING, Ended, SettleReport, settle

_SQL = queries("recover")


async def recover_lost(db: Database, definitions: Definitions, env: Environment, limit: int = 500) -> SettleReport:
    """Close the attempts of workers that were declared dead: by on_loss, queued again or dead.

    Found without a lock, settled by attempt and token: whoever comes second matches no row.
    """
    async with db.connection() as connection:
        dead = [row["id"] for row in await connection.fetch(_SQL["dead"])]
        if not dead:
            return NOTHING
        rows = await connection.fetch(_SQL["lost"], dead, limit)
        ended = await _ended(connection, definitions, rows, Lost())
    await env.reach("recover.found")
    report = await settle(db, env, ended, record_late=False)
    if len(report.settled) == len(rows) < limit:  # else somebody is at them: look again
        async with db.transaction() as tx:
            await tx.execute(_SQL["swept"], dead)
    return report


async def recover_unknown(
    db: Database, definitions: Definitions, env: Environment, worker: NodeId, known: Collection[RunId]
) -> SettleReport:
    """Give back the runs that a living worker holds without knowing: the answer to its claim was lost on the way."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["unknown"], worker, list(known))
        ended = await _ended(connection, definitions, rows, GivenBack())
    return await settle(db, env, ended, record_late=False)


async def _ended(
    connection: Connection, definitions: Definitions, rows: Sequence[asyncpg.Record], outcome: Outcome
) -> list[Ended]:
    jobs = await definitions.of(connection, [(row["job_id"], row["version"]) for row in rows])
    return [Ended(claimed_run(row, jobs[row["job_id"]], NodeId(row["worker"]), row["token"]), outcome) for row in rows]


async def recover_stranded(db: Database, limit: int = 500) -> int:
    """Release held runs whose lane is free, under their job's lock; return how many.

    Settling does this; only a job whose overlap policy was edited meanwhile can strand one.
    """
    async with db.transaction() as tx:
        jobs = [row["job_id"] for row in await tx.fetch(_SQL["stranded"], limit)]
        if not jobs:
            return 0
        await tx.execute(queries("settle")["lock_jobs"], jobs)
        return len(await tx.fetch(queries("settle")["release_held"], jobs))


async def recover_expired(db: Database, env: Environment, limit: int = 500) -> int:
    """Give up runs that no worker has started in time: dead, expired; return how many."""
    async with db.transaction() as tx:
        expired = await tx.fetch(_SQL["expire"], limit)
        lanes = [row["lane"] for row in expired if row["lane"] is not None]
        if lanes:
            await tx.execute(queries("settle")["release_held"], lanes)
        await env.reach("recover.expired")
    return len(expired)


async def jobs_done(db: Database, limit: int = 100) -> list[JobId]:
    """Return jobs that are to go when they are done, and are: no slot to come, no run in motion."""
    async with db.connection() as connection:
        return [JobId(row["job_id"]) for row in await connection.fetch(_SQL["done"], limit)]
