"""History: made of day partitions, ahead of time; dropped by retention, a day at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from mainspring.store.database import Connection, Database, scanning
from mainspring.store.queries import queries

_SQL = queries("history")


async def make_partitions(db: Database, *, days: int) -> int:
    """Make the partitions from yesterday on; return how many are new."""
    async with db.transaction() as tx:
        await tx.execute("SET LOCAL lock_timeout = '2s'")
        made: int = await tx.fetchval(_SQL["make_partitions"], days)
        return made


async def drop_partitions(db: Database, *, keep_for: timedelta) -> int:
    """Drop the history of slots older than this; return how many partitions went.

    Dead letters are kept apart, and stay. Raises StoreUnavailable if others hold on to the history for long:
    nothing was dropped, and there is always a next time.
    """
    async with db.transaction() as tx:
        await scanning(tx)
        await tx.execute("SET LOCAL lock_timeout = '2s'")
        dropped: int = await tx.fetchval(_SQL["drop_partitions"], keep_for)
        return dropped


async def kept_since(tx: Connection) -> datetime | None:
    """Return from which slot on the history is whole; None: nothing was ever dropped."""
    kept: datetime | None = await tx.fetchval(_SQL["kept_since"])
    return kept
