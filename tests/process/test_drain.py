"""A worker that is asked to stop under load: nothing is lost, nothing counts as failed, and it ends in time."""

import signal

import pytest

from mainspring.store.database import Database
from mainspring.testing.invariants import check_ledger

from .fleet import ENV, Fleet, Gate, given_waiting, rows, until, until_settled

pytestmark = pytest.mark.asyncio(loop_scope="session")

HERE, ELSEWHERE, FINISHING = 50, 200, 20
GRACE = 2


@pytest.mark.covers("F70", "F122")
async def test_a_drain_under_load_gives_back_what_does_not_finish(fleet: Fleet, gate: Gate, db: Database) -> None:
    await given_waiting(db, HERE + ELSEWHERE)
    leaving = await fleet.start(engine="peers", concurrency=HERE, grace=GRACE)
    staying = await fleet.start(concurrency=ELSEWHERE)
    await gate.until(lambda: len(gate.of(leaving)) == HERE and len(gate.of(staying)) == ELSEWHERE)
    at_work = gate.of(leaving)

    leaving.send(signal.SIGTERM)
    asked = ENV.monotonic()
    gate.open(at_work[:FINISHING], "finished in time")
    status, complaints = await leaving.ends()
    took = ENV.monotonic() - asked

    assert (status, complaints) == (0, "")
    assert took < GRACE + 3
    assert await rows(db, "SELECT count(*) FROM run_history WHERE state = 'succeeded'") == [(FINISHING,)]
    given_back = "SELECT count(*) = $1 FROM attempts WHERE outcome = 'given_back'"
    await until(db, given_back, HERE - FINISHING)
    assert await rows(db, "SELECT count(*) FROM runs WHERE state = 'running'") == [(ELSEWHERE,)]
    gate.always_open = True
    gate.open(gate.of(staying), "as if nothing were")
    await until_settled(db)  # those that were given back, too, by the one who stayed
    await fleet.stop()
    ended = await rows(db, "SELECT state, sum(failures), count(*) FROM run_history GROUP BY state")
    assert ended == [("succeeded", 0, HERE + ELSEWHERE)]
    await check_ledger(db, at_rest=True)
