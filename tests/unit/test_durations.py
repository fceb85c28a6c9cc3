"""Lengths of time: how long one may be, and what becomes of those that were longer."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import Cron, Every, Schedule
from mainspring.domain.durations import LAST_INSTANT, LONGEST, later, parse_duration
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.firing import MOST_CAUGHT_UP, DueJob, Going, Misfire, Overlap, plan_fire
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job, expiry, job_from_json, job_to_json
from mainspring.domain.retry import RetryPolicy
from mainspring.environment import SystemEnvironment

SLOT = datetime(2026, 11, 16, 12, tzinfo=UTC)
TOO_LONG = timedelta(days=3651)
PLAIN = Job(name="job", task="noop", schedule=Schedule(specs=(Cron("* * * * *"),)))


@pytest.mark.parametrize("text", ["3651d", "3650d1ms", "3650000d", "999999999999999w"])
def test_a_duration_of_more_than_ten_years_is_refused_with_its_field_and_the_bound(text: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_duration(text, field="deadline")

    assert (refusal.value.field, refusal.value.value) == ("deadline", text)
    assert text[:10] in refusal.value.reason
    assert "3650d" in refusal.value.allowed
    assert parse_duration("3650d", field="deadline") == LONGEST


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        *((name, {name: TOO_LONG}) for name in ("deadline", "wait_timeout", "run_timeout", "estimated_duration")),
        *((name, {name: timedelta(0)}) for name in ("deadline", "wait_timeout", "run_timeout", "estimated_duration")),
        ("jitter", {"jitter": TOO_LONG}),
        ("jitter", {"jitter": timedelta(seconds=-1)}),
        ("misfire.window", {"misfire": Misfire(window=TOO_LONG)}),
        ("misfire.window", {"misfire": Misfire(window=timedelta(0))}),
        ("misfire.pace", {"misfire": Misfire(pace=TOO_LONG)}),
        ("misfire.pace", {"misfire": Misfire(pace=timedelta(seconds=-1))}),
    ],
)
def test_a_job_refuses_lengths_that_are_out_of_bounds(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        replace(PLAIN, **changes)

    assert refusal.value.field == field
    assert "3650d" in refusal.value.allowed


@pytest.mark.parametrize("name", ["base", "cap", "max_age"])
def test_a_retry_policy_refuses_lengths_that_are_out_of_bounds(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        RetryPolicy.from_json({name: "3650000d"})

    assert refusal.value.field == f"retry.{name}"


@pytest.mark.parametrize(
    "stored",
    [
        {"deadline": "3650000d"},
        {"wait_timeout": "3650000d", "run_timeout": "3650000d", "jitter": "3650000d"},
        {"misfire": {"window": "3650000d", "pace": "3650000d"}},
    ],
)
def test_a_definition_from_before_there_was_a_bound_is_read_with_the_longest(stored: dict[str, Any]) -> None:
    job = job_from_json({**job_to_json(PLAIN), **stored})

    assert LONGEST in (job.deadline, job.wait_timeout, job.misfire.window)
    assert job_from_json(job_to_json(job)) == job


def test_a_stored_interval_is_read_as_it_is_since_it_names_slots() -> None:
    centuries = replace(PLAIN, schedule=Schedule(specs=(Every(timedelta(days=100_000)),)))

    assert job_from_json(job_to_json(centuries)) == centuries


@pytest.mark.parametrize("length", [timedelta(days=3_650_000), timedelta.max])
def test_sums_end_with_the_calendar(length: timedelta) -> None:
    job = replace(PLAIN)
    object.__setattr__(job, "deadline", length)
    object.__setattr__(job, "wait_timeout", length)

    assert later(SLOT, length) == LAST_INSTANT
    assert expiry(job, slot=SLOT, ready_at=SLOT) == LAST_INSTANT


def test_a_catch_up_is_bounded_whatever_the_job_says() -> None:
    every_second = Schedule(specs=(Every(timedelta(seconds=1)),))
    due = DueJob(
        id=JobId(SystemEnvironment().new_id()),
        schedule=every_second,
        cursor=SLOT - timedelta(days=1),
        fired=0,
        misfire=Misfire(most=1_000_000, pace=LONGEST, window=timedelta.max),
        overlap=Overlap(),
        jitter=timedelta(0),
        going=Going(),
    )

    plan = plan_fire(due, now=SLOT)

    assert plan.fired == MOST_CAUGHT_UP
    assert sum(decision.covers for decision in plan.decisions) == 86_401
    assert plan.decisions[-1].ready_at == LAST_INSTANT
