"""Schedulers killed without warning, again and again: nothing missed, nothing doubled."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from mainspring import Every, Schedule, embedded
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.job import Job
from mainspring.environment import SystemEnvironment
from mainspring.insight.audit import run_audit
from mainspring.insight.report import AuditReport
from mainspring.roles import open_ledger, put_jobs
from mainspring.store.database import Database

JOBS = 200
EVERY_SECOND = Schedule(specs=(Every(timedelta(seconds=1)),))
PARALLEL = Overlap(policy=Overlaps.ALLOW)


@dataclass
class Fleet:
    """Scheduler processes on one database."""

    dsn: str
    engine: str
    alive: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("scheduler.py")), self.dsn, self.engine]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline(), "it registered, or died trying"
        self.alive.append(process)

    def kill_oldest(self) -> None:
        process = self.alive.pop(0)
        process.kill()
        process.communicate()

    def stop(self) -> None:
        for process in self.alive:
            process.terminate()
        for process in self.alive:
            process.communicate(timeout=30)
        self.alive.clear()


async def decided_up_to(db: Database, instant: object) -> None:
    """Wait until every cursor has passed an instant."""
    while True:
        async with db.connection() as connection:
            if await connection.fetchval("SELECT bool_and(next_fire_at > $1) FROM job_cursors", instant):
                return
            await connection.execute("SELECT pg_sleep(0.05)")


async def torment(dsn: str, engine: str, kills: int) -> AuditReport:
    env, draw, fleet = SystemEnvironment(), Random(kills), Fleet(dsn, engine)
    async with open_ledger(dsn) as db:
        jobs = [
            Job(name=f"job-{number}", task="noop", schedule=EVERY_SECOND, overlap=PARALLEL) for number in range(JOBS)
        ]
        await put_jobs(db, env, jobs)
        began = env.now()
        try:
            fleet.start()
            for _ in range(kills):
                fleet.start()
                await asyncio.sleep(draw.uniform(0.1, 1.4))  # the random moment is what is tested
                fleet.kill_oldest()
            ended = env.now()
            async with asyncio.timeout(30):
                await decided_up_to(db, ended)
        finally:
            fleet.stop()
        return await run_audit(db, start=began, end=ended)


@pytest.mark.covers("F06", "F07", "F10", "F11", "F29")
@pytest.mark.parametrize("engine", ["poll", "peers"])
def test_killing_the_busy_scheduler_loses_and_doubles_nothing(engine: str) -> None:
    with embedded.running() as server:
        report = asyncio.run(torment(server.dsn, engine, kills=6))

    assert report.exit_status == 0, report.findings[:5]
    assert report.fired == report.expected >= JOBS * 5


@pytest.mark.long
@pytest.mark.parametrize("engine", ["poll", "peers"])
def test_a_hundred_kills_lose_and_double_nothing_and_nothing_is_two_seconds_late(engine: str) -> None:
    with embedded.running() as server:
        report = asyncio.run(torment(server.dsn, engine, kills=100))

    sys.stdout.write(
        f"{engine}: {report.fired} fires, late p50 {report.late.p50}, p99 {report.late.p99}, max {report.late.max}\n"
    )
    assert report.exit_status == 0, report.findings[:5]
    assert report.fired == report.expected
    assert report.late.max <= timedelta(seconds=2)
