"""One database for all checks, emptied before each: making and dropping one costs more than most checks."""

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from mainspring import embedded
from tests.postgres import copied

_TABLES = """
SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
 WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
   AND relname NOT IN ('mainspring_migrations', 'tenants', 'changes')"""  # the log of changes lets nobody empty it


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def contract_database(server: embedded.Server, template: str) -> AsyncIterator[str]:
    async with copied(server, template, "contract") as fresh:
        yield fresh


@pytest_asyncio.fixture(loop_scope="session")
async def dsn(contract_database: str) -> str:
    connection = await asyncpg.connect(contract_database)
    try:
        await connection.execute(f"TRUNCATE {await connection.fetchval(_TABLES)}")
    finally:
        await connection.close()
    return contract_database
