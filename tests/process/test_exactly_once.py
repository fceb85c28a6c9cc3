"""A task that completes its run in its own transaction: its effects are there once, wherever its worker is killed."""

import asyncio
import os
import sys
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mainspring import Client
from mainspring.domain.run import State
from mainspring.environment import CRASH_AT, TESTING
from mainspring.sdk.handles import Run
from mainspring.store.database import Database
from mainspring.testing.invariants import check_ledger

from .fleet import PATIENCE, SRC
from .payer import pay

pytestmark = pytest.mark.asyncio(loop_scope="session")

POINTS = [
    "claim.committed",
    "pay.begun",
    "pay.written",
    "complete.begun",
    "complete.settled",
    "pay.completed",
    "pay.committed",
    "settle.commit",
]
PAYER = str(Path(__file__).with_name("payer.py"))


async def payer(dsn: str, point: str | None) -> asyncio.subprocess.Process:
    crash = {} if point is None else {CRASH_AT: point, TESTING: "1"}
    environ = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{SRC.parent}", **crash}
    return await asyncio.create_subprocess_exec(sys.executable, PAYER, dsn, env=environ)


async def torment(dsn: str, db: Database, kills: int) -> None:
    """Kill a worker at each point in turn, a random number of passes in; then let one finish."""
    draw = Random(kills)
    async with db.transaction() as tx:
        await tx.execute("CREATE TABLE payments (order_number integer, attempt integer)")
    async with Client(dsn) as client:
        runs: list[Run[Any]] = []
        for point in islice(cycle(POINTS), kills):
            runs += await client.submit_many(pay.calls((dsn, len(runs) + n) for n in range(4)))
            victim = await payer(dsn, f"{point}:{draw.randint(1, 3)}")
            async with asyncio.timeout(PATIENCE):
                assert await victim.wait() == -9, f"not killed at {point}"
        last = await payer(dsn, None)
        try:
            ends = [await run.wait(timeout=PATIENCE) for run in runs]
        finally:
            last.terminate()
            await last.wait()
    assert {end.state for end in ends} == {State.SUCCEEDED}
    async with db.connection() as connection:
        paid = await connection.fetch("SELECT order_number, attempt FROM payments ORDER BY order_number")
    assert [row["order_number"] for row in paid] == list(range(len(runs)))  # each once
    assert [row["attempt"] for row in paid] == [end.result for end in ends]  # and by the attempt that counts
    await check_ledger(db, at_rest=True)


@pytest.mark.covers("F56")
async def test_a_worker_killed_at_every_point_leaves_effects_and_results_once(dsn: str, db: Database) -> None:
    await torment(dsn, db, kills=2 * len(POINTS))


@pytest.mark.long
async def test_two_hundred_kills_leave_effects_and_results_once(dsn: str, db: Database) -> None:
    await torment(dsn, db, kills=200)
