"""Tenants come to a database that is in use, on a server where we may do much or little."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from urllib.parse import urlsplit

import asyncpg
import pytest

from mainspring import embedded
from mainspring.domain.errors import WrongDatabase
from mainspring.environment import SystemEnvironment
from mainspring.store import migrations
from mainspring.store.database import TENANT_ROLE, Database, open_database
from mainspring.store.migrations import known, migrate, pending
from tests.store.ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

_NUMBERS = count()
TENANTS = "0004_tenants.expand"
BEFORE = [migration for migration in known() if migration.name < TENANTS]


@pytest.fixture
def server() -> Iterator[embedded.Server]:
    """A server of its own for each test: roles are the server's."""
    with embedded.running() as running:
        yield running


async def administer(server: embedded.Server, *statements: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def database(server: embedded.Server, *, owner: str = "mainspring") -> AsyncIterator[Database]:
    name = f"fresh_{next(_NUMBERS)}"
    await administer(server, f"CREATE DATABASE {name} OWNER {owner}")
    where = urlsplit(server.dsn)._replace(netloc=f"{owner}@", path=f"/{name}").geturl()
    async with open_database(where) as db:
        yield db


async def jobs_seen(db: Database) -> list[str]:
    async with db.connection() as connection:
        return [row["name"] for row in await connection.fetch("SELECT name FROM jobs ORDER BY name")]


async def test_whoever_has_jobs_becomes_a_tenant(server: embedded.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with database(server) as db:
        with monkeypatch.context() as earlier:
            earlier.setattr(migrations, "known", lambda: BEFORE)
            await migrate(db)
            ledger = Ledger(db, SystemEnvironment())
            for tenant in ("acme", "Ümläut & Söhne"):
                (job,) = await ledger.given_jobs(tenant=tenant)
                await ledger.execute("UPDATE jobs SET name = $2 WHERE id = $1", job, f"of {tenant}")
            await ledger.fire()

        assert TENANTS in await migrate(db)

        rows = await ledger.rows("SELECT name, state, quotas FROM tenants ORDER BY name")
        names = ["Ümläut & Söhne", "acme", "default"]
        assert sorted(row["name"] for row in rows) == sorted(names)
        assert {(row["state"], row["quotas"]) for row in rows} == {("active", "{}")}
        assert await jobs_seen(db.scoped("acme")) == ["of acme"]
        assert len(await ledger.rows("SELECT * FROM runs")) == 2


async def test_it_waits_for_those_who_are_at_work_and_not_in_a_circle(
    server: embedded.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database(server) as db:
        with monkeypatch.context() as earlier:
            earlier.setattr(migrations, "known", lambda: BEFORE)
            await migrate(db)
        ledger = Ledger(db, SystemEnvironment())
        await ledger.given_jobs(50, due=timedelta(hours=1))
        worker, done, rounds = await ledger.node(), asyncio.Event(), asyncio.Semaphore(0)

        async def firing() -> None:
            again = "UPDATE job_cursors SET next_fire_at = last_slot + interval '1 ms' WHERE last_slot IS NOT NULL"
            while not done.is_set():
                await ledger.fire()
                await ledger.execute(again)

        async def working() -> None:
            while not done.is_set():
                await ledger.settle(await ledger.claim(worker))
                rounds.release()

        async def migrating() -> None:
            try:
                for _ in range(20):
                    await rounds.acquire()
                await migrate(db)
            finally:
                done.set()

        await asyncio.gather(firing(), working(), working(), migrating())  # and none was told to try again
        assert await pending(db) == []


async def test_many_databases_of_one_server_at_once(server: embedded.Server) -> None:
    await administer(server, "CREATE ROLE maker LOGIN CREATEROLE")
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(database(server, owner="maker")) for _ in range(5)]

        await asyncio.gather(*(migrate(db) for db in databases))

        for db in databases:
            assert await jobs_seen(db.scoped("acme")) == []


async def test_an_owner_who_may_make_roles_needs_no_administrator(server: embedded.Server) -> None:
    await administer(server, "CREATE ROLE maker LOGIN CREATEROLE")
    async with database(server, owner="maker") as db:
        await migrate(db)
        ledger = Ledger(db, SystemEnvironment())
        await ledger.given_jobs(tenant="acme")

        assert len(await jobs_seen(db)) == len(await jobs_seen(db.scoped("acme"))) == 1
        assert await jobs_seen(db.scoped("bolt")) == []


@pytest.mark.parametrize("made", [False, True], ids=["the role is missing", "the role is not lent"])
async def test_an_owner_who_may_not_is_told_what_an_administrator_must_run(
    server: embedded.Server, *, made: bool
) -> None:
    await administer(server, "CREATE ROLE plain LOGIN", *([f"CREATE ROLE {TENANT_ROLE} NOLOGIN"] if made else []))
    async with database(server, owner="plain") as db:
        with pytest.raises(WrongDatabase, match="let an administrator run: ") as refused:
            await migrate(db)

        assert (await pending(db))[0].name == TENANTS
        _, _, hint = str(refused.value).partition("let an administrator run: ")
        statements = hint.split(";")[: 1 if made else 2]
        assert statements[-1].split() == f"GRANT {TENANT_ROLE} TO plain WITH INHERIT FALSE, SET TRUE".split()
        await administer(server, *statements)
        await migrate(db)

        assert await jobs_seen(db.scoped("acme")) == []


async def test_a_role_that_sees_everything_is_refused(server: embedded.Server) -> None:
    await administer(server, f"CREATE ROLE {TENANT_ROLE} BYPASSRLS")
    async with database(server) as db:
        with pytest.raises(WrongDatabase, match=f"ALTER ROLE {TENANT_ROLE} NOSUPERUSER NOBYPASSRLS"):
            await migrate(db)
