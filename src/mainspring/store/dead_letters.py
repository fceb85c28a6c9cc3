"""Dead letters: what people do about runs that came to nothing. Closing one is a compare-and-set on its row."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import asyncpg

from mainspring.domain.asking import LetterFilter
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.ids import JobId, Kind, RunId, run_id
from mainspring.domain.job import AGEING
from mainspring.domain.run import DeadReason
from mainspring.domain.views import DeadLetter, Page
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.store.queries import queries
from mainspring.store.reading import attempt_view, error_view, page_of, parsed, place_of
from mainspring.store.submit import Planned, free_lane, lock_known, write_runs

_SQL = queries("dead_letters")
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


async def find_letter(db: Database, tenant: str, run: UUID) -> DeadLetter:
    """Return a dead letter, open or closed.

    Raises:
        NotFound: this tenant has none for that run.
    """
    async with db.connection() as connection:
        row = await connection.fetchrow(_SQL["find"], tenant, run)
    if row is None:
        raise NotFound(f"there is no dead letter of run {run}")
    return _letter(row)


async def list_letters(
    db: Database, tenant: str, wanted: LetterFilter, *, limit: int, after: str | None
) -> Page[DeadLetter]:
    """Return the open letters, newest first, after the cursor of the page before."""
    async with db.connection() as connection:
        rows = await connection.fetch(
            _SQL["list"],
            tenant,
            *place_of(after),
            limit + 1,
            wanted.job,
            None if wanted.reason is None else wanted.reason.value,
            wanted.since or _EARLIEST,
            wanted.until or _LATEST,
        )
    letters = [_letter(row) for row in rows]
    return page_of(letters, limit, lambda letter: (letter.died_at, letter.run_id))


async def replay(db: Database, definitions: Definitions, letter: DeadLetter, *, payload: str | None = None) -> RunId:
    """Run a dead letter again, with a fresh budget and its own payload or another; return the new run.

    The second call changes nothing, and returns the run of the first.

    Raises:
        NotFound: its job was deleted.
        Conflict: it was discarded.
    """
    async with db.transaction() as tx:
        known, now = await lock_known(tx, definitions, letter.job_id)
        again = run_id(letter.job_id, Kind.REPLAY, f"{letter.run_id}/1", at=letter.slot)
        closed = await tx.fetchval(_SQL["close_replayed"], letter.run_id, again) is not None
        if closed:
            own = payload if payload is not None else _written(letter)
            planned = Planned(again, Kind.REPLAY, letter.slot, now, known.job.priority * AGEING, None, own)
            await write_runs(tx, known, [planned], now)
        else:
            db.nothing_done()
    if not closed:
        return await _replayed_as(db, letter)
    await free_lane(db, letter.job_id)
    return again


async def _replayed_as(db: Database, letter: DeadLetter) -> RunId:
    found = await find_letter(db, letter.tenant, letter.run_id)
    if found.replayed_as is None:
        raise Conflict(f"the dead letter of run {letter.run_id} was discarded; submit its job again instead")
    return found.replayed_as


def _written(letter: DeadLetter) -> str | None:
    return None if letter.payload is None else json.dumps(letter.payload)


async def discard(db: Database, tenant: str, run: UUID, *, reason: str = "") -> bool:
    """Close a letter for good; return whether it was open."""
    async with db.transaction() as tx:
        closed = await tx.fetchval(_SQL["close_discarded"], tenant, run, reason) is not None
        if not closed:
            db.nothing_done()
    return closed


def _letter(row: asyncpg.Record) -> DeadLetter:
    payload = row["payload"] if row["payload"] is not None else row["job_payload"]
    return DeadLetter(
        run_id=RunId(row["run_id"]),
        job_id=JobId(row["job_id"]),
        job=row["job"],
        tenant=row["tenant"],
        kind=Kind(row["kind"] or Kind.SCHEDULE),
        slot=row["slot"],
        version=row["version"] or 1,
        reason=DeadReason(row["reason"]),
        error=error_view(row["error"]),
        payload=parsed(payload),
        attempts=tuple(map(attempt_view, parsed(row["attempts"]) or ())),
        died_at=row["died_at"],
        closed_at=row["closed_at"],
        closed_as=row["closed_as"],
        replayed_as=row["replayed_as"],
    )
