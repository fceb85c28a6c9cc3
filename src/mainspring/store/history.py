"""History: made of day partitions, ahead of time; dropped by retention."""

from __future__ import annotations

from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("history")


async def make_partitions(db: Database, *, days: int) -> int:
    """Make the partitions from yesterday on; return how many are new."""
    async with db.transaction() as tx:
        await tx.execute("SET LOCAL lock_timeout = '2s'")
        made: int = await tx.fetchval(_SQL["make_partitions"], days)
        return made
