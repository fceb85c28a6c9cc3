"""A whole node on real Postgres: scheduler, guardian and worker over one database."""

import asyncio
from datetime import timedelta

import pytest

from mainspring import Every, Schedule
from mainspring.domain.job import Job
from mainspring.environment import SystemEnvironment
from mainspring.roles import EngineName, NodeSettings, put_jobs, run_node
from mainspring.service import Stop
from mainspring.store.database import Database
from mainspring.telemetry.events import Events, LeadershipTaken, Settled
from mainspring.testing import Recorder
from mainspring.worker.registry import Context, Registry

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
