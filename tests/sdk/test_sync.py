"""The blocking front: in a script's main thread, in others, and inside a running loop."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from mainspring import Client, Context, NotFound, RetryPolicy, RunFailed, cron, task
from mainspring.domain.errors import InvalidRequest
from mainspring.sdk.loop import Closed
from mainspring.sdk.sync import SyncClient
from mainspring.store.database import Database
from tests.api.conftest import serve

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


async def test_everything_else_by_the_same_names(client: SyncClient, working: Working) -> None:
    job = client.jobs.put("nightly", cron("30 2 * * *"), double.call(1))
    day = (datetime(2026, 11, 14, tzinfo=UTC), datetime(2026, 11, 15, tzinfo=UTC))

    assert client.tenant == "default"
    assert client.jobs.edit("nightly", priority=5, reason="more").view.version == 2
    assert client.jobs.pause("nightly", reason="move").view.state == "paused"
    assert client.jobs.resume("nightly").view.state == "active"
    assert [(each.number, each.reason) for each in job.versions(limit=3)] == [(4, ""), (3, "move"), (2, "more")]
    assert client.jobs.backfill("nightly", *day, key="once") == 1
    assert list(client.jobs.slots("nightly", *day, limit=5)) == []  # before its time; and a backfill decides no slot
    assert len(client.jobs.upcoming("nightly", 3)) == 3
    client.jobs.put("other", None, double.call(1))
    first = client.jobs.list(limit=1)
    second = client.jobs.list(limit=1, after=first.next)
    assert [each.id for each in (*first.items, *second.items)] == [job.id, client.jobs.get("other").id]
    run = client.jobs.trigger("other", payload={"number": 4})
    again = client.submit_call(double.call(5))
    assert client.runs.list(job="other").items[0].id == run.id
    client.jobs.delete("nightly")
    async with working(double, broken):
        assert await asyncio.to_thread(client.runs.handle(str(run.id)).wait, 20) == run.status()
        assert await asyncio.to_thread(again.result, 20) == 10
        dead = client.submit(broken)
        await asyncio.to_thread(dead.wait, 20)
        (node,) = [node for node in client.workers.list() if node.alive]
        client.workers.quiesce(node.id)
    assert [letter.run_id for letter in client.dead_letters.list(job="broken").items] == [dead.id]
    client.workers.pause_pool("short", reason="move")
    assert [pool.paused for pool in client.workers.pools() if pool.name == "short"] == ["move"]
    assert client.workers.resume_pool("short")
    with pytest.raises(NotFound):
        client.workers.stop("00000000-0000-0000-0000-000000000000")


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


@pytest.mark.parametrize("over", ["database", "server"])
async def test_closing_ends_what_other_threads_wait_for_and_tells_them(over: str, dsn: str, db: Database) -> None:
    async with serve(db) as server:
        client = Client.sync(dsn if over == "database" else server.url)
        run = await asyncio.to_thread(client.submit, double, 1)  # nobody works here: it never ends
        waiting: list[Callable[[], Any]] = [
            run.wait,
            lambda: run.result(timeout=600),
            lambda: list(client.watch()),
            lambda: list(client.runs.watch(run=run.id)),
            lambda: list(run.logs(follow=True)),
        ]
        others = await asyncio.to_thread(client.wait, at_work(1))
        asked = [in_thread(each) for each in waiting]
        await asyncio.to_thread(client.wait, at_work(others + len(waiting)))

        await asyncio.wait_for(asyncio.to_thread(client.close), 20)

        for each in asked:
            with pytest.raises(Closed, match="may have been done"):
                await asyncio.wait_for(asyncio.wrap_future(each), 20)
        again = await asyncio.to_thread(client.submit, double, 2)  # it opens again
        assert (await asyncio.to_thread(again.status)).state == "queued"
        await asyncio.to_thread(client.close)


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Call something in a thread that keeps nobody from ending, should it wait for ever."""
    answer = Future[Any]()

    def asking() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is for whoever asked
            answer.set_exception(error)

    threading.Thread(target=asking, daemon=True).start()
    return answer


async def at_work(number: int) -> int:
    """Wait until there are so many tasks on the loop of the client, this one included; return how many there are."""
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) < number:  # noqa: ASYNC110 - a loop has no event for that
            await asyncio.sleep(0.01)
    return len(asyncio.all_tasks())


async def test_an_iterator_from_before_a_close_has_ended(client: SyncClient) -> None:
    client.submit(double, 1)
    runs, jobs = client.runs.each(), client.jobs.each()
    assert next(runs).job == next(jobs).name == "double"

    client.close()
    client.submit(double, 2)

    for each in (runs, jobs):
        with pytest.raises(Closed):
            next(each)


async def test_an_iterator_that_is_dropped_on_the_clients_own_thread_does_not_stop_it(client: SyncClient) -> None:
    ended = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    held = [client.each(lambda _: numbers())]
    assert next(held[0]) == 1

    async def drop() -> None:
        held.clear()
        gc.collect()

    await asyncio.wait_for(asyncio.to_thread(client.wait, drop()), 20)

    assert await asyncio.to_thread(ended.wait, 20)
