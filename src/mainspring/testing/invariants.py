"""The invariant check: none lost, none doubled, none stuck. One function for every kind of test, and for benches.

It asks the ledger alone, through the views that are kept stable for this purpose, and it holds at any moment,
whatever is going on meanwhile. What it cannot know is whether the work was done outside; that is the test's part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from mainspring.domain.ids import JobId
from mainspring.insight.audit import run_audit
from mainspring.insight.report import AuditReport
from mainspring.store.database import Database

_SINCE: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(9999, 1, 1, tzinfo=UTC)

# Each finds what must not be there.
_NEVER: Final[Mapping[str, str]] = {
    "I2: two decisions for one slot": """
        SELECT job_id, scheduled_at FROM audit_fires GROUP BY job_id, scheduled_at HAVING count(*) > 1""",
    "I2: a run in motion and in history": """
        SELECT run_id FROM audit_runs GROUP BY run_id HAVING count(*) > 1""",
    "I4: attempts with a gap, or with one number twice": """
        SELECT run_id FROM audit_attempts GROUP BY run_id HAVING count(*) <> max(attempt) OR min(attempt) <> 1""",
    "I4: an attempt that began before the one before it was closed": """
        SELECT run_id, attempt
          FROM (SELECT run_id, attempt, started_at, lag(ended_at, 1, '-infinity') OVER earlier AS closed_at
                  FROM audit_attempts WINDOW earlier AS (PARTITION BY run_id ORDER BY attempt)) AS in_turn
         WHERE closed_at IS NULL OR started_at < closed_at""",
    "I5: two runs of an exclusive job at work": """
        SELECT job_id FROM runs WHERE state = 'running' AND lane IS NOT NULL GROUP BY job_id HAVING count(*) > 1""",
    "a cursor that is not after its last slot": """
        SELECT job_id FROM job_cursors WHERE next_fire_at <= last_slot""",
    "a dead run without a letter": """
        SELECT run_id FROM audit_runs WHERE state = 'dead' AND run_id NOT IN (SELECT run_id FROM dead_letters)""",
    "a dead letter of a run that is not dead": """
        SELECT run_id, state FROM dead_letters JOIN audit_runs USING (run_id) WHERE state <> 'dead'""",
}
_STUCK: Final[Mapping[str, str]] = {
    "I7: a run that never ended": """
        SELECT run_id, state, attempt FROM audit_runs WHERE state IN ('held', 'queued', 'running', 'waiting')""",
    "I1: a slot that was never decided": """
        SELECT job_id, next_fire_at FROM job_cursors WHERE state = 'active' AND next_fire_at <= clock_timestamp()""",
}


async def check_ledger(db: Database, *, at_rest: bool = False, moved_by_hand: Collection[JobId] = ()) -> AuditReport:
    """Assert that nothing in the ledger is lost, doubled or, if it should be ``at_rest`` by now, stuck.

    Every slot of every job is recomputed and held against its decisions; the report of that audit is returned,
    for whoever knows how many there should be. Slots of jobs whose cursor a test has moved by hand are left out
    of it, for no schedule names them. ::

        report = await check_ledger(db, at_rest=True)
        assert report.fired == 1_000

    Raises:
        AssertionError: something is; the message lists everything that was found.
    """
    wrong: list[str] = []
    async with db.connection() as connection:
        for what, query in {**_NEVER, **(_STUCK if at_rest else {})}.items():
            if rows := await connection.fetch(query):
                wrong.append(f"{what}: {len(rows)}, such as {dict(rows[0])}")
    report = await run_audit(db, start=_SINCE, end=_UNTIL)
    wrong += [
        f"{finding.fault}: {finding.name} at {finding.slot}: {finding.why}"
        for finding in report.findings
        if finding.job not in moved_by_hand
    ]
    if wrong:
        raise AssertionError("the ledger is wrong:\n  " + "\n  ".join(wrong))
    return report
