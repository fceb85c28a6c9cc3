"""The SDK over a server: the same as over the database, once however often it is sent, and the key seen by nobody."""

import asyncio
import dataclasses
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from mainspring import Client, Context, NotFound, RetryPolicy, RunFailed, every, http, task
from mainspring.domain.access import Role
from mainspring.domain.asking import Request
from mainspring.domain.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    MainspringError,
    RateLimited,
    StaleVersion,
    Unauthenticated,
    Unavailable,
)
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.job import Job, JobState, job_to_json
from mainspring.domain.views import Event
from mainspring.environment import SystemEnvironment
from mainspring.rest import shapes
from mainspring.rest.routes import BY_NAME
from mainspring.sdk.http import TRIES, Http
from mainspring.sdk.remote import open_remote
from mainspring.sdk.session import Cut, Incoming, NotConnected, Outgoing, Send
from mainspring.store.answers import GIVEN_UP_AFTER
from mainspring.store.database import Database
from mainspring.store.tenants import create_tenant
from mainspring.telemetry.events import Settled
from tests.api.conftest import Asker, key_for, secured, serve

from .conftest import Working
from .proxy import AFTER, BEFORE, Proxy, proxy_to

pytestmark = pytest.mark.asyncio(loop_scope="session")
DAY = ("2026-11-14T00:00:00Z", "2026-11-15T00:00:00Z")
NOBODY = "00000000-0000-0000-0000-000000000000"
_ = secured  # a fixture


@task
async def welcome(user_id: int, template: str = "hello") -> str:
    return f"{template} {user_id}"


@task(retry=RetryPolicy(attempts=2, backoff="immediate"))
async def broken(ctx: Context, reason: str) -> None:
    ctx.log.info("about to break")
    raise ValueError(reason)


@task(schedule=every("1h"))
async def hourly(ctx: Context) -> str:
    return ctx.kind


@pytest_asyncio.fixture(loop_scope="session")
async def api(db: Database) -> AsyncIterator[Asker]:
    async with serve(db) as asker:
        yield asker


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(api: Asker) -> AsyncIterator[Proxy]:
    async with proxy_to(api.url) as made:
        yield made


# The same story over both


