"""Bulk actions: something done to everything that a filter finds, an item at a time, by whichever process has it.

Promise. Each item is dealt with once, however many processes believe that the bulk is theirs, and wherever one of them
dies. After a stop is acknowledged nothing more is done.

By what. The step to the next item is written in the transaction that changes the item (:class:`Step`), and only by the
node that the row names, while its state is ``going``. Who was replaced, or stopped, finds no row there, and what it was
about to do is undone with the rest. So the time after which a node counts as gone may be wrong: it costs some waiting.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from mainspring.domain.errors import Conflict, NotFound, Superseded
from mainspring.domain.job import Json
from mainspring.domain.views import Page
from mainspring.store.database import Connection, Database
from mainspring.store.log import Entry
from mainspring.store.queries import queries
from mainspring.store.reading import page_of, place_of

_SQL = queries("bulks")

TAKEN_OVER_AFTER: Final = timedelta(seconds=15)
KEPT_FAILURES: Final = 20
MOST_UNFINISHED: Final = 10  # of one tenant
_MOST_GOING: Final = 3  # of one tenant, in the whole cluster
_KEPT_FOR: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBulk:
    id: UUID
    tenant: str
    action: str
    wanted: Mapping[str, Json]  # what it is done to, and how
    total: int | None  # None: not counted yet
    author: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk(NewBulk):
    """A bulk action as it stands."""

    state: str  # counting, going, then done, stopped or failed
    done: int
    skipped: int  # there was nothing to do to them
    failed: int
    cursor: str | None  # the place of the last item that was dealt with
    detail: Mapping[str, Json]
    started_at: datetime
    changed_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Step:
    """A note: the bulk has dealt with this item. Written along with what is done to it, and its entry in the log."""

    bulk: UUID
    node: UUID
    place: str
    entry: Entry

    async def write(self, tx: Connection, tenant: str | None) -> None:
        """Take the step.

        Raises:
            Superseded: the bulk was stopped, or another node is at it; let the transaction fail.
        """
        if await tx.fetchval(_SQL["step"], self.bulk, self.node, self.place) is None:
            raise _gone(self.bulk)
        await self.entry.write(tx, tenant)


async def start_bulk(db: Database, new: NewBulk) -> Bulk:
    """Write a bulk down, for whichever process takes it; the same id again returns the one that is there.

    Raises:
        Conflict: the tenant has too many that are not finished.
    """
    async with db.transaction() as tx:
        if (known := await tx.fetchrow(_SQL["find"], new.tenant, new.id)) is not None:
            return _bulk(known)
        if await tx.fetchval(_SQL["unfinished"], new.tenant) >= MOST_UNFINISHED:
            raise Conflict(f"{MOST_UNFINISHED} bulk actions are not finished; wait for one, or stop one")
        wanted = json.dumps(dict(new.wanted))
        given = (new.id, new.tenant, new.action, wanted, new.total, new.author, new.reason)
        row = await tx.fetchrow(_SQL["start"], *given)
        if row is None:  # the same request at the same moment
            row = await tx.fetchrow(_SQL["find"], new.tenant, new.id)
    if row is None:
        raise _unknown(str(new.id))
    return _bulk(row)


async def find_bulk(db: Database, tenant: str, bulk: UUID) -> Bulk:
    """Return a bulk of this tenant.

    Raises:
        NotFound: it has none of that id.
    """
    async with db.connection() as connection:
        row = await connection.fetchrow(_SQL["find"], tenant, bulk)
    if row is None:
        raise _unknown(str(bulk))
    return _bulk(row)


async def list_bulks(db: Database, tenant: str, *, limit: int, after: str | None) -> Page[Bulk]:
    """Return the bulks of a tenant, newest first, after the cursor of the page before."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["list"], tenant, *place_of(after), limit + 1)
    return page_of([_bulk(row) for row in rows], limit, lambda bulk: (bulk.started_at, bulk.id))


