"""Recover: what was left behind is set in motion again. Run by the guardian, on every scheduler node.

Promise (I7). With faults over, no run stays in the hands of a dead worker and no held run waits for a lane
that is free. Several nodes may recover at once: SKIP LOCKED and the attempt number make it one transition.
"""

from __future__ import annotations

from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.settling import Lost
from mainspring.environment import Environment
from mainspring.store.claim import ClaimedRun
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.store.queries import queries
from mainspring.store.settle import Ended, SettleReport, settle

_SQL = queries("recover")


async def recover_lost(db: Database, definitions: Definitions, env: Environment, limit: int = 500) -> SettleReport:
    """Close the attempts of workers that were declared dead: by on_loss, queued again or dead.

    Found without a lock, settled by attempt and token: whoever comes second matches no row.
    """
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["lost"], limit)
        jobs = await definitions.of(connection, [(row["job_id"], row["version"]) for row in rows])
    if not rows:
        return SettleReport(settled={}, late=(), released=0)
    await env.reach("recover.found")
    ended = [
        Ended(
            ClaimedRun(
                id=RunId(row["id"]),
                job_id=JobId(row["job_id"]),
                job=jobs[row["job_id"]],
                version=row["version"],
                kind=Kind(row["kind"]),
                slot=row["slot"],
                ready_at=row["ready_at"],
                attempt=row["attempt"],
                failures=row["failures"],
                token=row["token"],
                worker=NodeId(row["worker"]),
                started_at=row["started_at"],
            ),
            Lost(),
        )
        for row in rows
    ]
    return await settle(db, env, ended, record_late=False)


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
