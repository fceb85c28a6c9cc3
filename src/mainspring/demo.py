"""The example tasks of ``mainspring dev``: small, quick, and one that fails now and then."""

from __future__ import annotations

import asyncio

from mainspring.domain.retry import RetryPolicy
from mainspring.tasks.context import Context
from mainspring.tasks.task import task
from mainspring.tasks.timing import cron, every


@task(schedule=every("1s"))
async def heartbeat(ctx: Context) -> str:
    return f"beat {ctx.slot:%H:%M:%S}"


@task(schedule=every("5s"))
async def report(ctx: Context) -> dict[str, int]:
    await asyncio.sleep(0.2)  # stands for work
    ctx.log.info("counted", rows=ctx.slot.second)
    return {"rows": ctx.slot.second}


@task(schedule=every("10s"), retry=RetryPolicy(backoff="2s", attempts=3))
async def flaky(ctx: Context) -> str:
    """Fail on the first attempt of every other slot, to show a retry."""
    if ctx.attempt == 1 and ctx.slot.second % 20 == 0:
        raise RuntimeError("the first attempt of this one always fails")
    return "ok"


@task(schedule=cron("30 2 * * *", tz="America/New_York", misfire="latest"))
async def nightly() -> None:
    await asyncio.sleep(0.1)  # stands for work


@task
async def greet(name: str = "world") -> str:
    """Runs when asked for: ``mainspring jobs trigger greet --payload '{"name": "you"}'``."""
    return f"hello {name}"
