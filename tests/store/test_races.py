"""Two processes at once, on real Postgres: one stops at a named point, the other meets what it holds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import pytest
import pytest_asyncio

from mainspring import Every, Schedule, embedded
from mainspring.domain.errors import LeaseLost, NodeDeclaredDead
from mainspring.domain.firing import FireReport, Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.ids import JobId, NodeId
from mainspring.domain.selection import DueNow, Fence, Named
from mainspring.environment import SystemEnvironment
from mainspring.store import nodes
from mainspring.store.claim import ClaimedRun
from mainspring.store.fire import fire
from mainspring.store.queries import queries
from mainspring.store.recover import recover_lost
from mainspring.store.settle import SettleReport
from mainspring.testing import CrashPoints
from tests.postgres import copied, execute

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

T = TypeVar("T")
LATEST = Misfire(policy=Misfires.LATEST)
ALLOW = Overlap(policy=Overlaps.ALLOW)
SETTLING = ["settle.finished", "settle.put_back", "settle.commit"]
FIRING = ["fire.locked", "fire.runs_written", "fire.commit"]
TABLES = "job_cursors runs run_history skips attempts late_results dead_letters job_versions jobs nodes leases"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dsn(server: embedded.Server, template: str) -> AsyncIterator[str]:
    """One database for all these tests, emptied before each."""
    async with copied(server, template, "races") as fresh:
        yield fresh


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def empty(dsn: str) -> None:
    await execute(dsn, "; ".join(f"DELETE FROM {table}" for table in TABLES.split()))


@asynccontextmanager
async def stopped(
    ledger: Ledger, point: str, work: Callable[[Ledger], Awaitable[T]]
) -> AsyncIterator["asyncio.Future[T]"]:
    """Let another process work up to ``point``, and on from there when the block ends."""
    points = CrashPoints()
    hold = points.hold(point)
    working = asyncio.ensure_future(work(ledger.another(SystemEnvironment(on_reach=points.reach))))
    reached = asyncio.ensure_future(hold.reached.wait())
    try:
        await asyncio.wait([working, reached], timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert hold.reached.is_set(), f"it never came to {point}: {working}"
        yield working
    finally:
        reached.cancel()
        hold.release()
        await asyncio.wait([working], timeout=10)


async def until_waiting(ledger: Ledger, *tasks: "asyncio.Future[Any]") -> None:
    """Return when each of these tasks waits for another's lock, or has ended."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
    async with asyncio.timeout(10):
        while await ledger.value(f"{waiting} AND datname = current_database()") < sum(
            not task.done() for task in tasks
        ):
            pass  # the query itself gives way


async def given_hourly(ledger: Ledger, number: int = 1, **changes: Any) -> list[JobId]:
    """Give jobs whose only due slot was half an hour ago: none comes due while the test runs."""
    half_an_hour_ago = ledger.env.now().replace(microsecond=0) - timedelta(minutes=30)
    return await ledger.given_jobs(
        number, schedule=Schedule(specs=(Every(timedelta(hours=1), half_an_hour_ago),)), **changes
    )


async def given_running(ledger: Ledger, number: int = 1, **changes: Any) -> tuple[list[ClaimedRun], NodeId]:
    """Give runs in the hands of a worker that was declared dead, and may not know."""
    await given_hourly(ledger, number, **changes)
    worker = await ledger.node()
    await ledger.fire()
    runs = await ledger.claim(worker)
    assert len(runs) == number
    await nodes.retire(ledger.db, worker)
    return runs, worker


def recover(process: Ledger) -> Awaitable[SettleReport]:
    return recover_lost(process.db, process.definitions, process.env)


def fire_fenced(process: Ledger, fence: Fence) -> Awaitable[FireReport]:
    return fire(process.db, process.definitions, process.env, DueNow(limit=100, fence=fence))


async def fired(ledger: Ledger) -> int:
    return int(await ledger.value("SELECT count(*) FROM audit_fires"))


