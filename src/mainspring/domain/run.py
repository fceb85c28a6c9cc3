"""A run's life: which states there are, and which events lead from one to another.

The table is the only place that says so. The guards of the SQL, the pages of the docs and the
tests are derived from it; whatever is not in it is refused.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mainspring.domain.errors import Conflict


class State(StrEnum):
    """Where a run is. The last three are final."""

    HELD = "held"  # overlap=queue: waits until the run before it is settled
    QUEUED = "queued"  # a worker may claim it
    RUNNING = "running"  # one worker, one attempt, one lease token
    WAITING = "waiting"  # failed or snoozed; the next attempt has its time
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # no attempt left, or none allowed: a dead letter
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What happens to a run."""

    RELEASE = "release"
    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"  # and may try again
    SNOOZE = "snooze"
    EXHAUST = "exhaust"
    LOSE = "lose"
    GIVE_BACK = "give_back"
    REQUEUE = "requeue"
    EXPIRE = "expire"
    CANCEL = "cancel"


class DeadReason(StrEnum):
    """Why a run is dead."""

    EXHAUSTED = "exhausted"  # its retry policy allows no further attempt
    REFUSED = "refused"  # the task discarded it, or failed with an error that is not to be retried
    LOST = "lost"  # its worker died, and it may not run again or its budget is spent
    EXPIRED = "expired"  # its deadline passed before another attempt could start


TRANSITIONS: Final = MappingProxyType(
    {
        (State.HELD, Event.RELEASE): State.QUEUED,
        (State.QUEUED, Event.CLAIM): State.RUNNING,
        (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
        (State.RUNNING, Event.FAIL): State.WAITING,
        (State.RUNNING, Event.SNOOZE): State.WAITING,  # at the task's own wish; does not burn the budget
        (State.RUNNING, Event.EXHAUST): State.DEAD,  # for any of the reasons; also a lost worker with on_loss="fail"
        (State.RUNNING, Event.LOSE): State.QUEUED,  # its worker was declared dead
        (State.RUNNING, Event.GIVE_BACK): State.QUEUED,  # polite stop; does not burn the budget
        (State.WAITING, Event.REQUEUE): State.QUEUED,
        # Never from running: what a worker has in hand ends by its attempt, so no dead letter is still at work.
        **{(state, Event.EXPIRE): State.DEAD for state in (State.HELD, State.QUEUED, State.WAITING)},
        **{
            (state, Event.CANCEL): State.CANCELLED for state in (State.HELD, State.QUEUED, State.RUNNING, State.WAITING)
        },
    }
)

FINAL: Final = frozenset(State) - {state for state, _ in TRANSITIONS}  # nothing leads out of these


class IllegalTransition(Conflict):
    """The run is not, or no longer, in a state where this can happen to it. Look again, then decide."""

    code = "illegal_transition"

    def __init__(self, state: State, event: Event) -> None:
        self.state = state
        self.event = event
        super().__init__(f"no {event} for a run that is {state}; only for one that is {' or '.join(sources(event))}")


def sources(event: Event) -> tuple[State, ...]:
    """Return the states that ``event`` leads from: the WHERE clause of its UPDATE."""
    return tuple(state for state, known in TRANSITIONS if known is event)


def after(state: State, event: Event) -> State:
    """Return the state that ``event`` leads to.

    Raises:
        IllegalTransition: it cannot happen to a run in ``state``.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
