"""What a retry policy allows, and what becomes of a run when an attempt ends: case by case."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.retry import LONGEST_WAIT, Backoff, Jitter, RetryPolicy
from mainspring.domain.run import DeadReason, Event, State
from mainspring.domain.settling import (
    LONGEST_MESSAGE,
    LONGEST_TRACEBACK,
    Cancelled,
    Discarded,
    ErrorInfo,
    Failed,
    GivenBack,
    Lost,
    OnLoss,
    Outcome,
    RunningRun,
    Settlement,
    Snoozed,
    Succeeded,
    TimedOut,
    plan_settle,
)

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
STEADY = RetryPolicy(kind=Backoff.FIXED, base=MINUTE)
RUN = RunningRun(
    id="0195501d-8000-8000-8000-000000000000",
    attempt=1,
    failures=0,
    first_due=NOW - MINUTE,
    deadline=None,
    retry=STEADY,
    on_loss=OnLoss.RETRY,
    cancel_requested=False,
)
BROKEN = Failed(error=ErrorInfo(type="app.mail.Bounced", message="no such box", bases=("app.mail.MailError",)))
NOT_SUCCEEDED: tuple[Outcome, ...] = (
    BROKEN,
    TimedOut(),
    Discarded("no such day"),
    Snoozed(MINUTE),
    GivenBack(),
    Lost(),
    Cancelled(),
)


def waits(policy: RetryPolicy, count: int = 5) -> list[float]:
    return [policy.delay_after(failures, seed="a").total_seconds() for failures in range(1, count + 1)]


def settlement(
    event: Event, outcome: str, *, failures: int = 0, reason: DeadReason | None = None, next_at: datetime | None = None
) -> Settlement:
    return Settlement(event=event, reason=reason, failures=failures, next_at=next_at, attempt_outcome=outcome)


# Retry policies


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetryPolicy(kind=Backoff.IMMEDIATE), [0, 0, 0, 0, 0]),
        (RetryPolicy(kind=Backoff.FIXED, base=10 * SECOND), [10, 10, 10, 10, 10]),
        (RetryPolicy(kind=Backoff.LINEAR, base=10 * SECOND), [10, 20, 30, 40, 50]),
        (RetryPolicy(kind=Backoff.LINEAR, base=10 * SECOND, cap=25 * SECOND), [10, 20, 25, 25, 25]),
        (RetryPolicy(base=10 * SECOND, jitter=Jitter.NONE), [10, 20, 40, 80, 160]),
        (RetryPolicy(base=10 * SECOND, factor=3, cap=MINUTE, jitter=Jitter.NONE), [10, 30, 60, 60, 60]),
        (RetryPolicy(base=10 * SECOND, factor=1.5, jitter=Jitter.NONE), [10, 15, 22.5, 33.75, 50.625]),
        (RetryPolicy(kind=Backoff.LIST, delays=(SECOND, MINUTE)), [1, 60, 60, 60, 60]),
        (RetryPolicy(kind=Backoff.LIST, delays=(timedelta(0), 2 * HOUR)), [0, 7200, 7200, 7200, 7200]),
    ],
)
def test_waits_grow_as_their_kind_says(policy: RetryPolicy, expected: list[float]) -> None:
    assert waits(policy) == expected


def test_the_default_is_five_attempts_from_30_seconds_to_an_hour_fully_jittered() -> None:
    policy = RetryPolicy()

    assert (policy.budget, policy.longest) == (5, HOUR)
    assert waits(replace(policy, jitter=Jitter.NONE), 9) == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert waits(policy) == waits(replace(policy, jitter=Jitter.FULL))


def test_waits_that_were_written_out_are_kept_as_written_unless_jitter_is_asked_for() -> None:
    assert waits(STEADY, 3) == [60, 60, 60]
    assert waits(replace(STEADY, jitter=Jitter.FULL), 3) != [60, 60, 60]


def test_a_wait_too_large_to_compute_is_the_longest() -> None:
    policy = RetryPolicy(factor=100, attempts=1000, jitter=Jitter.NONE)

    assert policy.delay_after(999, seed="a") == HOUR


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, MINUTE),
        (timedelta(0), MINUTE),
        (-HOUR, MINUTE),
        (SECOND, MINUTE),
        (10 * MINUTE, 10 * MINUTE),
        (timedelta(minutes=10, microseconds=1), timedelta(minutes=10, milliseconds=1)),
        (24 * HOUR, HOUR),
        (timedelta.max, HOUR),
    ],
)
def test_retry_after_lengthens_a_wait_up_to_the_cap(asked: timedelta | None, expected: timedelta) -> None:
    assert STEADY.delay_after(1, seed="a", asked=asked) == expected


@pytest.mark.covers("F65")
@pytest.mark.parametrize(
    ("jitter", "failures", "low", "high"),
    [
        (Jitter.FULL, 1, 0, 30),
        (Jitter.FULL, 50, 0, 3600),
        (Jitter.QUARTER, 1, 22.5, 30),
        (Jitter.QUARTER, 50, 2700, 3600),
    ],
)
def test_runs_that_failed_together_come_back_apart_also_at_the_cap(
    jitter: Jitter, failures: int, low: float, high: float
) -> None:
    policy = RetryPolicy(attempts=100, jitter=jitter)

    seconds = [policy.delay_after(failures, seed=f"run {n}").total_seconds() for n in range(2000)]

    tenths = [0] * 10
    for wait in seconds:
        tenths[min(int((wait - low) / (high - low) * 10), 9)] += 1
    assert low <= min(seconds) <= max(seconds) <= high
    assert all(150 <= tenth <= 250 for tenth in tenths), tenths


def test_a_run_unlucky_once_draws_anew_after_its_next_failure() -> None:
    policy = RetryPolicy(kind=Backoff.FIXED, base=HOUR, jitter=Jitter.FULL)

    assert len(set(waits(policy))) == 5


@pytest.mark.parametrize(
    ("not_retried", "reason"),
    [
        ((), None),
        (("Bounced",), DeadReason.REFUSED),
        (("app.mail.Bounced",), DeadReason.REFUSED),
        (("MailError",), DeadReason.REFUSED),
        (("app.mail.MailError",), DeadReason.REFUSED),
        (("TimeoutError", "MailError"), DeadReason.REFUSED),
        (("mail.Bounced",), None),
        (("other.Bounced",), None),
        (("bounced",), None),
        (("Bounce",), None),
    ],
)
def test_an_error_is_told_by_its_name_or_a_base_of_it(not_retried: tuple[str, ...], reason: DeadReason | None) -> None:
    run = replace(RUN, retry=replace(STEADY, not_retried=not_retried))

    planned = plan_settle(run, BROKEN, now=NOW)

    assert planned.event is (Event.EXHAUST if reason else Event.FAIL)
    assert planned.reason is reason


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ("30s..1h", RetryPolicy(base=30 * SECOND, cap=HOUR)),
        ("30S .. 1h30m", RetryPolicy(base=30 * SECOND, cap=HOUR + 30 * MINUTE)),
        ("90s", RetryPolicy(kind=Backoff.FIXED, base=90 * SECOND)),
        ("0s, 1m,10m", RetryPolicy(kind=Backoff.LIST, delays=(timedelta(0), MINUTE, 10 * MINUTE))),
        ("none", RetryPolicy(kind=Backoff.NONE)),
        (" Immediate ", RetryPolicy(kind=Backoff.IMMEDIATE)),
    ],
)
def test_backoff_reads_as_people_write_it(backoff: str, expected: RetryPolicy) -> None:
    assert RetryPolicy(backoff=backoff) == expected
    assert RetryPolicy(backoff=backoff, attempts=9, jitter=Jitter.QUARTER) == replace(
        expected, attempts=9, jitter=Jitter.QUARTER
    )


@pytest.mark.parametrize("backoff", ["", "soon", "30s..", "..1h", "30s..1h..2h", "1m,,2m", "-3s", "0s", "linear"])
def test_a_backoff_that_cannot_be_read_is_refused_by_name(backoff: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        RetryPolicy(backoff=backoff)

    assert refused.value.field in {"retry.backoff", "retry.base"}


@pytest.mark.parametrize(
    ("policy", "document"),
    [
        (RetryPolicy(), {}),
        (RetryPolicy(attempts=1), {"attempts": 1}),
        (
            RetryPolicy(kind=Backoff.LINEAR, base=90 * SECOND, cap=HOUR, jitter=Jitter.QUARTER, max_age=24 * HOUR),
            {"kind": "linear", "base": "1m30s", "cap": "1h", "jitter": "quarter", "max_age": "1d"},
        ),
        (
            RetryPolicy(kind=Backoff.LIST, delays=(timedelta(0), MINUTE), not_retried=("ValueError",)),
            {"kind": "list", "delays": ["0s", "1m"], "not_retried": ["ValueError"]},
        ),
        (RetryPolicy(factor=1.5), {"factor": 1.5}),
    ],
)
def test_a_policy_is_written_without_its_defaults_and_read_back(
    policy: RetryPolicy, document: dict[str, object]
) -> None:
    assert policy.to_json() == document
    assert RetryPolicy.from_json(document) == policy


def test_null_stands_for_the_default() -> None:
    assert RetryPolicy.from_json({"cap": None, "base": None, "not_retried": None}) == RetryPolicy()


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"atempts": 3}, "retry.atempts"),
        ({"kind": "quadratic"}, "retry.kind"),
        ({"kind": 3}, "retry.kind"),
        ({"jitter": "half"}, "retry.jitter"),
        ({"attempts": 0}, "retry.attempts"),
        ({"attempts": 1001}, "retry.attempts"),
        ({"attempts": True}, "retry.attempts"),
        ({"attempts": "5"}, "retry.attempts"),
        ({"attempts": 2.0}, "retry.attempts"),
        ({"base": 30}, "retry.base"),
        ({"base": "0s"}, "retry.base"),
        ({"base": "366d"}, "retry.base"),
        ({"cap": "soon"}, "retry.cap"),
        ({"cap": "10s"}, "retry.cap"),
        ({"kind": "list", "delays": ["1m"], "cap": "30s"}, "retry.cap"),
        ({"factor": 0.5}, "retry.factor"),
        ({"factor": 101}, "retry.factor"),
        ({"factor": "2"}, "retry.factor"),
        ({"factor": float("nan")}, "retry.factor"),
        ({"delays": ["1m"]}, "retry.delays"),
        ({"kind": "list"}, "retry.delays"),
        ({"kind": "list", "delays": "1m"}, "retry.delays"),
        ({"kind": "list", "delays": [60]}, "retry.delays"),
        ({"kind": "list", "delays": ["1m"] * 5}, "retry.delays"),
        ({"kind": "list", "delays": ["1m"], "attempts": 1}, "retry.delays"),
        ({"kind": "list", "delays": ["366d"]}, "retry.delays"),
        ({"max_age": "0s"}, "retry.max_age"),
        ({"max_age": {}}, "retry.max_age"),
        ({"not_retried": "ValueError"}, "retry.not_retried"),
        ({"not_retried": [""]}, "retry.not_retried"),
        ({"not_retried": [3]}, "retry.not_retried"),
        ({"not_retried": ["E"] * 101}, "retry.not_retried"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_field(document: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        RetryPolicy.from_json(document)

    assert refused.value.field == field


def test_a_wait_finer_than_a_millisecond_is_refused_since_it_could_not_be_written_down() -> None:
    with pytest.raises(InvalidRequest) as refused:
        RetryPolicy(base=timedelta(microseconds=1500))

    assert refused.value.field == "retry.base"


# Settling


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Succeeded({"rows": 3}), settlement(Event.SUCCEED, "succeeded")),
        (BROKEN, settlement(Event.FAIL, "failed", failures=1, next_at=NOW + MINUTE)),
        (
            replace(BROKEN, retry_after=5 * MINUTE),
            settlement(Event.FAIL, "failed", failures=1, next_at=NOW + 5 * MINUTE),
        ),
        (Discarded("no such day"), settlement(Event.EXHAUST, "discarded", reason=DeadReason.REFUSED)),
        (Snoozed(10 * MINUTE), settlement(Event.SNOOZE, "snoozed", next_at=NOW + 10 * MINUTE)),
        (Snoozed(-MINUTE), settlement(Event.SNOOZE, "snoozed", next_at=NOW)),
        (Snoozed(timedelta.max), settlement(Event.SNOOZE, "snoozed", next_at=NOW + LONGEST_WAIT)),
        (GivenBack(), settlement(Event.GIVE_BACK, "given_back")),
        (Cancelled(), settlement(Event.CANCEL, "cancelled")),
    ],
)
def test_each_end_of_an_attempt_has_its_consequence(outcome: Outcome, expected: Settlement) -> None:
    assert plan_settle(RUN, outcome, now=NOW) == expected


@pytest.mark.covers("F60")
def test_a_task_that_hung_until_its_timeout_has_failed() -> None:
    planned = plan_settle(RUN, TimedOut(), now=NOW)

    assert planned == settlement(Event.FAIL, "timed_out", failures=1, next_at=NOW + MINUTE)
    assert planned.state is State.WAITING


@pytest.mark.covers("F56")
def test_a_lost_worker_puts_its_run_back_in_the_queue_at_once() -> None:
    planned = plan_settle(RUN, Lost(), now=NOW)

    assert planned == settlement(Event.LOSE, "lost", failures=1)
    assert planned.state is State.QUEUED


@pytest.mark.covers("F56")
def test_a_run_that_may_not_start_twice_is_dead_with_its_worker() -> None:
    planned = plan_settle(replace(RUN, on_loss=OnLoss.FAIL), Lost(), now=NOW)

    assert planned == settlement(Event.EXHAUST, "lost", failures=1, reason=DeadReason.LOST)
    assert planned.state is State.DEAD


def test_on_loss_fail_says_nothing_about_failures() -> None:
    assert plan_settle(replace(RUN, on_loss=OnLoss.FAIL), BROKEN, now=NOW).event is Event.FAIL


def test_a_job_without_retries_outlives_the_loss_of_a_machine_or_two() -> None:
    run = replace(RUN, retry=RetryPolicy(kind=Backoff.NONE))

    events = [plan_settle(replace(run, failures=failures), Lost(), now=NOW).event for failures in range(3)]

    assert events == [Event.LOSE, Event.LOSE, Event.EXHAUST]
    assert plan_settle(run, BROKEN, now=NOW).event is Event.EXHAUST


@pytest.mark.covers("F124")
def test_a_task_that_kills_every_worker_is_dead_after_its_budget() -> None:
    losses = [plan_settle(replace(RUN, failures=failures), Lost(), now=NOW) for failures in range(5)]

    assert [planned.failures for planned in losses] == [1, 2, 3, 4, 5]
    assert [planned.event for planned in losses] == [Event.LOSE] * 4 + [Event.EXHAUST]
    assert losses[-1].reason is DeadReason.LOST


@pytest.mark.parametrize(
    ("retry", "failures", "event"),
    [
        (RetryPolicy(kind=Backoff.NONE), 0, Event.EXHAUST),
        (replace(STEADY, attempts=1), 0, Event.EXHAUST),
        (replace(STEADY, attempts=2), 0, Event.FAIL),
        (replace(STEADY, attempts=2), 1, Event.EXHAUST),
        (STEADY, 3, Event.FAIL),
        (STEADY, 4, Event.EXHAUST),
        (STEADY, 40, Event.EXHAUST),  # the budget was lowered meanwhile
    ],
)
def test_the_budget_counts_every_attempt_that_may_fail(retry: RetryPolicy, failures: int, event: Event) -> None:
    planned = plan_settle(replace(RUN, retry=retry, failures=failures), BROKEN, now=NOW)

    assert planned.event is event
    assert planned.reason is (DeadReason.EXHAUSTED if event is Event.EXHAUST else None)


@pytest.mark.parametrize("outcome", [BROKEN, TimedOut(), Lost()])
def test_a_run_past_its_maximum_age_is_not_retried(outcome: Outcome) -> None:
    reason = DeadReason.LOST if outcome == Lost() else DeadReason.EXHAUSTED
    ends_at = NOW - RUN.first_due + (timedelta(0) if outcome == Lost() else MINUTE)
    young = replace(RUN, retry=replace(STEADY, max_age=ends_at))
    old = replace(RUN, retry=replace(STEADY, max_age=ends_at - SECOND))

    assert plan_settle(young, outcome, now=NOW).reason is None
    assert plan_settle(old, outcome, now=NOW).reason is reason


@pytest.mark.parametrize("outcome", [Snoozed(HOUR), GivenBack()])
def test_maximum_age_is_about_retries_and_leaves_the_rest_alone(outcome: Outcome) -> None:
    run = replace(RUN, retry=replace(STEADY, max_age=SECOND))

    assert plan_settle(run, outcome, now=NOW).reason is None


@pytest.mark.parametrize(
    ("outcome", "starts"),
    [
        (BROKEN, NOW + MINUTE),
        (TimedOut(), NOW + MINUTE),
        (Snoozed(HOUR), NOW + HOUR),
        (GivenBack(), NOW),
        (Lost(), NOW),
    ],
)
def test_an_attempt_that_could_not_start_before_the_deadline_is_not_waited_for(
    outcome: Outcome, starts: datetime
) -> None:
    in_time = plan_settle(replace(RUN, deadline=starts + SECOND), outcome, now=NOW)
    too_late = plan_settle(replace(RUN, deadline=starts), outcome, now=NOW)

    assert in_time.reason is None
    assert (too_late.event, too_late.reason, too_late.next_at) == (Event.EXHAUST, DeadReason.EXPIRED, None)
    assert too_late.failures == in_time.failures


def test_the_last_failure_is_told_as_such_even_past_the_deadline() -> None:
    run = replace(RUN, failures=4, deadline=NOW - HOUR)

    assert plan_settle(run, BROKEN, now=NOW).reason is DeadReason.EXHAUSTED
    assert plan_settle(run, Lost(), now=NOW).reason is DeadReason.LOST


@pytest.mark.covers("F35")
@pytest.mark.parametrize("run", [RUN, replace(RUN, cancel_requested=True), replace(RUN, deadline=NOW - HOUR)])
def test_work_that_was_done_is_done_whatever_was_asked_meanwhile(run: RunningRun) -> None:
    planned = plan_settle(run, Succeeded(), now=NOW)

    assert planned == settlement(Event.SUCCEED, "succeeded")
    assert planned.state is State.SUCCEEDED


@pytest.mark.covers("F35")
@pytest.mark.parametrize("outcome", NOT_SUCCEEDED, ids=lambda outcome: outcome.word)
def test_any_other_end_after_a_cancel_request_is_cancelled_and_says_how_it_ended(outcome: Outcome) -> None:
    run = replace(RUN, cancel_requested=True, on_loss=OnLoss.FAIL, deadline=NOW, failures=4)

    planned = plan_settle(run, outcome, now=NOW)

    assert (planned.event, planned.state) == (Event.CANCEL, State.CANCELLED)
    assert (planned.reason, planned.next_at) == (None, None)
    assert planned.attempt_outcome == outcome.word


def test_a_kept_error_is_bounded_and_any_database_can_hold_it() -> None:
    error = ErrorInfo(
        type="app.\0Odd",
        message="\ud800" + "m" * 10_000,
        bases=("a\0",) * 99,
        traceback="first" + "t" * 99_999 + "last",
    )

    assert error.type == "app.\N{REPLACEMENT CHARACTER}Odd"
    assert error.message == "?" + "m" * (LONGEST_MESSAGE - 1)
    assert error.bases == ("a\N{REPLACEMENT CHARACTER}",) * 50
    assert len(error.traceback) == LONGEST_TRACEBACK
    assert error.traceback.endswith("tlast")
