"""Tenants and API keys, straight over the database: for whoever runs the cluster, and is asked by nobody who he is.

Every change goes into the log of changes with it: into that of the tenant it is about, or of the cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from mainspring.domain.access import read_role
from mainspring.domain.job import Json
from mainspring.domain.keys import KeyView
from mainspring.domain.tenants import Quotas, Tenant, TenantState, quotas_from_json, quotas_to_json
from mainspring.domain.views import Page
from mainspring.environment import Environment, SystemEnvironment
from mainspring.store import keys, tenants
from mainspring.store.database import Database, open_database
from mainspring.store.log import Entry


@asynccontextmanager
async def open_cluster(dsn: str, *, author: str) -> AsyncIterator[Cluster]:
    async with open_database(dsn, size=2) as db:
        yield Cluster(db, SystemEnvironment(), author=author)


class Cluster:
    """What belongs to no tenant."""

    def __init__(self, db: Database, env: Environment, *, author: str) -> None:
        self._db = db
        self._env = env
        self._author = author

    async def list_tenants(self, *, limit: int, after: str | None = None, deleted: bool = False) -> Page[Tenant]:
        return await tenants.list_tenants(self._db, limit=limit, after=after, deleted=deleted)

    async def find_tenant(self, name: str) -> Tenant:
        return await tenants.find_tenant(self._db, name)

    async def create_tenant(self, name: str, *, quotas: Json, note: str) -> Tenant:
        """Make a tenant with these quotas, the rest as usual."""
        entry = self._entry("tenant.create", name, after={"quotas": quotas, "note": note})
        asked = quotas_from_json(quotas)
        return await tenants.create_tenant(self._db.noting(entry), name, quotas=asked, note=note)

    async def edit_tenant(self, name: str, *, quotas: Json, note: str | None, reason: str) -> Tenant:
        """Change the quotas that are named, and the note if there is one."""
        old = await tenants.find_tenant(self._db, name)
        new = quotas_from_json(quotas, base=old.quotas)
        before, after = _written(old.quotas, old.note), _written(new, old.note if note is None else note)
        entry = self._entry("tenant.edit", name, before=before, after=after, reason=reason)
        return await tenants.change_tenant(self._db.noting(entry), name, quotas=new, note=note, since=old)

    async def set_state(self, name: str, state: TenantState, *, reason: str) -> Tenant:
        """Suspend, resume or delete a tenant."""
        old = await tenants.find_tenant(self._db, name)
        entry = self._entry(f"tenant.{_VERBS[state]}", name, before={"state": old.state}, after={"state": state})
        return await tenants.change_tenant(self._db.noting(replace(entry, reason=reason)), name, state=state)

    async def make_key(
        self, *, tenant: str | None, name: str, role: str, expires_at: datetime | None
    ) -> tuple[str, KeyView]:
        """Make a key and return its text, this once.

        Raises:
            InvalidRequest: there is no such role.
            NotFound: there is no such tenant.
        """
        role = read_role(role).value
        if tenant is not None:
            await tenants.find_tenant(self._db, tenant)
        after = {"name": name, "role": role}
        entry = replace(self._entry("key.create", tenant, after=after), subject=f"key/{name}")
        return await keys.make_key(
            self._db.noting(entry),
            self._env,
            tenant=tenant,
            name=name,
            role=role,
            created_by=self._author,
            expires_at=expires_at,
        )

    async def list_keys(self, *, tenant: str | None, limit: int, after: str | None, revoked: bool) -> Page[KeyView]:
        return await keys.list_keys(self._db, tenant=tenant, limit=limit, after=after, revoked=revoked)

    async def revoke_key(self, key: UUID, *, reason: str) -> KeyView:
        """Let nobody in with a key any more."""
        found = await keys.read_key(self._db, key)
        entry = self._entry("key.revoke", found.tenant, before={"name": found.name}, reason=reason)
        return await keys.revoke_key(self._db.noting(replace(entry, subject=f"key/{found.name}")), key)

    def _entry(
        self, action: str, tenant: str | None, *, before: Json = None, after: Json = None, reason: str = ""
    ) -> Entry:
        return Entry(
            action=action,
            subject=f"tenant/{tenant}",
            before=before,
            after=after,
            reason=reason,
            actor=self._author,
            tenant=tenant,
        )


_VERBS = {TenantState.ACTIVE: "resume", TenantState.SUSPENDED: "suspend", TenantState.DELETED: "delete"}


def _written(quotas: Quotas, note: str) -> Json:
    return {"quotas": quotas_to_json(quotas), "note": note}
