"""Who may act, and by which clock: a leader in doubt, processes that look alike, a database whose clock went back."""

import asyncio
from datetime import timedelta
from functools import partial

import asyncpg
import pytest

from mainspring.domain.asking import Change
from mainspring.domain.firing import FireReport, Misfire, Misfires
from mainspring.domain.job import Job, JobState
from mainspring.domain.selection import Fence, Selection
from mainspring.engines.base import Rhythm
from mainspring.engines.poll import Poll
from mainspring.service import Stop, run_all
from mainspring.store import nodes
from mainspring.store.changes import change_job
from mainspring.store.database import open_database
from mainspring.store.fire import fire
from mainspring.telemetry.events import Events, LeadershipLost, ServiceInterrupted
from mainspring.testing import ManualEnvironment, Recorder
from mainspring.upkeep.heartbeat import Heartbeat

from .ledger import EVERY_SECOND, Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATEST = Misfire(policy=Misfires.LATEST)
PAUSE, RESUME = Change(state=JobState.PAUSED), Change(state=JobState.ACTIVE)
OFTEN = Job(name="edited", task="noop", schedule=EVERY_SECOND)


@pytest.mark.covers("F04")
async def test_a_leader_whose_heartbeats_fail_concedes_on_its_own_clock(ledger: Ledger, dsn: str) -> None:
    async with open_database(dsn) as gone:
        pass  # closed: no heartbeat gets through, while fires still would
    env, recorder, looked = ManualEnvironment(), Recorder(), asyncio.Event()
    node, stop, events = await ledger.node("scheduler"), Stop(env), Events(recorder)

    async def look(selection: Selection) -> FireReport:
        try:
            return await fire(ledger.db, ledger.definitions, env, selection)
        finally:
            looked.set()

    heartbeat = Heartbeat(gone, env, node, events, lease_for=timedelta(seconds=6))  # trusted for one second less
    take_lease = partial(nodes.take_lease, ledger.db, "leader", node)
    poll = Poll(Rhythm(look_every=timedelta(seconds=2)), look, take_lease, heartbeat.trusted, events)
    running = asyncio.create_task(run_all(stop, heartbeat, poll, environment=env, events=events))
    for _ in range(3):  # at 0, 2 and 4 seconds
        await looked.wait()
        looked.clear()
        await env.clock.settle()
        assert recorder.of(LeadershipLost) == []
        await env.advance(timedelta(seconds=2))
    (job,) = await ledger.given_jobs(misfire=LATEST)
    await env.advance(timedelta(minutes=1))

    (lost,) = recorder.of(LeadershipLost)
    assert lost.reason == "our heartbeat is late"
    assert recorder.of(ServiceInterrupted)
    assert await take_lease() == Fence("leader", node, 1)  # it could have gone on, had it not asked itself
    assert await ledger.decisions(job) == []
    stop.request()
    await running


@pytest.mark.covers("F05")
async def test_two_processes_of_the_same_host_and_pid_are_two_nodes(ledger: Ledger) -> None:
    one, other = [await nodes.register(ledger.db, ledger.env, role="scheduler", host="clone", pid=1) for _ in range(2)]

    assert one != other
    assert await nodes.take_lease(ledger.db, "leader", one) == Fence("leader", one, 1)
    assert await nodes.take_lease(ledger.db, "leader", other) is None  # not confirmed as if it were its own
    await nodes.retire(ledger.db, one)
    await nodes.heartbeat(ledger.db, other)  # lives on
    assert await nodes.take_lease(ledger.db, "leader", other) == Fence("leader", other, 2)


@pytest.mark.covers("F20")
@pytest.mark.parametrize("changes", [[Change(definition=OFTEN)], [PAUSE, RESUME]], ids=["edited", "resumed"])
async def test_what_was_decided_before_the_clock_stepped_back_is_not_decided_again(
    ledger: Ledger, changes: list[Change]
) -> None:
    (job,) = await ledger.given_jobs(misfire=LATEST)
    await ledger.fire()
    # As the ledger looks when a clock that was ten minutes ahead has been put right.
    await ledger.execute(
        "UPDATE job_cursors SET last_slot = last_slot + interval '10 minutes',"
        " next_fire_at = next_fire_at + interval '10 minutes'"
    )
    last_slot = await ledger.value("SELECT last_slot FROM job_cursors")

    for change in changes:
        await change_job(ledger.db, ledger.env, job, change)
        assert (await ledger.fire()).locked == 0

    (row,) = await ledger.rows("SELECT last_slot, next_fire_at FROM job_cursors")
    assert row == {"last_slot": last_slot, "next_fire_at": EVERY_SECOND.next_after(last_slot)}


@pytest.mark.covers("F20")
async def test_a_cursor_computed_from_now_would_be_refused(ledger: Ledger) -> None:
    await ledger.given_jobs(misfire=LATEST)
    await ledger.fire()
    await ledger.execute(
        "UPDATE job_cursors SET last_slot = last_slot + interval '10 minutes',"
        " next_fire_at = next_fire_at + interval '10 minutes'"
    )

    with pytest.raises(asyncpg.CheckViolationError, match="cursor_after_last_slot"):
        await ledger.execute("UPDATE job_cursors SET next_fire_at = clock_timestamp() + interval '1 second'")
