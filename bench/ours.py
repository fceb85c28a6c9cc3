"""What the core benchmark asks of Mainspring: nodes as a user would run them, watched through their events."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bench.server import Ready, Span, WrongResult, calm, connected
from mainspring import At, Every, Schedule
from mainspring.domain.job import Job
from mainspring.engines.base import Rhythm
from mainspring.environment import SystemEnvironment
from mainspring.roles import NodeSettings, open_ledger, put_jobs, run_node
from mainspring.service import Stop, run
from mainspring.store.database import Database
from mainspring.tasks.context import Context
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import AnyEvent, Events, Fired, Recovered, Settled, Started
from mainspring.worker.pool import PoolConfig

HOUR = timedelta(hours=1)
AT_ONCE = 1000  # jobs per transaction when writing them
PATIENCE = timedelta(minutes=4)
ENVIRONMENT = SystemEnvironment()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a user may turn for throughput."""

    batch: int  # jobs fired in one transaction
    concurrency: int  # runs at work in one worker

    def node(self, *, scheduler: bool, worker: bool) -> NodeSettings:
        return NodeSettings(
            engine="peers" if scheduler else None,
            rhythm=Rhythm(batch=self.batch),
            pools=(PoolConfig(concurrency=self.concurrency),) if worker else (),
        )


@dataclass(slots=True)
class Tally:
    """A subscriber that counts what has happened, and says when there has been enough of it."""

    fired: int = 0
    settled: int = 0
    late: list[float] = field(default_factory=list)  # seconds from slot to start
    enough: Callable[["Tally"], bool] = lambda _: False
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    reached_at: float = 0.0

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case Started(late=late):
                self.late.append(late.total_seconds())
                return
            case Fired(runs=runs) | Recovered(kind="overdue", count=runs):  # the guardian fires too, and says so
                self.fired += runs
            case Settled():
                self.settled += event.succeeded + event.failed + event.dead + event.late
            case _:
                return
        if self.enough(self) and not self.reached.is_set():
            self.reached_at = time.perf_counter()
            self.reached.set()


async def noop(context: Context) -> None:
    del context


def fires(dsn: str, jobs: int, tuning: Tuning, ready: Ready) -> Span:
    """Run a scheduler without a worker until it has fired so many runs."""
    settings = tuning.node(scheduler=True, worker=False)
    return run(_node(dsn, settings, lambda tally: tally.fired >= jobs, ready))[0]


def works(dsn: str, jobs: int, tuning: Tuning, ready: Ready, *, scheduler: bool) -> Span:
    """Run a worker, with a scheduler beside it or without, until so many runs are settled."""
    settings = tuning.node(scheduler=scheduler, worker=True)
    return run(_node(dsn, settings, lambda tally: tally.settled >= jobs, ready))[0]


def lags(dsn: str, jobs: int, spacing: timedelta, ready: Ready) -> list[float]:
    """Return by how many seconds one-off jobs, one after the other, start late in an idle process."""

    async def measure() -> list[float]:
        first = ENVIRONMENT.now() + timedelta(seconds=2)
        schedules = [Schedule(specs=(At(_millisecond(first + n * spacing)),)) for n in range(jobs)]
        async with open_ledger(dsn) as db:
            await put_jobs(db, ENVIRONMENT, [_job(n, schedule) for n, schedule in enumerate(schedules)])
        _, tally = await _node(dsn, NodeSettings(), lambda tally: tally.settled >= jobs, ready)
        return tally.late

    return run(measure())


async def _node(dsn: str, settings: NodeSettings, enough: Callable[[Tally], bool], ready: Ready) -> tuple[Span, Tally]:
    tally, registry, stop = Tally(enough=enough), Registry(), Stop(ENVIRONMENT)
    registry.add("noop", noop)
    async with open_ledger(dsn) as db:
        ready()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            node = run_node(settings, stop, db=db, env=ENVIRONMENT, events=Events(tally), registry=registry)
            group.create_task(node)
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await tally.reached.wait()
            stop.request()
    return Span(began, tally.reached_at), tally