async def story(client: Client, working: Working) -> dict[str, Any]:
    """Do all that the SDK can do, and tell what came of it."""
    told: dict[str, Any] = {}
    told["put"] = (await client.jobs.put("nightly", every("1h"), welcome.call(3), tags=("a",), owner="ops")).view
    told["http"] = (await client.jobs.put("ping", None, http.post("https://example.com/x", json={"n": [1.5]}))).view
    for number in range(7):
        await client.jobs.put(f"job-{number}/ü %", None, welcome.call(number))
    told["odd names"] = [(await client.jobs.put(name, None, welcome.call(1))).name for name in ("..", "a/b?c#d", " ")]
    told["jobs"] = [job.view async for job in client.jobs.each(limit=3)]
    told["prefix"] = [job.name async for job in client.jobs.each(limit=3, prefix="job-", state=["active", "paused"])]
    job = await client.jobs.get("nightly")
    told["edit"] = (await job.edit(priority=7, run_timeout=timedelta(seconds=90), if_version=1, reason="more")).view
    told["stale"] = await error_of(job.edit(priority=8, if_version=1))
    told["nothing to pause"] = await error_of(client.jobs.pause("ping"))
    told["pause"] = (await client.jobs.pause("nightly", reason="outage", until="2099-01-01T00:00:00Z")).view
    told["resume"] = (await client.jobs.resume("nightly")).view
    told["versions"] = await job.versions()
    told["backfill"] = [await job.backfill(*DAY, key="one"), await job.backfill(*DAY, key="one", pace="1m")]
    told["bad backfill"] = await error_of(job.backfill(DAY[1], DAY[0]))
    start, end = datetime(2026, 11, 14, tzinfo=UTC), datetime(2026, 11, 17, tzinfo=UTC)
    told["slots"] = await job.slots(start, end)
    told["explain"] = await job.explain_slot(datetime(2026, 11, 14, 3, tzinfo=UTC))
    told["cancelled"] = await client.jobs.cancel("nightly")
    told["scheduled"] = await (await client.submit(hourly)).status()

    later = await client.submit(welcome.options(delay="1h", priority=9, key="later"), 1, template="ü")
    told["later"] = await later.status()
    told["same key"] = (await client.submit(welcome.options(delay="1h", key="later"), 1)).id == later.id
    told["cancel"] = await later.cancel()
    told["cancel twice"] = await error_of(later.cancel())
    async with working(welcome, broken, hourly):
        run = await client.jobs.trigger("nightly", payload={"user_id": 5}, key="k", priority=3)
        told["again"] = (await client.jobs.trigger("nightly", payload={"user_id": 5}, key="k")).id == run.id
        told["result"] = await run.result(timeout=20)
        told["typed"] = await (await client.submit(welcome, 4)).result(timeout=20)
        again = await client.runs.retry(run.id)
        told["retried"] = await again.result(timeout=20)
        dead = [await client.submit(broken, f"no {number}") for number in range(4)]
        told["dead"] = [await run.wait(timeout=20) for run in dead]
        told["failed"] = await error_of(dead[0].result(timeout=20))
        told["attempts"] = await dead[0].attempts()
        letters = [letter async for letter in client.dead_letters.each(job="broken", limit=3)]
        told["letters"] = sorted(letters, key=lambda letter: str(letter.payload))  # they died in any order
        replayed = await client.dead_letters.replay(dead[0].id, payload={"reason": "other"})
        await replayed.wait(timeout=20)
        told["replayed"] = [await replayed.status(), await client.dead_letters.get(dead[0].id)]
        told["discard"] = [await client.dead_letters.discard(dead[1].id, reason="known") for _ in range(2)]
        told["replay discarded"] = await error_of(client.dead_letters.replay(dead[1].id))
        (node,) = [node for node in await client.workers.list() if node.alive]
        told["worker"] = (node.role, node.pools, node.tasks, node.rooms, node.room, node.host, node.version)
        await client.workers.quiesce(node.id)
        told["no node"] = await error_of(client.workers.stop(NOBODY))
    told["lines"] = [line async for line in dead[0].logs(follow=True)]  # the last are written when a worker ends
    told["runs"] = [run async for run in client.runs.each(limit=5, job="nightly")]
    told["pools"] = [(pool.name, pool.room > 0) for pool in await client.workers.pools()]
    await client.workers.pause_pool("short", reason="move")
    told["paused"] = [(pool.name, pool.paused) for pool in await client.workers.pools()]
    told["resumed"] = [await client.workers.resume_pool("short") for _ in range(2)]
    for asking in (client.runs.get(NOBODY), client.jobs.get("none"), client.dead_letters.get(NOBODY)):
        told[f"unknown {len(told)}"] = await error_of(asking)
    told["cursor"] = await error_of(client.runs.list(after="???"))
    await client.jobs.delete("nightly", reason="done")
    told["deleted"] = (await job.refresh()).view
    told["delete twice"] = await error_of(client.jobs.delete("nightly"))
    told["gone"] = await error_of(job.edit(priority=1))
    return {name: plain(value) for name, value in told.items()}


async def error_of(asking: Any) -> tuple[type[MainspringError], str]:
    with pytest.raises(MainspringError) as raised:
        await asking
    return type(raised.value), str(raised.value)


def plain(value: Any) -> Any:
    """Return a value without what differs between two stories: ids, instants, tenants and who it was."""
    match value:
        case Job():
            return {name: each for name, each in job_to_json(value).items() if name != "tenant"}
        case UUID():
            return "an id"
        case datetime():
            return "an instant"
        case list() | tuple():
            return [plain(each) for each in value]
        case str():
            return re.sub(r"\"?(?:[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d:.TZ-]*)\"?", "#", value)
    if dataclasses.is_dataclass(value):
        names = (each.name for each in dataclasses.fields(value) if each.name not in ("tenant", "author"))
        return {name: plain(getattr(value, name)) for name in names}
    return value


