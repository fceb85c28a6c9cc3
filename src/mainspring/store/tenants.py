"""Tenants: made, changed and deleted by whoever runs the cluster. A tenant has no say in it, and sees none of it."""

from __future__ import annotations

import json
from typing import Final

import asyncpg

from mainspring.domain.access import DEFAULT_TENANT
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.ids import JobId
from mainspring.domain.tenants import (
    Quotas,
    Tenant,
    TenantState,
    check_tenant,
    quotas_from_json,
    quotas_to_json,
)
from mainspring.domain.views import Page
from mainspring.store.database import Connection, Database
from mainspring.store.queries import queries

_SQL = queries("tenants")
_MANY: Final = 10_000


async def create_tenant(db: Database, name: str, *, quotas: Quotas | None = None, note: str = "") -> Tenant:
    """Make a tenant.

    Raises:
        InvalidRequest: it cannot be called that.
        Conflict: the name is taken, or was: what a deleted tenant left behind must not become another's.
    """
    written = json.dumps(quotas_to_json(quotas or Quotas()))
    async with db.transaction() as tx:
        row = await tx.fetchrow(_SQL["create"], check_tenant(name), written, note)
        if row is None:
            raise Conflict(f'there is a tenant "{name}" already, or was; choose another name')
        return _tenant(row)


async def find_tenant(db: Database, name: str) -> Tenant:
    """Return a tenant, also one that was deleted.

    Raises:
        NotFound: there is none of that name.
    """
    async with db.connection() as connection:
        row = await connection.fetchrow(_SQL["find"], name)
    if row is None:
        raise _unknown(name)
    return _tenant(row)


async def list_tenants(db: Database, *, limit: int, after: str | None = None, deleted: bool = False) -> Page[Tenant]:
    """Return tenants by name, after the last one of the page before."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["list"], after or "", limit + 1, deleted)
    items = tuple(_tenant(row) for row in rows[:limit])
    return Page(items=items, next=items[-1].name if len(rows) > limit else None)


async def change_tenant(
    db: Database,
    name: str,
    *,
    state: TenantState | None = None,
    quotas: Quotas | None = None,
    note: str | None = None,
    since: Tenant | None = None,
) -> Tenant:
    """Change what is given, and leave the rest; only if nobody did ``since`` it was read, if that is told.

    Raises:
        NotFound: there is no such tenant.
        Conflict: it was deleted, which is final; or is to be, and has jobs left; or another has changed it.
    """
    async with db.transaction() as tx:
        row = await tx.fetchrow(_SQL["lock"], name)
        if row is None:
            raise _unknown(name)
        old = _tenant(row)
        if old.state is TenantState.DELETED:
            raise Conflict(f'tenant "{name}" was deleted, which is final')
        if since is not None and old.changed_at != since.changed_at:
            raise Conflict(f'another has changed tenant "{name}" at this moment; look at it, and try again')
        if state is TenantState.DELETED:
            await _refuse_to_delete(tx, name)
        row = await tx.fetchrow(
            _SQL["change"],
            name,
            (state or old.state).value,
            json.dumps(quotas_to_json(quotas or old.quotas)),
            old.note if note is None else note,
        )
        assert row is not None, "it is locked"
        return _tenant(row)


async def delete_tenant(db: Database, name: str) -> Tenant:
    """Mark a tenant as deleted: no key of it is good any more. What it has done stays on record.

    Raises:
        NotFound: there is no such tenant.
        Conflict: it has jobs left, or was deleted before.
    """
    return await change_tenant(db, name, state=TenantState.DELETED)


async def jobs_of(tx: Connection, name: str, *, most: int = _MANY) -> int:
    """Return how many jobs a tenant has, counted up to ``most``."""
    counted: int = await tx.fetchval(_SQL["jobs_left"], name, most)
    return counted


async def orphans(db: Database, *, limit: int = _MANY) -> list[JobId]:
    """Return jobs whose tenant was deleted."""
    async with db.connection() as connection:
        return [JobId(row["id"]) for row in await connection.fetch(_SQL["orphans"], limit)]


async def _refuse_to_delete(tx: Connection, name: str) -> None:
    if name == DEFAULT_TENANT:
        raise Conflict(f'tenant "{name}" is whose everything is that names none; it stays')
    left = await jobs_of(tx, name)
    if left:
        number = f"{left} jobs or more" if left == _MANY else f"{left} job{'' if left == 1 else 's'}"
        raise Conflict(f'tenant "{name}" has {number} left; delete them first')


def _unknown(name: str) -> NotFound:
    return NotFound(f'there is no tenant "{name[:80]}"')


def _tenant(row: asyncpg.Record) -> Tenant:
    return Tenant(
        name=row["name"],
        state=TenantState(row["state"]),
        quotas=quotas_from_json(json.loads(row["quotas"])),
        created_at=row["created_at"],
        changed_at=row["changed_at"],
        note=row["note"],
    )