@pytest.mark.covers("F09")
@pytest.mark.parametrize("point", FIRING)
async def test_a_fire_passes_over_what_another_has_locked(ledger: Ledger, point: str) -> None:
    await given_hourly(ledger, 5)

    async with stopped(ledger, point, lambda process: process.fire(limit=3)) as first:
        rest = await ledger.fire()

    assert (first.result().runs, rest.runs) == (3, 2)
    assert (await ledger.fire()).locked == 0
    assert await fired(ledger) == 5
    await ledger.check()


@pytest.mark.covers("D16", "D26")
async def test_a_candidate_named_twice_is_decided_once(ledger: Ledger) -> None:
    (job,) = await given_hourly(ledger)
    named = Named(jobs=(job,))

    async with stopped(ledger, "fire.locked", lambda p: fire(p.db, p.definitions, p.env, named)) as first:
        during = await fire(ledger.db, ledger.definitions, ledger.env, named)
    after = await fire(ledger.db, ledger.definitions, ledger.env, named)

    assert [first.result().runs, during.locked, after.locked] == [1, 0, 0]
    assert await ledger.decisions(job) == [("fired", 1)]


@pytest.mark.covers("D01", "D24", "F126")
async def test_five_workers_claim_each_run_once(ledger: Ledger) -> None:
    await given_hourly(ledger, 200)
    await ledger.fire()

    async def drain(process: Ledger) -> list[ClaimedRun]:
        worker, mine = await process.node(), []
        while runs := await process.claim(worker, limit=7):
            mine += runs
        return mine

    claimed = [run for runs in await asyncio.gather(*(drain(ledger.another()) for _ in range(5))) for run in runs]

    assert len(claimed) == len({run.id for run in claimed}) == 200
    assert {run.attempt for run in claimed} == {1}
    await ledger.check()


@pytest.mark.covers("D01", "D24", "F126")
async def test_a_claim_passes_over_what_another_is_claiming(ledger: Ledger) -> None:
    await given_hourly(ledger, 5)
    one, other = await ledger.node(), await ledger.node()
    await ledger.fire()

    async with stopped(ledger, "claim.commit", lambda process: process.claim(one, limit=3)) as first:
        rest = await ledger.claim(other)

    assert (len(first.result()), len(rest)) == (3, 2)
    assert not {run.id for run in first.result()} & {run.id for run in rest}
    await ledger.check()


@pytest.mark.covers("D27", "F69")
async def test_two_workers_never_have_two_runs_of_an_exclusive_job(ledger: Ledger) -> None:
    await given_hourly(ledger, due=timedelta(hours=2))
    one, other = await ledger.node(), await ledger.node()
    assert (await ledger.fire()).runs == 3

    async with stopped(ledger, "claim.commit", lambda process: process.claim(one)) as first:
        assert await ledger.claim(other) == []
    (run,) = first.result()

    async with stopped(ledger, "settle.commit", lambda process: process.settle([run])):
        assert await ledger.claim(other) == []
    assert len(await ledger.claim(other)) == 1
    assert await ledger.claim(one) == []
    await ledger.check()


@pytest.mark.covers("D27", "F69")
async def test_the_database_refuses_a_second_run_in_the_lane(ledger: Ledger) -> None:
    await given_hourly(ledger, due=timedelta(hours=2))
    await ledger.fire()

    with pytest.raises(asyncpg.UniqueViolationError):
        await ledger.execute("UPDATE runs SET state = 'queued', held = false, lane = job_id WHERE held")


@pytest.mark.covers("F62")
@pytest.mark.parametrize("overlap", [Overlaps.SKIP, Overlaps.QUEUE, Overlaps.ALLOW])
@pytest.mark.parametrize("point", SETTLING)
async def test_a_settle_under_way_wins_over_recover(ledger: Ledger, point: str, overlap: Overlaps) -> None:
    (run,), worker = await given_running(ledger, overlap=Overlap(policy=overlap))

    async with stopped(ledger, point, lambda process: process.settle([run])) as settling:
        recovering = asyncio.ensure_future(recover(ledger.another()))
        await until_waiting(ledger, recovering)

    assert (await recovering).settled == {}
    assert set(settling.result().settled) == {run.id}
    (row,) = await ledger.rows("SELECT state, attempt, worker FROM run_history")
    assert row == {"state": "succeeded", "attempt": 1, "worker": worker}
    assert await ledger.value("SELECT count(*) FROM late_results") == 0
    await ledger.check()


