"""The API while things break: its database, its clients, its own process. It answers, keeps its word, and goes on."""

import asyncio
import logging
import os
import signal
import socket
import struct
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp
import pytest

from mainspring.api import events, metrics
from mainspring.api.build import open_api
from mainspring.api.connection import Limits
from mainspring.api.server import Server, ServerConfig, bound
from mainspring.config import Settings
from mainspring.environment import SystemEnvironment
from mainspring.rest.routes import ROUTES, Route
from mainspring.roles import open_ledger
from mainspring.service import Stop, run_all
from mainspring.store.database import Database
from mainspring.telemetry.events import Events
from tests.process.test_outage import Postgres

from .conftest import Answered, serve
from .listening import Listener, connect, listening
from .serving import LOOK_EVERY, Served, servers_on

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENV = SystemEnvironment()
PATIENCE = 30  # seconds: the end of hope, not a time anybody waits
SOON = 10.0  # seconds: how soon everything works again
NOBODY = UUID(int=7)
NIGHTLY: dict[str, Any] = {"name": "nightly", "task": "report", "schedule": [{"cron": "30 2 * * *"}]}
NAMES = {"job": "nightly", "pool": "short", "tenant": "default", "secret": "token"}
RANGE = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
BODIES: dict[str, Any] = {
    "jobs.create": {**NIGHTLY, "name": "other"},
    "jobs.create_many": {"jobs": [{**NIGHTLY, "name": "another"}]},
    "jobs.put": NIGHTLY,
    "jobs.edit": {"priority": 7},
    "jobs.set_status": {"state": "paused"},
    "jobs.backfill": RANGE,
    "runs.submit": {"job": {"name": "asked", "task": "report"}, "runs": [{}]},
    "dead_letters.replay_many": {"filter": {}},
    "dead_letters.discard_many": {"filter": {}},
    "bulk.start": {"action": "jobs.pause", "filter": {}},
    "tenants.create": {"name": "shop"},
    "tenants.edit": {"note": "x"},
    "keys.create": {"name": "ci", "role": "viewer"},
    "secrets.put": {"value": "x"},
    "audit.run": RANGE,
}
QUERIES = {
    "jobs.slots": "?start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z",
    "jobs.explain": "?at=2026-01-01T00:00:00Z",
}
WITHOUT_DATABASE = {"me.get", "events.stream"}  # once it is known who asks


class Away(Postgres):
    """A database that can also stop answering, with all its connections open."""

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        postmaster = self._server.pid
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            os.kill(pid, number)


@pytest.fixture
def postgres() -> Iterator[Away]:
    with tempfile.TemporaryDirectory(prefix="mainspring-away-") as data_dir:
        started = Away(Path(data_dir))
        yield started
        started.take_away()


def where(route: Route) -> str:
    path = route.path
    for name in ("job", "pool", "tenant", "secret", "run", "bulk", "node", "key"):
        path = path.replace(f"{{{name}}}", NAMES.get(name, str(NOBODY)))
    return path + QUERIES.get(route.name, "")


async def rows(db: Database, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    async with db.connection() as connection:
        return [tuple(row) for row in await connection.fetch(query, *arguments)]


async def until(true: Callable[[], Awaitable[bool]], within: float = PATIENCE) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within):
        while True:
            if await true():
                return
            await asyncio.sleep(LOOK_EVERY)


async def until_triggered(db: Database, number: int) -> None:
    async def triggered() -> bool:
        return await rows(db, "SELECT count(*) FROM runs") == [(number,)]

    await until(triggered)


# 1. the database


