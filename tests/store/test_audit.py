"""The audit on real ledgers: nothing in a true one, and each damage done on purpose, by its name, in the others."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from time import perf_counter
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from mainspring import Every, Schedule
from mainspring.domain.firing import Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.ids import JobId, scheduled_run_id
from mainspring.insight.audit import run_audit
from mainspring.insight.report import AuditReport, Fault
from mainspring.store import audit as reading
from mainspring.store.audit import snapshot

from .ledger import EVERY_SECOND, Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
EVERY_MINUTE = Schedule(specs=(Every(MINUTE),))
ALLOW = Overlap(policy=Overlaps.ALLOW)
QUEUE = Overlap(policy=Overlaps.QUEUE, most=2)


@dataclass
class Audited:
    """A true ledger: what it holds, and questions to it."""

    ledger: Ledger
    plain: JobId  # every minute for half an hour; all fired, and settled
    outage: JobId  # every second for ten minutes; one stretch, then three runs in motion
    slots: list[datetime]  # of the plain job

    @property
    def target(self) -> datetime:
        return self.slots[10]

    async def report(self, **changes: Any) -> AuditReport:
        now = await self.ledger.value("SELECT clock_timestamp()")
        return await run_audit(self.ledger.db, **{"start": now - 2 * HOUR, "end": now + HOUR, **changes})

    async def execute(self, statement: str, *arguments: Any) -> None:
        await self.ledger.execute(statement, *arguments)

    async def run_at(self, slot: datetime, table: str = "run_history", **changes: Any) -> None:
        """Write a copy of the plain job's run for another slot."""
        given = {"id": scheduled_run_id(self.plain, slot), "slot": slot, "fired_at": slot + SECOND, **changes}
        await self.execute(
            f"INSERT INTO {table} SELECT (jsonb_populate_record(original, $3)).*"
            "  FROM run_history AS original WHERE job_id = $1 AND slot = $2",
            self.plain,
            self.target,
            _document(given),
        )


@pytest_asyncio.fixture(loop_scope="session")
async def audited(ledger: Ledger) -> Audited:
    now: datetime = await ledger.value("SELECT clock_timestamp()")
    if now.second >= 56:  # a minute's slot that comes due while this is told would be in it by half
        await asyncio.sleep(60.1 - now.second - now.microsecond / 1_000_000)
    (plain,) = await ledger.given_jobs(schedule=EVERY_MINUTE, due=30 * MINUTE, overlap=ALLOW)
    await _true_from_the_cursor(ledger)
    await ledger.fire()
    await ledger.settle(await ledger.claim(await ledger.node()))
    (outage,) = await ledger.given_jobs(due=10 * MINUTE, misfire=Misfire(most=3))
    await ledger.given_jobs(2, schedule=EVERY_MINUTE, due=20 * MINUTE, overlap=QUEUE)  # three fire, the others overlap
    await ledger.given_jobs(schedule=replace(EVERY_MINUTE, max_fires=5), due=20 * MINUTE)
    await ledger.given_jobs(due=5 * MINUTE, misfire=Misfire(policy=Misfires.SKIP, window=MINUTE))
    await _true_from_the_cursor(ledger)
    await ledger.fire()
    rows = await ledger.rows("SELECT slot FROM run_history WHERE job_id = $1 ORDER BY slot", plain)
    return Audited(ledger, plain, outage, [row["slot"] for row in rows])


async def test_a_true_ledger_has_nothing_wrong(audited: Audited) -> None:
    report = await audited.report()

    assert report.findings == ()
    assert report.exit_status == 0
    assert report.jobs == 6
    assert set(report.skipped) == {"coalesced", "expired", "skipped_misfire", "skipped_overlap"}
    assert report.expected == report.fired + sum(report.skipped.values()) + report.pending
    assert report.late.p50 <= report.late.p99 <= report.late.max


Damage = Callable[[Audited], Awaitable[None]]


async def removed(audited: Audited) -> None:
    await audited.execute("DELETE FROM run_history WHERE job_id = $1 AND slot = $2", audited.plain, audited.target)


