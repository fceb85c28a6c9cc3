"""What a filter finds, for those who go through all of it: a piece at a time, or only how many that are.

A place is where somebody has got to. What comes after it is found again, whatever was done to what came before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import asyncpg

from mainspring.domain.asking import JobFilter, LetterFilter, RunFilter
from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("matching")
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_HIGHEST: Final = UUID(int=(1 << 128) - 1)

Filter: TypeAlias = JobFilter | RunFilter | LetterFilter


class Match(NamedTuple):
    id: UUID
    name: str  # what people call it: a job's name, or the id of a run
    place: str


class Meant(NamedTuple):
    """What is meant: of one tenant, what a filter finds and was there at a moment."""

    tenant: str
    filter: Filter
    until: datetime = _LATEST  # of what was made, fired or died since then nothing is meant
    scheduled: bool = False  # of jobs: only those with a schedule


async def matches(db: Database, meant: Meant, *, after: str | None, limit: int) -> list[Match]:
    """Return the next ones after a place; none: that was all."""
    async with db.connection() as connection:
        match meant.filter:
            case JobFilter():
                rows = await connection.fetch(_SQL["jobs"], *_of_jobs(meant, meant.filter, after, limit))
                return [Match(row["id"], row["name"], row["name"]) for row in rows]
            case RunFilter():
                rows = await connection.fetch(_SQL["runs"], *_of_runs(meant, meant.filter, after, limit))
                return [_timed(row) for row in rows]
            case LetterFilter():
                rows = await connection.fetch(_SQL["letters"], *_of_letters(meant, meant.filter, after, limit))
                return [_timed(row) for row in rows]


async def count_matches(db: Database, meant: Meant, *, most: int) -> int:
    """Return how many there are, counted up to ``most``."""
    counted: int
    async with db.connection() as connection:
        match meant.filter:
            case JobFilter():
                counted = await connection.fetchval(_SQL["count_jobs"], *_of_jobs(meant, meant.filter, None, most))
            case RunFilter():
                counted = await connection.fetchval(_SQL["count_runs"], *_of_runs(meant, meant.filter, None, most))
            case LetterFilter():
                given = _of_letters(meant, meant.filter, None, most)
                counted = await connection.fetchval(_SQL["count_letters"], *given)
    return counted


async def runs_there(db: Database, tenant: str, ids: Collection[UUID]) -> set[UUID]:
    """Return those of these runs that a tenant has."""
    async with db.connection() as connection:
        return {row["id"] for row in await connection.fetch(_SQL["runs_there"], tenant, list(ids))}


async def letters_there(db: Database, tenant: str, ids: Collection[UUID]) -> set[UUID]:
    """Return those of these runs of which a tenant has a dead letter."""
    async with db.connection() as connection:
        return {row["id"] for row in await connection.fetch(_SQL["letters_there"], tenant, list(ids))}


def _of_jobs(meant: Meant, wanted: JobFilter, after: str | None, limit: int) -> Sequence[Any]:
    states = [state.value for state in wanted.states] or None
    asked = (states, wanted.task, wanted.prefix, wanted.owner, list(wanted.tags) or None)
    return meant.tenant, after or "", limit, *asked, meant.until, meant.scheduled


def _of_runs(meant: Meant, wanted: RunFilter, after: str | None, limit: int) -> Sequence[Any]:
    states = [state.value for state in wanted.states] or None
    kind = None if wanted.kind is None else wanted.kind.value
    asked = (states, wanted.pool, kind, wanted.since or _EARLIEST, wanted.until or _LATEST, wanted.job)
    return meant.tenant, *_place(after), limit, *asked, meant.until


def _of_letters(meant: Meant, wanted: LetterFilter, after: str | None, limit: int) -> Sequence[Any]:
    reason = None if wanted.reason is None else wanted.reason.value
    asked = (wanted.job, reason, wanted.since or _EARLIEST, wanted.until or _LATEST)
    return meant.tenant, *_place(after), limit, *asked, meant.until


def _timed(row: asyncpg.Record) -> Match:
    return Match(row["id"], str(row["id"]), f"{row['at'].isoformat()} {row['id']}")


def _place(place: str | None) -> tuple[datetime, UUID]:
    if place is None:
        return _LATEST, _HIGHEST
    at, last = place.split(" ")
    return datetime.fromisoformat(at), UUID(last)
