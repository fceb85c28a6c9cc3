"""A worker whose event loop stands still keeps its lease, and somebody notices."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import At, Schedule
from mainspring.domain.job import Job
from mainspring.roles import put_jobs
from mainspring.store.database import Database
from mainspring.testing.invariants import check_ledger

from .fleet import ENV, PATIENCE, Fleet, Node, rows, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def children(node: Node) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()]


@pytest.mark.covers("F59")
async def test_a_task_that_burns_the_cpu_on_the_loop_keeps_its_lease(fleet: Fleet, db: Database) -> None:
    await fleet.start(engine="peers", lease_for=2, heartbeat_every=0.5)
    worker = await fleet.start(concurrency=2, lease_for=2, heartbeat_every=0.5, pulse=True)
    soon = (ENV.now() + timedelta(seconds=1)).replace(microsecond=0)
    await put_jobs(db, ENV, [Job(name="burn", task="burn", schedule=Schedule(specs=(At(soon),)))])

    await until(db, "SELECT count(*) = 1 FROM run_history")

    assert await rows(db, "SELECT state, attempt FROM run_history") == [("succeeded", 1)]
    assert await rows(db, "SELECT count(*) FROM nodes WHERE dead_at IS NOT NULL") == [(0,)]
    assert f"the event loop of worker {worker.pid} has not turned" in worker.complaints
    assert "in burn" in worker.complaints  # where it stands
    await fleet.stop(quietly=False)
    await check_ledger(db, at_rest=True)


async def test_a_pulse_that_is_killed_is_replaced_and_one_whose_worker_is_killed_ends(
    fleet: Fleet, db: Database
) -> None:
    worker = await fleet.start(concurrency=2, lease_for=3, heartbeat_every=0.3, pulse=True)
    beaten = "SELECT heartbeat_at > $1 FROM nodes"
    await until(db, beaten, ENV.now())
    (pulse,) = children(worker)

    os.kill(pulse, signal.SIGKILL)
    await until(db, "SELECT heartbeat_at > clock_timestamp() - interval '1 s' FROM nodes")
    await until(db, beaten, ENV.now())
    (successor,) = children(worker)

    assert successor != pulse
    handle = os.pidfd_open(successor)
    try:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(handle, ended.set)
        await worker.kill()
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
