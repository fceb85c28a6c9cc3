"""A real Postgres for the session, and a database of its own for each test, copied from a migrated template."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.store.database import Database, open_database
from mainspring.store.migrations import migrate

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    with embedded.running() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(server: embedded.Server) -> str:
    await execute(server.dsn, "CREATE DATABASE template_ledger")
    async with open_database(named(server.dsn, "template_ledger")) as db:
        await migrate(db)
    return "template_ledger"


@pytest_asyncio.fixture(loop_scope="session")
async def dsn(server: embedded.Server, template: str) -> AsyncIterator[str]:
    async with copied(server, template, f"ledger_{next(_NUMBERS)}") as fresh:
        yield fresh


@pytest_asyncio.fixture(loop_scope="session")
async def db(dsn: str) -> AsyncIterator[Database]:
    async with open_database(dsn) as database:
        yield database


@asynccontextmanager
async def copied(server: embedded.Server, template: str, name: str) -> AsyncIterator[str]:
    """Make a database from the template, and drop it afterwards."""
    await execute(server.dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield named(server.dsn, name)
    finally:
        await execute(server.dsn, f"DROP DATABASE {name} WITH (FORCE)")


def named(dsn: str, name: str) -> str:
    return urlsplit(dsn)._replace(path=f"/{name}").geturl()


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
