"""Postgres away longer than any lease, or crashed under load: everybody waits, nobody is replaced, and all goes on."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from mainspring import embedded
from mainspring.roles import open_ledger

from .fleet import ENV, Gate, fleet_on, given_ticking, given_waiting, judged, rows, until, until_decided, until_settled

pytestmark = pytest.mark.asyncio(loop_scope="session")

RUNS = 100
LEASE = 3.0  # seconds
# The grace is a lease and a half; a while later whoever was going to be declared dead has been.
GRACE_IS_OVER = f"SELECT clock_timestamp() > pg_postmaster_start_time() + interval '{LEASE * 1.5 + 1.5} seconds'"
DEAD = "SELECT count(*) FROM nodes WHERE dead_at IS NOT NULL"


class Postgres:
    """A server that can be taken away and brought back, with its data and under its address."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.bring_back()
        self.dsn = self._server.dsn

    def bring_back(self) -> None:
        self._server = embedded.start(self._data_dir, durable=False)

    def take_away(self) -> None:
        self._server.stop()

    def crash(self) -> None:
        """End it at once, without a last checkpoint."""
        os.kill(self._server.pid, signal.SIGQUIT)
        assert self._server.wait(timedelta(seconds=10))


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="mainspring-outage-") as data_dir:
        started = Postgres(Path(data_dir))
        yield started
        started.take_away()


@pytest.mark.covers("F128")
async def test_an_outage_of_three_leases_repeats_no_run_and_loses_none(postgres: Postgres, gate: Gate) -> None:
    began, leases = ENV.now(), {"lease_for": LEASE, "heartbeat_every": LEASE / 6}
    async with open_ledger(postgres.dsn) as db, fleet_on(postgres.dsn, gate, **leases) as fleet:
        await given_ticking(db, 10)
        schedulers = [fleet.start(engine=engine) for engine in ("peers", "poll")]
        workers = [fleet.start(concurrency=RUNS // 2) for _ in range(2)]
        await asyncio.gather(*schedulers, *workers)
        await given_waiting(db, RUNS)
        await gate.until(lambda: len(gate.arrivals) == RUNS)

        postgres.take_away()
        await asyncio.sleep(LEASE)
        gate.open(gate.arrivals[: RUNS // 2], "while it was away")
        await asyncio.sleep(2 * LEASE)  # how long it is away is what is tested
        postgres.bring_back()
        gate.open(gate.arrivals[RUNS // 2 :], "when it was back")
        await until(db, GRACE_IS_OVER)
        dead = await rows(db, DEAD)
        await until(db, "SELECT count(*) = 0 FROM runs WHERE task = 'wait'")
        back = ENV.now()
        await until_decided(db, back)
        await fleet.stop(quietly=False)

        assert dead == [(0,)]
        assert len(gate.arrivals) == RUNS
        ended = "SELECT state, attempt, result, count(*) FROM run_history WHERE result IS NOT NULL GROUP BY 1, 2, 3"
        assert sorted(await rows(db, ended)) == [
            ("succeeded", 1, '"when it was back"', RUNS // 2),
            ("succeeded", 1, '"while it was away"', RUNS // 2),
        ]
        assert await rows(db, "SELECT count(*) FROM late_results") == [(0,)]
        report = await judged(db, since=began, until=back)
        assert report.fired == report.expected >= 10 * 3 * LEASE


@pytest.mark.covers("F82")
async def test_a_database_that_crashes_under_load_loses_and_doubles_nothing(postgres: Postgres) -> None:
    began, draw = ENV.now(), Random(82)
    async with open_ledger(postgres.dsn) as db, fleet_on(postgres.dsn, engine="peers", concurrency=50) as fleet:
        await given_ticking(db, 100)
        await asyncio.gather(fleet.start(), fleet.start())

        for _ in range(3):
            await asyncio.sleep(draw.uniform(0.2, 1.2))  # the random moment is what is tested
            postgres.crash()
            postgres.bring_back()
        back = ENV.now()
        await until_decided(db, back)
        await until_settled(db, before=back)
        dead = await rows(db, DEAD)
        await fleet.stop(quietly=False)

        assert dead == [(0,)]
        ended = await rows(db, "SELECT DISTINCT outcome FROM audit_attempts")
        assert set(ended) <= {("succeeded",), ("given_back",)}  # given back: claimed, and never told so
        report = await judged(db, since=began, until=back)
        assert report.fired == report.expected >= 300