async def skipped_as_well(audited: Audited) -> None:
    statement = "INSERT INTO skips VALUES ($1, $2, $2, 1, 'coalesced', 1, $2::timestamptz + interval '1 second')"
    await audited.execute(statement, audited.plain, audited.target)


async def in_motion_as_well(audited: Audited) -> None:
    await audited.execute(
        "INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, pool, task, state)"
        " SELECT id, job_id, tenant, version, kind, slot, fired_at, slot, slot, pool, 'noop', 'queued'"
        "   FROM run_history WHERE job_id = $1 AND slot = $2",
        audited.plain,
        audited.target,
    )


async def run_again(audited: Audited) -> None:
    await audited.run_at(audited.target, id=UUID(int=2**128 - 1))


async def covered_as_well(audited: Audited) -> None:
    await audited.execute(
        "UPDATE skips SET slot = slot + interval '1 second', covers_count = covers_count + 1 WHERE job_id = $1",
        audited.outage,
    )


async def invented(audited: Audited) -> None:
    await audited.run_at(audited.target + 30 * SECOND)


async def moved(audited: Audited) -> None:
    statement = "UPDATE run_history SET slot = slot + interval '1 second' WHERE job_id = $1 AND slot = $2"
    await audited.execute(statement, audited.plain, audited.target)


async def late(audited: Audited) -> None:
    statement = "UPDATE run_history SET fired_at = slot + interval '5 hours' WHERE job_id = $1 AND slot = $2"
    await audited.execute(statement, audited.plain, audited.target)


async def early(audited: Audited) -> None:
    statement = "UPDATE run_history SET fired_at = slot - interval '1 ms' WHERE job_id = $1 AND slot = $2"
    await audited.execute(statement, audited.plain, audited.target)


async def covering_too_few(audited: Audited) -> None:
    await audited.execute("UPDATE skips SET covers_count = covers_count - 3 WHERE job_id = $1", audited.outage)


async def covering_too_many(audited: Audited) -> None:
    await audited.execute("UPDATE skips SET covers_count = covers_count + 2 WHERE job_id = $1", audited.outage)


async def skipped_without_cause(audited: Audited) -> None:
    await removed(audited)
    statement = "INSERT INTO skips VALUES ($1, $2, $2, 1, 'skipped_overlap', 1, $2::timestamptz + interval '1 second')"
    await audited.execute(statement, audited.plain, audited.target)


async def under_another_id(audited: Audited) -> None:
    statement = "UPDATE run_history SET id = gen_random_uuid() WHERE job_id = $1 AND slot = $2"
    await audited.execute(statement, audited.plain, audited.target)


async def under_another_version(audited: Audited) -> None:
    statement = "UPDATE run_history SET version = 9 WHERE job_id = $1 AND slot = $2"
    await audited.execute(statement, audited.plain, audited.target)


async def of_no_job(audited: Audited) -> None:
    await audited.run_at(audited.target, job_id=UUID(int=5), id=UUID(int=5))


@pytest.mark.parametrize(
    ("damage", "faults", "why"),
    [
        (removed, {Fault.MISSED: 1}, "the cursor has passed it"),
        (skipped_as_well, {Fault.DOUBLED: 1}, "decided already"),
        (in_motion_as_well, {Fault.DOUBLED: 1}, "fired, and decided already"),
        (run_again, {Fault.DOUBLED: 1}, "fired, and decided already"),
        (invented, {Fault.PHANTOM: 1}, "version 1 does not name it"),
        (moved, {Fault.MISSED: 1, Fault.PHANTOM: 1}, "the cursor has passed it"),
        (early, {Fault.PHANTOM: 1}, "before its time"),
        (skipped_without_cause, {Fault.UNEXPLAINED: 1}, "no run of the job was in motion"),
        (under_another_id, {Fault.PHANTOM: 1}, "another id"),
        (under_another_version, {Fault.PHANTOM: 1}, "decided under version 9"),
        (of_no_job, {Fault.PHANTOM: 1}, "there is no such job"),
    ],
)
async def test_damage_to_a_slot_is_found_and_named(
    audited: Audited, damage: Damage, faults: dict[Fault, int], why: str
) -> None:
    await damage(audited)

    report = await audited.report()

    assert {fault: count for fault, count in report.faults.items() if count} == faults
    assert len(report.findings) == sum(faults.values())
    assert why in report.findings[0].why
    assert report.findings[0].job == (UUID(int=5) if damage is of_no_job else audited.plain)
    assert report.findings[0].slot - audited.target in (timedelta(0), 30 * SECOND)
    assert report.exit_status == 1


