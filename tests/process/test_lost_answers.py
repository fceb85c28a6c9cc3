"""A node whose COMMITs are done and whose answers to them are lost on the way: it looks again, and goes on."""

import pytest

from mainspring.store.database import Database

from .fleet import ENV, Gate, fleet_on, given_ticking, judged, rows, until_decided, until_settled
from .line import VERBS, Line

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIMES = 5


@pytest.mark.covers("F08")
@pytest.mark.parametrize("verb", VERBS)
async def test_answers_to_commit_lost_on_the_wire_lose_and_double_nothing(
    verb: str, dsn: str, db: Database, gate: Gate
) -> None:
    began, line = ENV.now(), Line(dsn)
    gate.always_open = True
    await given_ticking(db, 20, task="wait")
    async with line.open() as through, fleet_on(through, gate, engine="peers", concurrency=50) as fleet:
        await fleet.start()

        line.to_lose[verb] = TIMES
        await gate.until(lambda: line.lost[verb] == TIMES)
        ended = ENV.now()
        await until_decided(db, ended)
        await until_settled(db, before=ended)
        await fleet.stop()

    report = await judged(db, since=began, until=ended)
    assert report.fired == report.expected >= 20
    attempts = dict(await rows(db, "SELECT outcome, count(*) FROM audit_attempts GROUP BY 1"))
    assert ("given_back" in attempts) == (verb == "claim")  # taken, and never told so
    assert set(attempts) <= {"succeeded", "given_back"}
    started = [arrival.run for arrival in gate.arrivals]
    assert len(started) == len(set(started)) == attempts["succeeded"]
    late = await rows(db, "SELECT count(*) > 0 FROM late_results")
    assert late == [(verb == "settle",)]  # what was settled is settled again, and refused
