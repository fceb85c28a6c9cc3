"""Migrations: plain SQL files, applied in order, each once, with its checksum.

``NNNN_what.expand.sql`` runs before the new code, ``NNNN_what.contract.sql`` when the old is gone. One
transaction per file under one transaction-scoped advisory lock, so that any number of nodes may start at
once and it works through a pooler. A database newer than the code is refused: old code must not write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import Final

from mainspring.domain.errors import WrongDatabase
from mainspring.store.database import Connection, Database, scanning

_LOCK: Final = 0x4D41494E53505247  # "MAINSPRG"
_LEDGER: Final = """
CREATE TABLE IF NOT EXISTS mainspring_migrations (
    name        text PRIMARY KEY,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)"""


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


def known() -> list[Migration]:
    """Return the migrations this code brings, in order."""
    folder = resources.files("mainspring.store").joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(file.name.removesuffix(".sql"), file.read_text("utf-8")) for file in files]


async def pending(db: Database) -> list[Migration]:
    """Return what has not been applied yet.

    Raises:
        WrongDatabase: the database is newer than this code, or a file was changed after it was applied.
    """
    async with db.connection() as connection:
        if await connection.fetchval("SELECT to_regclass('mainspring_migrations')") is None:
            return known()
        return await _missing(connection)


async def migrate(db: Database) -> list[str]:
    """Bring the schema up to date and return the names of what was applied."""
    applied: list[str] = []
    while True:
        async with db.transaction() as tx:
            await tx.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await tx.execute(_LEDGER)
            missing = await _missing(tx)
            if not missing:
                return applied
            await scanning(tx)
            await tx.execute("SET LOCAL lock_timeout = '5s'")
            await tx.execute(missing[0].sql)
            await tx.execute(
                "INSERT INTO mainspring_migrations (name, checksum) VALUES ($1, $2)",
                missing[0].name,
                missing[0].checksum,
            )
            applied.append(missing[0].name)


async def _missing(connection: Connection) -> list[Migration]:
    applied = {row["name"]: row["checksum"] for row in await connection.fetch("SELECT * FROM mainspring_migrations")}
    ours = {migration.name: migration for migration in known()}
    for name, checksum in applied.items():
        if name not in ours:
            allowed = "upgrade Mainspring on this machine, or use another database"
            raise WrongDatabase(f"it is newer than this code: it has {name}", field="dsn", value=name, allowed=allowed)
        if ours[name].checksum != checksum:
            allowed = "restore the file; what was applied may not change"
            raise WrongDatabase(f"{name} was changed after it was applied", field="dsn", value=name, allowed=allowed)
    return [migration for name, migration in ours.items() if name not in applied]
