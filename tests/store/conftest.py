"""A real Postgres for the session, and a database of its own for each test, copied from a migrated template."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.environment import SystemEnvironment
from mainspring.store.database import Database, open_database
from mainspring.store.migrations import migrate

from .ledger import Ledger

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    with embedded.running() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(server: embedded.Server) -> str:
    await _execute(server.dsn, "CREATE DATABASE template_ledger")
    async with open_database(_named(server.dsn, "template_ledger")) as db:
        await migrate(db)
    return "template_ledger"


@pytest_asyncio.fixture(loop_scope="session")
async def dsn(server: embedded.Server, template: str) -> AsyncIterator[str]:
    name = f"ledger_{next(_NUMBERS)}"
    await _execute(server.dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield _named(server.dsn, name)
    await _execute(server.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture(loop_scope="session")
async def db(dsn: str) -> AsyncIterator[Database]:
    async with open_database(dsn) as database:
        yield database


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return Ledger(db, SystemEnvironment())


def _named(dsn: str, name: str) -> str:
    parts = urlsplit(dsn)
    return parts._replace(path=f"/{name}").geturl()


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
