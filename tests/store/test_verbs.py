"""The four verbs on real Postgres, one process at a time."""

from datetime import timedelta

import asyncpg
import pytest

from mainspring import Every, Schedule
from mainspring.domain.firing import Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.retry import Backoff, RetryPolicy
from mainspring.domain.settling import ErrorInfo, Failed, GivenBack, OnLoss, Snoozed
from mainspring.store import nodes
from mainspring.store.recover import recover_lost, recover_stranded

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

BROKEN = Failed(error=ErrorInfo(type="ValueError", message="no"))
LATEST = Misfire(policy=Misfires.LATEST)


async def test_a_due_job_fires_once_runs_and_succeeds(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(misfire=LATEST)
    worker = await ledger.node()

    report = await ledger.fire()
    (run,) = await ledger.claim(worker)
    settled = await ledger.settle([run])

    assert (report.locked, report.runs) == (1, 1)
    assert (run.job_id, run.attempt, run.kind) == (job, 1, "schedule")
    assert settled.settled[run.id].state == "succeeded"
    assert await ledger.value("SELECT state FROM run_history WHERE id = $1", run.id) == "succeeded"
    assert await ledger.value("SELECT count(*) FROM runs") == 0
    await ledger.check()


async def test_nothing_due_fires_nothing_and_says_how_long_to_sleep(ledger: Ledger) -> None:
    await ledger.given_jobs()
    await ledger.execute("UPDATE job_cursors SET next_fire_at = clock_timestamp() + interval '1 hour'")

    report = await ledger.fire()

    assert (report.locked, report.runs) == (0, 0)
    assert report.next_due_in is not None
    assert timedelta(minutes=59) < report.next_due_in <= timedelta(hours=1)


async def test_an_outage_is_decided_by_policy_and_every_slot_is_accounted_for(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(due=timedelta(seconds=30), misfire=Misfire(most=3))

    await ledger.fire()

    decisions = await ledger.decisions(job)
    assert [name for name, _ in decisions] == ["coalesced", "fired", "fired", "fired"]
    assert decisions[0][1] in (28, 29)  # a slot more if the second turned meanwhile
    await ledger.check()


@pytest.mark.covers("D27", "F69")
async def test_a_busy_exclusive_job_skips_and_records_it(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(misfire=LATEST)
    await ledger.fire()

    await ledger.make_due(job)
    report = await ledger.fire()

    assert (report.locked, report.runs) == (1, 0)
    assert (await ledger.decisions(job))[-1] == ("skipped_overlap", 1)
    await ledger.check()


async def test_a_catch_up_of_an_exclusive_job_runs_one_after_another(ledger: Ledger) -> None:
    await ledger.given_jobs(due=timedelta(seconds=4), misfire=Misfire(most=3))
    worker = await ledger.node()
    await ledger.fire()

    slots = []
    for _ in range(3):
        (run,) = await ledger.claim(worker)
        assert await ledger.claim(worker) == []  # the others are held
        slots.append(run.slot)
        await ledger.settle([run])

    assert slots == sorted(slots)
    assert await ledger.claim(worker) == []
    await ledger.check()


async def test_a_queueing_job_holds_its_next_run_until_the_lane_is_free(ledger: Ledger) -> None:
    queueing = Overlap(policy=Overlaps.QUEUE, most=1)
    (job,) = await ledger.given_jobs(misfire=LATEST, overlap=queueing)
    worker = await ledger.node()
    await ledger.fire()
    (run,) = await ledger.claim(worker)

    await ledger.make_due(job)
    await ledger.fire()
    held = await ledger.rows("SELECT state, held, lane FROM runs WHERE job_id = $1 AND id <> $2", job, run.id)
    report = await ledger.settle([run])

    assert held == [{"state": "held", "held": True, "lane": None}]
    assert report.released == 1
    assert len(await ledger.claim(worker)) == 1
    await ledger.check()


async def test_a_failure_waits_for_its_next_attempt_and_then_dies_with_its_reason(ledger: Ledger) -> None:
    retry = RetryPolicy(kind=Backoff.IMMEDIATE, attempts=2)
    await ledger.given_jobs(misfire=LATEST, retry=retry)
    worker = await ledger.node()
    await ledger.fire()

    (first,) = await ledger.claim(worker)
    waiting = await ledger.settle([first], BROKEN)
    (second,) = await ledger.claim(worker)
    dead = await ledger.settle([second], BROKEN)

    assert waiting.settled[first.id].state == "waiting"
    assert (second.id, second.attempt, second.failures) == (first.id, 2, 1)
    assert dead.settled[second.id].state == "dead"
    (letter,) = await ledger.rows("SELECT reason, error FROM dead_letters WHERE run_id = $1", first.id)
    assert letter["reason"] == "exhausted"
    assert "ValueError" in letter["error"]
    outcomes = await ledger.rows("SELECT attempt, outcome FROM audit_attempts ORDER BY attempt")
    assert outcomes == [{"attempt": 1, "outcome": "failed"}, {"attempt": 2, "outcome": "dead"}]
    await ledger.check()


@pytest.mark.parametrize("outcome", [GivenBack(), Snoozed(timedelta(0))], ids=["given back", "snoozed"])
async def test_a_polite_stop_or_a_snooze_burns_no_budget(ledger: Ledger, outcome: GivenBack | Snoozed) -> None:
    await ledger.given_jobs(misfire=LATEST, retry=RetryPolicy(kind=Backoff.NONE))
    worker = await ledger.node()
    await ledger.fire()

    for attempt in range(1, 4):
        (run,) = await ledger.claim(worker)
        assert (run.attempt, run.failures) == (attempt, 0)
        await ledger.settle([run], outcome)

    await ledger.check()


@pytest.mark.covers("D25", "F57")
async def test_the_late_result_of_a_replaced_attempt_is_refused_and_recorded(ledger: Ledger) -> None:
    await ledger.given_jobs(misfire=LATEST)
    zombie, successor = await ledger.node(), await ledger.node()
    await ledger.fire()
    (old,) = await ledger.claim(zombie)
    await nodes.retire(ledger.db, zombie)
    await recover_lost(ledger.db, ledger.definitions, ledger.env)
    (new,) = await ledger.claim(successor)

    late = await ledger.settle([old])
    accepted = await ledger.settle([new])

    assert (new.id, new.attempt) == (old.id, 2)
    assert late.late == (old.id,)
    assert late.settled == {}
    assert accepted.settled[new.id].state == "succeeded"
    (recorded,) = await ledger.rows("SELECT attempt, outcome FROM late_results")
    assert recorded == {"attempt": 1, "outcome": "succeeded"}
    assert await ledger.value("SELECT worker FROM run_history") == successor
    await ledger.check()


@pytest.mark.covers("F56")
async def test_a_run_that_may_not_run_twice_is_dead_when_its_worker_is(ledger: Ledger) -> None:
    await ledger.given_jobs(misfire=LATEST, on_loss=OnLoss.FAIL)
    worker = await ledger.node()
    await ledger.fire()
    (run,) = await ledger.claim(worker)
    await nodes.retire(ledger.db, worker)

    await recover_lost(ledger.db, ledger.definitions, ledger.env)

    (row,) = await ledger.rows("SELECT state, reason FROM run_history WHERE id = $1", run.id)
    assert row == {"state": "dead", "reason": "lost"}


async def test_a_stranded_held_run_is_released(ledger: Ledger) -> None:
    await ledger.given_jobs(due=timedelta(seconds=4), misfire=Misfire(most=2))
    await ledger.fire()
    await ledger.execute("DELETE FROM runs WHERE lane IS NOT NULL")

    assert await recover_stranded(ledger.db) == 1
    assert await recover_stranded(ledger.db) == 0


@pytest.mark.covers("F15")
async def test_a_job_that_has_nothing_left_to_fire_is_quarantined_alone(ledger: Ledger) -> None:
    """An edit does not leave one like this; whatever else does must not stop the others."""
    (odd,) = await ledger.given_jobs(schedule=Schedule(specs=(Every(timedelta(seconds=1)),), max_fires=3))
    await ledger.execute("UPDATE job_cursors SET fired = 7")
    (other,) = await ledger.given_jobs()

    report = await ledger.fire()

    assert report.quarantined == (odd,)
    assert await ledger.value("SELECT count(*) FROM runs WHERE job_id = $1", other) >= 1


@pytest.mark.covers("F15")
async def test_a_job_whose_plan_raises_is_quarantined_alone(ledger: Ledger) -> None:
    broken, *others = await ledger.given_jobs(3, misfire=LATEST)
    schedule = '{"specs": [{"every": "1s"}], "rules": 1, "exclude": [{"every": "1s"}]}'
    await ledger.execute(
        "UPDATE job_versions SET definition = jsonb_set(definition, '{schedule}', $2::jsonb) WHERE job_id = $1",
        broken,
        schedule,
    )

    report = await ledger.fire()

    assert report.quarantined == (broken,)
    assert report.runs == len(others)
    assert await ledger.value("SELECT state FROM job_cursors WHERE job_id = $1", broken) == "quarantined"


async def test_higher_priorities_go_first_and_age_lets_nobody_starve(ledger: Ledger) -> None:
    (urgent,) = await ledger.given_jobs(misfire=LATEST, priority=10)
    (old,) = await ledger.given_jobs(misfire=LATEST)
    (plain,) = await ledger.given_jobs(misfire=LATEST)
    await ledger.fire()
    await ledger.execute("UPDATE runs SET rank = rank - interval '1 hour' WHERE job_id = $1", old)
    worker = await ledger.node()

    order = [(await ledger.claim(worker, limit=1))[0].job_id for _ in range(3)]

    assert order == [old, urgent, plain]


@pytest.mark.covers("F91")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE job_cursors SET last_slot = last_slot - interval '1 second'",
        "UPDATE job_cursors SET last_slot = NULL",
        "UPDATE job_cursors SET next_fire_at = last_slot",
        "UPDATE job_cursors SET next_fire_at = NULL",
        "UPDATE runs SET state = 'running'",
        "UPDATE runs SET state = 'succeeded'",
        "UPDATE runs SET held = true",
        "INSERT INTO runs SELECT (r).* FROM (SELECT r FROM runs r) AS again",
    ],
)
async def test_the_database_itself_refuses_what_must_not_be(ledger: Ledger, statement: str) -> None:
    await ledger.given_jobs(misfire=LATEST)
    await ledger.fire()

    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await ledger.execute(statement)


@pytest.mark.covers("D17")
async def test_overlapping_jobs_run_in_parallel(ledger: Ledger) -> None:
    await ledger.given_jobs(due=timedelta(seconds=3), overlap=Overlap(policy=Overlaps.ALLOW), misfire=Misfire(most=3))
    worker = await ledger.node()

    await ledger.fire()

    assert len(await ledger.claim(worker)) == 3