@pytest.mark.parametrize(
    ("damage", "faults"),
    [
        (covering_too_few, {Fault.MISSED: 3}),
        (covering_too_many, {Fault.PHANTOM: 2}),
        (covered_as_well, {Fault.DOUBLED: 1}),
    ],
)
async def test_damage_to_a_stretch_is_found_and_named(
    audited: Audited, damage: Damage, faults: dict[Fault, int]
) -> None:
    await damage(audited)

    report = await audited.report()

    (finding,) = report.findings
    assert (finding.job, {finding.fault: finding.count}) == (audited.outage, faults)
    assert report.exit_status == 1


async def test_a_late_fire_is_lateness_and_no_fault(audited: Audited) -> None:
    await late(audited)

    report = await audited.report()

    assert (report.exit_status, report.findings) == (0, ())
    assert report.late.max == timedelta(hours=5)


async def test_after_a_pause_nothing_is_expected_and_nothing_may_fire(audited: Audited) -> None:
    await audited.execute(
        "INSERT INTO job_versions SELECT job_id, 2, 'paused', definition, $2 FROM job_versions WHERE job_id = $1",
        audited.plain,
        audited.slots[-1] + 10 * SECOND,
    )
    await audited.execute("UPDATE run_history SET fired_at = slot WHERE job_id = $1", audited.plain)
    await audited.execute(
        "UPDATE job_cursors SET state = 'paused', version = 2, next_fire_at = NULL WHERE job_id = $1", audited.plain
    )
    assert (await audited.report()).findings == ()

    await audited.run_at(audited.slots[-1] + MINUTE)
    await audited.execute(
        "UPDATE run_history SET fired_at = $3 WHERE job_id = $1 AND slot = $2",
        audited.plain,
        audited.target,
        audited.slots[-1] + 11 * SECOND,
    )

    report = await audited.report()

    assert [(finding.fault, finding.slot) for finding in report.findings] == [
        (Fault.PHANTOM, audited.target),
        (Fault.PHANTOM, audited.slots[-1] + MINUTE),
    ]
    assert "after version 2 (paused) took effect" in report.findings[0].why
    assert report.findings[1].why == "version 2 was in force, which is paused"


@pytest.mark.parametrize("table", ["runs", "run_history"])
async def test_a_run_by_hand_explains_why_slots_were_skipped(ledger: Ledger, table: str) -> None:
    (job,) = await ledger.given_jobs(schedule=EVERY_MINUTE, due=5 * MINUTE)
    await _true_from_the_cursor(ledger)
    await ledger.execute(
        "INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, pool, task, state)"
        " SELECT gen_random_uuid(), $1, 'default', 1, 'manual', now(), now(), now(), now(), 'short', 'noop', 'queued'",
        job,
    )
    await ledger.fire()
    if table == "run_history":
        await ledger.settle(await ledger.claim(await ledger.node()))

    report = await Audited(ledger, job, job, []).report()

    assert (report.findings, report.fired) == ((), 0)
    assert report.skipped["skipped_overlap"] >= 5


async def test_what_nobody_fired_yet_is_pending(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=EVERY_MINUTE, due=5 * MINUTE)
    await _true_from_the_cursor(ledger)

    report = await Audited(ledger, job, job, []).report()

    assert (report.exit_status, report.pending) == (0, report.expected)
    assert report.pending >= 5
    assert report.oldest_pending == await ledger.value("SELECT next_fire_at FROM job_cursors")


