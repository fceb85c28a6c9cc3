"""One node as a process of its own, for tests to kill, stop and cut off: ``python node.py OPTIONS``, as JSON.

Prints a line when it is registered, and one before it stops itself. Ends as the command line does: what is wrong is
one line on standard error and an exit status.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from mainspring.domain.errors import MainspringError
from mainspring.domain.job import Json
from mainspring.environment import SystemEnvironment
from mainspring.roles import EngineName, NodeSettings, run_node
from mainspring.service import Stop, run, signals
from mainspring.store.database import open_database
from mainspring.tasks.context import Context
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import AnyEvent, Events, NodeRegistered
from mainspring.worker.pool import PoolConfig


@dataclass(frozen=True, kw_only=True)
class Options:
    dsn: str
    engine: EngineName | None = None
    concurrency: int = 0  # no worker
    gate: str | None = None  # the socket of a Gate, at which the task "wait" waits
    lease_for: float = 6
    heartbeat_every: float = 2
    stop_at: str | None = None  # a crash point, at which the process stops itself when it gets there after a SIGUSR1
    stop_unheard: bool = False  # not there, but having sent what comes next, and before it hears the answer
    pooled: bool = False
    grace: float = 20
    pulse: bool = False


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - the parent reads it


def announce(event: AnyEvent) -> None:
    if isinstance(event, NodeRegistered):
        say(str(event.node))


def stopping_at(point: str | None, *, unheard: bool) -> Callable[[str], Awaitable[None]]:
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, asked.set)

    def stop() -> None:
        say("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)

    async def reach(reached: str) -> None:
        if reached == point and asked.is_set():
            asked.clear()
            if unheard:
                loop.call_soon(stop)
            else:
                stop()

    return reach


def tasks(gate: str | None) -> Registry:
    async def noop(_: Context) -> None:
        pass

    async def wait(context: Context) -> Json:
        """Tell the gate that we are here, and return what it says."""
        reader, writer = await asyncio.open_unix_connection(gate)
        try:
            arrival = {"run": str(context.run_id), "attempt": context.attempt, "pid": os.getpid()}
            writer.write(json.dumps(arrival).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()

    async def burn(_: Context) -> None:
        """Hold the event loop and, in stretches of seconds, the interpreter itself."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            sum(range(30_000_000))

    registry = Registry()
    registry.add("burn", burn)
    registry.add("noop", noop)
    registry.add("wait", wait)
    return registry


async def main(options: Options) -> None:
    env = SystemEnvironment(on_reach=stopping_at(options.stop_at, unheard=options.stop_unheard))
    stop = Stop(env)
    pool = PoolConfig(concurrency=options.concurrency, grace=timedelta(seconds=options.grace))
    settings = NodeSettings(
        engine=options.engine,
        pools=(pool,) if options.concurrency else (),
        lease_for=timedelta(seconds=options.lease_for),
        heartbeat_every=timedelta(seconds=options.heartbeat_every),
        pulse=options.pulse,
    )
    async with open_database(options.dsn, pooled=options.pooled) as db:
        with signals(stop):
            events, registry = Events(announce), tasks(options.gate)
            await run_node(settings, stop, db=db, env=env, events=events, registry=registry)


if __name__ == "__main__":
    try:
        run(main(Options(**json.loads(sys.argv[1]))))
    except MainspringError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_status)