async def write_recurring(dsn: str, jobs: int) -> Span:
    """Write hourly jobs that were due a minute ago, and so are not due again while we measure."""
    slot = _second(ENVIRONMENT.now() - timedelta(minutes=1))
    schedule = Schedule(specs=(Every(HOUR, anchor=slot),))
    async with open_ledger(dsn) as db:
        span = await _write(db, [_job(n, schedule) for n in range(jobs)])
        async with db.transaction() as tx:
            await tx.execute("UPDATE job_cursors SET next_fire_at = $1", slot)
    async with connected(dsn) as connection:
        await connection.execute("VACUUM FULL job_cursors")  # as if they had been written like that
    await calm(dsn)
    return span


async def write_herd(dsn: str, jobs: int, lead: timedelta) -> datetime:
    """Write hourly jobs whose next slot is so far from now; return that instant."""
    slot = _second(ENVIRONMENT.now() + lead)
    schedule = Schedule(specs=(Every(HOUR, anchor=slot),))
    async with open_ledger(dsn) as db:
        await _write(db, [_job(n, schedule) for n in range(jobs)])
    await calm(dsn)
    return slot


async def write_queued(dsn: str, jobs: int, tuning: Tuning) -> Span:
    """Write one-off jobs and fire them, so that each has a run for a worker to take; return how long writing took."""
    async with open_ledger(dsn) as db:
        began = time.perf_counter()
        for first in range(0, jobs, AT_ONCE):
            soon = Schedule(specs=(At(_millisecond(ENVIRONMENT.now() + timedelta(seconds=2))),))
            await _write(db, [_job(n, soon) for n in range(first, min(first + AT_ONCE, jobs))])
        span = Span(began, time.perf_counter())
    settings = tuning.node(scheduler=True, worker=False)
    await _node(dsn, settings, lambda tally: tally.fired >= jobs, lambda: None)
    await calm(dsn)
    return span


async def _write(db: Database, jobs: Sequence[Job]) -> Span:
    began = time.perf_counter()
    for first in range(0, len(jobs), AT_ONCE):
        await put_jobs(db, ENVIRONMENT, jobs[first : first + AT_ONCE])
    return Span(began, time.perf_counter())


def _job(number: int, schedule: Schedule) -> Job:
    return Job(name=f"job {number}", task="noop", schedule=schedule)


def _second(instant: datetime) -> datetime:
    return instant.replace(microsecond=0)


def _millisecond(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


async def check_fired(dsn: str, jobs: int) -> None:
    """Check that each job was fired once, and nothing else happened."""
    await _check(dsn, "SELECT count(*), count(DISTINCT job_id), bool_and(disposition = 'fired') FROM audit_fires", jobs)


async def check_succeeded(dsn: str, jobs: int) -> None:
    """Check that each job has one run, that it succeeded, and that it took one attempt."""
    states = "SELECT count(*), count(DISTINCT job_id), bool_and(state = 'succeeded' AND attempt = 1) FROM audit_runs"
    await _check(dsn, states, jobs)
    await check_fired(dsn, jobs)


async def _check(dsn: str, query: str, jobs: int) -> None:
    async with connected(dsn) as connection:
        found = tuple(await connection.fetchrow(query))
    if found != (jobs, jobs, True):
        raise WrongResult(f"expected {jobs} rows, one per job and all alike, not {found}: {query}")


async def sizes(dsn: str) -> dict[str, int]:
    """Return bytes by table, indexes included; a partitioned table is the sum of its parts."""
    query = """
        SELECT pg_total_relation_size($1::regclass) + coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
          FROM pg_partition_tree($1::regclass)"""
    async with connected(dsn) as connection:
        tables = ("jobs", "job_versions", "job_cursors", "run_history", "runs")
        return {table: await connection.fetchval(query, table) for table in tables}
