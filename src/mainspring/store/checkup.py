"""Checkup: what there is to see of a database and its ledger when somebody asks whether all is well. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from mainspring.domain.firing import ON_TIME
from mainspring.domain.ids import NodeId
from mainspring.domain.selection import Fence
from mainspring.domain.views import NodeView, PoolView
from mainspring.store.database import Connection, Database, open_database, scanning
from mainspring.store.migrations import pending
from mainspring.store.queries import queries
from mainspring.store.reading import list_nodes, list_pools

Clock: TypeAlias = Callable[[], datetime]

_SQL = queries("checkup")
_MANY: Final = 100_000  # counted no further: nobody acts on the difference
_NAMED: Final = 100
_SETTINGS: Final = ("fsync", "full_page_writes", "synchronous_commit", "autovacuum")
_HOT: Final = ("job_cursors", "nodes", "runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    name: str
    live: int  # rows, as the statistics have it
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What the tables say, once they are as this code expects them."""

    nodes: Sequence[NodeView]
    pools: Sequence[PoolView]
    overdue: int  # jobs whose slot should have been decided a while ago
    lag: timedelta | None  # of the worst of them
    quarantined: Sequence[str]  # names of jobs
    open_letters: int
    tables: Sequence[TableState]
    missing_partitions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What was seen."""

    version: int  # of Postgres, as in 180004
    settings: Mapping[str, str]
    connections: int
    most_connections: int
    clock_offset: timedelta  # how far ours is from the database's, at least; ahead if positive
    longest_transaction: timedelta | None
    snapshot_age: int  # transactions since the oldest snapshot that is still held
    pending: Sequence[str]  # migrations
    ledger: LedgerState | None  # None: its schema is not up to date


async def read_checkup(dsn: str, now: Clock) -> Checkup:
    """Look at the database at ``dsn``, whatever state it is in.

    Raises:
        StoreUnavailable: it cannot be reached.
        WrongDatabase: it is too old, or newer than this code.
    """
    async with open_database(dsn, size=2, unsafe=True) as db:
        missing = [migration.name for migration in await pending(db)]
        async with db.transaction() as tx:
            await scanning(tx)
            server = await tx.fetchrow(_SQL["server"])
            held = await tx.fetchrow(_SQL["held_back"])
            assert server is not None
            assert held is not None
            settings = {row["name"]: row["setting"] for row in await tx.fetch(_SQL["settings"], _SETTINGS)}
            return Checkup(
                version=server["number"],
                settings=settings,
                connections=server["connections"],
                most_connections=server["most_connections"],
                clock_offset=await _clock_offset(tx, now),
                longest_transaction=held["longest"],
                snapshot_age=held["age"],
                pending=missing,
                ledger=None if missing else await _ledger(db, tx),
            )


async def _ledger(db: Database, tx: Connection) -> LedgerState:
    overdue = await tx.fetchrow(_SQL["overdue"], ON_TIME, _MANY)
    assert overdue is not None
    return LedgerState(
        nodes=await list_nodes(db),
        pools=await list_pools(db),
        overdue=overdue["jobs"],
        lag=overdue["lag"],
        quarantined=[row["name"] for row in await tx.fetch(_SQL["quarantined"], _NAMED)],
        open_letters=await tx.fetchval(_SQL["letters"], _MANY),
        tables=[TableState(**dict(row)) for row in await tx.fetch(_SQL["tables"], _HOT)],
        missing_partitions=[row["name"] for row in await tx.fetch(_SQL["missing_partitions"])],
    )


async def _clock_offset(tx: Connection, now: Clock) -> timedelta:
    """Return how far apart the clocks are at least: the time of the round trip is in doubt, and taken off."""
    before = now()
    theirs: datetime = await tx.fetchval(_SQL["clock"])
    after = now()
    return before - theirs if theirs < before else min(after - theirs, timedelta(0))


async def leases(db: Database) -> list[Fence]:
    """Return who holds which lease."""
    async with db.connection() as connection:
        return [Fence(row["name"], NodeId(row["node"]), row["epoch"]) for row in await connection.fetch(_SQL["leases"])]
