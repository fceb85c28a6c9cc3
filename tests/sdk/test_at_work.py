"""Tasks at work, seen by whoever asked for them: signals, cancels, lines, results, limits, resources and hooks."""

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from mainspring import (
    Client,
    Context,
    Discard,
    NotFound,
    RetryPolicy,
    RunCancelled,
    RunFailed,
    Snooze,
    every,
    task,
)
from mainspring.domain.job import JobState
from mainspring.domain.run import State
from mainspring.tasks.hooks import on_end, on_start, resource
from mainspring.telemetry.events import ServiceStopped

from . import shop
from .conftest import Working, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


@task
async def welcome(user_id: int, template: str = "hello") -> str:
    return f"{template} {user_id}"


@task(retry=RetryPolicy(attempts=2, backoff="immediate"))
async def broken(reason: str) -> None:
    raise ValueError(reason)


async def test_signals_steer_the_run(client: Client, working: Working) -> None:
    seen: list[int] = []

    @task
    async def patient(ctx: Context) -> int:
        seen.append(ctx.attempt)
        if ctx.attempt < 3:
            raise Snooze("1ms", because="not yet")
        return ctx.attempt

    @task
    async def hopeless() -> None:
        raise Discard("no such day")

    async with working(patient, hopeless):
        snoozed, discarded = await client.submit(patient), await client.submit(hopeless)
        assert await snoozed.result(timeout=10) == 3
        with pytest.raises(RunFailed, match=r"refused.*no such day"):
            await discarded.result(timeout=10)

    assert (await snoozed.status()).failures == 0
    assert [attempt.outcome for attempt in await snoozed.attempts()] == ["snoozed", "snoozed", "succeeded"]


async def test_a_cancelled_run_says_so(client: Client, working: Working) -> None:
    began = asyncio.Event()

    @task
    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    queued = await client.submit(endless.options(delay="1h"))
    assert await queued.cancel() is State.CANCELLED
    async with working(endless):
        running = await client.submit(endless)
        await began.wait()
        assert await running.cancel() is State.RUNNING
        with pytest.raises(RunCancelled):
            await running.result(timeout=10)
    with pytest.raises(NotFound):
        await running.cancel()


async def test_what_a_task_says_is_kept_with_its_attempt(client: Client, working: Working) -> None:
    @task
    async def talkative(ctx: Context) -> None:
        logger = logging.getLogger("shop")
        logger.setLevel(logging.INFO)
        logger.info("packing %d", 3)
        ctx.log.warning("late", by="2 days")
        sys.stdout.write("plain words\n")
        ctx.progress(0.5, "half way")

    async with working(talkative):
        run = await client.submit(talkative)
        await run.wait(timeout=10)

    lines = [line async for line in run.logs()]
    assert [(line.stream, line.level, line.text) for line in lines] == [
        ("log", "INFO", "packing 3"),
        ("log", "WARNING", "late by=2 days"),
        ("stdout", "", "plain words"),
        ("progress", "", "0.5000 half way"),
    ]


@pytest.mark.covers("F72")
async def test_a_result_that_cannot_be_kept_is_a_clear_failure_and_not_cut(client: Client, working: Working) -> None:
    none = RetryPolicy(backoff="none")

    @task(retry=none)
    async def huge() -> str:
        return "x" * 100_000

    @task(retry=none)
    async def strange() -> object:
        return object()

    @task
    async def with_nul() -> str:
        return "a\0b"

    async with working(huge, strange, with_nul):
        runs = [await client.submit(each) for each in (huge, strange)]
        ends = [await run.wait(timeout=10) for run in runs]
        kept = await (await client.submit(with_nul)).result(timeout=10)

    assert [end.error and end.error.type for end in ends] == ["result_too_large", "result_without_json"]
    assert kept == "a\N{REPLACEMENT CHARACTER}b"


async def test_a_limit_of_a_task_holds_in_one_worker(client: Client, working: Working) -> None:
    at_once = most = 0

    @task(concurrency=2)
    async def limited() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    runs = await client.submit_many([limited.call() for _ in range(20)])
    async with working(limited, welcome):
        for run in runs:
            await run.wait(timeout=20)

    assert most == 2


async def test_a_task_may_know_the_last_success_of_its_job(client: Client, working: Working) -> None:
    async with working(shop.since, modules=["tests.sdk.shop"]):
        before, first = await (await client.submit(shop.since)).result(timeout=20)
        last, _ = await (await client.submit(shop.since)).result(timeout=20)

    assert (before, last) == (None, first)


