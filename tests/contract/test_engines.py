"""Every engine keeps the same promises: one body, each engine. And the suite barks at engines that do not."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

import mainspring.testing
from mainspring import embedded
from mainspring.domain.firing import FireReport
from mainspring.domain.selection import DueNow, Fence
from mainspring.engines.base import pause, tell
from mainspring.roles import EngineName
from mainspring.service import Stop
from mainspring.testing.checks.crashing import crash_points
from mainspring.testing.engines import (
    BUILT_IN,
    ENGINE_CHECKS,
    Check,
    Seat,
    exercise_engine,
    fresh_database,
    open_cluster,
)
from tests.api import test_faults
from tests.process import test_exactly_once

SRC = Path(__file__).parents[2] / "src" / "mainspring"
HASTE = timedelta(seconds=2)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    "check", [pytest.param(check, id=check.name, marks=pytest.mark.covers(*check.covers)) for check in ENGINE_CHECKS]
)
@pytest.mark.parametrize("engine", sorted(BUILT_IN))
async def test_an_engine_keeps_the_contract(engine: str, check: Check, dsn: str) -> None:
    async with open_cluster(dsn, BUILT_IN[engine]) as cluster:
        await check.run(cluster)


def test_every_engine_that_can_be_chosen_is_exercised() -> None:
    assert set(BUILT_IN) == set(EngineName.__args__)  # type: ignore[attr-defined]


def test_every_crash_point_of_the_source_is_one_the_suite_found() -> None:
    source = "".join(path.read_text("utf-8") for path in SRC.rglob("*.py") if "testing" not in path.parts)
    passed = re.findall(r"\breach\(([^)]*)\)", source.replace("def reach(", ""))

    assert all(re.fullmatch(r'"\w+\.\w+"', argument) for argument in passed), "a point is written out, to be found"
    # A task's own transaction and the making of jobs are no engine's business: their own tests die at these points.
    elsewhere = {point for point in test_exactly_once.POINTS if point.startswith("complete.")}
    elsewhere |= {point for point, _ in (*test_faults.POINTS_OF_A_BATCH, *test_faults.POINTS_OF_ONE)}
    assert {argument.strip('"') for argument in passed} == {*crash_points(), *elsewhere}
    assert len(crash_points()) >= 14


def test_what_people_import_for_their_tests_does_not_bring_the_database_along() -> None:
    look = "import sys, mainspring.testing; sys.exit('asyncpg' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", look], check=False, env={"PYTHONPATH": str(SRC.parent)}).returncode == 0
    )
    assert mainspring.testing.exercise_engine is exercise_engine


@dataclass
class Broken:
    """An engine with a mistake in its loop."""

    loop: Callable[[Seat, Stop], Awaitable[None]]
    seat: Seat

    async def run(self, stop: Stop) -> None:
        await self.loop(self.seat, stop)


async def look(seat: Seat, fence: Fence | None = None) -> FireReport:
    report = await seat.fire(DueNow(limit=seat.rhythm.batch, fence=fence))
    tell(seat.events, "broken", report)
    return report


async def never_looks(_seat: Seat, stop: Stop) -> None:
    await stop.wait()


async def looks_once(seat: Seat, stop: Stop) -> None:
    await look(seat)
    await stop.wait()


async def trusts_the_next_slot(seat: Seat, stop: Stop) -> None:
    while not stop.requested:
        report = await look(seat)
        await stop.wait(max(report.next_due_in or timedelta(0), timedelta(milliseconds=5)))


async def ignores_the_stop(seat: Seat, _stop: Stop) -> None:
    while True:
        await seat.env.sleep(pause(await look(seat), seat.rhythm).total_seconds())


async def takes_nothing_over(seat: Seat, stop: Stop) -> None:
    fence = await seat.take_lease()
    while not stop.requested:
        if fence is not None and fence.epoch == 1:
            await look(seat, fence)
        await stop.wait(timedelta(milliseconds=50))


async def dies_of_a_lost_lease(seat: Seat, stop: Stop) -> None:
    while not stop.requested:
        fence = await seat.take_lease()
        while fence is not None and not stop.requested:
            await look(seat, fence)
            await stop.wait(timedelta(milliseconds=50))
        await stop.wait(timedelta(milliseconds=50))


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("loop", "claim"),
    [
        (never_looks, "one node fires a thousand due jobs once each"),
        (looks_once, "a change is seen within a second without a hint"),
        (trusts_the_next_slot, "a change is seen within a second without a hint"),
        (ignores_the_stop, "one node fires a thousand due jobs once each"),
        (takes_nothing_over, "a crash at fire.locked loses and doubles nothing"),
        (dies_of_a_lost_lease, "a node stopped at fire.committed past its lease changes nothing"),
    ],
)
async def test_the_suite_barks_at_an_engine_that_does_wrong(
    loop: Callable[[Seat, Stop], Awaitable[None]], claim: str, dsn: str
) -> None:
    @asynccontextmanager
    async def this_database() -> AsyncIterator[str]:
        yield dsn

    checks = [check for check in ENGINE_CHECKS if check.name == claim]

    with pytest.raises(AssertionError) as refused:
        await exercise_engine(partial(Broken, loop), this_database, checks=checks, patience=HASTE)

    assert refused.value.__notes__[-1] == f"check: {claim}"


@pytest.mark.asyncio(loop_scope="session")
async def test_the_suite_runs_by_name_on_databases_it_makes_itself(server: embedded.Server) -> None:
    made: list[str] = []

    @asynccontextmanager
    async def counted() -> AsyncIterator[str]:
        async with fresh_database(server.dsn) as dsn:
            made.append(dsn)
            yield dsn

    await exercise_engine("peers", counted, checks=[check for check in ENGINE_CHECKS if "fire.locked" in check.name])

    assert len(made) == len(set(made)) == 2
