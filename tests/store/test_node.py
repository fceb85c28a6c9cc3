"""A whole node on real Postgres: scheduler, guardian and worker over one database."""

import asyncio
from datetime import timedelta

import pytest

from mainspring import Every, Schedule
from mainspring.domain.errors import UnknownTask
from mainspring.domain.firing import Misfire, Misfires
from mainspring.domain.job import Job
from mainspring.environment import SystemEnvironment
from mainspring.roles import EngineName, NodeSettings, put_jobs, run_node
from mainspring.service import Stop
from mainspring.store.database import Database
from mainspring.tasks.context import Context
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events, LeadershipTaken, Settled, Started
from mainspring.testing import Recorder
from mainspring.worker.pool import PoolConfig

from .ledger import EVERY_SECOND, Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_full_worker_goes_on_as_soon_as_it_has_room(concurrency: int, db: Database, ledger: Ledger) -> None:
    env, recorder = SystemEnvironment(), Recorder()
    stop, registry, at_once, most = Stop(env), Registry(), 0, 0

    async def work(_context: Context) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    registry.add("noop", work)
    await ledger.given_jobs(50, misfire=Misfire(policy=Misfires.LATEST))
    await ledger.fire()
    # Never looks by itself: only the end of a run may make it look again.
    pool = PoolConfig(concurrency=concurrency, look_every=timedelta(hours=1))
    settings = NodeSettings(engine=None, pools=(pool,))

    async with asyncio.TaskGroup() as group:
        group.create_task(run_node(settings, stop, db=db, env=env, events=Events(recorder), registry=registry))
        await recorder.until(lambda seen: sum(event.succeeded for event in seen.of(Settled)) == 50, timeout=20)
        stop.request()

    assert most <= concurrency
    await ledger.check()


async def test_a_drain_gives_back_what_does_not_finish_in_time(db: Database, ledger: Ledger) -> None:
    env, recorder = SystemEnvironment(), Recorder()
    stop, registry = Stop(env), Registry()

    async def hang(_context: Context) -> None:
        await asyncio.Event().wait()

    registry.add("noop", hang)
    await ledger.given_jobs(5, misfire=Misfire(policy=Misfires.LATEST))
    await ledger.fire()
    settings = NodeSettings(engine=None, pools=(PoolConfig(grace=timedelta(milliseconds=50)),))

    async with asyncio.TaskGroup() as group:
        group.create_task(run_node(settings, stop, db=db, env=env, events=Events(recorder), registry=registry))
        await recorder.until(lambda seen: len(seen.of(Started)) == 5)
        stop.request()

    rows = await ledger.rows("SELECT state, attempt, failures, count(*) FROM runs GROUP BY 1, 2, 3")
    assert rows == [{"state": "queued", "attempt": 1, "failures": 0, "count": 5}]
    await ledger.check()


@pytest.mark.parametrize("engine", ["peers", "poll"])
async def test_three_nodes_run_every_slot_once(engine: EngineName, db: Database, ledger: Ledger) -> None:
    env, recorder, seen = SystemEnvironment(), Recorder(), []
    events, stop, registry = Events(recorder), Stop(env), Registry()

    async def tick(context: Context) -> str:
        seen.append((context.job_id, context.slot))
        return context.job

    registry.add("tick", tick)
    every_second = Schedule(specs=(Every(timedelta(seconds=1)),))
    await put_jobs(db, env, [Job(name=f"tick-{number}", task="tick", schedule=every_second) for number in range(20)])

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            node = run_node(NodeSettings(engine=engine), stop, db=db, env=env, events=events, registry=registry)
            group.create_task(node)
        await recorder.until(lambda seen: sum(event.succeeded for event in seen.of(Settled)) >= 60, timeout=20)
        stop.request()

    assert len(seen) == len(set(seen)) >= 60
    assert await ledger.value("SELECT count(*) FROM runs WHERE state = 'running'") == 0
    assert await ledger.value("SELECT count(*) FROM nodes WHERE dead_at IS NULL") == 0
    if engine == "poll":
        assert {event.epoch for event in recorder.of(LeadershipTaken)} >= {1}
    await ledger.check()


async def test_a_job_with_an_unknown_task_is_refused_and_nothing_is_written(ledger: Ledger) -> None:
    jobs = [Job(name=task, task=task, schedule=EVERY_SECOND) for task in ("known", "mistyped")]

    with pytest.raises(UnknownTask, match=r'task: job "mistyped" names "mistyped", which is not registered; .* known'):
        await put_jobs(ledger.db, ledger.env, jobs, tasks=["known"])

    assert await ledger.value("SELECT count(*) FROM jobs") == 0