@pytest.mark.covers("D25", "F62")
@pytest.mark.parametrize("overlap", [Overlaps.SKIP, Overlaps.QUEUE, Overlaps.ALLOW])
@pytest.mark.parametrize("point", SETTLING)
async def test_a_recover_under_way_wins_over_settle(ledger: Ledger, point: str, overlap: Overlaps) -> None:
    (run,), _ = await given_running(ledger, overlap=Overlap(policy=overlap))

    async with stopped(ledger, point, recover) as recovering:
        settling = asyncio.ensure_future(ledger.another().settle([run]))
        await until_waiting(ledger, settling)
        assert not settling.done()

    assert (await settling).settled == {}
    assert (await settling).late == (run.id,)
    assert set(recovering.result().settled) == {run.id}
    assert await ledger.rows("SELECT state, attempt FROM runs") == [{"state": "queued", "attempt": 1}]
    assert await ledger.value("SELECT count(*) FROM run_history") == 0
    await ledger.check()


@pytest.mark.covers("F62")
async def test_a_result_that_comes_after_recover_has_looked_still_counts(ledger: Ledger) -> None:
    (run,), _ = await given_running(ledger)

    async with stopped(ledger, "recover.found", recover) as recovering:
        settled = await ledger.settle([run])

    assert set(settled.settled) == {run.id}
    assert recovering.result().settled == {}
    assert await ledger.value("SELECT state FROM run_history") == "succeeded"
    await ledger.check()


@pytest.mark.covers("F62")
@pytest.mark.parametrize("order", [1, -1], ids=["same order", "opposite order"])
async def test_a_batch_of_results_and_recover_never_wait_for_each_other(ledger: Ledger, order: int) -> None:
    runs, _ = await given_running(ledger, 2, overlap=ALLOW)
    runs.sort(key=lambda run: run.id)

    async with ledger.db.transaction() as tx:  # both meet at the lower run, recover first
        await tx.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", runs[0].id)
        recovering = asyncio.ensure_future(recover(ledger.another()))
        await until_waiting(ledger, recovering)
        settling = asyncio.ensure_future(ledger.another().settle(runs[::order]))
        await until_waiting(ledger, recovering, settling)
    ended = await asyncio.gather(recovering, settling, return_exceptions=True)

    assert [type(end).__name__ for end in ended] == ["SettleReport", "SettleReport"]
    assert set(recovering.result().settled) | set(settling.result().settled) == {run.id for run in runs}
    assert not set(recovering.result().settled) & set(settling.result().settled)
    await ledger.check()


@pytest.mark.covers("F61")
@pytest.mark.parametrize("point", ["recover.found", *SETTLING])
async def test_two_recovers_make_one_transition(ledger: Ledger, point: str) -> None:
    runs, _ = await given_running(ledger, 3)

    async with stopped(ledger, point, recover) as one:
        other = asyncio.ensure_future(recover(ledger.another()))
        await until_waiting(ledger, other)

    settled = [*one.result().settled, *(await other).settled]
    assert sorted(settled) == sorted(run.id for run in runs)
    assert await ledger.value("SELECT count(*) FROM attempts WHERE outcome = 'lost'") == 3
    assert await ledger.value("SELECT count(*) FROM runs WHERE state = 'queued' AND failures = 1") == 3
    await ledger.check()


async def given_joinable(ledger: Ledger, policy: Overlaps) -> tuple[JobId, ClaimedRun]:
    """Give a job with a run at work and another slot due: fire would hold its run behind the first."""
    (job,) = await ledger.given_jobs(misfire=LATEST, overlap=Overlap(policy=policy))
    worker = await ledger.node()
    await ledger.fire()
    (run,) = await ledger.claim(worker)
    await ledger.make_due(job)
    return job, run


