"""``explain`` answers for any job and instant."""

from datetime import datetime, timedelta

import pytest

from mainspring import Cron, Schedule
from mainspring.domain.asking import Change
from mainspring.domain.errors import NotFound
from mainspring.domain.firing import Misfire, Misfires
from mainspring.domain.ids import JobId
from mainspring.domain.job import JobState
from mainspring.insight.explain import explain_slot
from mainspring.store.changes import change_job
from mainspring.store.slots import evidence

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATEST = Misfire(policy=Misfires.LATEST)


async def said(ledger: Ledger, job: JobId, at: datetime) -> str:
    return " ".join(explain_slot(await evidence(ledger.db, str(job), at), at))


async def test_a_slot_that_fired_is_told_with_its_attempts(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(misfire=LATEST)
    await ledger.execute("UPDATE job_versions SET effective_at = effective_at - interval '1 hour'")
    await ledger.fire()
    (run,) = await ledger.claim(await ledger.node())
    await ledger.settle([run])

    told = await said(ledger, job, run.slot)

    assert "Version 1 was in force" in told
    assert f"Its run {run.id} is succeeded." in told
    assert "Attempt 1 began" in told


async def test_a_slot_that_did_not_run_is_told_with_the_reason(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(due=timedelta(seconds=9), misfire=LATEST)
    await ledger.execute("UPDATE job_versions SET effective_at = effective_at - interval '1 hour'")
    await ledger.fire()
    first = await ledger.value("SELECT first_slot FROM skips")

    assert "coalesced" in await said(ledger, job, first)
    assert "is no slot of it" in await said(ledger, job, first + timedelta(milliseconds=5) - timedelta(hours=0.5))


async def test_what_is_to_come_what_was_paused_and_what_never_was(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=Schedule(specs=(Cron("0 0 1 1 *"),)))
    await ledger.execute("UPDATE job_cursors SET next_fire_at = $1", datetime.fromisoformat("2100-01-01T00:00:00Z"))
    later = datetime.fromisoformat("2101-01-01T00:00:00Z")

    assert "It is due in" in await said(ledger, job, later)
    assert "did not exist yet" in await said(ledger, job, datetime.fromisoformat("1999-01-01T00:00:00Z"))
    await change_job(ledger.db, ledger.env, job, Change(state=JobState.PAUSED, reason="vendor outage"))
    assert "(vendor outage): paused." in await said(ledger, job, later)
    with pytest.raises(NotFound):
        await evidence(ledger.db, "nosuch", later)


async def test_a_missed_slot_is_called_missed(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(due=timedelta(seconds=5), misfire=Misfire(policy=Misfires.ALL))
    await ledger.execute("UPDATE job_versions SET effective_at = effective_at - interval '1 hour'")
    await ledger.fire()
    slot = await ledger.value("SELECT slot FROM runs ORDER BY slot LIMIT 1")

    await ledger.execute("DELETE FROM runs WHERE slot = $1", slot)

    assert "that is a missed slot" in await said(ledger, job, slot)
