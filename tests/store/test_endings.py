"""How runs and jobs end without a worker's word: too late, told to stop, replaced, done, forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from mainspring import Every, Schedule
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.ids import JobId, RunId
from mainspring.domain.job import AfterDone
from mainspring.domain.retry import Backoff, RetryPolicy
from mainspring.domain.run import State
from mainspring.domain.settling import ErrorInfo, Failed
from mainspring.insight.audit import run_audit
from mainspring.insight.report import Fault
from mainspring.roles import NodeSettings, run_node
from mainspring.service import Stop
from mainspring.store.history import drop_partitions, kept_since, make_partitions
from mainspring.store.recover import recover_expired
from mainspring.store.runs import cancel_run
from mainspring.tasks.context import Context
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events, Recovered, Settled, Started
from mainspring.testing import Recorder
from mainspring.worker.pool import PoolConfig

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
FAILED = Failed(error=ErrorInfo(type="ValueError", message="no"))
REPLACING = Overlap(policy=Overlaps.CANCEL_OTHER)


async def once_due(ledger: Ledger, *, ago: timedelta = timedelta(0), **changes: Any) -> JobId:
    """Give a job whose only slot is due."""
    job = await ledger.once_at(await ledger.value("SELECT clock_timestamp()") - ago, **changes)
    await ledger.execute("UPDATE job_cursors SET state = 'active' WHERE job_id = $1", job)
    return job


async def history(ledger: Ledger) -> list[tuple[str, str | None]]:
    rows = await ledger.rows("SELECT state, reason FROM run_history ORDER BY slot, settled_at")
    return [(row["state"], row["reason"]) for row in rows]


@pytest.mark.parametrize("late", [{"deadline": SECOND}, {"wait_timeout": SECOND}], ids=["deadline", "wait timeout"])
async def test_a_run_that_nobody_starts_in_time_is_dead_and_never_claimed(
    ledger: Ledger, late: dict[str, timedelta]
) -> None:
    await once_due(ledger, ago=5 * SECOND, **late)
    assert (await ledger.fire()).runs == 1

    assert await ledger.claim(await ledger.node()) == []
    assert await recover_expired(ledger.db, ledger.env) == 1
    assert await history(ledger) == [("dead", "expired")]
    assert [row["reason"] for row in await ledger.rows("SELECT reason FROM dead_letters")] == ["expired"]
    await ledger.check()


async def test_what_a_worker_has_in_hand_does_not_expire(ledger: Ledger) -> None:
    await ledger.given_jobs(deadline=HOUR)
    worker = await ledger.node()
    await ledger.fire()
    (run,) = await ledger.claim(worker)
    await ledger.execute("UPDATE runs SET expires_at = clock_timestamp() - interval '1 hour'")

    assert await recover_expired(ledger.db, ledger.env) == 0
    await ledger.settle([run])
    assert await history(ledger) == [("succeeded", None)]


async def test_the_wait_of_a_retry_is_counted_from_when_it_is_ready(ledger: Ledger) -> None:
    retry = RetryPolicy(kind=Backoff.FIXED, base=HOUR)
    await ledger.given_jobs(wait_timeout=timedelta(minutes=1), retry=retry)
    worker = await ledger.node()
    await ledger.fire()
    (run,) = await ledger.claim(worker)

    await ledger.settle([run], FAILED)

    assert await recover_expired(ledger.db, ledger.env) == 0
    assert await ledger.value("SELECT expires_at - ready_at FROM runs") == timedelta(minutes=1)


async def test_an_expired_run_lets_its_successor_go(ledger: Ledger) -> None:
    hourly = Schedule(specs=(Every(HOUR),))
    (job,) = await ledger.given_jobs(schedule=hourly, overlap=Overlap(policy=Overlaps.QUEUE), deadline=24 * HOUR)
    await ledger.fire()
    await ledger.make_due(job)
    await ledger.fire()
    await ledger.execute("UPDATE runs SET expires_at = clock_timestamp() WHERE NOT held")

    assert await recover_expired(ledger.db, ledger.env) == 1
    assert [row["state"] for row in await ledger.rows("SELECT state FROM runs")] == ["queued"]
    await ledger.check()


async def test_replacing_cancels_at_once_what_no_worker_has(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(overlap=REPLACING)
    await ledger.fire()
    await ledger.make_due(job)

    await ledger.fire()

    assert await history(ledger) == [("cancelled", None)]
    assert [row["state"] for row in await ledger.rows("SELECT state FROM runs")] == ["queued"]
    assert len(await ledger.claim(await ledger.node())) == 1
    await ledger.check()


async def test_replacing_waits_for_what_is_running_and_keeps_only_the_newest(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(overlap=REPLACING)
    worker = await ledger.node()
    await ledger.fire()
    (running,) = await ledger.claim(worker)
    for _ in range(2):
        await ledger.make_due(job)
        await ledger.fire()

    rows = await ledger.rows("SELECT state, cancel_requested FROM runs ORDER BY slot")
    assert [(row["state"], row["cancel_requested"]) for row in rows] == [("running", True), ("held", False)]
    assert await history(ledger) == [("cancelled", None)]  # the one between
    await ledger.settle([running], FAILED)
    assert [row["state"] for row in await ledger.rows("SELECT state FROM runs")] == ["queued"]
    await ledger.check()


@asynccontextmanager
async def node_at_work(ledger: Ledger, registry: Registry) -> AsyncIterator[Recorder]:
    stop, recorder = Stop(ledger.env), Recorder()
    settings = NodeSettings(pools=(PoolConfig(cancel_every=timedelta(milliseconds=20)),))
    node = run_node(settings, stop, db=ledger.db, env=ledger.env, events=Events(recorder), registry=registry)
    running = asyncio.create_task(node)
    try:
        yield recorder
    finally:
        stop.request()
        await running


@pytest.mark.covers("F35")
async def test_a_cancel_reaches_the_task_and_what_it_makes_of_it_counts(ledger: Ledger) -> None:
    async def stubborn(_: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished all the same"
        raise AssertionError

    async def waiting(_: Context) -> None:
        await asyncio.Event().wait()

    registry = Registry()
    registry.add("stubborn", stubborn)
    registry.add("waiting", waiting)
    jobs = {await once_due(ledger, task=task): task for task in ("stubborn", "waiting")}

    async with node_at_work(ledger, registry) as recorder:
        await recorder.until(lambda seen: len(seen.of(Started)) == 2)
        for event in recorder.of(Started):
            assert await cancel_run(ledger.db, RunId(event.run)) is State.RUNNING
        await recorder.until(lambda seen: sum(event.cancelled + event.succeeded for event in seen.of(Settled)) == 2)

    states = {jobs[row["job_id"]]: row["state"] for row in await ledger.rows("SELECT job_id, state FROM run_history")}
    assert states == {"stubborn": "succeeded", "waiting": "cancelled"}


async def test_a_job_that_is_to_go_when_done_goes_with_its_last_run_and_not_before(ledger: Ledger) -> None:
    go = asyncio.Event()

    async def noop(_: Context) -> None:
        await go.wait()

    registry = Registry()
    registry.add("noop", noop)
    gone = await once_due(ledger, after_done=AfterDone.DELETE)
    kept = await once_due(ledger)

    async with node_at_work(ledger, registry) as recorder:
        await recorder.until(lambda seen: len(seen.of(Started)) == 2)
        assert not [event for event in recorder.of(Recovered) if event.kind == "done"]
        go.set()
        await recorder.until(lambda seen: any(event.kind == "done" for event in seen.of(Recovered)))

    rows = await ledger.rows("SELECT job_id, state FROM job_cursors")
    assert {row["job_id"]: row["state"] for row in rows} == {gone: "deleted", kept: "finished"}
    reasons = await ledger.rows("SELECT reason FROM job_versions WHERE job_id = $1 AND state = 'deleted'", gone)
    assert [row["reason"] for row in reasons] == ["its last run is final"]
    assert len(await history(ledger)) == 2


async def given_history(ledger: Ledger, *days_ago: int) -> None:
    """Give a succeeded run, a skip and a dead letter for each of these days, in partitions of their own."""
    for days in days_ago:
        day = f"(clock_timestamp() - interval '{days} days')"
        await ledger.execute(f"SELECT make_day_partitions(({day} AT TIME ZONE 'UTC')::date, 1)")
        columns = "id, slot, job_id, tenant, version, kind, pool, state, attempt, failures, fired_at, settled_at"
        await ledger.execute(
            f"INSERT INTO run_history ({columns}) SELECT gen_random_uuid(), {day}, gen_random_uuid(), 'default', 1, "
            f"'schedule', 'short', 'succeeded', 1, 0, {day}, {day}"
        )
        await ledger.execute(
            "INSERT INTO dead_letters (run_id, job_id, tenant, slot, reason, died_at) "
            f"VALUES (gen_random_uuid(), gen_random_uuid(), 'default', {day}, 'exhausted', {day})"
        )


@pytest.mark.covers("D28")
async def test_retention_drops_whole_days_and_keeps_dead_letters(ledger: Ledger) -> None:
    await make_partitions(ledger.db, days=2)
    await given_history(ledger, 40, 31, 3)

    dropped = await drop_partitions(ledger.db, keep_for=timedelta(days=30))

    assert dropped == 2 * 4  # history, skips, attempts and lines of two days
    assert await ledger.value("SELECT count(*) FROM run_history") == 1
    assert await ledger.value("SELECT count(*) FROM dead_letters") == 3
    async with ledger.db.connection() as connection:
        since = await kept_since(connection)
    midnight = await ledger.value("SELECT date_trunc('day', clock_timestamp() - interval '30 days', 'UTC')")
    assert since == midnight
    assert await drop_partitions(ledger.db, keep_for=timedelta(days=30)) == 0


async def test_an_audit_does_not_call_missed_what_retention_has_dropped(ledger: Ledger) -> None:
    await ledger.given_jobs(schedule=Schedule(specs=(Every(timedelta(days=1)),)))
    await ledger.execute("UPDATE job_versions SET effective_at = clock_timestamp() - interval '90 days'")
    await given_history(ledger, 40)
    now = await ledger.value("SELECT clock_timestamp()")
    asked = {"start": now - timedelta(days=60), "end": now - timedelta(days=20)}
    assert (await run_audit(ledger.db, **asked)).faults[Fault.MISSED] == 40

    await drop_partitions(ledger.db, keep_for=timedelta(days=30))

    report = await run_audit(ledger.db, **asked)
    assert report.dropped_before == report.start > asked["start"]
    assert report.faults[Fault.MISSED] in (10, 11)  # those since then were never decided


async def test_a_day_with_a_run_in_motion_is_kept(ledger: Ledger) -> None:
    await given_history(ledger, 40, 31)
    await ledger.given_jobs()
    await ledger.fire()
    await ledger.execute("UPDATE runs SET slot = clock_timestamp() - interval '35 days'")

    assert await drop_partitions(ledger.db, keep_for=timedelta(days=30)) == 4  # the day before it alone
