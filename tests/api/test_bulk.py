"""Bulk actions, through the front door: counted, paced, watched, stopped, and gone on with by another when one dies."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from mainspring.api.build import open_api
from mainspring.api.bulking import Bulks
from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.domain.settling import ErrorInfo, Failed
from mainspring.environment import SystemEnvironment
from mainspring.service import Stop, run_all
from mainspring.store.database import Database
from mainspring.telemetry.events import Events
from tests.store.ledger import Ledger

from .conftest import Answered, Asker, key_for, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOURLY: dict[str, Any] = {"task": "noop", "schedule": [{"every": "1h"}], "retry": {"attempts": 1}}
ASKED_FOR: dict[str, Any] = {"task": "noop", "retry": {"attempts": 1}, "overlap": {"policy": "allow"}}
FAILED = Failed(error=ErrorInfo(type="shop.Broken", message="no stock", traceback=""))


async def given_jobs(ask: Asker, number: int, *, prefix: str = "a", **fields: Any) -> list[str]:
    names = [f"{prefix}-{place:04}" for place in range(number)]
    made = await ask("POST", "/jobs:batch", {"jobs": [{**HOURLY, **fields, "name": name} for name in names]})
    assert made.status == 201, made.body
    return [job["id"] for job in made["jobs"]]


async def given_dead(ask: Asker, db: Database, number: int, **fields: Any) -> list[str]:
    """Let runs of a job come to nothing, and return their ids."""
    wanted = {"job": {"name": "sink", **ASKED_FOR, **fields}, "runs": [{"payload": {"n": n}} for n in range(number)]}
    ids = (await ask("POST", "/runs", wanted))["ids"]
    ledger = Ledger(db, SystemEnvironment())
    await ledger.settle(await ledger.claim(await ledger.node()), FAILED)
    assert len((await ask("GET", "/dead-letters"))["items"]) == number
    return list(ids)


async def until(
    ask: Asker, bulk: str, true: Callable[[Answered], bool] = lambda bulk: bulk["ended_at"] is not None
) -> Answered:
    """Look at a bulk until something is true of it; no longer than a minute."""
    async with asyncio.timeout(60):
        while not true(seen := await ask("GET", f"/bulk/{bulk}")):  # noqa: ASYNC110 - it is another process's
            await asyncio.sleep(0.02)
    return seen


async def rows(db: Database, query: str, *given: Any) -> list[Any]:
    async with db.connection() as connection:
        return await connection.fetch(query, *given)


async def value(db: Database, query: str, *given: Any) -> Any:
    return (await rows(db, query, *given))[0][0]


async def paused(db: Database) -> int:
    counted: int = await value(db, "SELECT count(*) FROM job_cursors WHERE state = 'paused'")
    return counted


@asynccontextmanager
async def one_that_dies(db: Database) -> AsyncIterator[tuple[Asker, Callable[[], Awaitable[None]]]]:
    """Serve, and hand out what kills the one that does bulks: it does not get the time to give anything back."""
    env, events = SystemEnvironment(), Events(lambda _: None)
    stop = Stop(env)
    settings = replace(Settings(), api=replace(Settings().api, port=0))
    async with open_api(settings, db=db, env=env, events=events) as api, aiohttp.ClientSession() as session:
        (dies,) = [service for service in api.services if isinstance(service, Bulks)]
        others = [service for service in api.services if service is not dies]
        dying = asyncio.create_task(run_all(Stop(env), dies, environment=env, events=events))
        serving = asyncio.create_task(run_all(stop, *others, environment=env, events=events))

        async def kill() -> None:
            dying.cancel()
            await asyncio.wait([dying])

        try:
            yield Asker(session, api.url, api), kill
        finally:
            await kill()
            stop.request()
            await serving


async def test_five_hundred_jobs_are_counted_and_then_paused_at_their_pace_and_no_others(
    ask: Asker, db: Database
) -> None:
    await given_jobs(ask, 500, prefix="batch", owner="billing")
    await given_jobs(ask, 20, prefix="batch-other", owner="support")
    await given_jobs(ask, 20, prefix="other", owner="billing")
    wanted = {
        "action": "jobs.pause",
        "filter": {"prefix": "batch", "owner": "billing"},
        "per_second": 250,
        "reason": "upgrade",
    }

    counted = await ask("POST", "/bulk", {**wanted, "dry_run": True})
    assert (counted.status, counted["count"], counted["more"]) == (200, 500, False), counted.body
    assert [sample["name"] for sample in counted["samples"]] == [f"batch-{place:04}" for place in range(5)]
    assert (await paused(db), (await ask("GET", "/bulk"))["items"]) == (0, [])

    began = monotonic()
    started = await ask("POST", "/bulk", wanted)
    assert (started.status, started["state"]) == (202, "counting"), started.body
    assert started.headers["Location"] == f"/api/v1/bulk/{started['id']}"
    seen: list[int] = []

    def ended(bulk: Answered) -> bool:
        seen.append(bulk["done"])
        return bulk["ended_at"] is not None

    await until(ask, started["id"], ended)
    done = await ask("GET", started.headers["Location"])

    assert monotonic() - began >= 499 / 250 - 0.1  # not faster than asked for
    assert seen == sorted(seen)
    assert len(set(seen)) > 5  # it was to be seen on its way
    assert (done["state"], done["total"], done["done"], done["skipped"], done["failed"]) == ("done", 500, 500, 0, 0)
    states = await rows(db, "SELECT name, state FROM jobs JOIN job_cursors ON job_id = id")
    assert Counter(row["state"] for row in states) == {"paused": 500, "active": 40}
    assert all(row["name"].startswith("batch-0") for row in states if row["state"] == "paused")
    entries = await rows(db, "SELECT subject, actor, reason, request FROM changes WHERE action = 'jobs.pause'")
    assert {row["subject"] for row in entries} == {row["name"] for row in states if row["state"] == "paused"}
    assert {tuple(row)[1:] for row in entries} == {("local", "upgrade", f"bulk/{started['id']}")}
    assert len(entries) == 500


async def test_when_a_process_dies_in_the_middle_another_goes_on_and_each_item_is_done_once(db: Database) -> None:
    async with one_that_dies(db) as (ask, kill):
        ids = await given_jobs(ask, 60)
        bulk = (await ask("POST", "/bulk", {"action": "jobs.trigger", "filter": {}, "per_second": 40}))["id"]
        await until(ask, bulk, lambda bulk: bulk["done"] >= 10)
        await kill()
    async with serve(db) as other:
        left = await other("GET", f"/bulk/{bulk}")
        assert 10 <= left["done"] < 60
        async with db.transaction() as tx:  # a while later
            await tx.execute("UPDATE bulks SET changed_at = changed_at - interval '16 s'")
        done = await until(other, bulk)

    assert (done["state"], done["done"], done["skipped"], done["failed"]) == ("done", 60, 0, 0)
    assert Counter(str(row["job_id"]) for row in await rows(db, "SELECT job_id FROM runs")) == dict.fromkeys(ids, 1)
    subjects = await rows(db, "SELECT subject FROM changes WHERE action = 'jobs.trigger'")
    assert Counter(row["subject"] for row in subjects) == {f"a-{place:04}": 1 for place in range(60)}


async def test_a_process_that_stops_gives_its_bulks_to_another_at_once(db: Database) -> None:
    async with serve(db) as ask:
        await given_jobs(ask, 40)
        bulk = (await ask("POST", "/bulk", {"action": "jobs.pause", "filter": {}, "per_second": 20}))["id"]
        await until(ask, bulk, lambda bulk: bulk["done"] >= 5)
    assert await value(db, "SELECT node FROM bulks") is None
    began = await paused(db)
    async with serve(db) as other:
        done = await until(other, bulk)

    assert 5 <= began < 40
    assert (done["state"], done["done"], await paused(db)) == ("done", 40, 40)
    assert await value(db, "SELECT count(*) FROM changes WHERE action = 'jobs.pause'") == 40


async def test_after_a_stop_nothing_more_is_done(ask: Asker, db: Database) -> None:
    await given_jobs(ask, 100)
    bulk = (await ask("POST", "/bulk", {"action": "jobs.pause", "filter": {}, "per_second": 30}))["id"]
    await until(ask, bulk, lambda bulk: bulk["done"] >= 5)

    stopped = await ask("POST", f"/bulk/{bulk}/stop", {"reason": "a mistake"})
    at_once = await paused(db)
    other = (await ask("POST", "/bulk", {"action": "jobs.trigger", "ids": ["a-0099"] * 2}))["id"]
    assert (await until(ask, other))["done"] == 1  # the service has been on since then
    again = await ask("POST", f"/bulk/{bulk}/stop")

    assert (stopped.status, stopped["state"]) == (200, "stopped")
    assert 5 <= stopped["done"] < 100
    assert stopped["done"] == at_once == await paused(db) == (await ask("GET", f"/bulk/{bulk}"))["done"]
    assert (again.status, again["code"]) == (409, "conflict")
    assert await value(db, "SELECT reason FROM changes WHERE action = 'bulk.stop'") == "a mistake"


@pytest.mark.covers("F98")
async def test_another_tenant_sees_nothing_of_a_bulk_and_is_not_touched_by_one(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        ours, theirs = ask.with_key(await key_for(db, "acme")), ask.with_key(await key_for(db, "bolt"))
        (mine,) = await given_jobs(ours, 1)
        (other,) = await given_jobs(theirs, 1)
        bulk = (await ours("POST", "/bulk", {"action": "jobs.pause", "filter": {}}))["id"]
        done = await until(ours, bulk)
        assert (done["total"], done["done"]) == (1, 1)

        for method, path in (("GET", f"/bulk/{bulk}"), ("POST", f"/bulk/{bulk}/stop"), ("GET", "/bulk/nonsense")):
            refused = await theirs(method, path)
            assert (refused.status, refused["code"]) == (404, "not_found")
        assert (await theirs("GET", "/bulk"))["items"] == []
        assert [each["id"] for each in (await ours("GET", "/bulk"))["items"]] == [bulk]
        assert (await theirs("GET", "/jobs/a-0000"))["state"] == "active"

        tried = await theirs("POST", "/bulk", {"action": "jobs.delete", "ids": [mine, str(uuid4())]})
        counted = await theirs("POST", "/bulk", {"action": "jobs.delete", "ids": [mine, other], "dry_run": True})
        failed = await until(theirs, tried["id"])
        assert (counted["count"], [each["id"] for each in counted["samples"]]) == (1, [other])
        assert (failed["done"], failed["failed"]) == (0, 2)
        hint = [each["detail"].replace(each["id"], "") for each in failed["failures"]]
        assert hint[0] == hint[1]  # another's is no different from one that is not there
        assert (await ours("GET", f"/jobs/{mine}"))["state"] == "paused"


async def test_what_fails_is_counted_and_the_first_twenty_are_kept(ask: Asker) -> None:
    await given_jobs(ask, 2)
    made = await ask("POST", "/jobs", {"name": "on-demand", **ASKED_FOR})
    assert (await ask("POST", "/jobs/a-0001/pause")).status == 200
    missing = [f"missing-{place}" for place in range(25)]

    ids = ["on-demand", *missing, "a-0000", "a-0001"]
    done = await until(
        ask, (await ask("POST", "/bulk", {"action": "jobs.pause", "ids": ids, "per_second": 1000}))["id"]
    )

    assert (done["state"], done["total"], done["done"], done["skipped"], done["failed"]) == ("done", 28, 1, 1, 26)
    assert [each["code"] for each in done["failures"]] == ["conflict"] + ["not_found"] * 19
    assert [each["id"] for each in done["failures"]] == ids[:20]
    assert (await ask("GET", f"/jobs/{made['id']}"))["state"] == "active"
    counted = await ask("POST", "/bulk", {"action": "jobs.resume", "filter": {"prefix": "a-"}, "dry_run": True})
    assert counted["count"] == 2


async def test_jobs_are_resumed_and_deleted_and_a_pause_may_end_by_itself(ask: Asker, db: Database) -> None:
    await given_jobs(ask, 6)
    await until(
        ask, (await ask("POST", "/bulk", {"action": "jobs.pause", "filter": {}, "until": "2099-01-01T00:00:00Z"}))["id"]
    )
    assert (await ask("GET", "/jobs/a-0003/status"))["resume_at"] == "2099-01-01T00:00:00Z"

    resumed = await until(
        ask, (await ask("POST", "/bulk", {"action": "jobs.resume", "filter": {"prefix": "a-000"}}))["id"]
    )
    assert (resumed["done"], await paused(db)) == (6, 0)
    deleted = await until(
        ask, (await ask("POST", "/bulk", {"action": "jobs.delete", "filter": {"state": ["active"]}}))["id"]
    )
    assert (deleted["done"], (await ask("GET", "/jobs"))["items"]) == (6, [])


async def test_runs_are_cancelled_and_a_retry_does_not_go_on_with_what_it_has_made(
    ask: Asker, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.api.bulking._PIECE", 2)  # so that it looks again while there are new ones
    asked = {"job": {"name": "sink", **ASKED_FOR}, "runs": [{"key": str(place)} for place in range(20)]}
    assert (await ask("POST", "/runs", asked)).status == 201
    where = {"job": "sink"}

    cancelled = await until(ask, (await ask("POST", "/bulk", {"action": "runs.cancel", "filter": where}))["id"])
    assert (cancelled["total"], cancelled["done"]) == (20, 20)
    again = {"action": "runs.retry", "filter": {**where, "state": ["cancelled"]}, "per_second": 20}
    bulk = (await ask("POST", "/bulk", again))["id"]
    await until(ask, bulk, lambda bulk: bulk["done"] >= 3)
    await ask("POST", "/jobs/sink/cancel")  # so that those it has made are cancelled too, and would be found
    done = await until(ask, bulk)

    assert (done["state"], done["total"], done["done"]) == ("done", 20, 20)
    assert await value(db, "SELECT count(*) FROM (SELECT id FROM runs UNION ALL SELECT id FROM run_history) AS r") == 40


async def test_dead_letters_are_replayed_and_discarded_by_ids_and_by_filter(ask: Asker, db: Database) -> None:
    dead = await given_dead(ask, db, 10)

    counted = await ask(
        "POST", "/dead-letters/replay", {"filter": {"job": "sink", "reason": "exhausted"}, "dry_run": True}
    )
    assert (counted.status, counted["count"]) == (200, 10), counted.body
    first = await ask("POST", "/dead-letters/replay", {"ids": dead[:4], "payload": {"n": "another"}})
    assert (first.status, first["action"], first["ids"]) == (202, "dead_letters.replay", 4)
    assert (await until(ask, first["id"]))["done"] == 4
    again = await until(ask, (await ask("POST", "/dead-letters/replay", {"ids": dead[:5]}))["id"])
    assert (again["done"], again["skipped"]) == (1, 4)
    retried = await until(ask, (await ask("POST", "/bulk", {"action": "runs.retry", "ids": dead[4:6]}))["id"])
    assert (retried["done"], retried["skipped"]) == (1, 1)
    assert await value(db, "SELECT count(*) FROM runs WHERE kind = 'replay'") == 6
    assert await value(db, "SELECT count(*) FROM runs WHERE payload LIKE '%another%'") == 4

    closed = await until(ask, (await ask("POST", "/dead-letters/discard", {"filter": {}, "reason": "old"}))["id"])
    assert (closed["done"], (await ask("GET", "/dead-letters"))["items"]) == (4, [])
    assert await value(db, "SELECT count(*) FROM dead_letters WHERE close_reason = 'old'") == 4


async def test_the_same_request_again_starts_no_other_bulk(ask: Asker, db: Database) -> None:
    await given_jobs(ask, 3)
    wanted = {"action": "jobs.trigger", "filter": {}}
    keyed = ask.given(Idempotency_Key="once")

    first = await keyed("POST", "/bulk", wanted)
    second = await keyed("POST", "/bulk", wanted)
    assert (second.body, second.headers["Location"]) == (first.body, first.headers["Location"])
    async with db.transaction() as tx:  # the process died before it could keep the answer
        await tx.execute("DELETE FROM answers")
    third = await keyed("POST", "/bulk", wanted)
    await until(ask, first["id"])

    assert third["id"] == first["id"]
    assert await value(db, "SELECT count(*) FROM bulks") == 1
    assert await value(db, "SELECT count(*) FROM runs") == 3
    assert await value(db, "SELECT count(*) FROM changes WHERE action = 'bulk.start'") == 1


async def test_each_action_takes_its_own_scope_and_no_payload_is_shown(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        by_role = {role: ask.with_key(await key_for(db, "acme", role)) for role in Role}
        await given_jobs(by_role[Role.EDITOR], 2)
        for role, action, status in (
            (Role.OBSERVER, "jobs.trigger", 403),
            (Role.VIEWER, "dead_letters.discard", 403),
            (Role.OPERATOR, "jobs.trigger", 202),
            (Role.OPERATOR, "jobs.delete", 403),
            (Role.EDITOR, "jobs.delete", 202),
        ):
            payload = {"payload": {"note": "hush-hush"}} if action == "jobs.trigger" else {}
            asked = await by_role[role]("POST", "/bulk", {"action": action, "filter": {}, **payload})
            assert asked.status == status, (role, action, asked.body)
            if status == 202:
                await until(by_role[role], asked["id"])
            else:
                assert asked.headers["Content-Type"] == "application/problem+json"
        for path in ("/bulk", f"/bulk/{(await by_role[Role.OBSERVER]('GET', '/bulk'))['items'][-1]['id']}"):
            shown = await by_role[Role.OBSERVER]("GET", path)
            assert shown.status == 200
            assert "hush" not in str(shown.body)
        assert (
            await value(db, "SELECT count(*) FROM runs WHERE payload LIKE '%hush-hush%'") == 0
        )  # deleted with the jobs
        assert await value(db, "SELECT count(*) FROM run_history WHERE payload LIKE '%hush-hush%'") == 2


async def test_a_suspended_tenant_changes_nothing_more(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        ours, operator = ask.with_key(await key_for(db, "acme")), ask.with_key(await key_for(db, None))
        await given_jobs(ours, 100)
        bulk = (await ours("POST", "/bulk", {"action": "jobs.pause", "filter": {}, "per_second": 20}))["id"]
        await until(ours, bulk, lambda bulk: bulk["done"] >= 3)
        assert (await operator("PATCH", "/tenants/acme", {"state": "suspended"})).status == 200

        for_them = operator.given(Mainspring_Tenant="acme")
        ended = await until(for_them, bulk)
        assert (ended["state"], ended["why"]) == ("failed", "the tenant is closed")
        assert ended["done"] == await paused(db) < 100
        rest = await for_them("POST", "/bulk", {"action": "jobs.pause", "filter": {}, "per_second": 1000})
        assert (await until(for_them, rest["id"]))["state"] == "done"
        assert await paused(db) == 100


PAUSE = {"action": "jobs.pause", "filter": {}}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"action": "jobs.frobnicate", "filter": {}}, "action"),
        ({"filter": {}}, "action"),
        ({"action": "jobs.pause"}, "filter"),
        ({**PAUSE, "ids": ["a"]}, "filter"),
        ({"action": "jobs.pause", "ids": []}, "ids"),
        ({**PAUSE, "filter": {"pool": "short"}}, "filter.pool"),
        ({**PAUSE, "filter": {"state": ["paused"]}}, "filter.state"),
        ({**PAUSE, "filter": {"state": ["sleeping"]}}, "filter.state[0]"),
        ({"action": "runs.cancel", "filter": {"prefix": "a"}}, "filter.prefix"),
        ({"action": "runs.cancel", "filter": {"state": ["succeeded"]}}, "filter.state"),
        ({"action": "dead_letters.replay", "filter": {"state": ["dead"]}}, "filter.state"),
        ({"action": "runs.retry", "ids": ["not-an-id"]}, "ids[0]"),
        ({**PAUSE, "per_second": 0}, "per_second"),
        ({**PAUSE, "per_second": 10_001}, "per_second"),
        ({**PAUSE, "payload": 1}, "payload"),
        ({"action": "jobs.resume", "filter": {}, "until": "2099-01-01T00:00:00Z"}, "until"),
        ({"action": "jobs.trigger", "filter": {}, "payload": {"password": "hunter2"}}, "payload.password"),
        ({**PAUSE, "colour": "red"}, "colour"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_the_field_named(
    ask: Asker, db: Database, asked: Any, field: str
) -> None:
    refused = await ask("POST", "/bulk", asked)

    assert (refused.status, refused.headers["Content-Type"]) == (422, "application/problem+json")
    assert refused["field"] == field
    assert refused["allowed"]
    assert "hunter2" not in str(refused.body)
    assert await value(db, "SELECT count(*) FROM bulks") == 0


async def test_a_filter_for_a_job_that_is_not_there_is_not_found(ask: Asker) -> None:
    refused = await ask("POST", "/bulk", {"action": "runs.cancel", "filter": {"job": "nobody"}})

    assert (refused.status, refused["code"]) == (404, "not_found")


async def test_a_tenant_has_only_so_many_that_are_not_finished(ask: Asker) -> None:
    await given_jobs(ask, 30)
    slow = {"action": "jobs.trigger", "filter": {}, "per_second": 1}

    answers = [await ask("POST", "/bulk", slow) for _ in range(11)]

    assert [answer.status for answer in answers] == [202] * 10 + [409]
    assert answers[-1]["code"] == "conflict"
