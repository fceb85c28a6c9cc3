"""What store tests say: given jobs, fire, claim, settle; and the invariant check over the audit views."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from mainspring import At, Every, Schedule
from mainspring.domain.firing import FireReport
from mainspring.domain.ids import JobId, NodeId
from mainspring.domain.job import Job
from mainspring.domain.selection import DueNow
from mainspring.domain.settling import Outcome, Succeeded
from mainspring.environment import Environment
from mainspring.store import claim as claims
from mainspring.store import fire as fires
from mainspring.store import nodes
from mainspring.store import settle as settles
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions, insert_jobs
from mainspring.testing.invariants import check_ledger

EVERY_SECOND = Schedule(specs=(Every(timedelta(seconds=1)),))


@dataclass
class Ledger:
    """The four verbs on one database, as one process would call them."""

    db: Database
    env: Environment
    definitions: Definitions = field(default_factory=Definitions)
    moved_by_hand: set[JobId] = field(default_factory=set)  # no schedule names the slots of these jobs

    def another(self, env: Environment | None = None) -> "Ledger":
        """Give a second process on the same database."""
        return Ledger(self.db, env or self.env, moved_by_hand=self.moved_by_hand)

    async def given_jobs(self, number: int = 1, *, due: timedelta = timedelta(0), **changes: Any) -> list[JobId]:
        """Write jobs as if long ago, and set their cursors so that the oldest slot was due this long ago."""
        job = replace(Job(name="job", task="noop", schedule=EVERY_SECOND), **changes)
        ids = [JobId(self.env.new_id()) for _ in range(number)]
        jobs = [(job_id, replace(job, name=f"job-{job_id}")) for job_id in ids]
        async with self.db.transaction() as tx:
            await insert_jobs(tx, jobs)
            now = await tx.fetchval("SELECT clock_timestamp()")
            cursor = job.schedule.previous_before(now - due) or now
            moved = "UPDATE job_cursors SET next_fire_at = $2, state = 'active' WHERE job_id = ANY($1)"
            await tx.execute(moved, ids, cursor)
            dated = "UPDATE job_versions SET effective_at = $2, state = 'active' WHERE job_id = ANY($1)"
            await tx.execute(dated, ids, cursor - timedelta(milliseconds=1))
        return ids

    async def once_at(self, instant: datetime, **changes: Any) -> JobId:
        (job_id,) = await self.given_jobs(schedule=Schedule(specs=(At(instant),)), **changes)
        await self.execute("UPDATE job_cursors SET next_fire_at = $2 WHERE job_id = $1", job_id, instant)
        return job_id

    async def make_due(self, job: JobId) -> None:
        """Set a job's cursor to the first moment after its last decided slot, which its schedule does not name."""
        self.moved_by_hand.add(job)
        await self.execute("UPDATE job_cursors SET next_fire_at = last_slot + interval '1 ms' WHERE job_id = $1", job)

    async def fire(self, limit: int = 1000) -> FireReport:
        return await fires.fire(self.db, self.definitions, self.env, DueNow(limit=limit))

    async def node(self, role: str = "worker", lease_for: timedelta = timedelta(seconds=6)) -> NodeId:
        return await nodes.register(self.db, self.env, role=role, host="test", pid=1, lease_for=lease_for)

    async def claim(self, worker: NodeId, limit: int = 1000, pool: str = "short") -> list[claims.ClaimedRun]:
        return await claims.claim(
            self.db, self.definitions, self.env, pool=pool, worker=worker, tasks=["noop"], limit=limit
        )

    async def settle(self, runs: Sequence[claims.ClaimedRun], outcome: Outcome | None = None) -> settles.SettleReport:
        return await settles.settle(self.db, self.env, [settles.Ended(run, outcome or Succeeded()) for run in runs])

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.db.connection() as connection:
            return [dict(row) for row in await connection.fetch(query, *arguments)]

    async def value(self, query: str, *arguments: Any) -> Any:
        async with self.db.connection() as connection:
            return await connection.fetchval(query, *arguments)

    async def execute(self, query: str, *arguments: Any) -> None:
        async with self.db.transaction() as tx:
            await tx.execute(query, *arguments)

    async def decisions(self, job: JobId) -> list[tuple[str, int]]:
        rows = await self.rows(
            "SELECT disposition, covers_count FROM audit_fires WHERE job_id = $1 ORDER BY scheduled_at", job
        )
        return [(row["disposition"], row["covers_count"]) for row in rows]

    async def check(self) -> None:
        await check_ledger(self.db, moved_by_hand=self.moved_by_hand)
