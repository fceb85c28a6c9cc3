"""Retries and settling, for policies and histories nobody thought of."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mainspring.domain.retry import LONGEST_WAIT, Backoff, Jitter, RetryPolicy
from mainspring.domain.run import FINAL, DeadReason, Event, State, sources
from mainspring.domain.settling import (
    MOST_LOSSES,
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
MILLISECOND = timedelta(milliseconds=1)
FREE = (Snoozed, GivenBack)
COUNTED = (Failed, TimedOut, Lost)


def lengths(least: int = 1, most: timedelta = LONGEST_WAIT) -> st.SearchStrategy[timedelta]:
    return st.integers(least, most // MILLISECOND).map(lambda count: count * MILLISECOND)


@st.composite
def policies(draw: st.DrawFn, /, **fixed: Any) -> RetryPolicy:
    kind = fixed.pop("kind", None) or draw(st.sampled_from(Backoff))
    attempts = draw(st.integers(2 if kind is Backoff.LIST else 1, 12))
    base = draw(lengths())
    delays = draw(st.lists(lengths(0), min_size=1, max_size=attempts - 1)) if kind is Backoff.LIST else []
    return RetryPolicy(
        **{
            "kind": kind,
            "attempts": attempts,
            "base": base,
            "factor": draw(st.floats(1, 100)),
            "cap": draw(st.none() | lengths(max([base, *delays]) // MILLISECOND)),
            "delays": tuple(delays),
            "jitter": draw(st.none() | st.sampled_from(Jitter)),
            "max_age": draw(st.none() | lengths()),
            "not_retried": tuple(draw(st.lists(st.sampled_from(["KeyError", "app.Bad", "Base"]), max_size=2))),
            **fixed,
        }
    )


def errors() -> st.SearchStrategy[ErrorInfo]:
    return st.builds(
        ErrorInfo,
        type=st.sampled_from(["builtins.KeyError", "app.Bad", "other.Bad"]),
        message=st.text(),
        bases=st.sampled_from([(), ("app.Base",), ("builtins.Exception",)]),
    )


waits = st.timedeltas()  # any there is: what a task or a server sends is not ours to choose
failed = st.builds(Failed, error=errors(), retry_after=st.none() | waits)
snoozed = st.builds(Snoozed, waits)
free = st.one_of(snoozed, st.just(GivenBack()))
counted = st.one_of(failed, st.just(TimedOut()), st.just(Lost()))
unsuccessful: st.SearchStrategy[Outcome] = st.one_of(
    counted, free, st.builds(Discarded, st.text()), st.just(Cancelled())
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(unsuccessful, st.builds(Succeeded, st.integers()))


def runs(**fixed: Any) -> st.SearchStrategy[RunningRun]:
    parts: dict[str, Any] = {
        "id": st.uuids().map(str),
        "attempt": st.integers(1, 50),
        "failures": st.integers(0, 15),
        "first_due": lengths(0).map(lambda age: NOW - age),
        "deadline": st.none() | st.integers(-10_000_000, 10_000_000).map(lambda off: NOW + timedelta(seconds=off)),
        "retry": policies(),
        "on_loss": st.sampled_from(OnLoss),
        "cancel_requested": st.booleans(),
    }
    return st.builds(RunningRun, **{**parts, **fixed})


def endless_runs() -> st.SearchStrategy[RunningRun]:
    """New runs that only their budget, or an end of their own, can stop."""
    return runs(
        attempt=st.just(1),
        failures=st.just(0),
        deadline=st.none(),
        retry=policies(max_age=None, not_retried=()),
        on_loss=st.just(OnLoss.RETRY),
        cancel_requested=st.just(False),
    )


def live(run: RunningRun, history: Sequence[Outcome]) -> list[Settlement]:
    """Play ``history`` as attempts of one run, until it is final."""
    told: list[Settlement] = []
    now = NOW
    for outcome in history:
        planned = plan_settle(run, outcome, now=now)
        told.append(planned)
        if planned.state in FINAL:
            break
        now = planned.next_at or now
        run = replace(run, attempt=run.attempt + 1, failures=planned.failures)
    return told


# Waits


@given(policies(), st.integers(1, 2000), st.text(st.characters(codec="utf-8")), st.none() | waits)
def test_a_wait_is_within_bounds_whatever_the_kind_and_whoever_asked(
    policy: RetryPolicy, failures: int, seed: str, asked: timedelta | None
) -> None:
    plain = replace(policy, jitter=Jitter.NONE).delay_after(failures, seed=seed)
    wait = policy.delay_after(failures, seed=seed)
    longer = policy.delay_after(failures, seed=seed, asked=asked)

    jitter = policy.jitter or (Jitter.FULL if policy.kind is Backoff.EXPONENTIAL else Jitter.NONE)
    least = {Jitter.NONE: 1.0, Jitter.QUARTER: 0.75, Jitter.FULL: 0.0}[jitter]
    assert plain * least - MILLISECOND <= wait <= plain <= policy.longest  # the plain wait is rounded up, too
    assert max(wait, min(asked or wait, policy.longest)) <= longer <= policy.longest
    assert longer % MILLISECOND == timedelta(0)


@given(policies(jitter=Jitter.NONE), st.integers(1, 2000), st.text(), st.text())
def test_without_jitter_chance_has_no_part_and_no_wait_is_shorter_than_the_one_before(
    policy: RetryPolicy, failures: int, seed: str, other: str
) -> None:
    assume(policy.kind is not Backoff.LIST)  # a list goes up and down as it was written

    wait = policy.delay_after(failures, seed=seed)

    assert wait == policy.delay_after(failures, seed=other)
    assert wait <= policy.delay_after(failures + 1, seed=seed)


@given(policies(kind=Backoff.LIST, jitter=Jitter.NONE), st.integers(1, 50))
def test_a_list_is_followed_in_turn_and_its_last_delay_repeats(policy: RetryPolicy, failures: int) -> None:
    expected = [*policy.delays, *[policy.delays[-1]] * 50]

    assert policy.delay_after(failures, seed="a") == expected[failures - 1]


@given(policies(), st.integers(1, 2000), st.uuids().map(str))
def test_a_wait_is_the_same_for_everyone_who_asks(policy: RetryPolicy, failures: int, seed: str) -> None:
    again = RetryPolicy.from_json(policy.to_json())

    assert again == policy
    assert again.delay_after(failures, seed=seed) == policy.delay_after(failures, seed=seed)


# Settling


@given(runs(), outcomes)
def test_every_outcome_leads_along_an_allowed_transition_with_all_that_its_state_implies(
    run: RunningRun, outcome: Outcome
) -> None:
    planned = plan_settle(run, outcome, now=NOW)

    assert State.RUNNING in sources(planned.event)
    assert (planned.reason is not None) == (planned.state is State.DEAD)
    assert (planned.next_at is not None) == (planned.state is State.WAITING)
    assert planned.attempt_outcome == outcome.word
    assert planned == plan_settle(replace(run, attempt=run.attempt + 1), outcome, now=NOW)


@given(runs(), outcomes)
def test_no_further_attempt_is_planned_for_the_past_nor_past_the_deadline(run: RunningRun, outcome: Outcome) -> None:
    planned = plan_settle(run, outcome, now=NOW)

    if planned.state not in FINAL:
        starts = planned.next_at or NOW
        assert starts >= NOW
        assert run.deadline is None or starts < run.deadline


@pytest.mark.covers("F35")
@given(runs(), st.builds(Succeeded, st.integers()))
def test_success_is_never_turned_into_anything_else(run: RunningRun, outcome: Succeeded) -> None:
    planned = plan_settle(run, outcome, now=NOW)

    assert (planned.event, planned.state, planned.failures) == (Event.SUCCEED, State.SUCCEEDED, run.failures)


@pytest.mark.covers("F35")
@given(runs(cancel_requested=st.just(True)), unsuccessful)
def test_a_run_asked_to_cancel_is_never_tried_again(run: RunningRun, outcome: Outcome) -> None:
    assert plan_settle(run, outcome, now=NOW).state is State.CANCELLED


@given(runs(), free)
def test_a_snooze_and_a_polite_stop_leave_the_budget_alone(run: RunningRun, outcome: Outcome) -> None:
    planned = plan_settle(run, outcome, now=NOW)

    assert planned.failures == run.failures
    assert planned.reason in {None, DeadReason.EXPIRED}


@pytest.mark.covers("F56")
@given(runs(on_loss=st.just(OnLoss.FAIL), cancel_requested=st.just(False)))
def test_a_run_that_may_not_start_twice_never_starts_again_after_a_loss(run: RunningRun) -> None:
    planned = plan_settle(run, Lost(), now=NOW)

    assert (planned.state, planned.reason) == (State.DEAD, DeadReason.LOST)


@given(runs(attempt=st.just(1), failures=st.just(0)), st.lists(outcomes, max_size=60))
def test_no_history_has_more_failed_attempts_than_the_budget(run: RunningRun, history: list[Outcome]) -> None:
    told = live(run, history)

    spent = [outcome for outcome in history[: len(told)] if isinstance(outcome, COUNTED)]
    assert len(spent) <= max(run.retry.budget, MOST_LOSSES)
    assert all(planned.failures <= max(run.retry.budget, MOST_LOSSES) for planned in told)
    assert not told or told[-1].failures == len(spent)


@pytest.mark.covers("F124")
@given(endless_runs(), st.data())
def test_a_run_ends_after_exactly_its_budget_of_failures_however_often_it_was_snoozed_or_given_back(
    run: RunningRun, data: st.DataObject
) -> None:
    kinds = counted if run.retry.budget >= MOST_LOSSES else failed
    failures = data.draw(st.lists(kinds, min_size=run.retry.budget, max_size=run.retry.budget))
    history: list[Outcome] = []
    for failure in failures:
        history += [*data.draw(st.lists(st.builds(Snoozed, lengths(0)) | st.just(GivenBack()), max_size=3)), failure]

    told = live(run, history)

    assert len(told) == len(history)  # and not before
    assert (told[-1].event, told[-1].state) == (Event.EXHAUST, State.DEAD)
    assert told[-1].reason is (DeadReason.LOST if history[-1] == Lost() else DeadReason.EXHAUSTED)


@given(runs(attempt=st.just(1), failures=st.just(0)), st.lists(outcomes, min_size=12, max_size=40))
def test_every_run_is_final_once_its_budget_is_answered_snoozes_and_polite_stops_aside(
    run: RunningRun, drawn: list[Outcome]
) -> None:
    history = [outcome for outcome in drawn if not isinstance(outcome, FREE)]
    most = max(run.retry.budget, MOST_LOSSES)
    assume(len(history) >= most)

    told = live(run, history)

    assert told[-1].state in FINAL
    assert len(told) <= most
