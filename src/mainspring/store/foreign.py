"""Connections of somebody else, as ours: what is written through them is part of their transaction.

asyncpg, psycopg (both kinds) and SQLAlchemy (both kinds, over either driver) are recognised by their looks; none of
them but asyncpg is imported. Statements run inside a savepoint, so that an error of ours leaves theirs usable.

A blocking connection is wrapped in coroutines that never wait, and :func:`at_once` runs those without a loop: what is
written once serves both kinds.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from mainspring.domain.errors import InvalidRequest
from mainspring.store.database import Connection

_T = TypeVar("_T")


@asynccontextmanager
async def adapted(foreign: Any) -> AsyncIterator[Connection]:
    """Lend a connection as the store wants it, inside a savepoint of its transaction.

    Raises:
        InvalidRequest: it is none that we know.
    """
    connection = await _unwrapped(foreign)
    if isinstance(connection, asyncpg.Connection) or hasattr(connection, "copy_records_to_table"):
        async with connection.transaction():
            yield connection
        return
    kind = _psycopg_kind(connection)
    if kind is None:
        what, allowed = type(foreign).__qualname__, "pass a connection of asyncpg, psycopg or SQLAlchemy"
        raise InvalidRequest(f"{what} is no connection", field="connection", value=what, allowed=allowed)
    # Its block would commit by itself, were it the first thing in a transaction that has not begun yet.
    if kind == "AsyncConnection":
        if not connection.autocommit:
            await connection.execute("SELECT 1")
        async with connection.transaction():
            yield _Psycopg(connection)
    else:
        if not connection.autocommit:
            connection.execute("SELECT 1")
        with connection.transaction():
            yield _BlockingPsycopg(connection)


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits for anything."""
    try:
        work.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    work.close()
    raise RuntimeError("a blocking connection cannot wait for an event loop; use the async client instead")


async def _unwrapped(foreign: Any) -> Any:
    """Return the driver's own connection; SQLAlchemy begins its transaction only with its first statement."""
    if not hasattr(foreign, "exec_driver_sql"):
        return foreign
    begun = foreign.exec_driver_sql("SELECT 1")
    if hasattr(begun, "__await__"):
        await begun
        raw = await foreign.get_raw_connection()
    else:
        raw = foreign.connection
    return raw.driver_connection


def _psycopg_kind(connection: Any) -> str | None:
    for base in type(connection).__mro__:
        if base.__module__.partition(".")[0] == "psycopg" and base.__name__ in ("AsyncConnection", "Connection"):
            return base.__name__
    return None


def _raw(connection: Any) -> Any:
    """Return a cursor that takes $1, $2 as the server does, with rows by name."""
    psycopg = sys.modules["psycopg"]  # theirs, and loaded by them
    kind = psycopg.AsyncRawCursor if _psycopg_kind(connection) == "AsyncConnection" else psycopg.RawCursor
    return kind(connection, row_factory=sys.modules["psycopg.rows"].dict_row)


class _Psycopg:
    """An async connection of psycopg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        async with _raw(self._connection) as cursor:
            await cursor.execute(query, args)
            return list(await cursor.fetchall()) if cursor.description else []

    async def fetchrow(self, query: str, *args: Any) -> Any:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = await self.fetchrow(query, *args)
        return None if row is None else next(iter(row.values()))

    async def execute(self, query: str, *args: Any) -> str:
        async with _raw(self._connection) as cursor:
            await cursor.execute(query, args)
            return str(cursor.statusmessage)

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[tuple[Any, ...]], columns: Sequence[str]
    ) -> str:
        raise NotImplementedError("many runs at once go through a connection of our own")


class _BlockingPsycopg(_Psycopg):
    """A blocking connection of psycopg: the same, without ever waiting for a loop."""

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        with _raw(self._connection) as cursor:
            cursor.execute(query, args)
            return list(cursor.fetchall()) if cursor.description else []

    async def execute(self, query: str, *args: Any) -> str:
        with _raw(self._connection) as cursor:
            cursor.execute(query, args)
            return str(cursor.statusmessage)
