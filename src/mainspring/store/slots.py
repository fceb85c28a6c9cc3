"""One slot of one job: everything the ledger knows about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.domain.errors import NotFound
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job, JobState, job_from_json
from mainspring.store.database import Connection, Database, scanning
from mainspring.store.queries import queries

_SQL = queries("slots")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    number: int
    state: JobState
    job: Job
    effective_at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The ledger row that answers for the slot."""

    disposition: str
    first_slot: datetime
    slot: datetime
    covers: int
    at: datetime
    run_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    number: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is on record about a job at an instant."""

    name: str
    now: datetime
    version: Version | None  # None: the job did not exist yet
    next_fire_at: datetime | None
    decided: Decided | None
    run_state: str | None
    attempts: tuple[Attempted, ...]


async def evidence(db: Database, job: str, instant: datetime) -> Evidence:
    """Read what is known about a job, by id or name, at an instant.

    Raises:
        NotFound: there is no such job.
    """
    async with db.transaction() as connection:
        await scanning(connection)
        found = await connection.fetchrow(_SQL["find"], job)
        if found is None:
            raise NotFound(f'there is no job "{job}"')
        job_id = JobId(found["id"])
        decided = await _decided(connection, job_id, instant)
        run = None if decided is None else decided.run_id
        attempts = await connection.fetch(_SQL["attempts"], run) if run else []
        return Evidence(
            name=found["name"],
            now=found["now"],
            version=await _version(connection, job_id, instant),
            next_fire_at=found["next_fire_at"],
            decided=decided,
            run_state=await connection.fetchval(_SQL["run_state"], run) if run else None,
            attempts=tuple(
                Attempted(
                    number=row["attempt"],
                    started_at=row["started_at"],
                    ended_at=row["ended_at"],
                    outcome=row["outcome"],
                )
                for row in attempts
            ),
        )


async def _version(connection: Connection, job_id: JobId, instant: datetime) -> Version | None:
    row = await connection.fetchrow(_SQL["version_at"], job_id, instant)
    if row is None:
        return None
    return Version(
        number=row["version"],
        state=JobState(row["state"]),
        job=job_from_json(json.loads(row["definition"])),
        effective_at=row["effective_at"],
        reason=row["reason"],
    )


async def _decided(connection: Connection, job_id: JobId, instant: datetime) -> Decided | None:
    row = await connection.fetchrow(_SQL["decision_at"], job_id, instant)
    if row is None:
        return None
    return Decided(
        disposition=row["disposition"],
        first_slot=row["first_slot"],
        slot=row["scheduled_at"],
        covers=row["covers_count"],
        at=row["fired_at"],
        run_id=row["run_id"],
    )
