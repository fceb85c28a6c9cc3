"""A definition from before there were bounds, or one that cannot be read, is its own trouble and nobody else's."""

from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import Cron, Schedule
from mainspring.domain.asking import Request
from mainspring.domain.errors import InvalidRequest, NewerRelease
from mainspring.domain.firing import DueJob, FirePlan, Going, Misfire, Misfires, Overlap, Overlaps, plan_fire
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.settling import ErrorInfo, Failed
from mainspring.store import fire as fires
from mainspring.store import nodes
from mainspring.store.backfill import Range, backfill
from mainspring.store.database import Connection
from mainspring.store.jobs import Definition, Definitions
from mainspring.store.recover import recover_lost
from mainspring.store.submit import Known, submit

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATEST = Misfire(policy=Misfires.LATEST)
BROKEN = Failed(error=ErrorInfo(type="ValueError", message="no"))
LAST = datetime(9999, 12, 31, tzinfo=UTC)


class Unchecked(Definitions):
    """Definitions as no check has seen them, of the task ``bad``."""

    def __init__(self, **spoilt: object) -> None:
        super().__init__()
        self._spoilt = spoilt

    async def shared(self, tx: Connection, wanted: Sequence[tuple[UUID, int]]) -> dict[UUID, Job]:
        return {job_id: self._spoil(job) for job_id, job in (await super().shared(tx, wanted)).items()}

    async def of(self, tx: Connection, wanted: Sequence[tuple[UUID, int]]) -> dict[UUID, Definition]:
        found = await super().of(tx, wanted)
        return {job_id: one._replace(shared=self._spoil(one.shared)) for job_id, one in found.items()}

    def _spoil(self, job: Job) -> Job:
        if self._spoilt and job.pool == "bad":
            job = copy(job)
            for name, value in self._spoilt.items():
                object.__setattr__(job, name, value)
        return job


async def rewrite(ledger: Ledger, job: JobId, field: str, value: str) -> None:
    change = "UPDATE job_versions SET definition = jsonb_set(definition, $2::text[], $3::jsonb) WHERE job_id = $1"
    await ledger.execute(change, job, field.split("."), value)


async def fired(ledger: Ledger, job: JobId) -> int:
    return int(await ledger.value("SELECT count(*) FROM runs WHERE job_id = $1", job))


@pytest.mark.covers("F15")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("deadline", '"3650000d"'),
        ("wait_timeout", '"3650000d"'),
        ("jitter", '"3650000d"'),
        ("misfire", '{"window": "3650000d"}'),
        ("misfire", '{"pace": "3650000d", "most": 3}'),
    ],
)
async def test_a_stored_duration_of_ten_thousand_years_stops_nobody(ledger: Ledger, field: str, value: str) -> None:
    (endless,) = await ledger.given_jobs(due=timedelta(seconds=20))
    (other,) = await ledger.given_jobs(misfire=LATEST, tenant="other")
    await rewrite(ledger, endless, field, value)

    report = await ledger.fire()

    assert report.quarantined == ()
    assert await fired(ledger, other) == 1
    assert await fired(ledger, endless) >= 1
    assert await ledger.value("SELECT count(*) FROM runs WHERE ready_at > $1 OR expires_at > $1", LAST) == 0


@pytest.mark.covers("F15")
async def test_a_failed_run_whose_deadline_is_past_the_calendar_settles(ledger: Ledger) -> None:
    await ledger.given_jobs(misfire=LATEST, pool="bad", retry=RetryPolicy(attempts=3, backoff="1s"))
    ledger.definitions = Unchecked(deadline=timedelta.max, wait_timeout=timedelta.max)
    await ledger.fire()
    (run,) = await ledger.claim(await ledger.node(), pool="bad")

    report = await ledger.settle([run], BROKEN)

    assert run.job.deadline == timedelta.max
    assert report.settled[run.id].state == "waiting"
    assert await ledger.value("SELECT expires_at FROM runs") == LAST


@pytest.mark.covers("F15")
async def test_a_lost_run_whose_deadline_is_past_the_calendar_is_recovered(ledger: Ledger) -> None:
    await ledger.given_jobs(misfire=LATEST, pool="bad")
    ledger.definitions = Unchecked(deadline=timedelta.max)
    worker = await ledger.node()
    await ledger.fire()
    (run,) = await ledger.claim(worker, pool="bad")
    await nodes.retire(ledger.db, worker)

    report = await recover_lost(ledger.db, ledger.definitions, ledger.env)

    assert report.settled[run.id].state == "queued"


@pytest.mark.covers("F15")
@pytest.mark.parametrize("overlap", [Overlaps.SKIP, Overlaps.CANCEL_OTHER])
async def test_a_job_whose_rows_cannot_be_made_is_quarantined_alone(ledger: Ledger, overlap: Overlaps) -> None:
    (bad,) = await ledger.given_jobs(misfire=LATEST, pool="bad", overlap=Overlap(policy=overlap))
    (other,) = await ledger.given_jobs(misfire=LATEST)
    ledger.definitions = Unchecked(priority=10**15)

    report = await ledger.fire()

    assert report.quarantined == (bad,)
    assert (await fired(ledger, bad), await fired(ledger, other)) == (0, 1)


