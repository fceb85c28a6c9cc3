"""The ledger as the audit reads it: job by job, at one moment, whatever a running system writes meanwhile.

Memory does not grow with the window. Decisions come from one sorted stream, in pages; jobs in batches by key
beside it; both are in order of the job's id and are merged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

import asyncpg

from mainspring.domain.errors import MainspringError
from mainspring.domain.ids import JobId
from mainspring.domain.job import JobState, schedule_from_json
from mainspring.domain.schedule import Schedule
from mainspring.store.database import Database, scanning
from mainspring.store.history import kept_since
from mainspring.store.queries import queries

_SQL = queries("audit")
_JOBS: Final = 1000
_DECISIONS: Final = 2000  # some 20 ms of judging: others in this process get their turn between pages
_PATIENCE: Final = 3600.0  # in seconds: sorting a large window is slow, and no sign that the database is gone

_Motion: TypeAlias = tuple[datetime, datetime | None]


class Decided(NamedTuple):
    """What the ledger says of a slot, or of a stretch of slots. A tuple: there are a million of them."""

    first: datetime
    slot: datetime
    covers: int
    disposition: str
    version: int
    decided_at: datetime
    run_id: UUID | None = None  # of a slot that fired
    settled_at: datetime | None = None  # None: no run, or one in motion


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What was in force for slots after ``effective_at``, up to and including that of the next version."""

    number: int
    state: JobState
    schedule: Schedule | None  # None: it cannot be read any more
    effective_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    state: JobState
    next_fire_at: datetime | None
    last_slot: datetime | None
    fired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job and its decisions, by first slot. One with many comes as several records, one after the other."""

    id: JobId
    name: str
    tenant: str
    versions: Sequence[Version] = ()  # oldest first; none: no such job
    cursor: Cursor | None = None
    decisions: Sequence[Decided] = ()
    other_runs: Sequence[_Motion] = ()  # fired and settled; begun outside the window, or not by the schedule


class Snapshot:
    """The ledger at ``judged_at``, for slots from ``start`` on; exists within its transaction."""

    def __init__(self, tx: asyncpg.Connection[asyncpg.Record], judged_at: datetime, window: tuple[Any, ...]) -> None:
        self.judged_at = judged_at
        self.start: datetime = window[0]
        self._tx = tx
        self._window = window  # start, end, tenant

    async def jobs(self) -> AsyncIterator[JobRecord]:
        """Yield every job in order of its id, then decisions for jobs that do not exist among them."""
        pages = self._decisions()
        page = await anext(pages, None)
        async for job in self._definitions():
            while page is not None and page[0] < job.id:
                yield _unknown(*page)
                page = await anext(pages, None)
            if page is None or page[0] != job.id:
                yield job
            while page is not None and page[0] == job.id:
                yield replace(job, decisions=page[1])
                page = await anext(pages, None)
        while page is not None:
            yield _unknown(*page)
            page = await anext(pages, None)

    async def _decisions(self) -> AsyncIterator[tuple[UUID, list[Decided]]]:
        cursor = await self._tx.cursor(_SQL["decisions"], *self._window, timeout=_PATIENCE)
        while rows := await cursor.fetch(_DECISIONS, timeout=_PATIENCE):
            for job_id, of_job in groupby(rows, itemgetter(0)):
                yield job_id, [Decided(*row[1:]) for row in map(tuple, of_job)]

    async def _definitions(self) -> AsyncIterator[JobRecord]:
        others = await self._other_runs()
        last = UUID(int=0)
        while rows := await self._tx.fetch(_SQL["jobs"], last, _JOBS, self._window[2]):
            last = rows[-1]["id"]
            versions = defaultdict(list)
            for row in await self._tx.fetch(_SQL["versions"], [row["id"] for row in rows]):
                versions[row["job_id"]].append(_version(row))
            for row in rows:
                yield _job(row, versions[row["id"]], others.get(row["id"], ()))

    async def _other_runs(self) -> dict[UUID, list[_Motion]]:
        found = defaultdict(list)
        for row in await self._tx.fetch(_SQL["other_runs"], *self._window[:2], timeout=_PATIENCE):
            found[row["job_id"]].append((row["fired_at"], row["settled_at"]))
        return found


@asynccontextmanager
async def snapshot(
    db: Database, *, start: datetime, end: datetime, tenant: str | None = None
) -> AsyncIterator[Snapshot]:
    """Hold the ledger still for slots in ``[start, end)``, as far as retention has not dropped them.

    Raises:
        StoreUnavailable: nothing was written; ask again.
    """
    async with db.transaction() as connection:
        tx = cast("asyncpg.Connection[asyncpg.Record]", connection)  # for its cursors
        await tx.execute(_SQL["one_moment"])
        await scanning(tx)
        kept = await kept_since(tx)
        judged_at = await tx.fetchval(_SQL["judged_at"])
        yield Snapshot(tx, judged_at, (start if kept is None else max(start, kept), end, tenant))


def _job(row: asyncpg.Record, versions: Sequence[Version], others: Sequence[_Motion]) -> JobRecord:
    cursor = None
    if row["state"] is not None:
        cursor = Cursor(
            state=JobState(row["state"]),
            next_fire_at=row["next_fire_at"],
            last_slot=row["last_slot"],
            fired=row["fired"],
        )
    job_id, name, tenant = JobId(row["id"]), row["name"], row["tenant"]
    return JobRecord(id=job_id, name=name, tenant=tenant, versions=versions, cursor=cursor, other_runs=others)


def _version(row: asyncpg.Record) -> Version:
    return Version(
        number=row["version"],
        state=JobState(row["state"]),
        schedule=_schedule(row["schedule"]),
        effective_at=row["effective_at"],
    )


def _unknown(job_id: UUID, decisions: Sequence[Decided]) -> JobRecord:
    return JobRecord(id=JobId(job_id), name="", tenant="", decisions=decisions)


@lru_cache(maxsize=16_384)
def _schedule(text: str) -> Schedule | None:
    try:
        return schedule_from_json(json.loads(text))
    except (MainspringError, LookupError, TypeError, ValueError):  # an audit says so, and goes on with the others
        return None