@pytest.mark.parametrize("how", ["stopped", "frozen"])
@pytest.mark.parametrize("length", [pytest.param(5, id="short"), pytest.param(20, id="longer", marks=pytest.mark.long)])
async def test_without_a_database_every_route_says_so_and_all_goes_on_when_it_is_back(
    postgres: Away, how: str, length: float, tmp_path: Path
) -> None:
    (tmp_path / "seal").write_bytes(b64encode(bytes(32)))
    async with open_ledger(postgres.dsn):
        pass  # it is there now
    go, come = (postgres.take_away, postgres.bring_back) if how == "stopped" else (postgres.freeze, postgres.thaw)
    limit = 3.0  # longer than readiness waits, so that it answers for itself
    async with servers_on(postgres.dsn) as servers:
        seal = f"file:{tmp_path / 'seal'}"
        served = await servers.start(api__request_timeout=f"{limit:g}s", secrets__seal_with=seal)
        assert (await served.ask("POST", "/jobs", NIGHTLY)).status == 201
        async with listening(served.url) as listener:
            await noticed(served, listener, "before")
            go()
            try:
                await without_database(served, limit)  # most of what the gate asks for is still known
                await asyncio.sleep(length)  # how long it is away is what is tested
                await without_database(served, limit, known=False)
            finally:
                come()
            back = ENV.monotonic()
            await until(lambda: answers(served, "GET", "/readyz", None, 200), SOON)
            await until(lambda: answers(served, "POST", "/jobs", {**NIGHTLY, "name": "after"}, 201, 409), SOON)
            await noticed(served, listener, "since")
            assert ENV.monotonic() - back < 2 * SOON
            assert not listener.over
        assert served.process.returncode is None
        assert not served.tracebacks
        served.send(signal.SIGTERM)
        assert await served.ends() == 0


