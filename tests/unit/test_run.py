"""The states of a run, and the ways between them."""

import pytest

from mainspring.domain.errors import MainspringError
from mainspring.domain.run import FINAL, TRANSITIONS, Event, IllegalTransition, State, after, sources


def reachable(state: State) -> set[State]:
    found, fresh = {state}, [state]
    while fresh:
        here = fresh.pop()
        ahead = {to for (origin, _), to in TRANSITIONS.items() if origin is here} - found
        found |= ahead
        fresh += ahead
    return found


def test_succeeded_dead_and_cancelled_are_final_and_nothing_else_is() -> None:
    assert frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED}) == FINAL


@pytest.mark.parametrize("state", sorted(set(State) - FINAL))
def test_every_final_state_can_be_reached_from_every_other(state: State) -> None:
    assert reachable(state) >= FINAL


@pytest.mark.parametrize("state", sorted(set(State) - {State.HELD, State.QUEUED}))
def test_a_run_comes_to_life_only_held_or_queued_and_all_else_follows(state: State) -> None:
    assert state in reachable(State.HELD)
    assert state in reachable(State.QUEUED)


@pytest.mark.parametrize("event", Event)
def test_an_event_leads_to_one_state_wherever_it_comes_from(event: Event) -> None:
    targets = {after(state, event) for state in sources(event)}

    assert len(targets) == 1


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_what_the_table_does_not_name_is_refused(state: State, event: Event) -> None:
    if state in sources(event):
        assert after(state, event) is TRANSITIONS[state, event]
        return

    with pytest.raises(IllegalTransition) as refused:
        after(state, event)

    assert (refused.value.state, refused.value.event) == (state, event)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event.RELEASE, {State.HELD}),
        (Event.CLAIM, {State.QUEUED}),
        (Event.REQUEUE, {State.WAITING}),
        (Event.CANCEL, {State.HELD, State.QUEUED, State.RUNNING, State.WAITING}),
        *((event, {State.RUNNING}) for event in (Event.SUCCEED, Event.FAIL, Event.SNOOZE, Event.EXHAUST)),
        *((event, {State.RUNNING}) for event in (Event.LOSE, Event.GIVE_BACK)),
    ],
)
def test_an_event_happens_only_where_it_makes_sense(event: Event, expected: set[State]) -> None:
    assert set(sources(event)) == expected


@pytest.mark.covers("F66")
def test_a_run_dies_with_its_attempt_closed_or_before_one_began() -> None:
    ways = {(origin, event) for (origin, event), to in TRANSITIONS.items() if to is State.DEAD}

    assert ways == {
        (State.RUNNING, Event.EXHAUST),
        (State.HELD, Event.EXPIRE),
        (State.QUEUED, Event.EXPIRE),
        (State.WAITING, Event.EXPIRE),
    }


def test_an_illegal_transition_says_what_and_from_where() -> None:
    refused = IllegalTransition(State.DEAD, Event.EXPIRE)

    assert isinstance(refused, MainspringError)
    assert (refused.code, refused.exit_status) == ("illegal_transition", 4)
    assert str(refused) == "no expire for a run that is dead; only for one that is held or queued or waiting"