async def assert_the_next_run_can_start(ledger: Ledger, job: JobId) -> None:
    assert await ledger.rows(queries("recover")["stranded"], 10) == []
    assert await ledger.value("SELECT count(*) FROM runs WHERE lane = $1", job) == 1
    (run,) = await ledger.claim(await ledger.node())
    assert run.job_id == job
    await ledger.check()


@pytest.mark.parametrize("policy", [Overlaps.QUEUE, Overlaps.CANCEL_OTHER])
@pytest.mark.parametrize("point", FIRING)
async def test_a_settle_waits_for_the_fire_that_adds_a_held_run(ledger: Ledger, point: str, policy: Overlaps) -> None:
    job, run = await given_joinable(ledger, policy)

    async with stopped(ledger, point, lambda process: process.fire()) as firing:
        settling = asyncio.ensure_future(ledger.another().settle([run]))
        await until_waiting(ledger, settling)
        assert not settling.done()

    assert firing.result().runs == 1
    assert (await settling).released == 1
    await assert_the_next_run_can_start(ledger, job)


@pytest.mark.parametrize("policy", [Overlaps.QUEUE, Overlaps.CANCEL_OTHER])
@pytest.mark.parametrize("point", SETTLING)
async def test_a_fire_holds_nothing_behind_a_run_that_is_being_settled(
    ledger: Ledger, point: str, policy: Overlaps
) -> None:
    job, run = await given_joinable(ledger, policy)

    async with stopped(ledger, point, lambda process: process.settle([run])) as settling:
        assert (await ledger.fire()).locked == 0
    assert set(settling.result().settled) == {run.id}

    assert (await ledger.fire()).runs == 1
    await assert_the_next_run_can_start(ledger, job)


@pytest.mark.covers("D04", "D05", "F01")
async def test_a_leader_that_was_replaced_fires_nothing(ledger: Ledger) -> None:
    await given_hourly(ledger)
    old, new = await ledger.node("scheduler"), await ledger.node("scheduler")
    fence = await nodes.take_lease(ledger.db, "leader", old)
    assert fence == Fence("leader", old, 1)
    await nodes.retire(ledger.db, old)
    successor = await nodes.take_lease(ledger.db, "leader", new)
    assert successor == Fence("leader", new, 2)

    for stale in (fence, Fence("leader", old, 2), Fence("leader", new, 1), Fence("other", new, 2)):
        with pytest.raises(LeaseLost):
            await fire_fenced(ledger, stale)

    assert await fired(ledger) == 0
    assert (await fire_fenced(ledger, successor)).runs == 1


@pytest.mark.covers("D04", "D05", "F03")
@pytest.mark.parametrize("point", FIRING)
async def test_a_takeover_waits_for_the_fire_in_flight(ledger: Ledger, point: str) -> None:
    await given_hourly(ledger, 3)
    old, new = await ledger.node("scheduler"), await ledger.node("scheduler")
    fence = await nodes.take_lease(ledger.db, "leader", old)
    assert fence is not None

    async with stopped(ledger, point, lambda process: fire_fenced(process, fence)) as firing:
        await nodes.retire(ledger.db, old)
        taking = asyncio.ensure_future(nodes.take_lease(ledger.db, "leader", new))
        await until_waiting(ledger, taking)
        assert not taking.done()

    successor = await taking
    assert successor == Fence("leader", new, 2)
    assert firing.result().runs == 3
    assert (await fire_fenced(ledger, successor)).locked == 0
    with pytest.raises(LeaseLost):
        await fire_fenced(ledger, fence)
    await ledger.check()


@pytest.mark.covers("F03")
async def test_a_fire_waits_for_the_takeover_in_flight_and_then_stops(ledger: Ledger) -> None:
    await given_hourly(ledger)
    old, new = await ledger.node("scheduler"), await ledger.node("scheduler")
    fence = await nodes.take_lease(ledger.db, "leader", old)
    assert fence is not None

    async with ledger.db.transaction() as takeover:
        await takeover.fetchrow(queries("nodes")["lock_lease"], "leader")
        firing = asyncio.ensure_future(fire_fenced(ledger, fence))
        await until_waiting(ledger, firing)
        assert not firing.done()
        await takeover.fetchval(queries("nodes")["pass_lease"], "leader", new)

    with pytest.raises(LeaseLost):
        await firing
    assert await fired(ledger) == 0


