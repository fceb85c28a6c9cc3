"""Schedulers stopped in the middle of their work: the others go on without them, and nothing doubles when they wake."""

import asyncio
import signal
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from mainspring.roles import EngineName
from mainspring.store.database import Database

from .fleet import ENV, Fleet, Node, given_ticking, judged, until, until_decided

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 100
# The server ends the idle transaction after 3 s, and the guardian fires what is a second late; the rest is for a busy
# machine. Without a limit of its own the transaction would stay as long as its process is stopped.
FREED_WITHIN = timedelta(seconds=6)
ENGINES = pytest.mark.parametrize("engine", ["poll", "peers"])


@pytest.mark.covers("F01")
@ENGINES
async def test_one_stopped_at_any_moment_is_replaced_and_changes_nothing_when_it_wakes(
    engine: EngineName, fleet: Fleet, db: Database
) -> None:
    began, draw = ENV.now(), Random(engine)
    await given_ticking(db, JOBS)
    sleeper = await fleet.start(engine=engine, lease_for=3, heartbeat_every=1)  # the leader, if there is one
    await fleet.start(engine=engine)
    await until_decided(db, ENV.now())

    await asyncio.sleep(draw.uniform(0, 1))  # the random moment is what is tested
    sleeper.send(signal.SIGSTOP)
    await until_declared_dead(db, sleeper)
    await until_decided(db, ENV.now())  # all goes on, whatever it holds
    sleeper.send(signal.SIGCONT)
    ended = await sleeper.ends()
    woken = ENV.now()
    await until_decided(db, woken)
    await fleet.stop()

    assert ended == (1, f"error: node {sleeper.id} was declared dead by a peer\n")
    report = await judged(db, since=began, until=woken)
    assert report.fired == report.expected >= JOBS * 3


@pytest.mark.covers("F01", "F02")
@ENGINES
async def test_one_stopped_inside_fire_keeps_its_row_locks_for_three_seconds_and_writes_nothing_when_it_wakes(
    engine: EngineName, fleet: Fleet, db: Database
) -> None:
    began = ENV.now()
    await given_ticking(db, JOBS)

    sleeper = await stopped_inside_fire(fleet, engine, lease_for=4)
    await until_decided(db, ENV.now(), within=FREED_WITHIN.total_seconds())
    await until_declared_dead(db, sleeper)
    sleeper.send(signal.SIGCONT)
    ended = await sleeper.ends()
    woken = ENV.now()
    await until_decided(db, woken)
    await fleet.stop()

    assert ended == (1, f"error: node {sleeper.id} was declared dead by a peer\n")
    report = await judged(db, since=began, until=woken)
    assert report.fired == report.expected >= JOBS * 4
    assert timedelta(seconds=2) < report.late.max < FREED_WITHIN  # the locks were there, and went


@pytest.mark.covers("F02")
async def test_one_whose_transaction_was_ended_for_idling_goes_on_if_its_lease_has_not_run_out(
    fleet: Fleet, db: Database
) -> None:
    began = ENV.now()
    await given_ticking(db, JOBS)

    sleeper = await stopped_inside_fire(fleet, "poll", lease_for=30)
    await until_decided(db, ENV.now(), within=FREED_WITHIN.total_seconds())
    sleeper.send(signal.SIGCONT)
    await until_decided(db, ENV.now() + timedelta(seconds=1))
    woken = ENV.now()
    assert sleeper.alive, sleeper.complaints
    await fleet.stop()

    report = await judged(db, since=began, until=woken)
    assert report.fired == report.expected >= JOBS * 4


@pytest.mark.covers("F02")
async def test_one_stopped_while_a_statement_is_prepared_does_not_keep_its_row_locks_either(
    fleet: Fleet, db: Database
) -> None:
    """Until it is bound a statement is active, not idle in its transaction. Behind a pooler each one is prepared."""
    began = ENV.now()
    await given_ticking(db, JOBS)

    await stopped_inside_fire(fleet, "peers", pooled=True, stop_unheard=True)
    stopped = ENV.now()
    await until_decided(db, stopped, within=10)

    report = await judged(db, since=began, until=stopped)
    assert report.fired == report.expected >= JOBS


async def stopped_inside_fire(fleet: Fleet, engine: EngineName, **options: Any) -> Node:
    """Return a scheduler that has stopped with runs written and not committed, beside one that goes on."""
    sleeper = await fleet.start(engine=engine, stop_at="fire.runs_written", **options)
    await fleet.start(engine=engine)
    sleeper.send(signal.SIGUSR1)
    assert await sleeper.says() == "stopping"
    return sleeper


async def until_declared_dead(db: Database, node: Node) -> None:
    await until(db, "SELECT dead_at IS NOT NULL FROM nodes WHERE id::text = $1", node.id)
