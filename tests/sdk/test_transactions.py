"""Work that commits together with the user's own rows: submitting a run, and completing one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import pytest_asyncio
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from mainspring import Client, Context, RetryPolicy, task
from mainspring.domain.errors import InvalidRequest, Superseded
from mainspring.domain.run import State
from mainspring.store.database import Database
from mainspring.testing.invariants import check_ledger

from . import shop
from .conftest import Working, is_in, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
Connecting: TypeAlias = Callable[[str], AbstractAsyncContextManager[Any]]


@task
async def ship(order: int) -> int:
    return order


class RolledBack(Exception):
    """As an application would leave its transaction."""


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_psycopg(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield connection


@asynccontextmanager
async def by_blocking_psycopg(dsn: str) -> AsyncIterator[Any]:
    with psycopg.connect(dsn) as connection:
        yield connection


def engine_url(dsn: str, driver: str) -> Any:
    parts = urlsplit(dsn)
    return sqlalchemy.make_url(parts._replace(scheme=f"postgresql+{driver}").geturl())


@asynccontextmanager
async def by_sqlalchemy_asyncpg(dsn: str) -> AsyncIterator[Any]:
    engine = create_async_engine(engine_url(dsn, "asyncpg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_psycopg(dsn: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(engine_url(dsn, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


EVERY_WAY = [by_asyncpg, by_psycopg, by_blocking_psycopg, by_sqlalchemy_asyncpg, by_sqlalchemy_psycopg]


async def insert(connection: Any, order: int) -> None:
    """Write a row of the application's own, whatever the driver."""
    statement = f"INSERT INTO orders VALUES ({order})"
    if isinstance(connection, sqlalchemy.Connection):
        connection.exec_driver_sql(statement)
    elif hasattr(connection, "exec_driver_sql"):
        await connection.exec_driver_sql(statement)
    else:
        done = connection.execute(statement)
        if hasattr(done, "__await__"):
            await done


async def counts(db: Database) -> tuple[int, int]:
    async with db.connection() as connection:
        orders = await connection.fetchval("SELECT count(*) FROM orders")
        return orders, await connection.fetchval("SELECT count(*) FROM runs")


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _orders(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.execute("CREATE TABLE orders (number integer)")


@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("key", [None, "order:7"])
async def test_a_run_is_there_if_and_only_if_the_transaction_commits(
    way: Connecting, key: str | None, dsn: str, client: Client, db: Database
) -> None:
    async with way(dsn) as connection:
        await insert(connection, 7)
        run = await client.using(connection).submit(ship.options(key=key), 7)
        assert await counts(db) == (0, 0)
    assert await counts(db) == (1, 1)
    assert (await run.status()).payload == {"order": 7}

    async def order_and_change_ones_mind() -> None:
        async with way(dsn) as connection:
            await insert(connection, 8)
            await client.using(connection).submit(ship.options(key=key and "order:8"), 8)
            raise RolledBack

    with pytest.raises(RolledBack):
        await order_and_change_ones_mind()
    assert await counts(db) == (1, 1)


async def test_what_is_refused_leaves_the_transaction_usable(dsn: str, client: Client, db: Database) -> None:
    async with by_asyncpg(dsn) as connection:
        await insert(connection, 1)
        call: Any = client.using(connection).submit
        with pytest.raises(InvalidRequest):
            await call(ship, "seven")
        await client.using(connection).submit(ship, 7)
    assert await counts(db) == (1, 1)


@pytest.mark.parametrize("way", EVERY_WAY)
async def test_submitting_first_begins_the_transaction_and_does_not_end_it(
    way: Connecting, dsn: str, client: Client, db: Database
) -> None:
    with pytest.raises(RolledBack):
        await _submit_and_leave(way, dsn, client)

    assert await counts(db) == (0, 0)


async def _submit_and_leave(way: Connecting, dsn: str, client: Client) -> None:
    async with way(dsn) as connection:
        await client.using(connection).submit(ship, 7)
        raise RolledBack


async def test_what_is_no_connection_is_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="asyncpg, psycopg or SQLAlchemy"):
        await client.using(object()).submit(ship, 1)


@pytest.mark.parametrize("way", EVERY_WAY)
async def test_effects_and_result_of_a_completed_run_commit_together(
    way: Connecting, dsn: str, client: Client, working: Working, db: Database
) -> None:
    @task
    async def pay(ctx: Context, order: int) -> Any:
        async with way(dsn) as connection:
            await insert(connection, order)
            await ctx.complete(connection, {"paid": order})
            assert await counts(db) == (0, 1)

    async with working(pay):
        run = await client.submit(pay, 7)
        assert await run.result(timeout=10) == {"paid": 7}

    assert await counts(db) == (1, 0)
    await check_ledger(db, at_rest=True)
    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM late_results") == 0


async def test_a_completion_that_was_rolled_back_is_a_failure_even_if_the_task_says_nothing(
    dsn: str, client: Client, working: Working, db: Database
) -> None:
    @task(retry=RetryPolicy(attempts=2, backoff="immediate"))
    async def pay(ctx: Context) -> str:
        with suppress(ZeroDivisionError):
            async with by_asyncpg(dsn) as connection:
                await insert(connection, ctx.attempt)
                await ctx.complete(connection, "paid")
                _ = 1 / (ctx.attempt - 1)  # the first attempt takes it back
        return "ignored"

    async with working(pay):
        run = await client.submit(pay)
        assert await run.result(timeout=10) == "paid"

    assert [attempt.outcome for attempt in await run.attempts()] == ["completed", "succeeded"]
    assert await counts(db) == (1, 0)


@pytest.mark.covers("F57")
async def test_an_attempt_that_was_replaced_cannot_complete_and_takes_its_effects_back(
    dsn: str, client: Client, working: Working, db: Database
) -> None:
    replaced, superseded = asyncio.Event(), asyncio.Event()

    @task
    async def pay(ctx: Context) -> Any:
        if ctx.attempt == 1:
            await replaced.wait()
        try:
            async with by_asyncpg(dsn) as connection:
                await insert(connection, ctx.attempt)
                await ctx.complete(connection, ctx.attempt)
        except Superseded:
            superseded.set()
            raise

    async with working(pay):
        run = await client.submit(pay)
        await until(lambda: is_in(run, State.RUNNING))
        async with db.transaction() as tx:  # as recover does it for a worker that was declared dead
            await tx.execute("UPDATE runs SET state = 'queued', token = NULL, worker = NULL WHERE id = $1", run.id)
        assert await run.result(timeout=10) == 2
        replaced.set()
        await asyncio.wait_for(superseded.wait(), 10)

    assert await counts(db) == (1, 0)


async def test_a_task_in_a_child_process_completes_too(
    dsn: str, client: Client, working: Working, db: Database
) -> None:
    async with working(shop.pay, modules=["tests.sdk.shop"]):
        run = await client.submit(shop.pay, dsn, 7)
        assert await run.result(timeout=20) == {"paid": 7}

    assert await counts(db) == (1, 0)
    await check_ledger(db, at_rest=True)


async def test_a_blocking_task_completes_with_a_blocking_connection(
    dsn: str, client: Client, working: Working, db: Database
) -> None:
    @task(mode="thread", timeout=timedelta(seconds=20))
    def pay(ctx: Context) -> Any:
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            ctx.complete_sync(connection, "paid")

    async with working(pay):
        run = await client.submit(pay)
        assert await run.result(timeout=20) == "paid"

    assert await counts(db) == (1, 0)
