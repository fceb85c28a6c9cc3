"""The schema comes into being once, whoever starts first, and a database that is not ours to change stays as it is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count

import asyncpg
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.domain.errors import WrongDatabase
from mainspring.store.database import Database, open_database
from mainspring.store.migrations import known, migrate, pending

pytestmark = pytest.mark.asyncio(loop_scope="session")

_NUMBERS = count()
NAMES = [migration.name for migration in known()]


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.Server]:
    with embedded.running() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def dsn(server: embedded.Server) -> str:
    """A database with nothing in it."""
    name = f"fresh_{next(_NUMBERS)}"
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return server.dsn.replace("/postgres?", f"/{name}?")


@pytest_asyncio.fixture(loop_scope="session")
async def db(dsn: str) -> AsyncIterator[Database]:
    async with open_database(dsn) as database:
        yield database


async def catalogue(db: Database) -> list[str]:
    """Name every column of every table and index, and every migration with its time."""
    async with db.connection() as connection:
        columns = await connection.fetch(
            "SELECT format('%s.%s %s', attrelid::regclass, attname, atttypid::regtype) AS line FROM pg_attribute "
            "JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
        )
        recorded = await connection.fetch("SELECT mainspring_migrations::text AS line FROM mainspring_migrations")
        return [row["line"] for row in (*columns, *recorded)]


async def execute(db: Database, statement: str, *arguments: object) -> None:
    async with db.transaction() as tx:
        await tx.execute(statement, *arguments)


async def test_a_fresh_database_gets_every_migration_in_order(db: Database) -> None:
    assert [migration.name for migration in await pending(db)] == NAMES

    assert await migrate(db) == NAMES

    assert await pending(db) == []
    assert any(line.startswith("job_cursors.next_fire_at timestamp") for line in await catalogue(db))


async def test_a_second_run_applies_nothing(db: Database) -> None:
    await migrate(db)
    before = await catalogue(db)

    assert await migrate(db) == []
    assert await catalogue(db) == before


async def test_five_processes_at_once_apply_each_migration_once(dsn: str) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(open_database(dsn, size=2)) for _ in range(5)]

        applied = await asyncio.gather(*(migrate(db) for db in databases))

        assert sorted(name for names in applied for name in names) == NAMES
        assert await pending(databases[0]) == []


@pytest.mark.parametrize("look", [migrate, pending])
async def test_a_database_newer_than_the_code_is_refused_and_left_alone(
    db: Database, look: Callable[[Database], Awaitable[object]]
) -> None:
    await migrate(db)
    await execute(db, "INSERT INTO mainspring_migrations (name, checksum) VALUES ('9999_later.expand', 'x')")
    before = await catalogue(db)

    with pytest.raises(WrongDatabase, match="newer than this code: it has 9999_later") as refused:
        await look(db)

    assert refused.value.exit_status == 2
    assert await catalogue(db) == before


async def test_a_newer_database_is_refused_before_what_it_lacks_is_applied(db: Database) -> None:
    await migrate(db)
    await execute(db, "UPDATE mainspring_migrations SET name = '9999_later.expand' WHERE name = $1", NAMES[0])
    before = await catalogue(db)

    with pytest.raises(WrongDatabase, match="newer"):
        await migrate(db)

    assert await catalogue(db) == before


async def test_a_file_that_was_changed_after_it_was_applied_is_refused(db: Database) -> None:
    await migrate(db)
    await execute(db, "UPDATE mainspring_migrations SET checksum = 'other'")
    before = await catalogue(db)

    with pytest.raises(WrongDatabase, match="changed after it was applied") as refused:
        await migrate(db)

    assert (refused.value.exit_status, refused.value.field) == (2, "dsn")
    assert await catalogue(db) == before


async def test_a_migration_that_fails_leaves_nothing(db: Database) -> None:
    await execute(db, "CREATE TABLE dead_letters (somebody_elses integer)")

    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(db)

    async with db.connection() as connection:
        tables = await connection.fetch("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    assert [row["relname"] for row in tables] == ["dead_letters"]


async def test_a_database_that_may_lose_commits_is_refused_unless_told_otherwise() -> None:
    with embedded.running(settings={"fsync": "off"}) as careless:
        with pytest.raises(WrongDatabase, match="fsync is off") as refused:
            async with open_database(careless.dsn):
                pass
        async with open_database(careless.dsn, unsafe=True) as db:
            assert await migrate(db) == NAMES

    assert refused.value.exit_status == 2