async def test_the_same_story_over_a_server_and_over_the_database(
    dsn: str, db: Database, api: Asker, working: Working
) -> None:
    await create_tenant(db, "one")
    await create_tenant(db, "two")

    async with Client(dsn, tenant="one") as direct, Client(api.url, tenant="two") as remote:
        over_database = await story(direct, working)
        over_server = await story(remote, working)

    assert remote.tenant == "two"
    for name, expected in over_database.items():
        assert over_server[name] == expected, name
    assert over_server.keys() == over_database.keys()


async def test_a_page_longer_than_the_server_gives_is_put_together(api: Asker) -> None:
    async with Client(api.url) as client:
        await client.submit_many(welcome.calls((n,) for n in range(620)))
        page = await client.runs.list(limit=610)
        rest = await client.runs.list(limit=610, after=page.next)

    assert len(page.items) == 610
    assert len({run.id for run in (*page.items, *rest.items)}) == 620
    assert rest.next is None


async def test_very_many_runs_go_in_parts_and_keep_their_order(api: Asker) -> None:
    seen: list[Outgoing] = []
    async with Client(api.url, through=noting(seen)) as client:
        runs = await client.submit_many(welcome.calls((n,) for n in range(5_200)))
        few = len(seen)
        large = await client.submit_many(welcome.call(n, "x" * 200_000) for n in range(50))

        assert [(await run.status()).payload["user_id"] for run in (runs[0], runs[5_000], runs[-1])] == [
            0,
            5_000,
            5_199,
        ]
        assert len({run.id for run in (*runs, *large)}) == 5_250
    posts = [request for request in seen[:few] if request.method == "POST"]
    assert len(posts) == 2
    sizes = [len(request.body or b"") for request in seen[few:] if request.method == "POST"]
    assert len(sizes) == 2
    assert max(sizes) < 9 << 20


def noting(seen: list[Outgoing]) -> Callable[[Send], Send]:
    def through(send: Send) -> Send:
        async def noted(request: Outgoing, /) -> Incoming:
            seen.append(request)
            return await send(request)

        return noted

    return through


async def test_an_http_job_is_read_by_one_who_may_not_see_payloads(db: Database, secured: Any) -> None:
    async with serve(db, secured) as server:
        editor = await key_for(db, "shop", Role.EDITOR)
        observer = await key_for(db, "shop", Role.OBSERVER)
        async with Client(server.url, key=editor) as client:
            job = await client.jobs.put("ping", every("1h"), http.post("https://example.com/x"))
            assert client.tenant == "shop"
        async with Client(server.url, key=observer) as client:
            seen = (await client.jobs.get("ping")).view
            versions = await (await client.jobs.get("ping")).versions()
            with pytest.raises(Forbidden):
                await client.jobs.pause("ping")

    assert (seen.definition.task, seen.definition.payload) == ("http", None)
    assert versions[0].definition.payload is None
    assert seen.definition.schedule == job.view.definition.schedule


# Once, however often it is sent


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_cut_post_has_its_effect_once(when: str, proxy: Proxy, db: Database) -> None:
    async with Client(proxy.url) as client:
        await client.jobs.put("nightly", None, welcome.call(1), overlap=Overlap(policy=Overlaps.ALLOW))
        job = await client.jobs.get("nightly")
        proxy.plan += [when, when]

        run = await job.trigger()
        proxy.plan += [when]
        many = await client.submit_many(welcome.calls((n,) for n in range(3)))
        proxy.plan += [when]
        await client.workers.pause_pool("short")
        paused = [pool.name for pool in await client.workers.pools() if pool.paused is not None]

    assert paused == ["short"]
    assert proxy.count("POST") == 3 + 2 + 2
    async with db.connection() as connection:
        ids = {row["id"] for row in await connection.fetch("SELECT id FROM runs")}
    assert ids == {run.id, *(each.id for each in many)}
    first, second, third, *rest = proxy.keys()
    assert first == second == third
    assert (rest[0], rest[2]) == (rest[1], rest[3])
    assert len({first, rest[0], rest[2]}) == 3


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_cut_put_or_delete_is_told_and_not_sent_again(when: str, proxy: Proxy) -> None:
    async with Client(proxy.url) as client:
        await client.jobs.put("nightly", None, welcome.call(1))
        job = await client.jobs.get("nightly")

        proxy.plan += [when]
        with pytest.raises(Cut, match="PUT http"):
            await job.edit(priority=5, if_version=1)
        changed = (await client.jobs.get("nightly")).view.version
        proxy.plan += [when]
        with pytest.raises(Cut, match="DELETE http"):
            await job.delete()

        assert (proxy.count("PUT"), proxy.count("DELETE")) == (2, 1)
        assert changed == (2 if when == AFTER else 1)
        assert (await job.refresh()).view.state is (JobState.DELETED if when == AFTER else JobState.ACTIVE)


