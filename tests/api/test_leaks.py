"""What nobody is told: secrets that were sent by mistake, why the server failed, payloads to those who may not see."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pytest

from mainspring.api.requests import Call, Reply
from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.domain.errors import BrokenInvariant, StoreUnavailable, WrongDatabase
from mainspring.domain.tenants import Quotas
from mainspring.rest.routes import BY_NAME, PREFIX, ROUTES, SSE, Route
from mainspring.store.database import Database, open_database
from mainspring.store.tenants import change_tenant

from .conftest import Asker, key_for, serve
from .samples import SAMPLES, Got, Maker, Sample, Things, fresh, path_of, sealing, send
from .test_injection import body_shape_places, planted

pytestmark = pytest.mark.asyncio(loop_scope="session")

CANARY = "canary-7f3a-hunter2"
SAID = f"{CANARY} at postgresql://ann:s3cr3t@db.internal:5432/ledger: SELECT * FROM jobs"
NAMES = ("password", "api_key", "clientSecret", "access-token", "DB_PASS", "authorization", "privateKey")
VALUES = (CANARY, [CANARY], {"inner": [1, {"token": CANARY}]}, f"Bearer {CANARY}")


def payload_places() -> list[tuple[Route, tuple[Any, ...]]]:
    """Return every place in a body that takes any JSON."""
    found = []
    for route in ROUTES:
        ways = body_shape_places(route)
        found += [(route, way[:-1]) for way in ways if way[-2:] in ((*("payload", "x"),), (*("json", "x"),))]
    return found


def sample_for(route: Route, things: Things) -> Sample:
    sample = SAMPLES[route.name](things)
    return replace(sample, body={**sample.body, "action": "jobs.trigger"}) if route.name == "bulk.start" else sample


@pytest.mark.covers("F103")
async def test_a_secret_in_a_payload_is_refused_by_its_path_and_not_repeated(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mainspring")
    async with serve(db, sealing(Settings(), monkeypatch)) as asker:
        things = await Maker(asker, db, "default").things()
        tried = set()
        for route, way in payload_places():
            for name in NAMES:
                for value in VALUES:
                    body = planted(sample_for(route, things).body, way, {"a": [{name: value}]})
                    got = await send(asker, route, things, sample=Sample(body, SAMPLES[route.name](things).query))

                    said = msgspec.json.decode(got.content)
                    assert (got.status, said["code"]) == (422, "inline_secret"), (route.name, way, said)
                    assert said["field"].startswith(_path(way)), (route.name, said)
                    assert f".a[0].{name}" in said["field"] or f'.a[0]["{name}"]' in said["field"]
                    assert CANARY.encode() not in got.content
            tried.add(route.name)
    assert {"jobs.create", "jobs.put", "jobs.edit", "jobs.create_many", "jobs.trigger", "runs.submit"} <= tried
    assert {"runs.retry", "dead_letters.replay", "dead_letters.replay_many", "bulk.start"} <= tried
    assert CANARY not in caplog.text
    async with db.connection() as connection:
        for table in ("job_versions", "changes", "runs", "answers", "bulks"):
            assert not await connection.fetchval(
                f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE $1", f"%{CANARY}%"
            )


def _path(way: tuple[Any, ...]) -> str:
    """Return a way as a problem names it; a definition inside of a request is called without what is around it."""
    steps = [step for step in way if step != "job"]
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).strip(".")


@pytest.mark.covers("F103")
async def test_the_value_of_a_secret_is_in_no_answer(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mainspring")
    async with serve(db, sealing(Settings(), monkeypatch)) as asker:
        things = await Maker(asker, db, "default").things()
        put = BY_NAME["secrets.put"]
        bodies: list[Any] = [
            {"value": CANARY},
            {"value": [CANARY]},
            {"value": {CANARY: 1}},
            {CANARY: CANARY},
            CANARY,
            [CANARY],
        ]
        bodies += [{"value": CANARY, "more": CANARY}, {"value": CANARY * 5_000}, {"value": f"{CANARY}\0"}]
        got = [await send(asker, put, things, sample=Sample(body)) for body in bodies]
        seen = [await send(asker, route, things) for route in ROUTES if route.method == "GET"]

    assert [each.status for each in got] == [200] + [422] * 8
    assert not [each for each in (*got[:3], *got[4:], *seen) if CANARY.encode() in each.content]
    assert CANARY not in caplog.text


def says_nothing(got: Got, *more: str) -> None:
    """Check that an answer is a problem that tells no more than where to look."""
    assert got.status in (500, 503), got
    assert got.headers["Content-Type"] == "application/problem+json"
    said = msgspec.json.decode(got.content)
    assert set(said) == {"title", "status", "detail", "code", "request"}
    assert said["request"] == got.headers["mainspring-request"]
    assert "Retry-After" in got.headers or got.status == 500
    text = f"{got.content.decode()} {dict(got.headers)}".lower()
    hints = (
        "select ",
        "insert",
        "relation",
        "permission",
        "postgres",
        "asyncpg",
        "traceback",
        ".py",
        "s3cr3t",
        "column",
    )
    for hint in (CANARY, *hints, *more):
        assert hint.lower() not in text, (hint, text)


RAISED: dict[str, Callable[[], Exception]] = {
    "anything": lambda: RuntimeError(SAID),
    "a KeyError": lambda: KeyError(SAID),
    "a broken invariant": lambda: BrokenInvariant(SAID),
    "a database that is away": lambda: StoreUnavailable(SAID),
    "a database that is another": lambda: WrongDatabase(SAID, field="dsn", value=SAID, allowed=SAID),
    "an error of the driver": lambda: asyncpg.UndefinedTableError(SAID),
    "a recursion": lambda: RecursionError(SAID),
    "a group": lambda: ExceptionGroup(SAID, [RuntimeError(SAID)]),
}


@pytest.mark.covers("F107")
@pytest.mark.parametrize("what", RAISED)
async def test_a_handler_that_fails_says_nothing(
    db: Database, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_: Call) -> Reply:
        error = RAISED[what]()
        raise error

    async with serve(db, sealing(Settings(), monkeypatch)) as asker:
        things = await Maker(asker, db, "default").things()
        for route in ROUTES:
            monkeypatch.setitem(asker.api.app._handlers, route.name, fails)
        for route in ROUTES:
            caplog.clear()

            got = await send(asker, route, things)

            says_nothing(got)
            name = msgspec.json.decode(got.content)["request"]
            assert name in caplog.text  # there the operator finds the rest
            assert CANARY in caplog.text


@pytest.mark.covers("F107")
async def test_so_does_whatever_else_fails(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> Any:
        raise RuntimeError(SAID)

    async with serve(db) as asker:
        app = asker.api.app
        for part, name in ((app._gate, "principal"), (app._gate, "admit"), (app._answering, "once")):
            with monkeypatch.context() as patch:
                patch.setattr(part, name, fails)
                got = await raw(asker, "/jobs", "POST", json={"name": "nightly", "task": "noop"})
            says_nothing(got)
        for path, page in list(app._pages.items()):
            with monkeypatch.context() as patch:
                patch.setitem(app._pages, path, replace(page, read=fails))
                says_nothing(await raw(asker, path))


async def test_a_stream_that_fails_ends_without_a_word(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b": welcome\n\n"
        raise RuntimeError(SAID)

    async def stream(_: Call) -> Reply:
        return Reply(media=SSE, parts=parts())

    async with serve(db) as asker:
        monkeypatch.setitem(asker.api.app._handlers, "events.stream", stream)
        url = f"{asker.url}{PREFIX}/events"
        content = b""
        async with asker.session.get(url) as answer:
            try:
                async for part in answer.content.iter_any():
                    content += part
            except Exception as error:  # noqa: BLE001 - it was cut off, as it should be
                assert CANARY not in str(error)
    assert content == b": welcome\n\n"


Breaking = Callable[[asyncpg.Connection], Awaitable[Any]]
BROKEN: dict[str, Breaking] = {
    "tables are gone": lambda owner: owner.execute(
        "DROP TABLE jobs, runs, run_history, changes, answers, secrets CASCADE"
    ),
    "a grant is gone": lambda owner: owner.execute("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM mainspring_tenant"),
    "a column is gone": lambda owner: owner.execute("ALTER TABLE jobs RENAME COLUMN name TO nom"),
    "it answers too late": lambda owner: owner.execute("BEGIN; LOCK TABLE jobs, runs, changes, answers, secrets"),
}


@pytest.mark.covers("F107")
@pytest.mark.parametrize("what", BROKEN)
async def test_a_database_that_fails_is_not_quoted(dsn: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = (urlsplit(dsn).path.strip("/"), "statement_timeout")
    late = "&" if "?" in dsn else "?"
    async with (
        open_database(f"{dsn}{late}statement_timeout=150ms") as db,
        serve(db, sealing(Settings(), monkeypatch)) as asker,
        owner_of(dsn) as owner,
    ):
        things = await Maker(asker, db, "default").things()
        await BROKEN[what](owner)
        failed = set()
        for route in ROUTES:
            if route.media == SSE:
                continue
            got = await send(asker, route, things)
            if got.status >= 500:
                says_nothing(got, *hidden)
                failed.add(route.name)
            else:
                assert CANARY.encode() not in got.content

    assert {"jobs.list", "jobs.get", "jobs.create", "jobs.status", "runs.submit"} <= failed


_ENDED = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1"  # and waits for the end


@pytest.mark.covers("F107")
@pytest.mark.parametrize("gone", [True, False], ids=["gone", "closed"])
async def test_a_database_that_is_away_is_not_named(dsn: str, monkeypatch: pytest.MonkeyPatch, *, gone: bool) -> None:
    name = urlsplit(dsn).path.strip("/")
    away = f"{name}_away" if gone else name
    async with open_database(dsn) as db, serve(db, sealing(Settings(), monkeypatch)) as asker:
        things = await Maker(asker, db, "default").things()
        async with owner_of(dsn.replace(f"/{name}", "/postgres")) as owner:
            await owner.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await owner.execute(_ENDED, name)
            if gone:
                await owner.execute(f"ALTER DATABASE {name} RENAME TO {away}")
            try:
                for route in (BY_NAME["jobs.list"], BY_NAME["jobs.create"], BY_NAME["runs.get"], BY_NAME["pools.list"]):
                    got = await send(asker, route, things)
                    says_nothing(got, name)
                    assert got.status == 503
                ready = await raw(asker, "/readyz")
                assert (ready.status, msgspec.json.decode(ready.content)) == (503, {"ready": False, "database": "away"})
            finally:
                await owner.execute(f"ALTER DATABASE {away} ALLOW_CONNECTIONS true")
                if gone:
                    await owner.execute(f"ALTER DATABASE {away} RENAME TO {name}")


@asynccontextmanager
async def owner_of(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def raw(asker: Asker, path: str, method: str = "GET", **more: Any) -> Got:
    where = path if path.startswith(("/healthz", "/readyz", "/metrics", "/docs", "/api/")) else f"{PREFIX}{path}"
    async with asker.session.request(method, f"{asker.url}{where}", **more) as answer:
        return Got(answer.status, dict(answer.headers), await answer.read())


@pytest.mark.covers("F103")
async def test_an_observer_sees_no_payload_result_or_message_anywhere(
    db: Database, secured: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_tenant(db, "default", quotas=Quotas(requests_per_second=1_000_000, burst=1_000_000))
    admin, keys = await key_for(db, None), {role: await key_for(db, "shop", role) for role in Role}
    observer = await key_for(db, None, Role.OBSERVER)
    async with serve(db, sealing(secured, monkeypatch)) as asker:
        maker = Maker(asker.with_key(admin), db, "shop")
        told = {"payload": f"payload {CANARY}", "error": f"error {CANARY}", "line": f"line {CANARY}"}
        things = await maker.things(**told)
        done = await maker.done(f"result {CANARY}")
        variants = [
            things,
            replace(things, run=things.dead),
            replace(things, run=done),
            replace(things, job=await _job_of(asker.with_key(keys[Role.ADMIN]), things.dead)),
        ]
        looking = [route for route in ROUTES if not route.changes or route.name == "audit.run"]

        seen: dict[Role, set[str]] = {}
        for role in (Role.OBSERVER, Role.VIEWER):
            asked = [asker.with_key(keys[role])]
            asked += [asker.with_key(observer).given(**{"Mainspring-Tenant": "shop"})] if role is Role.OBSERVER else []
            seen[role] = set()
            for who in asked:
                for route in looking:
                    for each in variants:
                        sample = await _fullest(who, route, each)
                        got = await look(who, route, each, sample)
                        if CANARY.encode() in got.content:
                            seen[role].add(route.name)

    assert seen[Role.OBSERVER] == set()
    assert seen[Role.VIEWER] == {
        *("jobs.list", "jobs.get", "jobs.runs", "jobs.versions", "runs.list", "runs.get", "runs.attempts", "runs.logs"),
        *("dead_letters.list", "dead_letters.get"),
    }


async def _job_of(asker: Asker, run: str) -> str:
    return str((await asker("GET", f"/runs/{run}"))["job_id"])


async def _fullest(asker: Asker, route: Route, things: Things) -> Sample:
    """Return a request that shows as much as there is."""
    sample = SAMPLES[route.name](things)
    query = {name: value for name, value in sample.query.items() if name not in ("limit", "state")}
    if route.name == "jobs.explain":  # at the very instant when something happened
        runs = await asker("GET", f"/jobs/{things.job}/runs")
        query["at"] = runs["items"][0]["slot"] if runs["items"] else query["at"]
    return replace(sample, query=query)


async def look(asker: Asker, route: Route, things: Things, sample: Sample) -> Got:
    if route.media != SSE:
        return await send(asker, route, things, sample=sample)
    headers, content = {**asker.headers, "Last-Event-ID": "1"}, b""
    async with asker.session.get(f"{asker.url}{path_of(route, things, sample)}", headers=headers) as answer:
        while b"event: run" not in content:  # what was missed comes at once; changes are not for these to hear of
            async with asyncio.timeout(10):
                content += await answer.content.readany()
        return Got(answer.status, {}, content)


@pytest.mark.covers("F113")
@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"Host": host}
            for host in (
                "evil.example",
                "evil.example:8080",
                "127.0.0.1.evil.example",
                "localhost.evil",
                "",
                "10.0.0.1",
            )
        ),
        *(
            {"Origin": origin}
            for origin in ("https://evil.example", "http://localhost:1", "null", "http://127.0.0.1", "file://")
        ),
        *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "")),
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=str,
)
async def test_without_a_key_no_page_of_somebody_else_gets_in(ask: Asker, headers: dict[str, str]) -> None:
    for route in (BY_NAME["jobs.list"], BY_NAME["jobs.create"], BY_NAME["cluster.show"], BY_NAME["events.stream"]):
        got = await send(ask, route, NOTHING, headers)
        assert (got.status, msgspec.json.decode(got.content)["code"]) == (403, "forbidden"), got
    assert (await raw(ask, "/metrics", headers=headers)).status == 403
    assert (await ask("GET", "/jobs"))["items"] == []


NOTHING = Things(tenant="", job="", name="", run="", dead="", bulk="", key="", secret="", node="")


@pytest.mark.covers("F113")
async def test_its_own_page_gets_in(ask: Asker) -> None:
    host = ask.url.removeprefix("http://")
    for headers in (
        {"Origin": ask.url, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Host": "localhost:80"},
        {"Host": host},
    ):
        assert (await send(ask, BY_NAME["jobs.list"], NOTHING, headers)).status == 200, headers


@pytest.mark.covers("F113")
@pytest.mark.parametrize(
    "media", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""]
)
async def test_what_a_form_can_send_is_not_read(ask: Asker, media: str) -> None:
    content = msgspec.json.encode({"name": fresh(), "task": "noop"})
    got = await raw(ask, "/jobs", "POST", data=content, headers={"Content-Type": media})

    assert (got.status, msgspec.json.decode(got.content)["code"]) == (415, "not_json")
    assert "Access-Control-Allow-Origin" not in got.headers
    assert (await ask("GET", "/jobs"))["items"] == []


async def test_no_answer_lets_another_origin_read_it(ask: Asker) -> None:
    for method in ("GET", "OPTIONS"):
        got = await raw(ask, "/jobs", method, headers={"Access-Control-Request-Method": "POST"})
        assert not [name for name in got.headers if name.lower().startswith("access-control")]
