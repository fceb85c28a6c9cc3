"""Edits, pauses, deletes and cancels, alone and racing with fire: one after the other, and never a wrong ledger."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from mainspring import Cron, Schedule
from mainspring.domain.asking import Change
from mainspring.domain.errors import Conflict, NotFound, StaleVersion
from mainspring.domain.firing import Misfire, Misfires
from mainspring.domain.job import Job, JobState
from mainspring.store.changes import change_job
from mainspring.store.runs import cancel_run

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATEST = Misfire(policy=Misfires.LATEST)
PAUSE = Change(state=JobState.PAUSED, reason="vendor outage")
HOURLY = Job(name="edited", task="noop", schedule=Schedule(specs=(Cron("0 * * * *"),)))


async def test_a_pause_supersedes_what_is_due_and_nothing_fires_after_it(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(due=timedelta(seconds=5))

    changed = await change_job(ledger.db, ledger.env, job, PAUSE)
    report = await ledger.fire()

    assert report.locked == 0
    assert changed.superseded in (5, 6, 7)
    assert await ledger.decisions(job) == [("superseded", changed.superseded)]
    (version,) = await ledger.rows("SELECT state, reason FROM job_versions WHERE job_id = $1 AND version = 2", job)
    assert version == {"state": "paused", "reason": "vendor outage"}


@pytest.mark.covers("F38")
async def test_resuming_does_not_catch_up(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=Schedule(specs=(Cron("0 0 1 1 *"),)))
    await change_job(ledger.db, ledger.env, job, PAUSE)

    resumed = await change_job(ledger.db, ledger.env, job, Change(state=JobState.ACTIVE))

    assert (await ledger.fire()).locked == 0
    assert await ledger.value("SELECT next_fire_at FROM job_cursors") > resumed.effective_at


async def test_an_edit_moves_the_cursor_and_may_move_it_earlier(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=Schedule(specs=(Cron("0 0 1 1 *"),)))
    await ledger.execute("UPDATE job_cursors SET next_fire_at = clock_timestamp() + interval '1 year'")

    changed = await change_job(ledger.db, ledger.env, job, Change(definition=HOURLY))

    next_fire_at = await ledger.value("SELECT next_fire_at FROM job_cursors")
    assert next_fire_at == HOURLY.schedule.next_after(changed.effective_at)
    assert await ledger.value("SELECT name FROM jobs") == "edited"


@pytest.mark.parametrize(("most", "state"), [(1, "finished"), (2, "finished"), (3, "active")])
async def test_an_edit_counts_what_has_fired_against_the_most_there_may_be(
    ledger: Ledger, most: int, state: str
) -> None:
    (job,) = await ledger.given_jobs(due=timedelta(seconds=1))
    fired = (await ledger.fire()).runs
    await ledger.execute("UPDATE job_cursors SET fired = 2")
    every_hour = replace(HOURLY, schedule=replace(HOURLY.schedule, max_fires=most))

    await change_job(ledger.db, ledger.env, job, Change(definition=every_hour))
    await change_job(ledger.db, ledger.env, job, Change(definition=replace(every_hour, payload={"again": True})))

    assert fired >= 1
    assert await ledger.value("SELECT state FROM job_cursors") == state
    assert (await ledger.value("SELECT next_fire_at FROM job_cursors") is None) == (state == "finished")
    assert (await ledger.fire()).locked == 0


async def test_a_deleted_job_is_gone_and_its_waiting_runs_are_cancelled(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(due=timedelta(seconds=3), misfire=Misfire(most=3))
    await ledger.fire()

    await change_job(ledger.db, ledger.env, job, Change(state=JobState.DELETED))

    assert await ledger.value("SELECT count(*) FROM runs") == 0
    assert await ledger.rows("SELECT DISTINCT state FROM run_history") == [{"state": "cancelled"}]
    with pytest.raises(NotFound):
        await change_job(ledger.db, ledger.env, job, PAUSE)
    await ledger.check()


@pytest.mark.covers("F36")
async def test_the_second_of_two_editors_is_told(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs()
    await change_job(ledger.db, ledger.env, job, Change(definition=HOURLY, if_version=1))

    with pytest.raises(StaleVersion):
        await change_job(ledger.db, ledger.env, job, Change(definition=HOURLY, if_version=1))


async def test_a_finished_job_cannot_be_resumed_but_edited(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs()
    await ledger.execute("UPDATE job_cursors SET state = 'finished', next_fire_at = NULL")

    with pytest.raises(Conflict):
        await change_job(ledger.db, ledger.env, job, Change(state=JobState.ACTIVE))
    await change_job(ledger.db, ledger.env, job, Change(definition=HOURLY))

    assert await ledger.value("SELECT state FROM job_cursors") == "active"


@pytest.mark.covers("F34")
async def test_a_cancel_before_the_claim_means_no_run_and_after_it_a_request(ledger: Ledger) -> None:
    first, second = await ledger.given_jobs(2, misfire=LATEST)
    await ledger.fire()
    worker = await ledger.node()
    runs = {row["job_id"]: row["id"] for row in await ledger.rows("SELECT id, job_id FROM runs")}

    assert await cancel_run(ledger.db, runs[first]) == "cancelled"
    (claimed,) = await ledger.claim(worker)
    assert await cancel_run(ledger.db, runs[second]) == "running"
    report = await ledger.settle([claimed])

    assert claimed.job_id == second
    assert report.settled[claimed.id].state == "succeeded"  # a request, and the work was done
    with pytest.raises(NotFound):
        await cancel_run(ledger.db, runs[first])
    await ledger.check()


async def test_changes_that_wait_for_each_other_are_all_made(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(schedule=Schedule(specs=(Cron("0 0 1 1 *"),)))
    states = [JobState.PAUSED, JobState.ACTIVE] * 5

    changed = await asyncio.gather(
        *(
            change_job(ledger.db, ledger.env, job, Change(state=state)) for state in states
        )  # one row lock, ten who want it
    )

    assert sorted(each.version for each in changed) == list(range(2, 12))
