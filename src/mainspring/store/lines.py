"""Lines: what attempts said, written in batches while they work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from mainspring.domain.ids import RunId
from mainspring.domain.views import Line, RunView
from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("lines")
_COLUMNS: Final = ("run_id", "slot", "attempt", "number", "at", "stream", "level", "text")


class Said(NamedTuple):
    """One line on its way into the database."""

    run_id: RunId
    slot: datetime
    attempt: int
    number: int
    at: datetime
    stream: str
    level: str
    text: str


async def write_lines(db: Database, said: Sequence[Said]) -> None:
    """Append lines."""
    async with db.transaction() as tx:
        await tx.copy_records_to_table("run_lines", records=said, columns=_COLUMNS)


async def read_lines(db: Database, run: RunView, *, after: tuple[int, int] = (0, 0), limit: int = 1000) -> list[Line]:
    """Return the lines of a run after the one given by attempt and number."""
    async with db.connection() as connection:
        rows = await connection.fetch(_SQL["read"], run.id, run.slot, *after, limit)
    return [Line(**dict(row)) for row in rows]