@pytest.mark.covers("F120")
async def test_a_lease_is_never_taken_from_the_living_also_after_a_wait(ledger: Ledger) -> None:
    dead, living, late = [await ledger.node("scheduler") for _ in range(3)]
    await nodes.take_lease(ledger.db, "leader", dead)
    await nodes.retire(ledger.db, dead)

    async with ledger.db.transaction() as takeover:  # the late one begins while the dead one is the owner
        await takeover.fetchrow(queries("nodes")["lock_lease"], "leader")
        taking = asyncio.ensure_future(nodes.take_lease(ledger.db, "leader", late))
        await until_waiting(ledger, taking)
        assert not taking.done()
        await takeover.fetchval(queries("nodes")["pass_lease"], "leader", living)

    assert await taking is None
    assert await nodes.take_lease(ledger.db, "leader", living) == Fence("leader", living, 2)


async def test_of_many_that_want_a_new_lease_one_gets_it(ledger: Ledger) -> None:
    candidates = [await ledger.node("scheduler") for _ in range(5)]

    fences = await asyncio.gather(*(nodes.take_lease(ledger.db, "leader", node) for node in candidates))

    (fence,) = [fence for fence in fences if fence is not None]
    assert fence.epoch == 1


async def given_silent(ledger: Ledger) -> tuple[NodeId, NodeId]:
    """Give a node whose lease has run out, and a healthy peer."""
    silent, peer = await ledger.node(lease_for=timedelta(milliseconds=1)), await ledger.node()
    await ledger.execute("UPDATE nodes SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE id = $1", silent)
    return silent, peer


async def test_a_late_heartbeat_in_flight_wins_over_a_declaration(ledger: Ledger) -> None:
    silent, peer = await given_silent(ledger)

    async with ledger.db.transaction() as beat:
        assert await beat.fetchval(queries("nodes")["heartbeat"], silent) == silent
        declared = await nodes.declare_dead(ledger.db, peer)

    assert declared == []
    await nodes.heartbeat(ledger.db, silent)


async def test_a_declaration_in_flight_wins_over_a_late_heartbeat_and_is_final(ledger: Ledger) -> None:
    silent, peer = await given_silent(ledger)

    async with ledger.db.transaction() as declaration:
        assert len(await declaration.fetch(queries("nodes")["declare_dead"], peer)) == 1
        beating = asyncio.ensure_future(nodes.heartbeat(ledger.db, silent))
        await until_waiting(ledger, beating)
        assert not beating.done()

    with pytest.raises(NodeDeclaredDead):
        await beating
    with pytest.raises(NodeDeclaredDead):
        await nodes.heartbeat(ledger.db, silent)
    assert await nodes.declare_dead(ledger.db, peer) == []


async def test_a_node_that_is_late_itself_declares_nobody_dead(ledger: Ledger) -> None:
    silent, peer = await given_silent(ledger)
    await ledger.execute("UPDATE nodes SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE id = $1", peer)

    assert await nodes.declare_dead(ledger.db, peer) == []
    await nodes.heartbeat(ledger.db, silent)


@pytest.mark.covers("F128")
async def test_nobody_is_declared_dead_within_the_grace_after_the_database_started(ledger: Ledger) -> None:
    up = await ledger.value("SELECT clock_timestamp() - pg_postmaster_start_time()")
    peer = await ledger.node()
    within, past = await ledger.node(lease_for=up + timedelta(hours=1)), await ledger.node(lease_for=up / 2)
    await ledger.execute("UPDATE nodes SET heartbeat_at = '2020-01-01Z' WHERE id <> $1", peer)

    assert await nodes.declare_dead(ledger.db, peer) == [past]
    await nodes.heartbeat(ledger.db, within)
