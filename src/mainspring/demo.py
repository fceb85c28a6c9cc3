"""The example jobs of ``mainspring dev``: small, quick, and one that fails now and then."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from mainspring.domain.firing import Misfire, Misfires
from mainspring.domain.job import Job
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule import Cron, Every, Schedule
from mainspring.worker.registry import Context, Registry


async def heartbeat(context: Context) -> str:
    return f"beat {context.slot:%H:%M:%S}"


async def report(context: Context) -> dict[str, int]:
    await asyncio.sleep(0.2)  # stands for work
    return {"rows": context.slot.second}


async def flaky(context: Context) -> str:
    """Fail on the first attempt of every other slot, to show a retry."""
    if context.attempt == 1 and context.slot.second % 20 == 0:
        raise RuntimeError("the first attempt of this one always fails")
    return "ok"


JOBS = (
    Job(name="heartbeat", task="heartbeat", schedule=Schedule(specs=(Every(timedelta(seconds=1)),))),
    Job(name="report", task="report", schedule=Schedule(specs=(Every(timedelta(seconds=5)),))),
    Job(
        name="flaky",
        task="flaky",
        schedule=Schedule(specs=(Every(timedelta(seconds=10)),)),
        retry=RetryPolicy.of(backoff="2s", attempts=3),
    ),
    Job(
        name="nightly",
        task="report",
        schedule=Schedule(specs=(Cron("30 2 * * *"),), timezone="America/New_York"),
        misfire=Misfire(policy=Misfires.LATEST),
    ),
)


def registry() -> Registry:
    tasks = Registry()
    for name, task in (("heartbeat", heartbeat), ("report", report), ("flaky", flaky)):
        tasks.add(name, task)
    return tasks
