"""A scheduler node without workers, to be killed: ``python scheduler.py DSN ENGINE``. Prints a line when it runs."""

import asyncio
import sys
from typing import cast

from mainspring.environment import SystemEnvironment
from mainspring.roles import EngineName, NodeSettings, run_node
from mainspring.service import Stop, signals
from mainspring.store.database import open_database
from mainspring.telemetry.events import AnyEvent, Events, NodeRegistered
from mainspring.worker.registry import Registry


def announce(event: AnyEvent) -> None:
    if isinstance(event, NodeRegistered):
        print(event.node, flush=True)  # noqa: T201 - the parent waits for it


async def main(dsn: str, engine: EngineName) -> None:
    env = SystemEnvironment()
    stop = Stop(env)
    async with open_database(dsn) as db:
        with signals(stop):
            settings = NodeSettings(engine=engine, pools=())
            await run_node(settings, stop, db=db, env=env, events=Events(announce), registry=Registry())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], cast("EngineName", sys.argv[2])))
