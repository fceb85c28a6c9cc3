"""The feed: what has just happened to a tenant's runs and jobs, for those who look on.

Read again and again from the horizon: a row is stamped before its transaction commits, so the newest may appear behind
one that is known already. Whoever reads drops what he has seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from mainspring.domain.ids import JobId
from mainspring.domain.run import FINAL, State
from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("feed")
BEHIND: Final = timedelta(seconds=3)  # for transactions of roles whose activity ours may not see
LONGEST: Final = timedelta(seconds=15)  # nobody waits longer for a transaction: the server ends ours before
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


async def horizon(db: Database) -> datetime:
    """Return an instant before which nothing appears any more that is not there when this is asked.

    Not through a tenant's own role, from which the server hides what others are doing.
    """
    async with db.connection() as connection:
        at: datetime = await connection.fetchval(_SQL["horizon"], BEHIND, LONGEST)
    return at


class Watched(NamedTuple):
    """What somebody looks at: all of a tenant, or one job's or one run's states alone."""

    tenant: str
    job: JobId | None = None
    run: UUID | None = None
    changes: bool = True  # of a tenant, also who changes what

    @property
    def all(self) -> bool:
        return self.job is None and self.run is None


async def happened(db: Database, watched: Watched, since: datetime) -> AsyncGenerator[list[Happened]]:
    """Yield what happened after an instant, oldest first, in pages; of one job or run also what is in motion, last.

    Whoever stops after a page has all that happened up to its end.
    """
    tenant, after, ended = watched.tenant, (since, _LAST), set[UUID]()
    moving = await _moving(db, watched)
    while True:
        changes: Sequence[Mapping[str, Any]] = ()
        async with db.connection() as connection:
            runs = await connection.fetch(_SQL["settled"], tenant, after[0], _MOST, watched.job, watched.run, after[1])
            if watched.all and watched.changes:
                changes = await connection.fetch(_SQL["changes"], tenant, after[0], _MOST, after[1])
        full = [(rows[-1]["at"], rows[-1]["id"]) for rows in (runs, changes) if len(rows) == _MOST]
        found = [*map(_of_run, runs), *map(_of_change, changes)]
        if full:
            after = min(full)  # beyond it one of the two has more than this page holds
            found = [each for each in found if (each.at, each.id) <= after]
        found.sort(key=lambda each: (each.at, each.id))
        ended.update(each.id for each in found)
        if not full:
            yield [*found, *(each for each in moving if each.id not in ended)]
            return
        yield found


async def ending(db: Database, watched: Watched) -> list[Happened]:
    """Return how the run that is looked at ended, if it has, however long ago."""
    if watched.run is None:
        return []
    async with db.connection() as connection:
        return [_of_run(row) for row in await connection.fetch(_SQL["ended_run"], watched.tenant, watched.run)]


async def _moving(db: Database, watched: Watched) -> list[Happened]:
    if watched.all:
        return []
    async with db.connection() as connection:
        if watched.run is not None:
            rows = await connection.fetch(_SQL["moving_run"], watched.tenant, watched.run)
        else:
            rows = await connection.fetch(_SQL["moving_of_job"], watched.tenant, watched.job, _MOST)
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