async def test_a_cut_read_is_asked_again(proxy: Proxy) -> None:
    async with Client(proxy.url) as client:
        proxy.plan += [BEFORE, AFTER, BEFORE]
        assert (await client.jobs.list()).items == ()
        proxy.plan += [AFTER] * TRIES
        with pytest.raises(Cut):
            await client.jobs.list()


async def test_a_server_that_is_not_there_is_told_as_such() -> None:
    with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1 cannot be reached") as refused:
        async with Client("http://127.0.0.1:1"):
            pass
    assert refused.value.exit_status == 6


class Clock(SystemEnvironment):
    """Notes how long it was asked to sleep, and does not; its time is that of the sleepers."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)


def scripted(*answers: Incoming | Exception) -> tuple[Http, list[Outgoing], Clock]:
    """A server that answers one after the other, and the last for ever."""
    seen, env = list[Outgoing](), Clock()

    async def send(request: Outgoing, /) -> Incoming:
        seen.append(request)
        answer = answers[min(len(seen), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(request: Outgoing) -> Any:
        raise AssertionError(request)

    return Http("http://127.0.0.1", send, stream, env), seen, env


def problem(status: int, code: str, **headers: str) -> Incoming:
    body = {"title": "t", "status": status, "detail": "d", "code": code}
    return Incoming(status, {"Content-Type": "application/problem+json", **headers}, msgspec.json.encode(body))


ROUTES = {"GET": "runs.get", "POST": "runs.cancel", "PUT": "jobs.put", "PATCH": "jobs.edit", "DELETE": "jobs.delete"}
AWAY = problem(503, "store_unavailable")
LATER = problem(429, "rate_limited", **{"Retry-After": "3"})
AT_IT = problem(409, "request_in_progress")
BAD_GATEWAY = Incoming(502, {"Content-Type": "text/html"}, b"<html>")


@pytest.mark.parametrize(
    ("answer", "error", "again"),
    [
        (NotConnected("x"), NotConnected, {"GET", "POST", "PUT", "PATCH", "DELETE"}),
        (LATER, RateLimited, {"GET", "POST", "PUT", "PATCH", "DELETE"}),
        (AWAY, Unavailable, {"GET", "POST", "PUT", "PATCH"}),
        (BAD_GATEWAY, Unavailable, {"GET", "POST", "PUT", "PATCH"}),
        (Cut("x"), Cut, {"GET", "POST"}),
        (problem(409, "conflict"), Conflict, set()),
        (problem(412, "stale_version"), StaleVersion, set()),
        (problem(401, "unauthenticated"), Unauthenticated, set()),
        (problem(500, "internal"), MainspringError, set()),
        (Incoming(302, {"Location": "http://evil.example"}, b""), InvalidRequest, set()),
        (Incoming(404, {"Content-Type": "text/html"}, b"nginx"), NotFound, set()),
    ],
)
async def test_what_is_sent_again_and_what_is_not(
    answer: Incoming | Exception, error: type[Exception], again: set[str]
) -> None:
    for method, route in ROUTES.items():
        assert BY_NAME[route].method == method
        http, seen, env = scripted(answer)

        with pytest.raises(error):
            await http.ask(route, shapes.Health, NOBODY)

        assert len(seen) == (TRIES if method in again else 1), method
        assert len(env.slept) == len(seen) - 1
        assert len({request.headers.get("Idempotency-Key") for request in seen}) == 1


async def test_a_guarded_change_is_not_repeated_when_the_server_gave_up() -> None:
    http, seen, _ = scripted(AWAY)
    with pytest.raises(Unavailable):
        await http.ask("jobs.put", shapes.Health, "x", if_version=3)
    assert [request.headers["If-Match"] for request in seen] == ['"3"']

    http, seen, _ = scripted(LATER, Incoming(200, {}, b'{"status": "ok"}'))
    await http.ask("jobs.put", shapes.Health, "x", if_version=3)  # refused before anything was done
    assert len(seen) == 2


async def test_pauses_grow_and_keep_to_what_the_server_asks_for() -> None:
    http, _, env = scripted(AWAY)
    with pytest.raises(Unavailable):
        await http.ask("runs.get", shapes.Health, NOBODY)
    assert [low <= pause <= 2 * low for low, pause in zip((0.05, 0.1, 0.2), env.slept, strict=True)] == [True] * 3

    http, _, env = scripted(LATER, Incoming(200, {}, b'{"status": "ok"}'))
    await http.ask("runs.get", shapes.Health, NOBODY)
    assert env.slept == [3.0]

    http, seen, env = scripted(problem(429, "rate_limited", **{"Retry-After": "3600"}))
    with pytest.raises(RateLimited) as limited:
        await http.ask("runs.get", shapes.Health, NOBODY)
    assert limited.value.retry_after == timedelta(hours=1)
    assert (len(seen), env.slept) == (1, [])


@pytest.mark.parametrize("first", [Cut("x"), AWAY, BAD_GATEWAY, AT_IT])
async def test_a_lost_request_that_the_server_is_still_at_is_waited_for(first: Incoming | Exception) -> None:
    done = Incoming(200, {}, b'{"status": "ok"}')
    http, seen, env = scripted(first, *[AT_IT] * 30, done)

    await http.ask("runs.cancel", shapes.Health, NOBODY)

    assert len(seen) == 32
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 1
    assert max(env.slept) <= 2  # who is done sooner is not waited for much longer

    wanted = problem(409, "request_in_progress", **{"Retry-After": "7"})
    http, seen, env = scripted(first, wanted, wanted, done)
    await http.ask("runs.cancel", shapes.Health, NOBODY)
    assert env.slept[1:] == [7.0, 7.0]


@pytest.mark.parametrize("wanted", [{}, {"Retry-After": "1"}, {"Retry-After": "61"}])
async def test_a_lost_request_that_never_ends_is_told_as_such(wanted: dict[str, str]) -> None:
    http, seen, env = scripted(Cut("x"), problem(409, "request_in_progress", **wanted))

    with pytest.raises(Cut, match=r"POST .* was not answered: the server took it"):
        await http.ask("runs.cancel", shapes.Health, NOBODY)

    assert GIVEN_UP_AFTER.total_seconds() < sum(env.slept) < GIVEN_UP_AFTER.total_seconds() + 15
    assert len(seen) == len(env.slept) + 1


@pytest.mark.parametrize("then", [NotConnected("x"), LATER, AWAY, BAD_GATEWAY])
@pytest.mark.parametrize("first", [Cut("x"), AT_IT])
async def test_a_request_that_may_have_been_done_is_not_told_as_one_that_was_not(
    first: Incoming | Exception, then: Incoming | Exception
) -> None:
    http, seen, _ = scripted(first, then)

    with pytest.raises(Cut):
        await http.ask("runs.cancel", shapes.Health, NOBODY)

    assert len(seen) == TRIES + (first is AT_IT)


async def test_a_key_that_a_dead_server_left_behind_is_waited_for_until_it_is_free(api: Asker, db: Database) -> None:
    answers: list[int] = []

    def through(send: Send) -> Send:
        async def sent(request: Outgoing, /) -> Incoming:
            answer = await send(request)
            if request.method != "POST":
                return answer
            answers.append(answer.status)
            async with db.connection() as connection:
                if len(answers) == 1:  # done, and then nobody is left to say so, nor to keep the answer
                    await connection.execute("UPDATE answers SET status = NULL, answer = NULL, finished_at = NULL")
                    raise Cut("x")
                if len(answers) == 3 * TRIES:  # a minute later
                    await connection.execute("UPDATE answers SET started_at = started_at - interval '2 minutes'")
            return answer

        return sent

    async with Client(api.url) as client, open_remote(api.url, through=through, env=Clock()) as remote:
        job = await client.jobs.put("nightly", None, welcome.call(1))
        run = await remote.trigger(job.id, Request())
        runs = [each.id async for each in client.runs.each()]

    assert runs == [run]
    assert answers == [201, *[409] * (3 * TRIES - 1), 201]


# The key is seen by nobody


async def test_a_redirect_is_not_followed_and_no_error_log_or_repr_has_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    key, came = "ms_0123456789ab_verysecret", list[str]()

    async def elsewhere(request: web.Request) -> web.Response:
        came.append(request.headers.get("Authorization", ""))
        return web.Response(status=302, headers={"Location": "/api/v1/stolen"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", elsewhere)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        client = Client(f"http://127.0.0.1:{runner.addresses[0][1]}", key=key)
        with pytest.raises(InvalidRequest, match="sends us elsewhere") as refused:
            await client.__aenter__()
    finally:
        await runner.cleanup()

    assert came == [f"Bearer {key}"]
    error: BaseException | None = refused.value
    while error is not None:
        assert "verysecret" not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
    assert "verysecret" not in f"{client!r} {caplog.text}"


async def test_a_wrong_key_and_a_lost_connection_do_not_tell_it(db: Database, secured: Any) -> None:
    async with serve(db, secured) as server, proxy_to(server.url) as proxy:
        with pytest.raises(Unauthenticated) as unknown:
            await Client(proxy.url, key="ms_0123456789ab_verysecret").__aenter__()
        async with Client(proxy.url, key=await key_for(db, "shop")) as client:
            proxy.plan += [AFTER]
            with pytest.raises(Cut) as cut:
                await client.jobs.put("x", None, welcome.call(1))

    assert "verysecret" not in str(unknown.value)
    assert (cut.value.__cause__, cut.value.__suppress_context__) == (None, True)
    assert "ms_" not in str(cut.value)


@pytest.mark.parametrize(
    ("url", "because"),
    [
        ("http://jobs.example.com", "in the open"),
        ("http://10.0.0.1:8080", "in the open"),
        ("http://127.0.0.1.example.com", "in the open"),
        ("https://ms:ms_key@jobs.example.com", "a user in it"),
        ("https://", "no URL"),
        ("https://host:port", "no URL"),
        ("https://host/?a=b", "no URL"),
    ],
)
async def test_addresses_that_no_key_is_sent_to(url: str, because: str) -> None:
    with pytest.raises(InvalidRequest, match=because) as refused:
        await Client(url, key="ms_key").__aenter__()
    assert "ms_key" not in str(refused.value)


async def test_a_key_for_a_database_and_a_transaction_over_a_server_are_refused(api: Asker, dsn: str) -> None:
    with pytest.raises(InvalidRequest, match="key: it is for a server"):
        await Client(dsn, key="ms_key").__aenter__()
    async with Client(api.url) as client:
        with pytest.raises(InvalidRequest, match="a transaction of yours"):
            client.using(object())


async def test_the_surroundings_name_a_server_before_a_database(
    db: Database, secured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(db, secured) as server:
        monkeypatch.setenv("MAINSPRING_URL", server.url)
        monkeypatch.setenv("MAINSPRING_KEY", await key_for(db, "shop"))
        monkeypatch.setenv("MAINSPRING_DSN", "postgresql://nobody@127.0.0.1:1/none")
        async with Client() as client:
            assert client.tenant == "shop"
        with pytest.raises(Unauthenticated):  # the key is for the server of MAINSPRING_URL only
            await Client(server.url).__aenter__()


# Looking on


@pytest.mark.parametrize("over", ["database", "server"])
async def test_looking_on_tells_every_state_of_a_run_and_what_changes(
    over: str, dsn: str, api: Asker, working: Working
) -> None:
    async with Client(dsn if over == "database" else api.url) as client:
        run = await client.submit(welcome, 1)
        states: list[str] = []
        changes: list[Event] = []
        at_work: asyncio.Task[None] | None = None
        async with aclosing(client.runs.watch(run=run.id)) as events, asyncio.timeout(20):
            async for event in events:
                states.append(event.data["state"])
                assert (event.kind, event.data["id"]) == ("run", str(run.id))
                assert event.at == datetime.fromisoformat(event.data["at"])
                if at_work is None:  # it is seen to wait, then it may run
                    at_work = asyncio.create_task(_work(working))
                if event.data["state"] == "succeeded":
                    break
        assert at_work is not None
        await at_work

        async with Client(api.url) as other, aclosing(client.watch()) as everything, asyncio.timeout(20):
            looking = asyncio.create_task(following(everything, "change"))
            while not looking.done():
                await other.jobs.put(f"job-{len(changes)}", None, welcome.call(1))
                await asyncio.wait([looking], timeout=0.5)
            changes.append(looking.result())
        with pytest.raises(NotFound):
            await anext(client.runs.watch(job="none"))

    assert states[0] == "queued"
    assert states[-1] == "succeeded"
    assert changes[0].kind == "change"
    assert changes[0].data["action"] == "jobs.put"


async def following(events: AsyncIterator[Event], kind: str = "run") -> Event:
    async for event in events:
        if event.kind == kind:
            return event
    raise AssertionError("a stream has no end")


async def _work(working: Working) -> None:
    async with working(welcome) as recorder:
        await recorder.until(lambda seen: bool(seen.of(Settled)), timeout=20)


async def test_a_stream_that_is_cut_goes_on_where_it_was(proxy: Proxy, api: Asker, working: Working) -> None:
    async with Client(proxy.url) as looking, Client(api.url) as client:
        ended: list[str] = []
        async with working(welcome), aclosing(looking.watch()) as events, asyncio.timeout(40):
            waiting = asyncio.create_task(following(events))
            while b"/events" not in proxy.heads[-1]:  # noqa: ASYNC110 - the proxy has no event for that
                await asyncio.sleep(0.01)
            first = [await client.submit(welcome, number) for number in range(3)]
            ended.append((await waiting).data["id"])
            while len(ended) < 3:
                ended.append((await following(events)).data["id"])
            proxy.cut_all()
            second = [await client.submit(welcome, number) for number in range(3)]
            for run in second:
                await run.wait(timeout=20)
            while len(ended) < 6:
                ended.append((await following(events)).data["id"])

    assert sorted(ended) == sorted(str(run.id) for run in (*first, *second))
    streams = [head for head in proxy.heads if b"/events" in head]
    assert len(streams) >= 2
    assert b"Last-Event-ID: " in streams[-1]


# The blocking front


async def test_the_blocking_client_over_a_server(api: Asker, working: Working) -> None:
    def script() -> tuple[str, list[str], str]:
        with Client.sync(api.url) as client:
            result = client.submit(welcome, 7).result(timeout=20)
            client.jobs.put("nightly", every("1h"), welcome.call(1)).pause(reason="x").resume()
            names = [job.name for job in client.jobs.each(limit=1)]
            waiting = client.submit(welcome.options(delay="1h"), 1)
            watching = client.runs.watch(run=waiting.id)
            state = next(watching).data["state"]
            watching.close()  # type: ignore[attr-defined]  # a generator
            with pytest.raises(InvalidRequest, match="a transaction of yours"):
                client.using(object()).submit(welcome, 1)
            with pytest.raises(RunFailed):
                client.runs.retry(client.submit(broken, "no").wait(20).id).result(20)
            return result, names, state

    async with working(welcome, broken):
        result, names, state = await asyncio.to_thread(script)

    assert result == "hello 7"
    assert set(names) == {"broken", "nightly", "welcome"} or set(names) == {"nightly", "welcome"}
    assert state in ("waiting", "queued")