async def test_resources_and_hooks_surround_every_attempt(client: Client, working: Working) -> None:
    seen: list[str] = []

    @resource
    async def db() -> AsyncIterator[str]:
        seen.append("opened")
        yield "the pool"
        seen.append("closed")

    @on_start
    async def before(ctx: Context) -> None:
        seen.append(f"start {ctx.job}")

    @on_end
    def after(ctx: Context, outcome: str) -> None:
        seen.append(f"end {ctx.job} {outcome}")
        raise RuntimeError("a hook that fails at the end fails nothing")

    @task
    async def use(ctx: Context) -> str:
        return str(ctx["db"])

    async with working(use, broken, hooks=[before, after], resources=[db]):
        assert await (await client.submit(use)).result(timeout=10) == "the pool"
        await (await client.submit(broken, "x")).wait(timeout=10)

    assert seen[0] == "opened"
    assert seen[-1] == "closed"
    ends = ["start use", "end use succeeded", "start broken", "end broken failed", "start broken", "end broken failed"]
    assert seen[1:-1] == ends


@pytest.mark.covers("F125", "F115")
async def test_a_worker_that_lacks_the_task_leaves_its_runs_alone_and_the_pool_says_so(
    client: Client, working: Working
) -> None:
    run = await client.submit(broken, "x")
    async with working(welcome):
        assert await (await client.submit(welcome, 1)).result(timeout=10) == "hello 1"
        (pool,) = [each for each in await client.workers.pools() if each.name == "short"]
        (node,) = [each for each in await client.workers.list() if each.alive]

    assert (pool.unknown_tasks, pool.ready, pool.workers) == (("broken",), 1, 1)
    assert node.tasks == ("welcome",)
    status = await run.status()
    assert (status.state, status.attempt, status.failures) == (State.QUEUED, 0, 0)


async def test_a_pause_ends_by_itself(client: Client, working: Working) -> None:
    job = await client.jobs.put("ping", every("1s"), welcome.call(1))
    await job.pause(until=datetime.now(UTC) + timedelta(seconds=1), reason="a moment")

    async def resumed() -> bool:
        return (await job.refresh()).view.state is not JobState.PAUSED

    async with working(welcome):
        await until(resumed)

    assert (job.view.state, job.view.reason, job.view.version) == (JobState.ACTIVE, "its pause is over", 3)


async def test_lines_of_structlog_are_kept_too(client: Client, working: Working) -> None:
    @task
    async def packing() -> None:
        structlog.get_logger().info("packed", boxes=3)

    async with working(packing):
        run = await client.submit(packing)
        await run.wait(timeout=10)

    (line,) = [line async for line in run.logs()]
    assert line.stream == "stdout"
    assert re.search(r"packed.*boxes.*3", line.text)


async def test_nothing_is_claimed_from_a_paused_pool_until_it_is_resumed(client: Client, working: Working) -> None:
    await client.workers.pause_pool("short", reason="the provider is down")
    async with working(welcome):
        held = await client.submit(welcome, 1)
        elsewhere = await client.submit(welcome.options(pool="long"), 2)
        with pytest.raises(TimeoutError):
            await held.wait(timeout=0.5)
        (pool,) = [each for each in await client.workers.pools() if each.name == "short"]
        assert (pool.paused, pool.ready) == ("the provider is down", 1)

        assert await client.workers.resume_pool("short")
        assert await held.result(timeout=10) == "hello 1"
    assert not await client.workers.resume_pool("short")
    assert (await elsewhere.status()).state is State.QUEUED


async def test_a_worker_that_is_quiesced_takes_nothing_more_and_one_that_is_stopped_ends(
    client: Client, working: Working
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @task
    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "done"

    async with working(slow, welcome) as recorder:
        at_work = await client.submit(slow)
        await began.wait()
        (node,) = [each for each in await client.workers.list() if each.alive]
        await client.workers.quiesce(node.id)
        asked = asyncio.get_running_loop().time()

        async def heard() -> bool:  # it has beaten since, and with that heard what is asked
            (now,) = [each for each in await client.workers.list() if each.id == node.id]
            return now.heartbeat_age.total_seconds() < asyncio.get_running_loop().time() - asked - 0.1

        await until(heard)
        waiting = await client.submit(welcome, 1)
        go_on.set()
        assert await at_work.result(timeout=10) == "done"
        with pytest.raises(TimeoutError):
            await waiting.wait(timeout=0.5)

        await client.workers.stop(node.id)
        await recorder.until(lambda seen: any(event.service == "worker short" for event in seen.of(ServiceStopped)))

    with pytest.raises(NotFound):
        await client.workers.stop(node.id)
