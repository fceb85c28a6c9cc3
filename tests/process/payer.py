"""A worker whose task writes a row and completes its run in one transaction; killed where it is told to be.

``python payer.py DSN``, with MAINSPRING_CRASH_AT naming a point of the product or of the task: ``pay.begun``,
``pay.written``, ``pay.completed``, ``pay.committed``.
"""

import sys
from datetime import timedelta
from typing import Any

import asyncpg

from mainspring import Context, RetryPolicy, task
from mainspring.environment import SystemEnvironment
from mainspring.roles import NodeSettings, run_node
from mainspring.service import Stop, run, signals
from mainspring.store.database import open_database
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events
from mainspring.worker.pool import PoolConfig

ENV = SystemEnvironment()


@task(retry=RetryPolicy(attempts=1000, backoff="immediate"))
async def pay(ctx: Context, dsn: str, order: int) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await ENV.reach("pay.begun")
            await connection.execute("INSERT INTO payments VALUES ($1, $2)", order, ctx.attempt)
            await ENV.reach("pay.written")
            await ctx.complete(connection, ctx.attempt)
            await ENV.reach("pay.completed")
        await ENV.reach("pay.committed")
    finally:
        await connection.close()


async def main(dsn: str) -> None:
    stop = Stop(ENV)
    settings = NodeSettings(
        pools=(PoolConfig(concurrency=4),),
        lease_for=timedelta(seconds=1.5),  # less the margin, half a second to trust oneself
        heartbeat_every=timedelta(seconds=0.2),
    )
    async with open_database(dsn) as db:
        with signals(stop):
            await run_node(settings, stop, db=db, env=ENV, events=Events(), registry=Registry([pay]))


if __name__ == "__main__":
    run(main(sys.argv[1]))
