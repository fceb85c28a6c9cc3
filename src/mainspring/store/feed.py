"""The feed: what has just happened to a tenant's runs and jobs, for those who look on.

Read again and again from a moment ago: a row is stamped before its transaction commits, so the newest may appear behind
one that is known already. Whoever reads drops what he has seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from mainspring.domain.ids import JobId
from mainspring.domain.run import FINAL, State
from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("feed")
BEHIND: Final = timedelta(seconds=3)  # longer than any settle holds its transaction open
_MOST: Final = 2_000  # in a page
_LAST: Final = UUID(int=(1 << 128) - 1)  # nothing of an instant comes after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that happened: a run in a state, or a change."""

    kind: str  # run or change
    at: datetime
    id: UUID
    state: str  # with the id, what makes it different from all others
    content: Mapping[str, Any]
    moving: bool  # a run that has not ended


async def now(db: Database) -> datetime:
    async with db.connection() as connection:
        at: datetime = await connection.fetchval(_SQL["now"])
    return at


async def happened(
    db: Database, tenant: str, since: datetime, *, job: JobId | None = None, run: UUID | None = None
) -> AsyncGenerator[list[Happened]]:
    """Yield what happened after an instant, oldest first, in pages; of one job or run also what is in motion.

    Whoever stops after a page has all that happened up to its end.
    """
    after = (since, _LAST)
    moving = await _moving(db, tenant, job, run)
    while True:
        async with db.connection() as connection:
            runs = await connection.fetch(_SQL["settled"], tenant, after[0], _MOST, job, run, after[1])
            changes = (
                [] if run is not None else await connection.fetch(_SQL["changes"], tenant, after[0], _MOST, after[1])
            )
        full = [(rows[-1]["at"], rows[-1]["id"]) for rows in (runs, changes) if len(rows) == _MOST]
        found = [*map(_of_run, runs), *map(_of_change, changes)]
        if full:
            after = min(full)  # beyond it one of the two has more than this page holds
            found = [each for each in found if (each.at, each.id) <= after]
        yield sorted([*moving, *found], key=lambda each: (each.at, each.id))
        moving = []
        if not full:
            return


async def _moving(db: Database, tenant: str, job: JobId | None, run: UUID | None) -> list[Happened]:
    if run is None and job is None:
        return []
    async with db.connection() as connection:
        if run is not None:
            rows = await connection.fetch(_SQL["moving_run"], tenant, run)
        else:
            rows = await connection.fetch(_SQL["moving_of_job"], tenant, job, _MOST)
    return [_of_run(row) for row in rows]


def _of_run(row: Mapping[str, Any]) -> Happened:
    return Happened(
        kind="run",
        at=row["at"],
        id=row["id"],
        state=f"{row['state']}.{row['attempt']}",
        content=dict(row),
        moving=State(row["state"]) not in FINAL,
    )


def _of_change(row: Mapping[str, Any]) -> Happened:
    return Happened(kind="change", at=row["at"], id=row["id"], state="", content=dict(row), moving=False)