async def test_a_quarantined_job_is_reported_as_such(audited: Audited) -> None:
    await audited.execute(
        "UPDATE job_versions SET definition = jsonb_set(definition, '{schedule,timezone}', '\"Nowhere\"')"
        " WHERE job_id = $1",
        audited.outage,
    )
    unreadable = await audited.report()
    await audited.execute("UPDATE job_cursors SET state = 'quarantined' WHERE job_id = $1", audited.outage)
    quarantined = await audited.report()

    assert [finding.fault for finding in unreadable.findings] == [Fault.UNREADABLE]
    assert (quarantined.findings, quarantined.quarantined) == ((), 1)


async def test_the_ledger_of_a_running_system_is_judged_at_one_moment(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=EVERY_MINUTE, due=5 * MINUTE)
    await _true_from_the_cursor(ledger)
    now = await ledger.value("SELECT clock_timestamp()")

    async with snapshot(ledger.db, start=now - HOUR, end=now + HOUR) as held:
        await ledger.fire()
        (seen,) = [record async for record in held.jobs()]

    assert seen.id == job
    assert seen.decisions == ()
    assert seen.cursor is not None
    assert seen.cursor.last_slot is None


async def test_pages_and_batches_change_nothing(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    await moved(audited)
    now = await audited.ledger.value("SELECT clock_timestamp()")
    window = {"start": now - 2 * HOUR, "end": now}
    whole = await audited.report(**window)

    monkeypatch.setattr(reading, "_DECISIONS", 7)
    monkeypatch.setattr(reading, "_JOBS", 2)
    pieces = await audited.report(**window)

    assert replace(pieces, judged_at=whole.judged_at) == whole


async def test_an_audit_of_one_tenant_sees_no_other(audited: Audited) -> None:
    await removed(audited)
    await audited.ledger.given_jobs(tenant="other", schedule=EVERY_MINUTE)

    report = await audited.report(tenant="other")

    assert (report.jobs, report.fired, report.findings) == (1, 0, ())
    assert (await audited.report(tenant="default")).faults[Fault.MISSED] == 1


@pytest.mark.long
@pytest.mark.parametrize(("jobs", "slots"), [(1_000, 1_000), (100_000, 10), (1, 1_000_000)])
async def test_a_million_slots_are_judged_in_seconds(ledger: Ledger, jobs: int, slots: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    end = start + slots * SECOND
    ids = [job for _ in range(0, jobs, 1000) for job in await ledger.given_jobs(min(jobs, 1000))]
    await ledger.execute("UPDATE job_versions SET effective_at = $1", start - SECOND)
    await ledger.execute("UPDATE job_cursors SET next_fire_at = $1", end)
    runs = (
        (scheduled_run_id(job, slot), slot, job, "default", 1, "schedule", "short", "succeeded", 1, 0, slot, slot)
        for job in ids
        for slot in EVERY_SECOND.between(start, end, slots)
    )
    names = ("id", "slot", "job_id", "tenant", "version", "kind", "pool", "state", "attempt", "failures")
    async with ledger.db.connection() as connection:
        copy: Any = connection
        while batch := list(islice(runs, 100_000)):
            await copy.copy_records_to_table("run_history", records=batch, columns=[*names, "fired_at", "settled_at"])
    gone = start + 7 * SECOND
    await ledger.execute("DELETE FROM run_history WHERE job_id = $1 AND slot = $2", ids[-1], gone)

    began = perf_counter()
    report = await run_audit(ledger.db, start=start, end=end)
    print(f"\n{jobs} jobs with {slots} slots each: {perf_counter() - began:.1f} s")  # noqa: T201 - the figure

    assert (report.expected, report.fired) == (jobs * slots, jobs * slots - 1)
    assert [(found.fault, found.job, found.slot) for found in report.findings] == [(Fault.MISSED, ids[-1], gone)]


async def _true_from_the_cursor(ledger: Ledger) -> None:
    """Let every job that has not fired be as old as its cursor says."""
    await ledger.execute(
        "UPDATE job_versions AS version SET effective_at = next_fire_at - interval '1 second'"
        "  FROM job_cursors AS cursors WHERE cursors.job_id = version.job_id AND last_slot IS NULL"
    )


def _document(given: dict[str, Any]) -> str:
    return json.dumps({name: str(value) for name, value in given.items()})
