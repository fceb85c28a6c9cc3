"""Secrets of tenants: put, listed, opened and sealed anew. What is kept is sealed; what is listed has no value in it.

Promise. A secret is opened for its own tenant only: the query names the tenant, and what is sealed does too, so that a
row which somebody copied to another tenant does not open there (``sealing.py``).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from mainspring.domain.errors import InvalidRequest, NotFound
from mainspring.sealing import CannotOpen, Label, Sealed, Sealer
from mainspring.store.database import Connection, Database
from mainspring.store.queries import queries

_SQL = queries("secrets")

LONGEST_VALUE: Final = 64 << 10  # bytes
KEPT_VERSIONS: Final = 10  # of each name, the one in use included
AT_ONCE: Final = 100  # sealed anew in one transaction
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretView:
    """A secret as it may be shown."""

    name: str
    version: int
    key_id: str
    created_at: datetime
    author: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """How far sealing anew has come."""

    done: int
    failed: int  # they do not open; their keys are missing
    total: int


async def put_secret(
    db: Database, tenant: str, name: str, value: str, sealer: Sealer, *, author: str = ""
) -> SecretView:
    """Keep a new version of a secret, which counts from here on; workers may use the one before for a minute.

    Raises:
        InvalidRequest: the name or the value cannot be kept. It does not repeat the value.
    """
    _check_name(name)
    if not value or "\0" in value or len(value.encode(errors="replace")) > LONGEST_VALUE:
        allowed = f"use 1 to {LONGEST_VALUE} bytes of text, without NUL"
        raise InvalidRequest("the value cannot be kept", field="value", value="***", allowed=allowed)
    async with db.transaction() as tx:
        await tx.execute(_SQL["lock_name"], tenant, name)
        version = await tx.fetchval(_SQL["newest_version"], tenant, name) + 1
        sealed = sealer.seal(value, Label(tenant, name, version))
        row = (tenant, name, version, sealed.key_id, sealed.nonce, sealed.sealed, author)
        created_at = await tx.fetchval(_SQL["put"], *row)
        await tx.execute(_SQL["forget_older"], tenant, name, version - KEPT_VERSIONS)
    return SecretView(name=name, version=version, key_id=sealed.key_id, created_at=created_at, author=author)


async def open_secret(db: Database, tenant: str, name: str, sealer: Sealer) -> str:
    """Return the newest value of a secret of this tenant.

    Raises:
        NotFound: the tenant has none of that name, whatever others have.
        CannotOpen: its key is not here, or the row is not what was sealed.
    """
    async with db.connection() as connection:
        row = await connection.fetchrow(_SQL["newest"], tenant, name)
    if row is None:
        raise NotFound(f'there is no secret "{name}"')
    return sealer.open(_sealed(row), Label(tenant, name, row["version"]))


async def list_secrets(db: Database, tenant: str) -> list[SecretView]:
    """Return what a tenant has, by name: never a value."""
    async with db.transaction() as tx:
        return [SecretView(**dict(row)) for row in await tx.fetch(_SQL["list"], tenant)]


async def delete_secret(db: Database, tenant: str, name: str) -> int:
    """Delete a secret with all its versions; return how many there were.

    Raises:
        NotFound: there was none.
    """
    async with db.transaction() as tx:
        await tx.execute(_SQL["lock_name"], tenant, name)
        deleted = int((await tx.execute(_SQL["delete"], tenant, name)).split()[-1])
        if not deleted:  # in here: what was not done is not noted either
            raise NotFound(f'there is no secret "{name}"')
    return deleted


async def rotate_secrets(db: Database, sealer: Sealer) -> AsyncIterator[Rotated]:
    """Seal everything under the present key, of all tenants, a batch at a time; yield how far that is.

    Stopped anywhere, what is done stays done, and the next time goes on with the rest.
    """
    async with db.connection() as connection:
        total = await connection.fetchval(_SQL["count_under_other_keys"], sealer.key_id)
    done = failed = 0
    after = ("", "", 0)
    while True:
        async with db.transaction() as tx:
            rows = await tx.fetch(_SQL["lock_under_other_keys"], sealer.key_id, *after, AT_ONCE)
            resealed = [await _reseal(tx, row, sealer) for row in rows]
        if not rows:
            break
        after = (rows[-1]["tenant"], rows[-1]["name"], rows[-1]["version"])
        done, failed = done + sum(resealed), failed + resealed.count(False)
        yield Rotated(done=done, failed=failed, total=total)


async def _reseal(tx: Connection, row: asyncpg.Record, sealer: Sealer) -> bool:
    label = Label(row["tenant"], row["name"], row["version"])
    try:
        value = sealer.open(_sealed(row), label)
    except CannotOpen:
        return False
    sealed = sealer.seal(value, label)
    await tx.execute(_SQL["reseal"], *(label.tenant, label.name, label.version), *_columns(sealed))
    return True


def _sealed(row: asyncpg.Record) -> Sealed:
    return Sealed(row["key_id"], row["nonce"], row["sealed"])


def _columns(sealed: Sealed) -> tuple[str, bytes, bytes]:
    return sealed.key_id, sealed.nonce, sealed.sealed


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        allowed = "use up to 200 letters, digits and _ . / -, a letter or digit first"
        raise InvalidRequest(f"{name!r:.60} is no name of a secret", field="name", value=name[:60], allowed=allowed)
