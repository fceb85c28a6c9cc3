"""The world in memory, as the author of some tasks would use it."""

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Context, Discard, RetryPolicy, RunFailed, Snooze, cron, every, task
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.run import State
from mainspring.testing import World

pytestmark = pytest.mark.asyncio


@task(schedule=cron("0 9 * * 1-5", tz="Europe/Paris"))
async def digest(ctx: Context) -> str:
    return f"{ctx.slot:%a}, then {ctx.next_slots[0]:%a}"


@task(retry=RetryPolicy(attempts=3, backoff="10m, 1h"))
def fetch(ctx: Context, url: str) -> str:
    if ctx.attempt < 3:
        raise ConnectionError(url)
    return f"{url} at {ctx.attempt}"


async def test_three_days_pass_and_the_schedule_fires_on_weekdays() -> None:
    world = World([digest], start="2026-11-13T00:00:00Z")  # a Friday

    await world.advance(days=4)

    assert [await run.result() for run in world.runs] == ["Fri, then Mon", "Mon, then Tue"]
    assert [run.slot for run in world.runs] == [
        datetime(2026, 11, 13, 8, tzinfo=UTC),
        datetime(2026, 11, 16, 8, tzinfo=UTC),
    ]
    assert world.now == datetime(2026, 11, 17, tzinfo=UTC)


async def test_retries_take_their_time() -> None:
    world = World([fetch])

    run = await world.submit(fetch, "a")
    assert (run.state, run.attempt) == (State.WAITING, 1)
    with pytest.raises(RunFailed, match="waiting"):
        await run.result()
    await world.advance(minutes=10)
    assert run.attempt == 2
    await world.advance(minutes=59)
    assert run.attempt == 2
    await world.advance(minutes=1)

    assert await run.result() == "a at 3"
    assert [outcome.word for outcome in run.outcomes] == ["failed", "failed", "succeeded"]


async def test_signals_delays_keys_and_dead_letters() -> None:
    @task
    async def patient(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Snooze(hours=2)
        raise Discard("no such customer")

    world = World([patient])

    first = await world.submit(patient.options(key="one"))
    assert await world.submit(patient.options(key="one")) is first
    later = await world.submit(patient.options(delay="1d"))
    await world.advance(hours=2)

    assert world.dead_letters == [first]
    assert (first.failures, later.attempt) == (0, 0)
    await world.advance(timedelta(days=2))
    assert world.dead_letters == [first, later]


async def test_arguments_are_checked_and_resources_are_what_the_test_says() -> None:
    @task(schedule=every("1h"))
    async def count(ctx: Context) -> int:
        ctx.progress(0.5)
        return int(ctx["db"]["rows"])

    world = World([count, fetch])
    world.resources["db"] = {"rows": 3}

    await world.advance(hours=1)
    with pytest.raises(InvalidRequest, match="expected str, got int"):
        await world.submit(fetch, 7)  # type: ignore[arg-type]

    assert [(await run.result(), run.progress) for run in world.runs] == [(3, 0.5)]
