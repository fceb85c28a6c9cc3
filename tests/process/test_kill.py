"""Schedulers killed without warning, again and again: nothing missed, nothing doubled."""

import asyncio
import sys
from datetime import timedelta
from random import Random

import pytest

from mainspring.insight.report import AuditReport
from mainspring.roles import EngineName
from mainspring.store.database import Database

from .fleet import ENV, Fleet, given_ticking, judged, until_decided

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 200
ENGINES = pytest.mark.parametrize("engine", ["poll", "peers"])


async def torment(fleet: Fleet, db: Database, engine: EngineName, kills: int) -> AuditReport:
    began, draw = ENV.now(), Random(kills)
    await given_ticking(db, JOBS)
    alive = [await fleet.start(engine=engine)]
    for _ in range(kills):
        alive.append(await fleet.start(engine=engine))
        await asyncio.sleep(draw.uniform(0.1, 1.4))  # the random moment is what is tested
        await alive.pop(0).kill()
    ended = ENV.now()
    await until_decided(db, ended)
    await fleet.stop()
    return await judged(db, since=began, until=ended)


@pytest.mark.covers("F06", "F07", "F10", "F11", "F29")
@ENGINES
async def test_killing_the_busy_scheduler_loses_and_doubles_nothing(
    engine: EngineName, fleet: Fleet, db: Database
) -> None:
    report = await torment(fleet, db, engine, kills=6)

    assert report.fired == report.expected >= JOBS * 5


@pytest.mark.long
@ENGINES
async def test_a_hundred_kills_lose_and_double_nothing_and_nothing_is_two_seconds_late(
    engine: EngineName, fleet: Fleet, db: Database
) -> None:
    report = await torment(fleet, db, engine, kills=100)

    sys.stdout.write(
        f"{engine}: {report.fired} fires, late p50 {report.late.p50}, p99 {report.late.p99}, max {report.late.max}\n"
    )
    assert report.fired == report.expected
    assert report.late.max <= timedelta(seconds=2)
