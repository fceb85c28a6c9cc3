"""The SDK over a database and over a server: submit, wait, look after jobs, runs and dead letters."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from mainspring import (
    Client,
    Context,
    NotFound,
    RetryPolicy,
    RunFailed,
    cron,
    every,
    task,
)
from mainspring.domain.errors import Conflict, InvalidRequest, StaleVersion
from mainspring.domain.job import JobState
from mainspring.domain.run import State
from mainspring.store.database import Database
from mainspring.telemetry.events import Settled
from mainspring.testing.invariants import check_ledger
from tests.api.conftest import serve

from .conftest import Working, is_in, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
MINUTE = timedelta(minutes=1)


@pytest_asyncio.fixture(loop_scope="session", params=["database", "server"])
async def client(request: pytest.FixtureRequest, dsn: str, db: Database) -> AsyncIterator[Client]:
    """The same client twice: straight on the database, and through a server in front of it."""
    if request.param == "database":
        async with Client(dsn, author="local") as opened:  # who asks a server without a key
            yield opened
    else:
        async with serve(db) as asker, Client(asker.url) as opened:
            yield opened


@dataclass
class Address:
    street: str
    number: int


@task
async def welcome(user_id: int, template: str = "hello") -> str:
    return f"{template} {user_id}"


@task
async def move(to: Address, on: date) -> Address:
    return Address(f"{to.street} ({on:%A})", to.number + 1)


@task(schedule=every("1h"))
async def nightly(ctx: Context) -> str:
    return ctx.kind


@task(retry=RetryPolicy(attempts=2, backoff="immediate"))
async def broken(reason: str) -> None:
    raise ValueError(reason)


async def test_a_submitted_run_gives_its_result_in_the_type_the_task_returns(client: Client, working: Working) -> None:
    async with working(welcome, move):
        run = await client.submit(welcome, 7, template="vip")
        moved = await client.submit(move, Address("Main", 1), date(2026, 11, 16))

        assert await run.result(timeout=10) == "vip 7"
        assert await moved.result(timeout=10) == Address("Main (Monday)", 2)
    view = await run.status()
    assert (view.state, view.kind, view.job, view.attempt) == (State.SUCCEEDED, "manual", "welcome", 1)


@pytest.mark.covers("F37")
async def test_the_same_key_is_one_run_however_often_it_is_asked_for(client: Client, db: Database) -> None:
    once = welcome.options(key="welcome:7")

    runs = [await client.submit(once, 7), *await asyncio.gather(*(client.submit(once, 7) for _ in range(20)))]
    many = await client.submit_many([once.call(7), once.call(7), welcome.call(8)])

    assert len({run.id for run in [*runs, *many[:2]]}) == 1
    assert many[2].id != runs[0].id
    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM runs") == 2


async def test_two_clients_that_race_with_one_key_make_one_run(dsn: str, db: Database) -> None:
    once = welcome.options(key="only")
    async with Client(dsn) as first, Client(dsn) as second:
        await first.submit(welcome, 0)
        runs = await asyncio.gather(*(each.submit(once, 1) for each in (first, second) for _ in range(10)))

    assert len({run.id for run in runs}) == 1
    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM runs") == 2


async def test_many_calls_keep_their_order(client: Client, working: Working) -> None:
    runs = await client.submit_many([*welcome.calls((n,) for n in range(50)), move.call(Address("A", 1), date.max)])

    async with working(welcome, move, concurrency=20):
        results = [await run.result(timeout=20) for run in runs[:50]]

    assert results == [f"hello {n}" for n in range(50)]


async def test_wrong_arguments_are_refused_before_anything_is_written(client: Client, db: Database) -> None:
    call: Any = client.submit
    for args, kwargs, field in [
        ((), {}, "payload.user_id"),
        (("seven",), {}, "payload.user_id"),
        ((7,), {"templte": "vip"}, "payload.templte"),
        ((7, "vip", 1), {}, "payload"),
        ((object(),), {}, "payload"),
    ]:
        with pytest.raises(InvalidRequest) as refused:
            await call(welcome, *args, **kwargs)
        assert refused.value.field == field

    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM runs") == 0


async def test_a_payload_that_is_too_large_is_refused_with_what_to_do_instead(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="store it elsewhere"):
        await client.submit(welcome, 7, template="x" * 300_000)


async def test_a_delay_and_a_priority_are_the_submissions_own(client: Client) -> None:
    later = await (await client.submit(welcome.options(delay="10m"), 1)).status()
    sooner = await (await client.submit(welcome.options(priority=9), 1)).status()

    assert later.ready_at is not None
    assert timedelta(minutes=9) < later.ready_at - later.fired_at <= timedelta(minutes=10)
    assert sooner.ready_at == sooner.fired_at


async def test_a_task_with_a_schedule_runs_by_hand_one_after_the_other(client: Client, working: Working) -> None:
    first, second = await client.submit(nightly), await client.submit(nightly)
    assert [(await run.status()).state for run in (first, second)] == [State.QUEUED, State.HELD]

    async with working(nightly):
        assert [await run.result(timeout=10) for run in (first, second)] == ["manual", "manual"]


async def test_a_failing_run_is_retried_then_dead_then_replayed_once(
    client: Client, working: Working, db: Database
) -> None:
    async with working(broken):
        run = await client.submit(broken, "no")
        with pytest.raises(RunFailed, match="ValueError: no"):
            await run.result(timeout=10)
        page = await client.dead_letters.list(job="broken")
        (letter,) = page.items
        again = await client.dead_letters.replay(run.id)
        same = await client.dead_letters.replay(run.id)
        with pytest.raises(RunFailed):
            await again.result(timeout=10)

    assert [(each.number, each.outcome) for each in letter.attempts] == [(1, "failed"), (2, "failed")]
    assert letter.payload == {"reason": "no"}
    assert letter.error is not None
    assert "in broken" in letter.error.traceback
    assert again.id == same.id
    assert (await again.status()).kind == "replay"
    assert (await client.dead_letters.get(run.id)).replayed_as == again.id
    await check_ledger(db)


async def test_a_discarded_letter_is_closed_and_not_replayed(client: Client, working: Working) -> None:
    async with working(broken):
        run = await client.submit(broken, "no")
        await run.wait(timeout=10)

    assert await client.dead_letters.discard(run.id, reason="known")
    assert not await client.dead_letters.discard(run.id)
    assert (await client.dead_letters.list()).items == ()
    with pytest.raises(Conflict, match="discarded"):
        await client.dead_letters.replay(run.id)


async def test_jobs_by_name_their_versions_and_their_ends(client: Client) -> None:
    job = await client.jobs.put("ping", cron("0 9 * * 1-5", tz="Europe/Paris", overlap="queue"), welcome.call(3))

    assert job.explain() == "At 09:00, Monday to Friday, Europe/Paris time."
    assert job.view.definition.payload == {"user_id": 3}
    assert job.upcoming(2, after=datetime(2026, 11, 13, 12, tzinfo=UTC)) == [
        datetime(2026, 11, 16, 8, tzinfo=UTC),
        datetime(2026, 11, 17, 8, tzinfo=UTC),
    ]
    same = await client.jobs.put("ping", cron("0 9 * * 1-5", tz="Europe/Paris", overlap="queue"), welcome.call(3))
    assert same.view.version == 1
    changed = await client.jobs.put("ping", every("1h"), welcome.call(3), priority=5)
    assert (changed.view.version, changed.view.author) == (2, "local")
    with pytest.raises(StaleVersion):
        await changed.edit(priority=6, if_version=1)
    await changed.edit(priority=6, if_version=2, reason="more")
    await changed.pause(reason="outage", until="2099-01-01T00:00:00Z")
    assert (changed.view.state, changed.view.resume_at) == (JobState.PAUSED, datetime(2099, 1, 1, tzinfo=UTC))
    assert (await client.jobs.resume("ping")).view.resume_at is None
    assert [(each.number, each.reason) for each in await changed.versions()] == [
        (5, ""),
        (4, "outage"),
        (3, "more"),
        (2, ""),
        (1, ""),
    ]
    await client.jobs.delete("ping")
    with pytest.raises(NotFound):
        await client.jobs.get("ping")


async def test_an_old_handle_undoes_nothing_that_was_changed_since(client: Client) -> None:
    old = await client.jobs.put("ping", every("1h"), welcome.call(3))
    await client.jobs.edit("ping", priority=5, owner="ops")

    with pytest.raises(StaleVersion, match="look again"):
        await old.edit(pool="mail")

    assert old.view.version == 1
    now = (await client.jobs.get("ping")).view
    assert (now.version, now.definition.priority, now.definition.pool) == (2, 5, "short")
    await (await old.refresh()).edit(pool="mail")
    assert (old.view.version, old.view.definition.priority, old.view.definition.pool) == (3, 5, "mail")
    await old.edit(priority=6)  # it has the view of its own change
    assert old.view.version == 4
    with pytest.raises(StaleVersion):  # whoever names a version means it
        await old.edit(priority=7, if_version=3)


async def test_of_two_edits_at_the_same_moment_none_is_lost_without_a_word(client: Client) -> None:
    job = await client.jobs.put("ping", every("1h"), welcome.call(3))
    handles = [await client.jobs.get("ping") for _ in range(4)]
    changes: list[dict[str, Any]] = [{"priority": 5}, {"pool": "mail"}, {"owner": "ops"}, {"tags": ("a",)}]

    edits = [handle.edit(**change) for handle, change in zip(handles, changes, strict=True)]
    answers = await asyncio.gather(*edits, return_exceptions=True)

    assert sorted(type(answer).__name__ for answer in answers) == ["JobHandle", *["StaleVersion"] * 3]
    assert (await job.refresh()).view.version == 2


async def test_an_old_handle_may_pause_resume_and_delete(client: Client) -> None:
    old = await client.jobs.put("ping", every("1h"), welcome.call(3))
    await client.jobs.edit("ping", priority=5)

    assert (await old.pause()).view.version == 3
    await client.jobs.edit("ping", priority=6)
    assert (await old.resume()).view.definition.priority == 6
    await client.jobs.edit("ping", priority=7)
    await old.delete()
    assert old.view.state is JobState.DELETED


async def test_a_list_goes_on_where_the_page_before_ended(client: Client) -> None:
    for number in range(7):
        await client.jobs.put(f"job-{number}", None, welcome.call(1))
    await client.submit_many(welcome.calls((n,) for n in range(25)))

    first = await client.jobs.list(limit=3, prefix="job-")
    assert [job.name for job in first.items] == ["job-0", "job-1", "job-2"]
    names = [job.name async for job in client.jobs.each(limit=2, prefix="job-")]
    assert names == [f"job-{number}" for number in range(7)]
    runs = [run.id async for run in client.runs.each(limit=4, job="welcome")]
    assert len(runs) == len(set(runs)) == 25
    assert [run.id async for run in client.runs.each(limit=7)] == runs
    with pytest.raises(InvalidRequest, match="no cursor"):
        await client.runs.list(after="???")
    with pytest.raises(InvalidRequest, match="'sleeping' is not a valid"):
        await client.runs.list(state="sleeping")


async def test_another_tenant_sees_nothing_of_it(dsn: str, client: Client) -> None:
    run = await client.submit(welcome, 1)
    async with Client(dsn, tenant="other") as other:
        with pytest.raises(NotFound):
            await other.runs.get(run.id)
        with pytest.raises(NotFound):
            await other.runs.cancel(run.id)
        with pytest.raises(NotFound):
            await other.jobs.get("welcome")
        assert (await other.runs.list()).items == ()
        assert (await other.jobs.list()).items == ()


async def test_a_backfill_makes_runs_of_their_own_and_twice_is_once(client: Client, working: Working) -> None:
    job = await client.jobs.put("hourly", every("1h"), nightly)
    day = ("2026-11-14T00:00:00Z", "2026-11-15T00:00:00Z")

    assert await job.backfill(*day, key="request-1") == 24
    assert await job.backfill(*day, key="request-1") == 0
    assert await job.backfill(*day, key="request-2") == 24
    with pytest.raises(InvalidRequest, match="in the future"):
        await job.backfill("2026-11-14T00:00:00Z", datetime.now(UTC) + MINUTE)
    with pytest.raises(InvalidRequest, match="empty"):
        await job.backfill(day[1], day[0])

    async with working(nightly) as recorder:
        await recorder.until(lambda seen: sum(event.succeeded for event in seen.of(Settled)) == 48, timeout=20)
    runs = [run async for run in client.runs.each(job="hourly", state="succeeded")]
    assert {run.kind for run in runs} == {"backfill"}
    assert {run.result for run in runs} == {"backfill"}
    assert len({run.slot for run in runs}) == 24


async def test_all_runs_of_a_job_can_be_cancelled_at_once(client: Client) -> None:
    await client.submit_many(welcome.calls((n,) for n in range(30)))

    assert await client.jobs.cancel("welcome") == 30
    assert {run.state async for run in client.runs.each()} == {State.CANCELLED}


async def test_a_run_that_waits_can_be_tried_at_once_and_one_that_ended_again(client: Client, working: Working) -> None:
    @task(retry=RetryPolicy(backoff="1h"))
    async def flaky(ctx: Context) -> str:
        if ctx.kind == "manual" and ctx.attempt == 1:
            raise RuntimeError
        return ctx.kind

    async with working(flaky):
        run = await client.submit(flaky)
        await until(lambda: is_in(run, State.WAITING))
        assert (await client.runs.retry(run.id)).id == run.id
        assert await run.result(timeout=10) == "manual"
        again = await client.runs.retry(run.id)
        assert await again.result(timeout=10) == "replay"
    with pytest.raises(NotFound):
        await client.runs.retry("00000000-0000-0000-0000-000000000000")


async def test_a_job_of_another_task_keeps_its_name(client: Client) -> None:
    await client.jobs.put("welcome", every("1h"), "something_else")

    with pytest.raises(Conflict, match='runs task "something_else"'):
        await client.submit(welcome, 1)


async def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(RuntimeError, match="async with Client"):
        await Client("postgresql://nowhere").submit(welcome, 1)


@pytest.mark.covers("F63")
async def test_two_replays_and_a_retry_at_the_same_moment_make_one_run(
    dsn: str, client: Client, working: Working, db: Database
) -> None:
    async with working(broken):
        run = await client.submit(broken, "no")
        await run.wait(timeout=10)

    async with Client(dsn) as other:
        clicks = [each.dead_letters.replay(run.id) for each in (client, other) for _ in range(5)]
        again = await asyncio.gather(*clicks, client.runs.retry(run.id), other.runs.retry(run.id))

    assert len({each.id for each in again}) == 1
    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM runs") == 1
    await check_ledger(db)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"key": ""}, "key"),
        ({"key": "x" * 201}, "key"),
        ({"key": "a\0b"}, "key"),
        ({"pool": "\n"}, "pool"),
        ({"priority": 101}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"delay": timedelta(seconds=-1)}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"at": datetime(2027, 1, 1)}, "at"),
    ],
)
async def test_options_that_no_run_can_have_are_refused_at_once(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        welcome.options(**options)

    assert refused.value.field == field


async def test_a_client_whose_connections_were_thrown_out_goes_on(dsn: str, client: Client) -> None:
    await client.submit(welcome, 1)
    other = await asyncpg.connect(dsn)
    mine = "datname = current_database() AND pid <> pg_backend_pid()"
    await other.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {mine}")
    await other.close()
    await asyncio.sleep(0.1)  # for the news to arrive here, as it does for whoever waits between two submissions

    runs = [await client.submit(welcome, number) for number in range(3)]

    assert {(await run.status()).state for run in runs} == {State.QUEUED}
