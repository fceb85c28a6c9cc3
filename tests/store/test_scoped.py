"""The SDK over a database that is one tenant's: it works as ever, and for the other tenant none of it is there."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mainspring import Every, Schedule
from mainspring.domain.asking import Change, JobFilter, LetterFilter, Request, RunFilter
from mainspring.domain.errors import BrokenInvariant, Conflict, MainspringError, NotFound
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job, JobState
from mainspring.domain.run import State
from mainspring.domain.schedule import OnDemand
from mainspring.domain.settling import ErrorInfo, Failed
from mainspring.domain.views import JobView
from mainspring.sdk.direct import Direct
from mainspring.store.hints import Bell

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "acme", "bolt"
MINUTELY = Schedule(specs=(Every(timedelta(minutes=1)),))
ASKED_FOR = Schedule(specs=(OnDemand(),))
ALLOWED, QUEUED = Overlap(policy=Overlaps.ALLOW), Overlap(policy=Overlaps.QUEUE)
FAILED = Failed(error=ErrorInfo(type="shop.Broken", message="no stock", traceback=""))


def client(ledger: Ledger, tenant: str) -> Direct:
    """Give what the API works with: the SDK over the database of one tenant."""
    return Direct(ledger.db.scoped(tenant), ledger.env, Bell(ledger.db), tenant=tenant, author="tests")


def job(tenant: str = A, *, name: str = "nightly", schedule: Schedule = MINUTELY, overlap: Overlap = ALLOWED) -> Job:
    return Job(name=name, task="noop", tenant=tenant, schedule=schedule, overlap=overlap, payload={"day": 1})


async def work(ledger: Ledger, outcome: Failed | None = None) -> int:
    """Do what a worker would with all that is ready, for whichever tenant."""
    runs = await ledger.claim(await ledger.node())
    await ledger.settle(runs, outcome)
    return len(runs)


async def test_jobs_are_put_found_listed_edited_paused_and_deleted(ledger: Ledger) -> None:
    ours, theirs = client(ledger, A), client(ledger, B)
    same_name = await theirs.put_job(job(B), reason="")

    made = await ours.put_job(job(), reason="first")
    edited = await ours.put_job(replace(job(), priority=3), reason="more urgent")
    paused = await ours.change_job(made.id, Change(state=JobState.PAUSED, reason="outage"))
    resumed = await ours.change_job(made.id, Change(state=JobState.ACTIVE))

    assert (made.id, paused.state, resumed.state) == (edited.id, JobState.PAUSED, JobState.ACTIVE)
    assert (await ours.find_job("nightly")).definition.priority == 3
    assert [each.number for each in await ours.versions(made.id, limit=10)] == [4, 3, 2, 1]
    assert [each.id for each in (await ours.list_jobs(JobFilter(), limit=10, after=None)).items] == [made.id]
    assert [each.id for each in (await theirs.list_jobs(JobFilter(), limit=10, after=None)).items] == [same_name.id]

    gone = await ours.change_job(made.id, Change(state=JobState.DELETED))

    assert gone.state is JobState.DELETED
    assert (await theirs.find_job("nightly")).state is JobState.ACTIVE


@pytest.mark.parametrize("overlap", [ALLOWED, QUEUED], ids=["may overlap", "has a lane"])
async def test_runs_are_submitted_triggered_filled_in_and_cancelled(ledger: Ledger, overlap: Overlap) -> None:
    ours = client(ledger, A)
    asked = job(overlap=overlap)
    made = await ours.put_job(asked, reason="")
    now = datetime.now(UTC)

    keyed = await ours.submit(asked, [Request(key="k1"), Request(key="k2", payload='{"day": 2}')])
    again = await ours.submit(asked, [Request(key="k1")])
    single = await ours.submit(asked, [Request()])
    triggered = await ours.trigger(made.id, Request(delay=timedelta(0)))
    filled = await ours.backfill(made.id, start=now - timedelta(minutes=5), end=now, request="x", pace=timedelta(0))

    assert again == keyed[:1]
    assert filled == 5
    listed = await ours.list_runs(RunFilter(job=made.id), limit=100, after=None)
    assert len(listed.items) == 4 + filled
    assert (await ours.find_run(keyed[1])).payload == {"day": 2}
    assert {await ours.cancel_run(run) for run in (*keyed, *single, triggered)} == {State.CANCELLED}
    assert len((await ours.list_runs(RunFilter(states=(State.CANCELLED,)), limit=100, after=None)).items) == 4
    done = await work(ledger)
    assert done == (1 if overlap is QUEUED else filled)


async def test_very_many_runs_are_submitted_although_nothing_is_copied_under_row_security(ledger: Ledger) -> None:
    ours = client(ledger, A)
    asked = job(schedule=ASKED_FOR)

    ids = await ours.submit_many(asked, (Request(payload=str(n)) for n in range(6_000)))

    stored = {row["id"]: row for row in await ledger.rows("SELECT * FROM runs")}
    assert len(set(ids)) == 6_000
    assert set(ids) == set(stored)
    assert [stored[run]["payload"] for run in ids] == [str(n) for n in range(6_000)]
    assert {(row["tenant"], row["state"], row["pool"]) for row in stored.values()} == {(A, "queued", asked.pool)}


async def test_what_is_copied_and_what_is_inserted_are_the_same_rows(ledger: Ledger) -> None:
    owner = Direct(ledger.db, ledger.env, Bell(ledger.db), tenant=A, author="tests")
    at = datetime(2027, 1, 1, tzinfo=UTC)
    wanted = [Request(due_at=at, priority=2, pool="long", payload="1"), Request(due_at=at)]
    asked = replace(job(schedule=ASKED_FOR), wait_timeout=timedelta(hours=1))

    copied = await owner.submit_many(asked, wanted)
    inserted = await client(ledger, A).submit_many(asked, wanted)

    rows = [
        dict(row) for row in await ledger.rows("SELECT * FROM runs ORDER BY array_position($1, id)", copied + inserted)
    ]
    for row in rows:
        del row["id"], row["fired_at"]
    assert rows[:2] == rows[2:]


async def test_runs_are_retried_and_dead_letters_replayed_and_discarded(ledger: Ledger) -> None:
    ours, theirs = client(ledger, A), client(ledger, B)
    made = await ours.put_job(job(schedule=ASKED_FOR), reason="")
    run = await ours.trigger(made.id, Request())
    while await work(ledger, FAILED):
        waiting = await ours.find_run(run)
        if waiting.state is State.WAITING:
            assert await ours.retry_run(waiting) == run  # need not wait any longer

    (letter,) = (await ours.list_letters(LetterFilter(), limit=10, after=None)).items
    attempts = await ours.attempts(await ours.find_run(run))
    replayed = await ours.retry_run(await ours.find_run(run))
    assert await ours.replay(letter, payload=None) == replayed
    await work(ledger)
    once_more = await ours.retry_run(await ours.find_run(replayed))

    assert len(attempts) > 1
    assert len({run, replayed, once_more}) == 3
    assert (await ours.find_run(replayed)).state is State.SUCCEEDED
    await ours.cancel_run(once_more)

    second = await ours.trigger(made.id, Request())
    while await work(ledger, FAILED):
        await ledger.execute("UPDATE runs SET ready_at = now(), rank = now()")
    assert not await theirs.discard(second, reason="")
    assert await ours.discard(second, reason="not needed")
    assert not await ours.discard(second, reason="again")


async def test_slots_lines_attempts_and_explanations_are_read(ledger: Ledger) -> None:
    ours = client(ledger, A)
    (job_id,) = await ledger.given_jobs(tenant=A)
    await ledger.fire()
    (run,) = await ledger.claim(await ledger.node())
    await ledger.execute(
        "INSERT INTO run_lines VALUES ($1, $2, 1, 1, now(), 'log', '', 'while it works')", run.id, run.slot
    )

    view = await ours.find_run(run.id)
    assert [line.text for line in await ours.lines(view, after=(0, 0), limit=10)] == ["while it works"]
    assert [each.outcome for each in await ours.attempts(view)] == ["running"]
    await ledger.settle([run])
    view = await ours.find_run(run.id)
    assert [line.text for line in await ours.lines(view, after=(0, 0), limit=10)] == ["while it works"]
    (slot,) = await ours.slots(job_id, start=run.slot, end=run.slot + timedelta(seconds=1), limit=10)
    assert slot.run_id == run.id
    assert any("succeeded" in line for line in await ours.explain(job_id, run.slot))


async def test_pools_and_nodes_are_seen_with_ones_own_runs_only(ledger: Ledger) -> None:
    ours, theirs = client(ledger, A), client(ledger, B)
    await ours.submit(job(schedule=ASKED_FOR), [Request(), Request()])
    await theirs.submit(job(B, schedule=ASKED_FOR), [Request()])
    node = await ledger.node()

    assert [(pool.name, pool.ready) for pool in await ours.pools()] == [("short", 2)]
    assert [(pool.name, pool.ready) for pool in await theirs.pools()] == [("short", 1)]
    assert [each.id for each in await ours.nodes()] == [node]
    for beyond in (
        ours.pause_pool("short", reason=""),
        ours.resume_pool("short"),
        ours.ask_node(node, "stop"),
    ):
        with pytest.raises(BrokenInvariant, match="went beyond what is its own"):
            await beyond


@pytest.mark.covers("F98")
async def test_for_the_other_tenant_none_of_it_is_there(ledger: Ledger) -> None:
    ours, theirs = client(ledger, A), client(ledger, B)
    posing = Direct(ledger.db.scoped(B), ledger.env, Bell(ledger.db), tenant=A, author="tests")  # a query that is wrong
    made = await ours.put_job(job(), reason="")
    run = await ours.trigger(made.id, Request())
    queued = await ours.find_run(run)
    at = datetime.now(UTC)
    before = await everything(ledger)

    for stranger in (theirs, posing):
        for attempt in ways_to(stranger, made, queued.id, at):
            with pytest.raises(MainspringError) as refused:
                await attempt()
            assert isinstance(refused.value, NotFound | Conflict), refused.value
        assert (await stranger.list_jobs(JobFilter(), limit=10, after=None)).items == ()
        assert (await stranger.list_runs(RunFilter(), limit=10, after=None)).items == ()
        assert (await stranger.list_runs(RunFilter(job=made.id), limit=10, after=None)).items == ()
        assert await stranger.attempts(queued) == []
        assert await stranger.lines(queued, after=(0, 0), limit=10) == []
    assert await everything(ledger) == before


def ways_to(stranger: Direct, made: JobView, run: UUID, at: datetime) -> list[Callable[[], Awaitable[object]]]:
    """Return all that can be asked about a job and a run of somebody else, by their ids."""
    hour = timedelta(hours=1)
    return [
        lambda: stranger.find_job(made.id),
        lambda: stranger.find_job(made.name),
        lambda: stranger.change_job(made.id, Change(state=JobState.PAUSED)),
        lambda: stranger.versions(made.id, limit=10),
        lambda: stranger.trigger(made.id, Request()),
        lambda: stranger.backfill(made.id, start=at - hour, end=at, request="x", pace=timedelta(0)),
        lambda: stranger.slots(made.id, start=at - hour, end=at, limit=10),
        lambda: stranger.explain(JobId(made.id), at),
        lambda: stranger.find_run(run),
        lambda: stranger.cancel_run(run),  # type: ignore[arg-type]
        lambda: stranger.find_letter(run),
    ]


async def everything(ledger: Ledger) -> list[list[dict[str, object]]]:
    tables = ("jobs", "job_versions", "job_cursors", "runs", "run_history", "skips", "dead_letters", "submissions")
    return [await ledger.rows(f"SELECT * FROM {table} AS t ORDER BY t::text") for table in tables]
