"""Mistakes that other designs made: where it is cheap, the naive form is shown to break; ours is shown to hold."""

from datetime import timedelta
from typing import Any

import pytest

from mainspring import Every, Schedule
from mainspring.domain.firing import Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.ids import JobId
from mainspring.domain.retry import Backoff, RetryPolicy
from mainspring.domain.settling import ErrorInfo, Failed
from mainspring.store.history import make_partitions

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINUTE = timedelta(minutes=1)
EVERY_MINUTE = Schedule(specs=(Every(MINUTE),))
EVERY_HOUR = Schedule(specs=(Every(60 * MINUTE),))
LATEST = Misfire(policy=Misfires.LATEST)
ALLOW = Overlap(policy=Overlaps.ALLOW)
BROKEN = Failed(error=ErrorInfo(type="ValueError", message="no"))
HISTORY = """
SELECT inhrelid::regclass::text AS partition FROM pg_inherits
 WHERE inhparent IN ('run_history'::regclass, 'attempts'::regclass, 'skips'::regclass)"""


async def cursor(ledger: Ledger, job: JobId) -> dict[str, Any]:
    (row,) = await ledger.rows("SELECT * FROM job_cursors WHERE job_id = $1", job)
    return row


@pytest.mark.covers("D20", "F64")
async def test_a_retry_waits_on_its_run_and_leaves_the_next_slot_alone(ledger: Ledger) -> None:
    later = RetryPolicy(kind=Backoff.FIXED, base=10 * MINUTE)
    (job,) = await ledger.given_jobs(schedule=EVERY_MINUTE, misfire=LATEST, overlap=ALLOW, retry=later)
    worker = await ledger.node()
    await ledger.fire()
    fired = await cursor(ledger, job)

    runs = await ledger.claim(worker)
    claimed = await cursor(ledger, job)
    settled = await ledger.settle(runs, BROKEN)

    assert claimed == fired
    assert await cursor(ledger, job) == fired
    retry_at = settled.settled[runs[0].id].next_at
    assert retry_at is not None
    assert retry_at > fired["next_fire_at"]  # the regular slot comes first, and is still the one that is next
    assert await ledger.value("SELECT ready_at FROM runs") == retry_at
    await ledger.check()


@pytest.mark.covers("D20", "F64")
async def test_a_retry_in_the_place_of_the_next_slot_would_lose_slots(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=EVERY_MINUTE, due=5 * MINUTE, overlap=ALLOW)

    await ledger.execute("UPDATE job_cursors SET next_fire_at = next_fire_at + interval '150 seconds'")
    await ledger.fire()

    with pytest.raises(AssertionError, match="missed"):
        await ledger.check()
    assert len(await ledger.decisions(job)) < 6


@pytest.mark.covers("D23", "F16")
async def test_the_oldest_are_taken_first_while_more_arrives_than_a_batch_takes(ledger: Ledger) -> None:
    taken: list[JobId] = []
    for hours in (12, 8, 10, 6, 9, 7):  # four arrive, three are taken
        await ledger.given_jobs(4, schedule=EVERY_HOUR, due=timedelta(hours=hours), misfire=LATEST)
        before = await waiting(ledger)

        assert (await ledger.fire(limit=3)).locked == 3

        assert await waiting(ledger) == before[3:]
        taken += before[:3]
    while left := await waiting(ledger):
        await ledger.fire(limit=3)
        taken += left[:3]

    assert len(taken) == len(set(taken)) == 24  # nobody starved
    await ledger.check()


async def waiting(ledger: Ledger) -> list[JobId]:
    rows = await ledger.rows("SELECT job_id FROM job_cursors WHERE last_slot IS NULL ORDER BY next_fire_at, job_id")
    return [row["job_id"] for row in rows]


@pytest.mark.covers("D23")
async def test_a_limit_without_an_order_would_let_the_oldest_starve(ledger: Ledger) -> None:
    young = await ledger.given_jobs(3, due=MINUTE, misfire=LATEST)
    old = await ledger.given_jobs(3, due=60 * MINUTE, misfire=LATEST)
    due = "SELECT job_id FROM job_cursors WHERE state = 'active' AND next_fire_at <= statement_timestamp()"

    async with ledger.db.transaction() as tx:
        for way in ("indexscan", "indexonlyscan", "bitmapscan"):  # in which an index gives an order by accident
            await tx.execute(f"SET LOCAL enable_{way} = off")
        await tx.execute("SET LOCAL enable_seqscan = on")
        naive = {row["job_id"] for row in await tx.fetch(f"{due} LIMIT 3")}
    await ledger.fire(limit=3)

    ours = await ledger.rows("SELECT job_id FROM job_cursors WHERE last_slot IS NOT NULL")
    assert naive == set(young)
    assert {row["job_id"] for row in ours} == set(old)


@pytest.mark.covers("D28")
async def test_a_dead_letter_outlives_the_history_of_its_run(ledger: Ledger) -> None:
    await make_partitions(ledger.db, days=3)
    (job,) = await ledger.given_jobs(misfire=LATEST, retry=RetryPolicy(kind=Backoff.NONE), payload={"order": 7})
    await ledger.fire()
    (run,) = await ledger.claim(await ledger.node())
    await ledger.settle([run], BROKEN)
    before = await ledger.rows("SELECT * FROM dead_letters")

    for row in await ledger.rows(HISTORY):
        await ledger.execute(f"DROP TABLE {row['partition']}")

    assert await ledger.value("SELECT count(*) FROM run_history") == 0
    assert await ledger.rows("SELECT * FROM dead_letters") == before
    (letter,) = before
    assert (letter["run_id"], letter["job_id"], letter["slot"]) == (run.id, job, run.slot)
    assert letter["reason"] == "exhausted"
    assert "ValueError" in letter["error"]
    assert letter["closed_at"] is None
    relation = await ledger.rows("SELECT relkind, relispartition FROM pg_class WHERE relname = 'dead_letters'")
    assert relation == [{"relkind": b"r", "relispartition": False}]  # a plain table: there is nothing to drop by age