async def stop_bulk(db: Database, tenant: str, bulk: UUID) -> Bulk:
    """Let nothing more of a bulk be done. What is done stays done.

    Raises:
        NotFound: this tenant has none of that id.
        Conflict: it has ended already.
    """
    async with db.transaction() as tx:
        row = await tx.fetchrow(_SQL["stop"], tenant, bulk)
        if row is None:
            found = await tx.fetchrow(_SQL["find"], tenant, bulk)
            if found is None:
                raise _unknown(str(bulk))
            raise Conflict(f"bulk {bulk} is {found['state']} already")
        return _bulk(row)


async def take_bulk(db: Database, node: UUID, *, but: Collection[UUID] = ()) -> Bulk | None:
    """Take a bulk that nobody is at, of any tenant, other than those; None: there is none."""
    async with db.transaction() as tx:
        row = await tx.fetchrow(_SQL["take"], node, list(but), TAKEN_OVER_AFTER, _MOST_GOING)
    return None if row is None else _bulk(row)


async def touch_bulk(db: Database, bulk: Bulk, node: UUID) -> str:
    """Say that the node is still at it; return the state of the tenant.

    Raises:
        Superseded: it was stopped, or another is at it.
    """
    async with db.transaction() as tx:
        row = await tx.fetchrow(_SQL["touch"], bulk.id, node)
    if row is None:
        raise _gone(bulk.id)
    return row["tenant_state"] or ""


async def release_bulk(db: Database, bulk: Bulk, node: UUID) -> None:
    """Leave the rest to whoever comes, at once."""
    async with db.transaction() as tx:
        await tx.execute(_SQL["release"], bulk.id, node)


async def counted_bulk(db: Database, bulk: Bulk, node: UUID, total: int, *, more: bool) -> Bulk:
    """Write down how many items there are; ``more``: at least.

    Raises:
        Superseded: it was stopped, or another is at it.
    """
    async with db.transaction() as tx:
        row = await tx.fetchrow(_SQL["counted"], bulk.id, node, total, json.dumps({"more": True} if more else {}))
    if row is None:
        raise _gone(bulk.id)
    return _bulk(row)


async def pass_over(db: Database, bulk: Bulk, node: UUID, place: str, failure: Mapping[str, Json] | None) -> None:
    """Go past an item that failed, or to which there was nothing to do.

    Raises:
        Superseded: it was stopped, or another is at it.
    """
    written = None if failure is None else json.dumps(dict(failure))
    async with db.transaction() as tx:
        if await tx.fetchval(_SQL["pass_over"], bulk.id, node, place, written, KEPT_FAILURES) is None:
            raise _gone(bulk.id)


async def finish_bulk(db: Database, bulk: Bulk, node: UUID, *, why_not: str | None = None) -> None:
    """End a bulk: done, or failed with a reason. One that was stopped or taken over stays as it is."""
    state, detail = ("done", {}) if why_not is None else ("failed", {"why": why_not})
    async with db.transaction() as tx:
        await tx.execute(_SQL["finish"], bulk.id, node, state, json.dumps(detail))


async def forget_bulks(db: Database) -> None:
    """Delete those that ended long ago."""
    async with db.transaction() as tx:
        await tx.execute(_SQL["forget"], _KEPT_FOR)


def _gone(bulk: UUID) -> Superseded:
    return Superseded(f"bulk {bulk} was stopped, or another node is at it")


def _unknown(bulk: str) -> NotFound:
    return NotFound(f'there is no bulk action "{bulk[:60]}"')


def _bulk(row: asyncpg.Record) -> Bulk:
    return Bulk(
        id=row["id"],
        tenant=row["tenant"],
        action=row["action"],
        wanted=json.loads(row["filter"]),
        total=row["total"],
        author=row["author"],
        reason=row["reason"],
        state=row["state"],
        done=row["done"],
        skipped=row["skipped"],
        failed=row["failed"],
        cursor=row["cursor"],
        detail=json.loads(row["detail"]),
        started_at=row["started_at"],
        changed_at=row["changed_at"],
        ended_at=row["ended_at"],
    )