@pytest.mark.covers("F15")
async def test_a_job_whose_plan_raises_once_its_other_run_was_stopped_is_quarantined_too(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = await ledger.given_jobs(misfire=LATEST, overlap=Overlap(policy=Overlaps.CANCEL_OTHER))
    await ledger.fire()
    await ledger.make_due(job)

    def plan_once(due: DueJob, *, now: datetime) -> FirePlan:
        if due.going == Going():  # the second look: nothing is going any more
            raise ValueError("no")
        return plan_fire(due, now=now)

    monkeypatch.setattr(fires, "plan_fire", plan_once)
    report = await ledger.fire()

    assert report.quarantined == (job,)
    assert await ledger.value("SELECT state FROM job_cursors WHERE job_id = $1", job) == "quarantined"


@pytest.mark.covers("F15")
async def test_a_job_whose_deadline_is_past_the_calendar_fires_with_the_last_instant(ledger: Ledger) -> None:
    (bad,) = await ledger.given_jobs(misfire=LATEST, pool="bad")
    ledger.definitions = Unchecked(deadline=timedelta.max)

    await ledger.fire()

    assert await ledger.value("SELECT expires_at FROM runs WHERE job_id = $1", bad) == LAST


@pytest.mark.covers("F15")
@pytest.mark.parametrize(
    ("field", "value"),
    [("schedule.timezone", '"Mars/Olympus"'), ("schedule.rules", "99"), ("deadline", '"0s"')],
)
async def test_a_definition_that_cannot_be_read_is_quarantined_alone(ledger: Ledger, field: str, value: str) -> None:
    (bad,) = await ledger.given_jobs(misfire=LATEST)
    others = await ledger.given_jobs(2, misfire=LATEST)
    await rewrite(ledger, bad, field, value)

    report = await ledger.fire()
    again = await ledger.fire()

    assert report.quarantined == (bad,)
    assert [await fired(ledger, job) for job in others] == [1, 1]
    assert again.quarantined == ()


async def test_a_definition_of_a_later_release_is_left_to_its_nodes(ledger: Ledger) -> None:
    """Between two releases nothing is quarantined only because one node has not been upgraded yet."""
    (newer,) = await ledger.given_jobs(misfire=LATEST)
    await rewrite(ledger, newer, "from_later", "1")

    with pytest.raises(NewerRelease, match="from_later"):
        await ledger.fire()

    assert await ledger.value("SELECT state FROM job_cursors WHERE job_id = $1", newer) == "active"


@pytest.mark.parametrize("overlap", [Overlaps.ALLOW, Overlaps.SKIP])
async def test_a_run_of_the_last_year_may_have_the_longest_deadline(ledger: Ledger, overlap: Overlaps) -> None:
    far = datetime(9980, 12, 31, tzinfo=UTC)
    job = Job(
        name="far",
        task="noop",
        schedule=Schedule(specs=(Cron("0 0 1 1 *"),)),
        deadline=timedelta(days=3650),
        overlap=Overlap(policy=overlap),
    )
    (job_id,) = await ledger.given_jobs(**{name: getattr(job, name) for name in ("schedule", "deadline", "overlap")})
    known = Known(job_id, 1, job)

    for wanted in ([Request(due_at=far).checked()], [Request(due_at=far, key="k").checked()] * 2):
        assert await submit(ledger.db, ledger.env, known, wanted) is not None

    assert await ledger.value("SELECT max(expires_at) FROM runs") == far + timedelta(days=3650)
    with pytest.raises(InvalidRequest, match="from 1970 to 9980"):
        Request(due_at=far.replace(year=9981)).checked()


async def test_a_pace_that_ends_beyond_all_bounds_is_refused(ledger: Ledger) -> None:
    hourly: dict[str, Any] = {"schedule": Schedule(specs=(Cron("0 * * * *"),)), "misfire": LATEST}
    (job,) = await ledger.given_jobs(**hourly)
    now: datetime = await ledger.value("SELECT clock_timestamp()")
    past = Range(start=now - timedelta(hours=5), end=now - timedelta(minutes=1))

    for pace in (timedelta(days=3_650_000), timedelta(days=3_000), timedelta(seconds=-1)):
        with pytest.raises(InvalidRequest) as refusal:
            await backfill(ledger.db, ledger.definitions, job, past, request="r", pace=pace)
        assert refusal.value.field == "pace"
        assert "3650" in refusal.value.allowed
    assert await backfill(ledger.db, ledger.definitions, job, past, request="r", pace=timedelta(days=300)) >= 4
