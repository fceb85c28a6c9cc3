"""The blocking front: in a script's main thread, in others, and inside a running loop."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from mainspring import Client, Context, NotFound, RetryPolicy, RunFailed, cron, task
from mainspring.domain.errors import InvalidRequest
from mainspring.sdk.sync import SyncClient
from mainspring.store.database import Database

from .conftest import Working

pytestmark = pytest.mark.asyncio(loop_scope="session")


@task
async def double(number: int) -> int:
    return 2 * number


@task(retry=RetryPolicy(backoff="none"))
async def broken(ctx: Context) -> None:
    ctx.log.info("about to break")
    raise ValueError(ctx.job)


@pytest.fixture
def client(dsn: str) -> Iterator[SyncClient]:
    with Client.sync(dsn) as opened:
        yield opened


async def test_it_works_inside_a_running_loop_and_in_threads(client: SyncClient, working: Working) -> None:
    run = client.submit(double, 4)  # blocks this very loop
    async with working(double, broken):
        assert await asyncio.to_thread(run.result, 10) == 8
        with ThreadPoolExecutor(8) as threads:
            runs = await asyncio.gather(
                *(asyncio.get_running_loop().run_in_executor(threads, client.submit, double, n) for n in range(40))
            )
        results = await asyncio.to_thread(lambda: [each.result(10) for each in runs])
        failed = client.submit(broken)
        with pytest.raises(RunFailed, match="ValueError: broken"):
            await asyncio.to_thread(failed.result, 10)

    assert results == [2 * n for n in range(40)]
    assert [line.text for line in failed.logs()] == ["about to break"]
    assert [letter.run_id for letter in client.dead_letters.each()] == [failed.id]
    assert len(list(client.runs.each(job="double", limit=7))) == 41


async def test_jobs_by_the_same_names(client: SyncClient) -> None:
    job = client.jobs.put("nightly", cron("30 2 * * *", tz="Europe/London"), double.call(1))

    assert job.explain() == "At 02:30 every day, Europe/London time."
    assert client.jobs.get("nightly").pause(reason="move").view.reason == "move"
    assert job.refresh().view.state == "paused"
    assert [each.name for each in client.jobs.each(prefix="night")] == ["nightly"]
    run = job.trigger(payload={"number": 3}, key="once")
    assert job.trigger(payload={"number": 3}, key="once").id == run.id
    assert client.jobs.cancel("nightly") == 1
    job.delete()
    with pytest.raises(NotFound):
        client.jobs.get("nightly")


async def test_a_blocking_transaction_carries_the_run(client: SyncClient, dsn: str, db: Database) -> None:
    with psycopg.connect(dsn) as connection:
        client.using(connection).submit(double, 1)
        connection.rollback()
    with psycopg.connect(dsn) as connection:
        run = client.using(connection).submit(double, 2)

    async with db.connection() as reading:
        assert [row["id"] for row in await reading.fetch("SELECT id FROM runs")] == [run.id]


async def test_a_wrong_call_is_refused_in_the_callers_own_thread(client: SyncClient) -> None:
    with pytest.raises(InvalidRequest, match="expected int, got str"):
        client.submit(double.options(), "user")  # type: ignore[arg-type]


async def test_closing_ends_its_thread_and_the_next_call_opens_another(dsn: str) -> None:
    client = Client.sync(dsn)
    client.submit(double, 1)
    assert "mainspring-client" in {thread.name for thread in threading.enumerate()}

    client.close()

    assert "mainspring-client" not in {thread.name for thread in threading.enumerate()}
    assert client.submit(double, 2).status().state == "queued"
    client.close()
