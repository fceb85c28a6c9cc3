"""API keys: shown once, kept as a hash. Made, listed and revoked as the owner; a tenant's role sees nothing of them.

A key is 32 random bytes: there is nothing to guess, and so no need of a hash that is slow. Looking one up is one look
by that hash, whose time says nothing about keys that are nearly right.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import datetime
from hashlib import sha256
from typing import Final
from uuid import UUID

import asyncpg

from mainspring.domain.errors import BrokenInvariant, InvalidRequest, NotFound
from mainspring.domain.job import check_name
from mainspring.domain.keys import KEY_BEGINS, PREFIX_LENGTH, KeyView
from mainspring.domain.tenants import TenantState
from mainspring.domain.views import Page
from mainspring.environment import Environment
from mainspring.store.database import Database
from mainspring.store.queries import queries
from mainspring.store.reading import as_id

_SQL = queries("keys")
_BYTES: Final = 32
_LONGEST: Final = 200  # what is longer was never one of ours, and is not worth hashing
_LOWEST: Final = UUID(int=0)


def hash_of(text: str) -> bytes:
    """Return what is kept of a key."""
    return sha256(text.encode(errors="surrogatepass")).digest()


async def make_key(
    db: Database,
    env: Environment,
    *,
    tenant: str | None,
    name: str,
    role: str,
    created_by: str,
    expires_at: datetime | None = None,
) -> tuple[str, KeyView]:
    """Make a key and return its text, which nobody can show again, and what is kept of it.

    Raises:
        InvalidRequest: it cannot be called that.
    """
    check_name(name, "name")
    # Not from the environment: that draws the same numbers twice if a test asks it to, and no key may come twice.
    secret = secrets.token_urlsafe(_BYTES)
    text, key_id = f"{KEY_BEGINS}{secret}", env.new_id()
    async with db.transaction() as tx:
        row = (key_id, tenant, name, secret[:PREFIX_LENGTH], hash_of(text), role, created_by, expires_at)
        await tx.execute(_SQL["make"], *row)
        made = await tx.fetchrow(_SQL["find"], key_id)
    if made is None:
        raise BrokenInvariant(f"key {key_id} was made and is not there")
    return text, _key(made)


async def find_key(db: Database, text: str) -> KeyView | None:
    """Return the key that somebody shows, good or not; None: we never made it."""
    if not text.startswith(KEY_BEGINS) or len(text) > _LONGEST:
        return None
    return await find_key_by_hash(db, hash_of(text))


async def find_key_by_hash(db: Database, digest: bytes) -> KeyView | None:
    """Return the key with this hash, good or not: look at :attr:`KeyView.good`."""
    async with db.statement() as connection:
        row = await connection.fetchrow(_SQL["find_by_hash"], digest)
    return None if row is None else _key(row)


async def read_key(db: Database, key: UUID) -> KeyView:
    """Return a key by its id.

    Raises:
        NotFound: there is none.
    """
    async with db.connection() as connection:
        row = await connection.fetchrow(_SQL["find"], key)
    if row is None:
        raise NotFound(f"there is no key {key}")
    return _key(row)


async def list_keys(
    db: Database, *, tenant: str | None = None, limit: int, after: str | None = None, revoked: bool = False
) -> Page[KeyView]:
    """Return keys, oldest first, after the id of the last one of the page before; of all tenants if none is named."""
    last = _LOWEST if after is None else as_id(after)
    if last is None:
        allowed = "use the one that the page before gave as next"
        raise InvalidRequest(f'"{str(after)[:40]}" is no cursor', field="after", value=after, allowed=allowed)
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["list"], tenant, last, limit + 1, revoked)
    items = tuple(_key(row) for row in rows[:limit])
    return Page(items=items, next=str(items[-1].id) if len(rows) > limit else None)


async def revoke_key(db: Database, key: UUID, *, tenant: str | None = None) -> KeyView:
    """Let nobody in with a key any more. Revoking it again changes nothing.

    Raises:
        NotFound: there is no such key, or not for this tenant.
    """
    async with db.transaction() as tx:
        if await tx.fetchval(_SQL["revoke"], key, tenant) is None:
            raise NotFound(f"there is no key {key}")
        row = await tx.fetchrow(_SQL["find"], key)
    assert row is not None, "it was just changed"
    return _key(row)


async def touch_keys(db: Database, keys: Collection[UUID]) -> int:
    """Note that these keys are in use; return for how many that was news, at most once a minute for each."""
    async with db.transaction() as tx:
        return len(await tx.fetch(_SQL["touch"], list(keys)))


def _key(row: asyncpg.Record) -> KeyView:
    return KeyView(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        prefix=row["prefix"],
        role=row["role"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
        expires_at=row["expires_at"],
        expired=row["expired"],
        tenant_state=None if row["tenant_state"] is None else TenantState(row["tenant_state"]),
    )
