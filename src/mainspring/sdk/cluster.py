"""Tenants and API keys: what whoever runs a cluster does with them, and how that goes straight over the database.

Nobody is asked there who he is. ``remote_cluster.py`` has the same over a server, which does ask.

Every change goes into the log of changes with it, under the name it has over HTTP: of a key into that of the tenant
whose it is, the rest into the cluster's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypeAlias
from uuid import UUID

from mainspring.domain.access import read_role
from mainspring.domain.job import Json
from mainspring.domain.keys import KeyView
from mainspring.domain.tenants import Quotas, Tenant, TenantState, quotas_from_json, quotas_to_json
from mainspring.domain.views import Page
from mainspring.environment import Environment, SystemEnvironment
from mainspring.store import keys, secrets, tenants
from mainspring.store.database import Database, open_database
from mainspring.store.log import Entry

SecretView: TypeAlias = secrets.SecretView  # for those who know nothing of the store


class Administration(Protocol):
    """Tenants, which are the cluster's own, and API keys, most of which are one tenant's."""

    async def list_tenants(self, *, limit: int, after: str | None, deleted: bool) -> Page[Tenant]: ...

    async def find_tenant(self, name: str) -> Tenant: ...

    async def create_tenant(self, name: str, *, quotas: Json, note: str) -> Tenant:
        """Make a tenant with these quotas, the rest as usual."""

    async def edit_tenant(self, name: str, *, quotas: Json, note: str | None, reason: str) -> Tenant:
        """Change the quotas that are named, and the note if there is one."""

    async def set_state(self, name: str, state: TenantState, *, reason: str) -> Tenant:
        """Suspend, resume or delete a tenant."""

    async def make_key(
        self, *, name: str, role: str, expires_at: datetime | None, whole_cluster: bool
    ) -> tuple[str, KeyView]:
        """Make a key and return its text, this once."""

    async def list_keys(self, *, limit: int, after: str | None, revoked: bool, every: bool) -> Page[KeyView]:
        """List the tenant's keys; with ``every`` also those of the others, and of the whole cluster."""

    async def revoke_key(self, key: UUID, *, reason: str) -> KeyView:
        """Let nobody in with a key any more."""


class Secrets(Protocol):
    """The secrets of one tenant. What they are is told by none of these."""

    async def put_secret(self, name: str, value: str) -> SecretView: ...

    async def list_secrets(self) -> Sequence[SecretView]: ...

    async def delete_secret(self, name: str) -> int:
        """Delete a secret with all its versions; return how many there were."""


@asynccontextmanager
async def open_cluster(dsn: str, *, tenant: str, author: str) -> AsyncIterator[Cluster]:
    async with open_database(dsn, size=2) as db:
        yield Cluster(db, SystemEnvironment(), tenant=tenant, author=author)


class Cluster:
    """The :class:`Administration` over a database."""

    def __init__(self, db: Database, env: Environment, *, tenant: str, author: str) -> None:
        self._db = db
        self._env = env
        self._tenant = tenant  # whose keys, where it does not say otherwise
        self._author = author

    async def list_tenants(self, *, limit: int, after: str | None, deleted: bool) -> Page[Tenant]:
        return await tenants.list_tenants(self._db, limit=limit, after=after, deleted=deleted)

    async def find_tenant(self, name: str) -> Tenant:
        return await tenants.find_tenant(self._db, name)

    async def create_tenant(self, name: str, *, quotas: Json, note: str) -> Tenant:
        entry = self._entry("tenants.create", name, after={"quotas": quotas, "note": note})
        asked = quotas_from_json(quotas)
        return await tenants.create_tenant(self._db.noting(entry), name, quotas=asked, note=note)

    async def edit_tenant(self, name: str, *, quotas: Json, note: str | None, reason: str) -> Tenant:
        old = await tenants.find_tenant(self._db, name)
        new = quotas_from_json(quotas, base=old.quotas)
        before, after = _written(old.quotas, old.note), _written(new, old.note if note is None else note)
        entry = self._entry("tenants.edit", name, before=before, after=after, reason=reason)
        return await tenants.change_tenant(self._db.noting(entry), name, quotas=new, note=note, since=old)

    async def set_state(self, name: str, state: TenantState, *, reason: str) -> Tenant:
        old = await tenants.find_tenant(self._db, name)
        action = "tenants.delete" if state is TenantState.DELETED else "tenants.edit"
        entry = self._entry(action, name, before={"state": old.state}, after={"state": state}, reason=reason)
        return await tenants.change_tenant(self._db.noting(entry), name, state=state)

    async def make_key(
        self, *, name: str, role: str, expires_at: datetime | None, whole_cluster: bool
    ) -> tuple[str, KeyView]:
        role = read_role(role).value
        tenant = None if whole_cluster else self._tenant
        if tenant is not None:
            await tenants.find_tenant(self._db, tenant)
        expires = None if expires_at is None else expires_at.isoformat()
        after: Json = {"role": role, "cluster": tenant is None, "expires_at": expires}
        entry = replace(self._entry("keys.create", name, after=after), tenant=tenant)
        return await keys.make_key(
            self._db.noting(entry),
            self._env,
            tenant=tenant,
            name=name,
            role=role,
            created_by=self._author,
            expires_at=expires_at,
        )

    async def list_keys(self, *, limit: int, after: str | None, revoked: bool, every: bool) -> Page[KeyView]:
        tenant = None if every else self._tenant
        return await keys.list_keys(self._db, tenant=tenant, limit=limit, after=after, revoked=revoked)

    async def revoke_key(self, key: UUID, *, reason: str) -> KeyView:
        found = await keys.read_key(self._db, key)
        before: Json = {"id": str(key), "prefix": found.prefix, "role": found.role}
        entry = self._entry("keys.revoke", found.name, before=before, after={"revoked": True}, reason=reason)
        return await keys.revoke_key(self._db.noting(replace(entry, tenant=found.tenant)), key)

    def _entry(self, action: str, subject: str, *, before: Json = None, after: Json = None, reason: str = "") -> Entry:
        return Entry(action=action, subject=subject, before=before, after=after, reason=reason, actor=self._author)


def _written(quotas: Quotas, note: str) -> Json:
    return {"quotas": quotas_to_json(quotas), "note": note}
