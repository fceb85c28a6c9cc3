"""The plan of a fire answers for every due slot, once, with bounded work."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Cron, Every, Schedule
from mainspring.domain.firing import (
    Decision,
    Disposition,
    DueJob,
    Going,
    Misfire,
    Misfires,
    Overlap,
    Overlaps,
    plan_fire,
)
from mainspring.domain.ids import JobId

START = datetime(2026, 11, 15, tzinfo=UTC)
JOB = JobId(UUID(int=7))
SCHEDULES = st.sampled_from(
    [
        Schedule(specs=(Cron("* * * * *"),)),
        Schedule(specs=(Every(timedelta(seconds=1)),)),
        Schedule(specs=(Cron("0 2 * * *"),), timezone="America/New_York"),
        Schedule(specs=(Cron("*/7 * * * *"), Every(timedelta(hours=1)))),
        Schedule(specs=(Cron("*/5 * * * *"),), max_fires=4),
    ]
)
MISFIRES = st.builds(
    Misfire,
    policy=st.sampled_from(Misfires),
    most=st.integers(1, 30),
    window=st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=2)),
    pace=st.sampled_from([timedelta(0), timedelta(seconds=3)]),
)
OVERLAPS = st.builds(Overlap, policy=st.sampled_from(Overlaps), most=st.none() | st.integers(1, 5))
GOING = st.builds(Going, released=st.integers(0, 3), held=st.integers(0, 3))
LATENESS = st.timedeltas(timedelta(0), timedelta(days=3))


def due_job(schedule: Schedule, **changes: object) -> DueJob:
    cursor = schedule.next_after(START)
    assert cursor is not None
    defaults: dict[str, object] = {
        "id": JOB,
        "schedule": schedule,
        "cursor": cursor,
        "fired": 0,
        "misfire": Misfire(),
        "overlap": Overlap(),
        "jitter": timedelta(0),
        "going": Going(),
    }
    return DueJob(**(defaults | changes))  # type: ignore[arg-type]  # a table of defaults, checked by the class


def dispositions(decisions: tuple[Decision, ...]) -> list[tuple[str, int]]:
    return [(decision.disposition.value, decision.covers) for decision in decisions]


@pytest.mark.covers("F28")
@given(SCHEDULES, MISFIRES, OVERLAPS, GOING, LATENESS)
def test_decisions_answer_for_every_due_slot_once(
    schedule: Schedule, misfire: Misfire, overlap: Overlap, going: Going, late: timedelta
) -> None:
    job = due_job(schedule, misfire=misfire, overlap=overlap, going=going)
    now = job.cursor + late

    plan = plan_fire(job, now=now)

    unlimited = Schedule(specs=schedule.specs, timezone=schedule.timezone)
    last = plan.last_slot + timedelta(milliseconds=1)
    assert sum(decision.covers for decision in plan.decisions) == unlimited.count(job.cursor, last)
    assert all(earlier.slot < later.first for earlier, later in pairwise(plan.decisions))
    assert all(unlimited.count(d.first, d.slot + timedelta(milliseconds=1)) == d.covers for d in plan.decisions)
    assert len(plan.decisions) <= misfire.most + 3
    assert plan.next_fire_at is None or plan.next_fire_at > now
    assert plan.next_fire_at is not None or schedule.max_fires is not None


@given(SCHEDULES, MISFIRES, OVERLAPS, GOING, LATENESS)
def test_at_most_one_run_of_an_exclusive_job_is_released(
    schedule: Schedule, misfire: Misfire, overlap: Overlap, going: Going, late: timedelta
) -> None:
    job = due_job(schedule, misfire=misfire, overlap=overlap, going=going)

    plan = plan_fire(job, now=job.cursor + late)

    fired = [decision for decision in plan.decisions if decision.disposition is Disposition.FIRED]
    released = [decision for decision in fired if not decision.held]
    assert len(fired) == plan.fired
    if overlap.exclusive:
        assert len(released) + min(going.released + going.held, 1) <= 1 or not released
    else:
        assert released == fired
    assert all(d.ready_at is not None and d.ready_at >= d.slot for d in fired)


@pytest.mark.covers("F28")
def test_ten_days_of_a_per_second_job_are_a_hundred_runs_and_one_stretch() -> None:
    job = due_job(Schedule(specs=(Every(timedelta(seconds=1)),)))

    plan = plan_fire(job, now=job.cursor + timedelta(days=10))

    assert len(plan.decisions) == 101
    assert dispositions(plan.decisions)[0] == ("coalesced", 864_001 - 100)
    assert plan.fired == 100


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        (Misfire(), [("fired", 1)] * 4),
        (Misfire(most=2), [("coalesced", 2), ("fired", 1), ("fired", 1)]),
        (Misfire(policy=Misfires.LATEST), [("coalesced", 3), ("fired", 1)]),
        (Misfire(policy=Misfires.SKIP), [("skipped_misfire", 4)]),
        (Misfire(window=timedelta(minutes=90)), [("expired", 2), ("fired", 1), ("fired", 1)]),
        (Misfire(window=timedelta(minutes=10)), [("expired", 4)]),
    ],
)
def test_an_outage_is_caught_up_by_policy(misfire: Misfire, expected: list[tuple[str, int]]) -> None:
    job = due_job(Schedule(specs=(Cron("0 * * * *"),)), misfire=misfire)

    plan = plan_fire(job, now=job.cursor + timedelta(hours=3, minutes=20))

    assert dispositions(plan.decisions) == expected


@pytest.mark.parametrize(
    ("overlap", "going", "expected"),
    [
        (Overlap(), Going(), [("fired", False)]),
        (Overlap(), Going(released=1), [("skipped_overlap", False)]),
        (Overlap(policy=Overlaps.QUEUE), Going(released=1), [("fired", True)]),
        (Overlap(policy=Overlaps.QUEUE, most=1), Going(released=1), [("fired", True)]),
        (Overlap(policy=Overlaps.QUEUE, most=1), Going(released=1, held=1), [("skipped_overlap", False)]),
        (Overlap(policy=Overlaps.ALLOW), Going(released=9), [("fired", False)]),
        (Overlap(policy=Overlaps.ALLOW, most=2), Going(released=2), [("skipped_overlap", False)]),
        (Overlap(policy=Overlaps.CANCEL_OTHER), Going(released=1), [("fired", True)]),
    ],
)
def test_a_slot_meets_a_run_that_is_still_going(
    overlap: Overlap, going: Going, expected: list[tuple[str, bool]]
) -> None:
    job = due_job(Schedule(specs=(Cron("0 * * * *"),)), overlap=overlap, going=going)

    plan = plan_fire(job, now=job.cursor)

    assert [(decision.disposition.value, decision.held) for decision in plan.decisions] == expected
    assert plan.cancel_going is (overlap.policy is Overlaps.CANCEL_OTHER)


@pytest.mark.covers("D18")
def test_the_next_slot_follows_the_schedule_however_late_the_fire() -> None:
    job = due_job(Schedule(specs=(Every(timedelta(minutes=10)),)))

    plan = plan_fire(job, now=job.cursor + timedelta(minutes=7, seconds=13))

    assert plan.next_fire_at == job.cursor + timedelta(minutes=10)


@pytest.mark.covers("D22")
def test_jitter_delays_the_start_and_leaves_the_slot() -> None:
    job = due_job(Schedule(specs=(Cron("0 * * * *"),)), jitter=timedelta(minutes=5))

    (decision,) = plan_fire(job, now=job.cursor).decisions

    assert decision.slot == job.cursor
    assert decision.ready_at is not None
    assert timedelta(0) < decision.ready_at - decision.slot < timedelta(minutes=5)


def test_the_last_fire_allowed_ends_the_job() -> None:
    schedule = Schedule(specs=(Cron("0 * * * *"),), max_fires=5)
    job = due_job(schedule, fired=3)

    plan = plan_fire(job, now=job.cursor + timedelta(hours=9))

    assert plan.fired == 2
    assert plan.next_fire_at is None
    assert plan.last_slot == [d.slot for d in plan.decisions if d.disposition is Disposition.FIRED][-1]
