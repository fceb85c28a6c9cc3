"""Workers killed, or stopped past their lease, with runs in hand: each run goes on elsewhere, and counts once."""

import asyncio
import signal
import time

import pytest

from mainspring.domain.settling import OnLoss
from mainspring.store.database import Database

from .fleet import ENV, Fleet, Gate, given_waiting, judged, rows, until, until_settled

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDED = "SELECT state, reason, attempt, worker::text, result FROM run_history ORDER BY state, attempt"


@pytest.mark.covers("F56")
async def test_the_runs_of_a_killed_worker_are_at_work_elsewhere_within_ten_seconds(
    fleet: Fleet, gate: Gate, db: Database
) -> None:
    began = ENV.now()
    await given_waiting(db, 5)
    _, bystander = await asyncio.gather(fleet.start(engine="peers"), fleet.start(concurrency=5))
    await gate.until(lambda: len(gate.of(bystander)) == 5)  # now it is full, and takes no more
    victim = await fleet.start(concurrency=100)
    await given_waiting(db, 20)
    await given_waiting(db, 5, on_loss=OnLoss.FAIL)
    await gate.until(lambda: len(gate.of(victim)) == 25)
    heir = await fleet.start(concurrency=100)

    await victim.kill()
    killed = time.monotonic()
    await gate.until(lambda: len(gate.of(heir)) == 20)
    took = time.monotonic() - killed
    gate.open(gate.of(bystander) + gate.of(heir), "done")
    await until_settled(db)
    await fleet.stop()

    assert took < 10
    assert len(gate.arrivals) == 5 + 25 + 20
    assert await rows(db, ENDED) == [
        *[("dead", "lost", 1, victim.id, None)] * 5,
        *[("succeeded", None, 1, bystander.id, '"done"')] * 5,
        *[("succeeded", None, 2, heir.id, '"done"')] * 20,
    ]
    lost = await rows(db, "SELECT attempt, worker::text, outcome, count(*) FROM attempts GROUP BY 1, 2, 3")
    assert lost == [(1, victim.id, "lost", 20)]
    assert await rows(db, "SELECT count(*) FROM dead_letters WHERE reason = 'lost'") == [(5,)]
    assert await rows(db, "SELECT count(*) FROM late_results") == [(0,)]
    assert (await judged(db, since=began)).fired == 30


@pytest.mark.covers("F57")
async def test_a_worker_stopped_past_its_lease_is_refused_when_it_wakes_and_ends(
    fleet: Fleet, gate: Gate, db: Database
) -> None:
    _, sleeper = await asyncio.gather(fleet.start(engine="peers"), fleet.start(concurrency=100, lease_for=4))
    await given_waiting(db, 10)
    await gate.until(lambda: len(gate.of(sleeper)) == 10)

    sleeper.send(signal.SIGSTOP)
    heir = await fleet.start(concurrency=100)
    await gate.until(lambda: len(gate.of(heir)) == 10)
    gate.open(gate.of(sleeper), "first")
    sleeper.send(signal.SIGCONT)
    status, complaint = await sleeper.ends()
    late = await rows(db, "SELECT attempt, worker::text, outcome FROM late_results")
    running = await rows(db, "SELECT state, attempt, worker::text FROM runs")
    gate.open(gate.of(heir), "second")
    await until_settled(db)
    await fleet.stop()

    assert (status, complaint) == (1, f"error: node {sleeper.id} was declared dead by a peer\n")
    assert late == [(1, sleeper.id, "succeeded")] * 10
    assert running == [("running", 2, heir.id)] * 10
    assert await rows(db, ENDED) == [("succeeded", None, 2, heir.id, '"second"')] * 10
    assert await rows(db, "SELECT bool_and(dead_at IS NOT NULL) FROM nodes") == [(True,)]
    assert len(gate.arrivals) == 20


@pytest.mark.covers("F57")
async def test_a_worker_whose_heartbeat_stalls_takes_nothing_once_it_was_declared_dead(
    fleet: Fleet, gate: Gate, db: Database
) -> None:
    stalling = fleet.start(concurrency=100, lease_for=3, heartbeat_every=60)
    _, stalled = await asyncio.gather(fleet.start(engine="peers"), stalling)
    await until(db, "SELECT dead_at IS NOT NULL FROM nodes WHERE id::text = $1", stalled.id)

    await given_waiting(db, 10, on_loss=OnLoss.FAIL)  # whoever takes one of these must be there to finish it
    await until(db, "SELECT count(*) = 10 FROM runs")
    heir = await fleet.start(concurrency=100)
    await gate.until(lambda: len(gate.arrivals) == 10)
    gate.open(gate.arrivals, "done")
    await until_settled(db)

    assert gate.of(stalled) == []
    assert await rows(db, ENDED) == [("succeeded", None, 1, heir.id, '"done"')] * 10
