"""Claim: queued runs become running: one more attempt, a random lease token, a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg

from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import AGEING, Job, Json
from mainspring.environment import Environment
from mainspring.store.database import Database
from mainspring.store.jobs import Definition, Definitions
from mainspring.store.queries import queries

_SQL = queries("claim")

Place: TypeAlias = tuple[datetime, UUID]
FIRST: Final[Place] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
_KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """One attempt in hand. Settling names run, attempt and token: a replaced attempt matches no row."""

    id: RunId
    job_id: JobId
    name: str  # of its job
    payload: Json
    job: Job  # shared with its like: all but name and payload
    version: int
    kind: Kind
    slot: datetime
    ready_at: datetime
    attempt: int
    failures: int
    token: UUID
    worker: NodeId
    started_at: datetime

    @property
    def place(self) -> Place:
        """Where it stood in the order of claims."""
        return self.ready_at - self.job.priority * AGEING, self.id


async def claim(
    db: Database,
    definitions: Definitions,
    env: Environment,
    *,
    pool: str,
    worker: NodeId,
    tasks: Sequence[str],
    limit: int,
    after: Place = FIRST,
) -> list[ClaimedRun]:
    """Take up to ``limit`` ready runs of a pool, best rank first: no more than can start now.

    ``after`` spares a worker that takes full batches from stepping over the last ones again. It is a shortcut
    past whatever has come before that place since: look from the ``FIRST`` every now and then.
    """
    token = env.token()
    async with db.transaction() as tx:
        rows = await tx.fetch(_SQL["claim"], pool, limit, worker, list(tasks), token, *after)
        await env.reach("claim.commit")
        jobs = await definitions.of(tx, [(row["job_id"], row["version"]) for row in rows])
    await env.reach("claim.committed")
    rows.sort(key=lambda row: row["ready_at"])  # UPDATE returns them in no order
    return [claimed_run(row, jobs[row["job_id"]], worker, token) for row in rows]


def claimed_run(row: asyncpg.Record, definition: Definition, worker: NodeId, token: UUID) -> ClaimedRun:
    """Read an attempt in hand off its row."""
    return ClaimedRun(
        id=RunId(row["id"]),
        job_id=JobId(row["job_id"]),
        name=definition.name,
        payload=definition.payload,
        job=definition.shared,
        version=row["version"],
        kind=_KINDS[row["kind"]],
        slot=row["slot"],
        ready_at=row["ready_at"],
        attempt=row["attempt"],
        failures=row["failures"],
        token=token,
        worker=worker,
        started_at=row["started_at"],
    )
