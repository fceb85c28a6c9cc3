"""The log of changes: who did what, what it was before and after, and why. Appended to, never changed.

An entry is written in the transaction of the change it tells of (:meth:`Database.noting`): there is no change without
its entry, and no entry of a change that did not happen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import asyncpg

from mainspring.domain.job import Json
from mainspring.domain.views import Page
from mainspring.store.database import Connection, Database, columns
from mainspring.store.queries import queries
from mainspring.store.reading import page_of, parsed, place_of

_SQL = queries("log")
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change that somebody made."""

    action: str  # a noun and a verb, as the route is called: "jobs.pause"
    subject: str  # what it was done to: "nightly"
    before: Json = None  # None: there was nothing, or it does not matter
    after: Json = None
    reason: str = ""
    actor: str
    request: str = ""  # the id of the request
    tenant: str | None = None  # None: that of the database it is written through; the cluster's own if that has none

    async def write(self, tx: Connection, tenant: str | None) -> None:
        """Append this entry, within the transaction of what it tells of."""
        whose = self.tenant if tenant is None else tenant
        values = (_written(self.before), _written(self.after), self.reason, self.request)
        await tx.execute(_SQL["write"], whose, self.actor, self.action, self.subject, *values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChange:
    """An entry as it stands in the log."""

    id: UUID
    tenant: str | None
    at: datetime
    actor: str
    action: str
    subject: str
    before: Json
    after: Json
    reason: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which entries; what is None does not matter."""

    subject: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def write_many(tx: Connection, tenant: str, entries: Sequence[Entry]) -> None:
    """Append the entries of many changes that are made together, within their transaction."""
    rows = [
        (each.actor, each.action, each.subject, _written(each.before), _written(each.after), each.reason, each.request)
        for each in entries
    ]
    await tx.execute(_SQL["write_many"], tenant, *columns(rows, 7))


async def list_changes(
    db: Database, tenant: str | None, wanted: LogFilter, *, limit: int, after: str | None
) -> Page[LoggedChange]:
    """Return the changes of a tenant, or of the cluster itself, newest first, after the cursor of the page before."""
    asked = (wanted.subject, wanted.actor, wanted.action, wanted.since or _EARLIEST, wanted.until or _LATEST)
    async with db.connection() as connection:
        if tenant is None:
            rows = await connection.fetch(_SQL["list_of_cluster"], *place_of(after), limit + 1, *asked)
        else:
            rows = await connection.fetch(_SQL["list"], tenant, *place_of(after), limit + 1, *asked)
    return page_of([_logged(row) for row in rows], limit, lambda change: (change.at, change.id))


def _written(value: Json) -> str | None:
    return None if value is None else json.dumps(value)


def _logged(row: asyncpg.Record) -> LoggedChange:
    return LoggedChange(
        id=row["id"],
        tenant=row["tenant"],
        at=row["at"],
        actor=row["actor"],
        action=row["action"],
        subject=row["subject"],
        before=parsed(row["before"]),
        after=parsed(row["after"]),
        reason=row["reason"],
        request=row["request"],
    )
