"""The same drain by others: so many no-op jobs enqueued beforehand, then taken by one process.

Each is driven as its own documentation recommends for speed, with durable tables, and on uvloop as we are.
The clock stops when the worker has drained the queue and returns, as in PgQueuer's own benchmark; that is
within milliseconds of the last commit. ``SETTINGS`` are those that came out first on two cores; the benchmark
tries them all, shortly, and goes on with the best.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from procrastinate import App, PsycopgConnector

from bench.server import Ready, Span, WrongResult, calm, connected

AT_ONCE = 1000  # jobs per statement when enqueueing


class Drained(NamedTuple):
    enqueued: Span
    drained: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueuer:
    """Its ``QueueManager`` writes results in batches of the same size as it takes jobs.

    From 10 (its default, and that of its own benchmark, with five managers) to 500 it gained about fivefold, as
    fewer commits wait for the disk; beyond, little. A pool lets it take and write at once.
    """

    share: ClassVar = 1  # of the jobs

    managers: int
    batch: int

    def __str__(self) -> str:
        return f"{self.managers} x batch {self.batch}"

    def drain(self, dsn: str, jobs: int, ready: Ready) -> Drained:
        return _run(self._drain(dsn, jobs, ready))

    async def _drain(self, dsn: str, jobs: int, ready: Ready) -> Drained:
        done = 0

        async def noop(job: Job) -> None:
            nonlocal done
            del job
            done += 1

        async with AsyncExitStack() as stack:
            pools = [
                await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=4, max_size=4))
                for _ in range(self.managers)
            ]
            queries = [Queries(AsyncpgPoolDriver(pool)) for pool in pools]
            await queries[0].install()
            await queries[0].optimize_autovacuum()
            began = time.perf_counter()
            for count in _parts(jobs):
                await queries[0].enqueue(["noop"] * count, [None] * count, [0] * count)
            enqueued = Span(began, time.perf_counter())
            await calm(dsn)
            managers = [QueueManager(each) for each in queries]
            for manager in managers:
                manager.entrypoint("noop")(noop)
            ready()
            began = time.perf_counter()
            await asyncio.gather(
                *(
                    manager.run(
                        batch_size=self.batch, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1)
                    )
                    for manager in managers
                )
            )
            drained = Span(began, time.perf_counter())
        left = "SELECT (SELECT count(*) FROM pgqueuer)"
        logged = "(SELECT count(*) FROM pgqueuer_log WHERE status = 'successful')"
        await _check(dsn, f"{left}, {logged}", (0, jobs), ran=done)
        return Drained(enqueued, drained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Procrastinate:
    """It takes and finishes jobs one by one, each a commit: several workers let commits share a flush.

    Finished jobs stay in its table, which is its default; notifications are off, as everything is there when
    it starts.
    """

    share: ClassVar = 1 / 30  # it would take most of the time otherwise, and its rate does not rise with more

    workers: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.workers} x concurrency {self.concurrency}"

    def drain(self, dsn: str, jobs: int, ready: Ready) -> Drained:
        logging.disable(logging.WARNING)  # it would write lines for every job
        return _run(self._drain(dsn, jobs, ready))

    async def _drain(self, dsn: str, jobs: int, ready: Ready) -> Drained:
        connections = min(self.workers * (self.concurrency + 1), 40)
        app = App(connector=PsycopgConnector(conninfo=dsn, min_size=connections, max_size=connections))
        done = 0

        async def noop() -> None:
            nonlocal done
            done += 1

        task = app.task(name="noop")(noop)

        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            began = time.perf_counter()
            for count in _parts(jobs):
                await task.batch_defer_async(*[{}] * count)
            enqueued = Span(began, time.perf_counter())
            await calm(dsn)
            ready()
            began = time.perf_counter()
            await asyncio.gather(
                *(
                    app.run_worker_async(
                        concurrency=self.concurrency, wait=False, listen_notify=False, install_signal_handlers=False
                    )
                    for _ in range(self.workers)
                )
            )
            drained = Span(began, time.perf_counter())
        statuses = "SELECT count(*), count(*) FILTER (WHERE status = 'succeeded') FROM procrastinate_jobs"
        await _check(dsn, statuses, (jobs, jobs), ran=done)
        return Drained(enqueued, drained)


Peer = PgQueuer | Procrastinate

SETTINGS: dict[str, tuple[Peer, ...]] = {  # the likely best first: it is what --quick takes
    "PgQueuer": (PgQueuer(managers=1, batch=1000), PgQueuer(managers=1, batch=2000), PgQueuer(managers=2, batch=500)),
    "Procrastinate": (
        Procrastinate(workers=16, concurrency=2),
        Procrastinate(workers=4, concurrency=10),
        Procrastinate(workers=1, concurrency=30),
    ),
}


def _run(drain: Coroutine[Any, Any, Drained]) -> Drained:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drain)


def _parts(jobs: int) -> list[int]:
    return [min(AT_ONCE, jobs - first) for first in range(0, jobs, AT_ONCE)]


async def _check(dsn: str, query: str, expected: tuple[int, int], *, ran: int) -> None:
    async with connected(dsn) as connection:
        found = tuple(await connection.fetchrow(query))
    if (*found, ran) != (*expected, expected[1]):
        raise WrongResult(f"expected {expected} from a peer's tables, found {found}, and {ran} ran: {query}")