async def test_the_metrics_say_that_the_database_hangs_while_it_does(
    postgres: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_ANSWER_WITHIN", 0.5)
    async with open_ledger(postgres.dsn) as db:
        measured = metrics.Metrics(db)
        assert b"mainspring_database_up 1.0" in await measured.text()
        postgres.freeze()
        try:
            async with asyncio.timeout(SOON):
                assert b"mainspring_database_up 0.0" in await measured.text()
        finally:
            postgres.thaw()


async def answers(served: Served, method: str, path: str, body: Any, *statuses: int) -> bool:
    return (await served.ask(method, path, body)).status in statuses


async def without_database(served: Served, limit: float, *, known: bool = True) -> None:
    """Ask every route, and see that it answers in time that the database is away."""

    async def asked(route: Route) -> None:
        began = ENV.monotonic()
        if route.name == "events.stream":
            return
        body = BODIES.get(route.name, {} if route.body is not None else None)
        answer = await served.ask(route.method, where(route), body)
        took = ENV.monotonic() - began
        said = (route.name, answer.status, answer.body)
        if route.name in WITHOUT_DATABASE and known:
            assert answer.status == 200, said
            return
        assert answer.status == 503, said
        assert answer.headers["Content-Type"] == "application/problem+json", said
        assert int(answer.headers["Retry-After"]) > 0, said
        assert "postgres" not in str(answer.body).lower(), said
        assert took < limit + 2, (took, *said)

    async def ready() -> None:
        answer = await served.ask("GET", "/readyz")
        assert (answer.status, answer["ready"]) == (503, False)

    async def healthy() -> None:
        assert (await served.ask("GET", "/healthz")).status == 200

    async with asyncio.timeout(limit + 10):
        await asyncio.gather(ready(), healthy(), *map(asked, ROUTES))


async def noticed(served: Served, listener: Listener, name: str) -> None:
    """Let changes happen until the stream has told of one."""
    async with asyncio.timeout(PATIENCE):
        while not any(each.data.get("reason") == name for each in listener.told):
            await served.ask("PATCH", "/jobs/nightly", {"reason": name, "priority": len(listener.told) % 10})
            await asyncio.sleep(0.2)


# 2. clients that leave


@asynccontextmanager
async def leaving_nothing(db: Database, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """See that a block leaves no task, descriptor or connection behind, and nothing in the log."""
    before = held(db)

    async def nothing_is_left() -> bool:
        return all(now <= then for now, then in zip(held(db), before, strict=True))

    with caplog.at_level(logging.WARNING):
        yield
        await until(nothing_is_left)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def held(db: Database) -> tuple[int, int, int]:
    """Return how many tasks there are, descriptors but for those of the pool, and connections in use."""
    pool: Any = db._pool  # what it holds is what is tested
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return len(asyncio.all_tasks()), descriptors - pool.get_size(), pool.get_size() - pool.get_idle_size()


async def opened(url: str, *, receive: int | None = None) -> socket.socket:
    """Return a connected socket; ``receive``: how much fits in before somebody reads."""
    made = socket.socket()
    if receive is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    made.setblocking(False)
    at = urlsplit(url)
    try:
        await asyncio.get_running_loop().sock_connect(made, (at.hostname, at.port))
    except OSError:
        made.close()
        raise
    return made


def drop(one: socket.socket) -> None:
    """Hang up without a word: a reset, as from a client that has died."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


async def send(one: socket.socket, text: str) -> None:
    await asyncio.get_running_loop().sock_sendall(one, text.encode())


def head(method: str, path: str, *headers: str) -> str:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *headers, "", ""])


@pytest.mark.covers("F116")
async def test_clients_that_leave_before_they_have_asked(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(db) as ask:
        await ask("POST", "/jobs", NIGHTLY)
        async with leaving_nothing(db, caplog):
            for _ in range(50):
                one = await opened(ask.url)
                await send(
                    one, head("POST", "/api/v1/jobs", "content-type: application/json", "content-length: 1000") + "{"
                )
                await asyncio.sleep(0)
                drop(one)


@pytest.mark.covers("F116")
async def test_clients_that_leave_while_they_wait(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(db) as ask:
        await ask("POST", "/jobs", {**NIGHTLY, "overlap": {"policy": "allow"}})
        async with leaving_nothing(db, caplog):
            waiting = [await opened(ask.url) for _ in range(50)]
            for one in waiting:
                await send(one, head("POST", "/api/v1/jobs/nightly/trigger", "prefer: wait=60", "content-length: 0"))
            await until_triggered(db, 50)
            for one in waiting:
                drop(one)


@pytest.mark.covers("F116")
async def test_clients_that_leave_in_the_middle_of_an_answer(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(db) as ask:
        await ask("POST", "/jobs", NIGHTLY)
        async with leaving_nothing(db, caplog):
            for _ in range(50):
                one = await opened(ask.url, receive=4_096)
                await send(one, head("GET", "/api/v1/openapi.json") * 20)
                assert await asyncio.get_running_loop().sock_recv(one, 100)
                drop(one)


@pytest.mark.covers("F114", "F116")
async def test_two_hundred_streams_that_are_dropped_at_once(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(db) as ask:
        await ask("POST", "/jobs", NIGHTLY)
        async with leaving_nothing(db, caplog):
            streams = await asyncio.gather(*(connect(ask.url) for _ in range(200)))
            for each in streams:
                drop_stream(each)


@pytest.mark.covers("F114", "F116")
async def test_a_stream_with_another_request_behind_it_is_missed_when_it_leaves(
    db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_BEAT_EVERY", 0.1)  # only by sending it is seen that nobody is there
    async with serve(db) as ask:
        await ask("POST", "/jobs", NIGHTLY)
        async with leaving_nothing(db, caplog):
            for _ in range(20):
                one = await opened(ask.url)
                await send(one, head("GET", "/api/v1/events"))
                assert await asyncio.get_running_loop().sock_recv(one, 1_000)
                await send(one, head("GET", "/healthz"))
                await asyncio.sleep(0.01)
                drop(one)


def drop_stream(listener: Listener) -> None:
    listener.writer.transport.abort()


# 3. clients that are slow


@asynccontextmanager
async def guarded(db: Database, config: ServerConfig) -> AsyncIterator[str]:
    """Run a server with little patience."""
    settings = Settings()
    settings = replace(settings, api=replace(settings.api, port=0, request_timeout=timedelta(seconds=1)))
    quiet, stop = Events(lambda _: None), Stop(ENV)
    async with open_api(settings, db=db, env=ENV, events=quiet) as api:
        with bound(config) as listening_on:
            server = Server(api.app, listening_on, config, asyncio.Event())
            running = asyncio.create_task(run_all(stop, server, environment=ENV, events=quiet))
            try:
                yield f"http://127.0.0.1:{listening_on.getsockname()[1]}"
            finally:
                stop.request()
                await running


HASTY = ServerConfig(port=0, limits=Limits(headers_within=timedelta(seconds=1), read_within=timedelta(seconds=1)))


async def dripping(url: str, start: str, drip: str) -> tuple[bytes, float]:
    """Send a little at a time until the server hangs up; return what it said, and how long it took."""
    at, began = urlsplit(url), ENV.monotonic()
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    writer.write(start.encode())
    said = asyncio.create_task(reader.read())
    try:
        async with asyncio.timeout(PATIENCE):
            while not said.done():
                writer.write(drip.encode())
                await asyncio.wait((said,), timeout=0.2)
        with suppress(ConnectionError):  # a reset: we had gone on talking
            return said.result(), ENV.monotonic() - began
        return b"", ENV.monotonic() - began
    finally:
        said.cancel()
        writer.close()


@pytest.mark.parametrize(
    ("start", "drip", "status"),
    [
        pytest.param("GET /healthz HTTP/1.1\r\nhost: localhost\r\n", "x: y\r\n", b"408", id="headers"),
        pytest.param(
            head("POST", "/api/v1/jobs", "content-type: application/json", "content-length: 100000"),
            " ",
            b"408",
            id="bodies",
        ),
        pytest.param("", "", b"", id="nothing"),
    ],
)
async def test_slow_clients_are_let_go_and_hold_up_nobody(db: Database, start: str, drip: str, status: bytes) -> None:
    async with guarded(db, HASTY) as url, aiohttp.ClientSession() as session:
        slow = [asyncio.create_task(dripping(url, start, drip)) for _ in range(200)]
        others: list[float] = []
        while not all(each.done() for each in slow):
            began = ENV.monotonic()
            async with session.get(f"{url}/api/v1/me") as answer:
                assert answer.status == 200
            others.append(ENV.monotonic() - began)
            await asyncio.sleep(0.02)
        ends = [each.result() for each in slow]

    assert max(took for _, took in ends) < 10
    assert {said.split()[1] if said else b"" for said, _ in ends} <= {status, b""}
    assert sum(status in said for said, _ in ends) >= 150  # the rest went on talking, and met a reset
    assert median(others) < 0.25
    assert max(others) < 5


async def test_headers_without_end_are_refused(db: Database) -> None:
    async with guarded(db, HASTY) as url:
        said, _ = await dripping(url, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ", "y" * (1 << 20))
    assert not said or said.split()[1] == b"431"


async def test_who_does_not_read_an_answer_is_let_go(db: Database) -> None:
    async with guarded(db, HASTY) as url:
        one = await opened(url, receive=4_096)
        await send(one, head("GET", "/api/v1/openapi.json") * 50)
        ours = one.getsockname()

        async def let_go() -> bool:
            return not connected(ours[1], urlsplit(url).port or 0)

        await until(let_go)
        one.close()


async def test_who_reads_an_answer_slowly_gets_all_of_it(db: Database) -> None:
    async with guarded(db, HASTY) as url:
        one, got = await opened(url, receive=4_096), 0
        await send(one, head("GET", "/api/v1/openapi.json", "connection: close"))
        while part := await asyncio.get_running_loop().sock_recv(one, 8_192):
            got += len(part)
            await asyncio.sleep(0.1)
        one.close()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/openapi.json") as answer:
            assert got > len(await answer.read()) > 100_000


def connected(ours: int, theirs: int) -> bool:
    """Return whether the server's end of a connection is there."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        line[1].endswith(f":{theirs:04X}") and line[2].endswith(f":{ours:04X}") and line[3] == "01" for line in lines
    )


# 5. kill -9


BATCH = 300
# Where the process dies, and how many jobs are there then.
POINTS_OF_A_BATCH = [("create_many.made", 0), ("create_many.commit", 0), ("create_many.committed", BATCH)]
POINTS_OF_ONE = [("create.commit", 0), ("create.committed", 1)]


def batch(name: str) -> dict[str, Any]:
    return {"jobs": [{**NIGHTLY, "name": f"{name}-{number}"} for number in range(BATCH)]}


async def made(db: Database, prefix: str) -> dict[str, str]:
    found = await rows(db, "SELECT name, id::text FROM jobs WHERE starts_with(name, $1)", prefix)
    return dict(found)


async def ask_or_none(served: Served, method: str, path: str, body: Any, **headers: str) -> Answered | None:
    """Ask; None if the server died over it."""
    with suppress(aiohttp.ClientError):
        return await served.ask(method, path, body, **headers)
    return None


@pytest.mark.parametrize(("point", "there"), POINTS_OF_A_BATCH)
async def test_a_batch_that_is_killed_is_there_or_not_and_its_key_knows(
    db: Database, dsn: str, point: str, there: int
) -> None:
    async with servers_on(dsn) as servers:
        first, second = await asyncio.gather(servers.start(crash_at=point), servers.start())
        assert await ask_or_none(first, "POST", "/jobs:batch", batch("a"), idempotency_key="one") is None
        assert await first.ends() == -signal.SIGKILL
        assert len(await made(db, "a-")) == there

        again = await repeated(second, "/jobs:batch", batch("a"), "one")
        assert again.status == 201
        assert {each["name"]: each["id"] for each in again["jobs"]} == await made(db, "a-")
        assert len(await made(db, "a-")) == BATCH
        other = await second.ask("POST", "/jobs:batch", batch("b"), idempotency_key="one")
        assert (other.status, other["code"]) == (422, "idempotency_key_reused")
        assert await made(db, "b-") == {}


@pytest.mark.parametrize(("point", "there"), POINTS_OF_ONE)
async def test_a_job_whose_making_is_killed_is_there_or_not_and_its_key_knows(
    db: Database, dsn: str, point: str, there: int
) -> None:
    async with servers_on(dsn) as servers:
        first, second = await asyncio.gather(servers.start(crash_at=point), servers.start())
        assert await ask_or_none(first, "POST", "/jobs", NIGHTLY, idempotency_key="one") is None
        assert await first.ends() == -signal.SIGKILL
        assert len(await made(db, "nightly")) == there

        again = await repeated(second, "/jobs", NIGHTLY, "one")
        assert (again.status, {"nightly": again["id"]}) == (201, await made(db, "nightly"))
        other = await second.ask("POST", "/jobs", {**NIGHTLY, "name": "b"}, idempotency_key="one")
        assert (other.status, other["code"]) == (422, "idempotency_key_reused")


async def repeated(served: Served, path: str, body: Any, key: str) -> Answered:
    """Ask again as long as there is no answer; locks of one who was killed may last a moment."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await served.ask("POST", path, body, idempotency_key=key)
            if answer.status != 503:
                return answer
            await asyncio.sleep(LOOK_EVERY)


async def given_up(db: Database) -> None:
    """Let the minute pass in which somebody might still be working on a key."""
    async with db.transaction() as tx:
        await tx.execute("UPDATE answers SET started_at = started_at - interval '2 minutes' WHERE status IS NULL")


async def test_killed_at_any_moment_every_key_has_one_effect(db: Database, dsn: str) -> None:
    draw = Random(5)
    async with servers_on(dsn) as servers:
        served = await servers.start()
        triggered = {**NIGHTLY, "name": "triggered", "overlap": {"policy": "allow"}}
        assert (await served.ask("POST", "/jobs", triggered)).status == 201
        for turn in range(5):
            asked = [("/jobs:batch", batch(f"batch{turn}"), f"batch-{turn}")]
            asked += [("/jobs", {**NIGHTLY, "name": f"single{turn}-{n}"}, f"single-{turn}-{n}") for n in range(30)]
            asked += [("/jobs/triggered/trigger", {}, f"trigger-{turn}-{n}") for n in range(30)]
            asking = [
                asyncio.create_task(ask_or_none(served, "POST", path, body, idempotency_key=key))
                for path, body, key in asked
            ]
            await asyncio.sleep(draw.uniform(0.0, 0.5))  # the random moment is what is tested
            await served.kill()
            first = await asyncio.gather(*asking)
            served = await servers.start()
            assert len(await made(db, f"batch{turn}-")) in (0, BATCH)
            await given_up(db)
            for (path, body, key), before in zip(asked, first, strict=True):
                after = await repeated(served, path, body, key)
                assert after.status == 201, (key, after)
                assert before is None or before.status != 201 or identity(before) == identity(after)
            assert len(await made(db, f"batch{turn}-")) == BATCH
            assert len(await made(db, f"single{turn}-")) == 30
        assert await rows(db, "SELECT count(*) FROM runs") == [(5 * 30,)]


def identity(answer: Answered) -> Any:
    return answer.body["id"] if "id" in answer.body else answer.body["jobs"]


async def test_two_processes_that_get_one_key_at_once_have_one_effect(db: Database, dsn: str) -> None:
    async with servers_on(dsn) as servers:
        pair = await asyncio.gather(servers.start(), servers.start())
        triggered = {**NIGHTLY, "name": "triggered", "overlap": {"policy": "allow"}}
        assert (await pair[0].ask("POST", "/jobs", triggered)).status == 201
        wanted: list[tuple[str, Callable[[int], Any]]] = [
            ("/jobs", lambda n: {**NIGHTLY, "name": f"single-{n}"}),
            ("/jobs:batch", lambda n: {"jobs": [{**NIGHTLY, "name": f"many-{n}-{part}"} for part in range(3)]}),
            ("/jobs/triggered/trigger", lambda _: {}),
        ]
        for path, body in wanted:
            for number in range(20):
                key = f"{path}{number}"
                both = await asyncio.gather(
                    *(each.ask("POST", path, body(number), idempotency_key=key) for each in pair for _ in range(2))
                )
                told = {str(identity(each)) for each in both if each.status == 201}
                assert len(told) == 1, both
                assert {each.status for each in both} <= {201, 409, 503}, both
                assert {each["code"] for each in both if each.status == 409} <= {"request_in_progress"}, both
                assert {str(identity(await repeated(each, path, body(number), key))) for each in pair} == told
        assert len(await made(db, "single-")) == 20
        assert len(await made(db, "many-")) == 60
        assert await rows(db, "SELECT count(*) FROM runs") == [(20,)]


# 6. SIGTERM


async def test_a_stop_under_load_answers_what_was_asked(db: Database, dsn: str) -> None:
    async with servers_on(dsn) as servers, AsyncExitStack() as stack:
        served = await servers.start(api__drain="8s")
        assert (await served.ask("POST", "/jobs", {**NIGHTLY, "overlap": {"policy": "allow"}})).status == 201
        streams = [await stack.enter_async_context(listening(served.url)) for _ in range(20)]
        waiting = [
            asyncio.create_task(served.ask("POST", "/jobs/nightly/trigger", {}, prefer="wait=60")) for _ in range(20)
        ]
        at = urlsplit(served.url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        body = b'{"name": "half", "task": "report", "schedule": [{"cron": "30 2 * * *"}]}'
        writer.write(
            head("POST", "/api/v1/jobs", "content-type: application/json", f"content-length: {len(body)}").encode()
        )
        writer.write(body[:20])
        await until_triggered(db, 20)
        load = [asyncio.create_task(loaded(served)) for _ in range(10)]
        await asyncio.sleep(0.3)  # under load

        served.send(signal.SIGTERM)
        asked = ENV.monotonic()
        await until(lambda: refuses(served.url))
        writer.write(body[20:])
        said = await reader.read()
        writer.close()
        status = await served.ends()
        took = ENV.monotonic() - asked

        assert said.split()[1] == b"201", said
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {201}
        assert {await each.ends() for each in streams} == {events.STOPPING}
        assert status == 0
        assert took < 8
        assert {code for codes in await asyncio.gather(*load) for code in codes} == {200}
        assert not served.tracebacks
    assert await made(db, "half")


async def loaded(served: Served) -> set[int]:
    """Ask until nobody answers any more; return what was answered."""
    answered = set()
    with suppress(aiohttp.ClientError):
        while True:
            answered.add((await served.ask("GET", "/jobs")).status)
    return answered


async def refuses(url: str) -> bool:
    try:
        (await opened(url)).close()
    except ConnectionRefusedError:
        return True
    return False
