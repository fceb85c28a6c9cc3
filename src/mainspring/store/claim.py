"""Claim: queued runs become running: one more attempt, a random lease token, a worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import asyncpg

from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import Job, Json
from mainspring.environment import Environment
from mainspring.store.database import Database
from mainspring.store.jobs import Definition, Definitions
from mainspring.store.queries import queries

_SQL = queries("claim")

Place: TypeAlias = tuple[datetime, UUID]
FIRST: Final[Place] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
_KINDS = {kind.value: kind for kind in Kind}


class ClaimedRun(NamedTuple):
    """One attempt in hand. Settling names run, attempt and token: a replaced attempt matches no row.

    A tuple, because there is one for every attempt.
    """

    id: RunId
    job_id: JobId
    name: str  # of its job
    payload: Json
    job: Job  # shared with its like: all but name and payload
    version: int
    kind: Kind
    slot: datetime
    rank: datetime
    attempt: int
    failures: int
    token: UUID
    worker: NodeId
    started_at: datetime

    @property
    def place(self) -> Place:
        """Where it stood in the order of claims."""
        return self.rank, self.id


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
    rows.sort(key=itemgetter(5))  # by rank: UPDATE returns them in no order
    return [claimed_run(row, jobs[row["job_id"]], worker, token) for row in rows]


def claimed_run(row: asyncpg.Record, definition: Definition, worker: NodeId, token: UUID) -> ClaimedRun:
    """Read an attempt in hand off its row."""
    run, job, version, kind, slot, rank, attempt, failures, started_at, payload = row[:10]
    return ClaimedRun(
        run,
        job,
        definition.name,
        definition.payload if payload is None else json.loads(payload),
        definition.shared,
        version,
        _KINDS[kind],
        slot,
        rank,
        attempt,
        failures,
        token,
        worker,
        started_at,
    )
