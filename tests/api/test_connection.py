"""HTTP/1.1 over a bare socket: all that a client can send or leave out, and what the server makes of it.

There is no database: applications are the tests' own, and events decide what happens before what.
"""

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mainspring.api.connection import Application, Limits
from mainspring.api.incoming import Request
from mainspring.api.server import Server, ServerConfig, bound
from mainspring.environment import SystemEnvironment
from mainspring.service import Stop, run_all
from mainspring.telemetry.events import Events

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENV = SystemEnvironment()
PATIENCE = 10  # seconds: the end of hope, not a time anybody waits
SOON = timedelta(seconds=0.2)
LARGEST = 1 << 20
SMALL = 32 << 10  # bytes that a socket holds, where it matters how many
MUCH = 1 << 20  # bytes: more than all buffers on the way together


# Somebody who asks.


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


def asked(target: str = "/", *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", "host: localhost", *headers, "", ""]).encode()


def posted(target: str, body: bytes, *headers: str) -> bytes:
    return asked(target, f"content-length: {len(body)}", *headers, method="POST") + body


def chunked(target: str, *parts: bytes, end: bytes = b"0\r\n\r\n", headers: tuple[str, ...] = ()) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return asked(target, "transfer-encoding: chunked", *headers, method="POST") + chunks + end


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"

    @property
    def code(self) -> Any:
        return msgspec.json.decode(self.body)["code"]


class Client:
    """One connection, read as strictly as a client can."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        async with asyncio.timeout(PATIENCE):
            await self.writer.drain()

    async def ask(self, *data: bytes) -> Answer:
        await self.send(*data)
        return await self.answer()

    async def head(self) -> Answer:
        """Read an answer but for its body."""
        async with asyncio.timeout(PATIENCE):
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        pairs = [line.split(": ", 1) for line in lines]
        assert len({name for name, _ in pairs}) == len(pairs), lines  # none twice
        return Answer(int(status), dict(pairs))

    async def answer(self) -> Answer:
        head = await self.head()
        if head.status in (100, 204, 304):
            return head
        return Answer(head.status, head.headers, await self._body(head.headers))

    async def answers(self, number: int) -> list[bytes]:
        """Read so many, all of them good, and return their bodies."""
        got = [await self.answer() for _ in range(number)]
        assert {each.status for each in got} <= {200}, got
        return [each.body for each in got]

    async def part(self) -> bytes:
        """Read a chunk."""
        async with asyncio.timeout(PATIENCE):
            length = int(await self._reader.readline(), 16)
            return (await self._reader.readexactly(length + 2))[:-2]

    async def rest(self) -> bytes:
        """Read all that still comes, until the other end hangs up."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read()

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            async with asyncio.timeout(PATIENCE):
                return await self._reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            assert headers.get("connection") == "close"  # or nobody knows where it ends
            return await self.rest()
        body = b""
        while part := await self.part():
            body += part
        return body


def hold(one: socket.socket, size: int) -> None:
    """Let a socket hold so many bytes in each direction, and no more."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


@dataclass(frozen=True)
class Served:
    """A server at work."""

    port: int
    stop: Stop
    ending: asyncio.Event
    running: asyncio.Task[None]

    @asynccontextmanager
    async def client(self, *, buffers: int | None = None) -> AsyncIterator[Client]:
        """Connect; ``buffers``: bytes that the socket holds."""
        with socket.socket(proto=socket.IPPROTO_TCP) as made:  # by its name, for asyncio to send at once
            made.setblocking(False)
            if buffers is not None:
                hold(made, buffers)
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
            reader, writer = await asyncio.open_connection(sock=made)
            try:
                yield Client(reader, writer)
            finally:
                writer.transport.abort()
                await asyncio.sleep(0)  # so that it is closed

    async def elsewhere(self) -> None:
        """Be answered on another connection: what else could go on meanwhile has gone on."""
        async with self.client() as client:
            assert (await client.ask(asked("/elsewhere"))).status == 204

    async def settled(self, count: Callable[[], int]) -> int:
        """Return a number that grows, once it has stopped to."""
        seen, same = count(), 0
        while same < 20:
            await self.elsewhere()
            same = same + 1 if seen == count() else 0
            seen = count()
        return seen

    async def taken(self, client: Client, data: bytes) -> int:
        """Send, and return how many bytes were taken when no more are."""
        client.writer.write(data)
        return await self.settled(lambda: len(data) - client.writer.transport.get_write_buffer_size())

    async def until_late(self) -> None:
        """Wait until everybody is late who is so far in the middle of headers."""
        async with self.client() as client:
            assert (await client.ask(b"GET / HTTP/1.1\r\n")).status == 408

    async def until_idle(self) -> None:
        """Wait until everybody is let go who has asked nothing since now."""
        async with self.client() as client:
            await client.ask(asked("/elsewhere"))
            assert await client.rest() == b""


@asynccontextmanager
async def serving(
    application: Application,
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    drain: timedelta = timedelta(seconds=3 * PATIENCE),
    buffers: int | None = None,
) -> AsyncIterator[Served]:
    """Serve an application for the length of a block; ``buffers``: bytes that its sockets hold."""

    async def with_another(request: Request) -> None:
        if request.path == b"/elsewhere":
            request.answer(204, b"", b"")
        else:
            await application(request)

    config, quiet, stop, ending = ServerConfig(port=0, drain=drain, limits=limits), Events(), Stop(ENV), asyncio.Event()
    with bound(config) as listening:
        if buffers is not None:  # those it accepts have the same
            hold(listening, buffers)
        server = Server(with_another, listening, config, ending)
        running = asyncio.create_task(run_all(stop, server, environment=ENV, events=quiet))
        try:
            yield Served(listening.getsockname()[1], stop, ending, running)
        finally:
            running.cancel()
            await asyncio.wait((running,))


class Desk:
    """An application that answers with the path and the body; to some, when it is let go."""

    def __init__(self, *held: str) -> None:
        self.begun: list[str] = []
        self._gates = {name: asyncio.Event() for name in held}
        self._came: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def __call__(self, request: Request) -> None:
        name = request.path.decode()
        self.begun.append(name)
        self._came[name].set()
        if name in self._gates:
            await self._gates[name].wait()
        body = await request.read(LARGEST)
        request.answer(200, b"x-said: so\r\n", b" ".join(filter(None, (request.path, body))))

    async def came(self, name: str) -> None:
        await until(self._came[name])

    def let_go(self, name: str) -> None:
        self._gates[name].set()


class Notebook(list[Request]):
    """An application that reads what it is sent, and keeps it."""

    async def __call__(self, request: Request) -> None:
        assert await request.read(LARGEST) is not None
        self.append(request)
        request.answer(204, b"", b"")


async def streams(request: Request) -> None:
    request.begin(200, b"x-said: so\r\n")
    for part in (b"one", b"", b"two"):  # an empty one is not the end
        await request.part(part)
    request.end()


async def refuses(request: Request) -> None:  # without a look at the body
    request.answer(413, b"", b"x" * 100_000)


UPGRADE = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk")


# 1. Order.


async def test_answers_come_in_the_order_of_the_requests_and_none_begins_before_its_turn() -> None:
    desk = Desk("/slow")
    async with serving(desk) as served, served.client() as client:
        await client.send(asked("/slow"), asked("/quick"), posted("/body", b"of it"))
        await desk.came("/slow")
        await served.elsewhere()
        assert desk.begun == ["/slow"]

        desk.let_go("/slow")

        assert await client.answers(3) == [b"/slow", b"/quick", b"/body of it"]
        assert desk.begun == ["/slow", "/quick", "/body"]


WRONG = {
    "malformed": (b"no HTTP", b"", 400, "malformed_request"),
    "without a host": (b"GET / HTTP/1.1\r\n", b"\r\n", 400, "malformed_request"),
    "too large": (b"GET / HTTP/1.1\r\nx: ", b"y" * 2_000, 431, "headers_too_large"),
    "late": (b"GET / HTTP/1.1\r\nx: ", b"y", 408, "request_timeout"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_cannot_be_read_is_refused_when_all_before_it_is_answered(what: str) -> None:
    wrong, more, status, code = WRONG[what]
    desk = Desk("/slow")
    limits = Limits(headers_within=SOON, largest_headers=1_000)
    async with serving(desk, limits=limits) as served, served.client() as client:
        await client.send(asked("/slow"), wrong)
        await desk.came("/slow")
        await client.send(more)
        await (served.until_late() if what == "late" else served.elsewhere())
        await client.send(b"\r\nhost: localhost\r\n\r\n", asked("/behind"))  # too late to be right
        await served.elsewhere()
        desk.let_go("/slow")

        assert await client.answers(1) == [b"/slow"]
        refusal = await client.answer()
        assert (refusal.status, refusal.code, refusal.closes) == (status, code, True)
        assert await client.rest() == b""
    assert desk.begun == ["/slow"]


async def test_a_refusal_stays_what_it_was() -> None:
    desk = Desk("/slow")
    limits = Limits(headers_within=SOON, largest_headers=1_000)
    async with serving(desk, limits=limits) as served, served.client() as client:
        await client.send(asked("/slow"), b"GET / HTTP/1.1\r\nx: ")
        await desk.came("/slow")
        await client.send(b"y" * 2_000)
        await served.until_late()
        desk.let_go("/slow")

        assert await client.answers(1) == [b"/slow"]
        assert (await client.answer()).status == 431


async def goes_on(client: Client, served: Served) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            await client.send(b"more")
            await served.elsewhere()


async def test_who_was_refused_and_stays_is_let_go() -> None:
    async with serving(Desk(), limits=Limits(headers_within=SOON)) as served, served.client() as client:
        await client.send(b"no HTTP\r\n\r\n")
        assert b"400" in await client.rest()

        await client.send(b"more")  # it is heard out
        with pytest.raises(ConnectionError):
            await goes_on(client, served)


async def test_nobody_is_late_who_is_not_being_read() -> None:
    desk = Desk("/slow")
    async with serving(desk, limits=Limits(headers_within=SOON)) as served, served.client() as client:
        last = asked("/last")
        await client.send(asked("/slow"), asked("/quick"), last[:20])
        await desk.came("/slow")
        await client.send(last[20:])

        await served.until_late()
        desk.let_go("/slow")

        assert await client.answers(3) == [b"/slow", b"/quick", b"/last"]


async def test_somebody_is_late_again_when_it_is_being_read() -> None:
    desk = Desk("/slow")
    async with serving(desk, limits=Limits(headers_within=SOON)) as served, served.client() as client:
        await client.send(asked("/slow"), asked("/quick"), asked("/last")[:20])
        await desk.came("/slow")
        desk.let_go("/slow")

        assert await client.answers(2) == [b"/slow", b"/quick"]
        assert (await client.answer()).status == 408


async def test_headers_are_measured_from_where_they_begin() -> None:
    async with serving(Desk(), limits=Limits(largest_headers=1_000)) as served, served.client() as client:
        last = asked("/last")
        await client.send(posted("/body", b"x" * 2_000), last[:20])
        await client.answers(1)
        await client.send(last[20:])

        assert await client.answers(1) == [b"/last"]


async def test_headers_are_measured_also_when_they_come_at_once() -> None:
    async with serving(Desk(), limits=Limits(largest_headers=1_000)) as served, served.client() as client:
        assert (await client.ask(asked("/", f"x: {'y' * 2_000}"))).status == 431


async def test_it_is_the_same_wherever_a_packet_ends() -> None:
    upgrades = asked("/up", *UPGRADE) + posted("/up", b"of it", *UPGRADE)
    sent = posted("/body", b"of it") + chunked("/chunks", b"of", b" it") + upgrades + asked("/last?query", "x-a: b")
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        for cut in range(len(sent)):
            await client.send(sent[:cut])
            for _ in range(3):
                await asyncio.sleep(0)  # for the first part to be read alone; if it is not, that is a case too
            await client.send(sent[cut:])

            assert await client.answers(5) == [b"/body of it", b"/chunks of it", b"/up", b"/up of it", b"/last"]
    assert len(desk.begun) == 5 * len(sent)


# 2. Forms of an answer, and how long a connection is kept.


async def test_head_is_answered_with_the_headers_alone() -> None:
    async with serving(Desk()) as served, served.client() as client:
        whole = await client.ask(asked("/thing"))
        await client.send(asked("/thing", method="HEAD"), asked("/next"))
        head = await client.head()

        assert whole.body == b"/thing"
        assert {**head.headers, "date": ""} == {**whole.headers, "date": ""}
        assert (head.headers["content-length"], head.headers["x-said"]) == ("6", "so")
        assert await client.answers(1) == [b"/next"]


async def test_a_stream_is_not_sent_to_who_asked_for_its_head() -> None:
    async with serving(streams) as served, served.client() as client:
        await client.send(asked(method="HEAD"), asked())
        head = await client.head()

        assert (head.status, head.headers["x-said"], head.closes) == (200, "so", False)
        assert await client.answers(1) == [b"onetwo"]


@pytest.mark.parametrize("status", [204, 304])
async def test_some_answers_have_no_body_and_no_length(status: int) -> None:
    async def application(request: Request) -> None:
        request.answer(status, b"", b"not to be sent")

    async with serving(application) as served, served.client() as client:
        for _ in range(2):
            answer = await client.ask(asked())
            assert answer.status == status
            assert set(answer.headers) == {"date"}


async def test_a_stream_is_sent_in_chunks_and_the_connection_goes_on() -> None:
    async with serving(streams) as served, served.client() as client:
        for _ in range(2):
            head = await client.ask(asked())
            assert head.headers["transfer-encoding"] == "chunked"
            assert (head.body, head.closes) == (b"onetwo", False)


CLOSING = {
    "HTTP/1.0": asked(version="1.0"),
    "HTTP/1.0 without a host": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP/1.0 that would stay": asked("/", "connection: keep-alive", version="1.0"),
    "HTTP/1.1 that leaves": asked("/", "connection: close"),
    "HTTP/1.1 that leaves, among others": asked("/", "Connection: foo, Close"),
    "a body of one that leaves": posted("/", b"body", "connection: close"),
}


@pytest.mark.parametrize("what", CLOSING)
@pytest.mark.parametrize("application", [Desk(), streams], ids=["answer", "stream"])
async def test_the_last_answer_says_so_and_is_followed_by_the_end(what: str, application: Application) -> None:
    async with serving(application) as served, served.client() as client:
        answer = await client.ask(CLOSING[what])

        assert (answer.status, answer.closes) == (200, True)
        assert answer.body in (b"/", b"/ body", b"onetwo")
        assert ("transfer-encoding" in answer.headers) == (application is streams and "1.0" not in what)
        assert await client.rest() == b""


@pytest.mark.parametrize(("version", "next_version"), [("1.0", "1.1"), ("1.1", "1.0")])
async def test_an_answer_has_the_form_of_its_own_version(version: str, next_version: str) -> None:
    let_go = asyncio.Event()

    async def application(request: Request) -> None:
        await let_go.wait()
        await streams(request)

    async with serving(application) as served, served.client() as client:
        await client.send(asked("/", "connection: keep-alive", version=version), asked(version=next_version))
        await served.elsewhere()
        let_go.set()
        answer = await client.answer()

        assert answer.body == b"onetwo"
        assert ("transfer-encoding" in answer.headers, answer.closes) == (version == "1.1", version == "1.0")


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0"])
async def test_no_other_version_is_spoken(version: str) -> None:
    async with serving(streams) as served, served.client() as client:
        assert (await client.ask(f"GET / HTTP/{version}\r\n\r\n".encode())).status in (400, 505)
        assert await client.rest() == b""


async def test_nothing_is_answered_behind_the_last() -> None:
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        answer = await client.ask(asked("/last", "connection: close"), asked("/behind"))

        assert (answer.body, answer.closes) == (b"/last", True)
        assert await client.rest() == b""
    assert desk.begun == ["/last"]


async def test_a_connection_is_used_many_times() -> None:
    async with serving(Desk()) as served, served.client() as client:
        for number in range(1, 100):
            body = b"x" * number
            assert (await client.ask(posted(f"/{number}", body))).body == b"/%d %b" % (number, body)
        await client.send(*(asked(f"/{number}") for number in range(1_000)))

        assert await client.answers(1_000) == [b"/%d" % number for number in range(1_000)]


async def test_an_end_that_was_announced_comes_also_when_the_body_has_come_meanwhile() -> None:
    let_go = asyncio.Event()

    async def application(request: Request) -> None:
        request.begin(200, b"")
        await let_go.wait()
        await request.read(LARGEST)
        request.end()

    async with serving(application) as served, served.client() as client:
        await client.send(asked("/", "content-length: 4", method="POST"))
        head = await client.head()
        await client.send(b"body", asked("/behind", "connection: close"))
        await served.elsewhere()
        let_go.set()

        assert head.closes
        assert await client.part() == b""
        assert await client.rest() == b""


async def test_an_idle_connection_is_closed_but_not_one_at_work() -> None:
    desk = Desk("/slow")
    async with serving(desk, limits=Limits(kept_for=SOON)) as served, served.client() as client:
        await client.ask(asked("/quick"))
        await client.send(asked("/slow"))
        await desk.came("/slow")
        await served.until_idle()
        desk.let_go("/slow")

        assert await client.answers(1) == [b"/slow"]
        assert await client.rest() == b""


async def test_nobody_is_idle_who_is_still_reading_an_answer_with_others_behind_it() -> None:
    async def application(request: Request) -> None:
        request.answer(200, b"", b"x" * (2 << 20) if request.path == b"/large" else b"small")

    limits = Limits(kept_for=SOON)
    async with serving(application, limits=limits, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.ask(asked())
        await client.send(asked("/large"), asked())
        await served.until_idle()

        assert [len(each) for each in await client.answers(2)] == [2 << 20, 5]


async def test_who_is_heard_out_is_not_idle() -> None:
    async with serving(refuses, limits=Limits(kept_for=SOON)) as served, served.client() as client:
        await client.ask(asked())
        assert (await client.ask(asked("/", f"content-length: {LARGEST}", method="POST"))).closes
        await served.until_idle()

        for _ in range(16):
            await client.send(b"x" * (LARGEST >> 4))
            await served.elsewhere()


# 3. What nobody speaks here.


@pytest.mark.covers("F106")
@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        pytest.param(asked("/up", *UPGRADE), b"/up", id="alone"),
        pytest.param(asked("/up", "connection: Upgrade", "upgrade: websocket"), b"/up", id="to a websocket"),
        pytest.param(asked("/up", method="CONNECT"), b"/up", id="to a tunnel"),
        pytest.param(
            asked("/up", "content-length: 4", method="CONNECT") + b"body", b"/up body", id="to a tunnel, and a body"
        ),
        pytest.param(posted("/up", b"body", *UPGRADE), b"/up body", id="with a body"),
        pytest.param(chunked("/up", b"bo", b"dy", headers=UPGRADE), b"/up body", id="with chunks"),
        pytest.param(posted("/up", asked("/hidden"), *UPGRADE), b"/up " + asked("/hidden"), id="hiding"),
    ],
)
async def test_an_upgrade_is_not_heard(sent: bytes, answered: bytes) -> None:
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        await client.send(sent, asked("/behind"), sent)

        assert await client.answers(3) == [answered, b"/behind", answered]
        assert (await client.ask(sent)).body == answered
    assert desk.begun == ["/up", "/behind", "/up", "/up"]


@pytest.mark.parametrize("number", [2, 1_000])
async def test_many_upgrades_at_once_are_not_heard(number: int) -> None:
    async with serving(Desk()) as served, served.client() as client:
        await client.send(*(asked(f"/{each}", *UPGRADE) for each in range(number)), asked("/last"))

        assert await client.answers(number + 1) == [*(b"/%d" % each for each in range(number)), b"/last"]


FOREIGN = {
    "a tunnel": asked("localhost:443", method="CONNECT"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_nothing_else_is_spoken(what: str) -> None:
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        await client.send(asked("/first"), asked("/second"), FOREIGN[what], asked("/behind"))

        assert await client.answers(2) == [b"/first", b"/second"]
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
    assert desk.begun == ["/first", "/second"]


# 4. What is asked for.

TARGETS = {
    "/": (b"/", b""),
    "/a/b": (b"/a/b", b""),
    "/a?b=c&d": (b"/a", b"b=c&d"),
    "/a?b?c": (b"/a", b"b?c"),
    "/a?": (b"/a", b""),
    "/a%2Fb%3f?c=%20+": (b"/a%2Fb%3f", b"c=%20+"),
    "//a": (b"//a", b""),
    "/a#b": (b"/a", b""),
    "/a?b#c?d": (b"/a", b"b"),
    "/a#b?c": (b"/a", b""),
    "*": (b"*", b""),
    "/a?b=http://c/d": (b"/a", b"b=http://c/d"),
    "http://localhost/a?b": (b"/a", b"b"),
    "http://localhost:1": (b"/", b""),
    "http://localhost?b": (b"/", b"b"),
    "http://user:word@localhost:1/a?b#c": (b"/a", b"b"),
}


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_is_divided(target: str) -> None:
    notes = Notebook()
    async with serving(notes) as served, served.client() as client:
        await client.ask(asked(target, method="DELETE"))

    assert [(each.method, each.path, each.query) for each in notes] == [("DELETE", *TARGETS[target])]
    assert notes[0].peer == "127.0.0.1"


async def test_headers_are_by_lower_case_name_and_joined() -> None:
    notes = Notebook()
    async with serving(notes) as served, served.client() as client:
        await client.ask(asked("/", "X-Thing: 1", "ACCEPT:two", "x-thing:", "x-none:", "accept: \u00e9", "X-THING: 3"))
        await client.ask(asked("/", "x-other: alone"))

    assert [each.headers for each in notes] == [
        {"host": "localhost", "x-thing": "1, , 3", "accept": "two, \u00c3\u00a9", "x-none": ""},
        {"host": "localhost", "x-other": "alone"},
    ]


async def test_the_space_around_a_header_is_no_part_of_it() -> None:
    notes = Notebook()
    async with serving(notes) as served, served.client() as client:
        await client.ask(asked("/", "x-thing: \t one two \t "))

    assert notes[0].headers == {"host": "localhost", "x-thing": "one two"}


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("", 400),
        ("Host: localhost\r\n", 200),
        ("Host:\r\n", 200),
        ("Host: localhost\r\nHost: other\r\n", 400),
    ],
    ids=["none", "one", "an empty one", "two"],
)
async def test_there_is_one_host(lines: str, status: int) -> None:
    async with serving(Desk()) as served, served.client() as client:
        assert (await client.ask(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())).status == status


# 5. Bodies.


async def test_to_go_ahead_is_said_when_the_body_is_wanted() -> None:
    async with serving(Desk()) as served, served.client() as client:
        for more in ((), UPGRADE, ()):
            go_ahead = await client.ask(asked("/", "content-length: 4", "expect: 100-Continue", *more, method="POST"))
            answer = await client.ask(b"body")

            assert (go_ahead.status, go_ahead.headers) == (100, {})
            assert (answer.body, answer.closes) == (b"/ body", False)
        answer = await client.ask(posted("/", b"came along", "expect: 100-continue"))
        assert (answer.status, answer.body) == (200, b"/ came along")


async def test_to_go_ahead_is_not_said_to_who_does_not_know_it() -> None:
    async with serving(Desk()) as served, served.client() as client:
        await client.send(asked("/", "content-length: 4", "expect: 100-continue", method="POST", version="1.0"))
        await served.elsewhere()

        assert (await client.ask(b"body")).status == 200


async def test_to_go_ahead_is_not_said_when_the_body_is_not_wanted() -> None:
    async with serving(refuses) as served, served.client() as client:
        answer = await client.ask(asked("/", "content-length: 4", "expect: 100-continue", method="POST"))

        assert (answer.status, answer.closes) == (413, True)
        assert await client.rest() == b""


AS_CHUNKS = pytest.mark.parametrize("as_chunks", [False, True], ids=["length", "chunks"])


@AS_CHUNKS
async def test_who_sends_all_of_a_body_that_nobody_reads_gets_all_of_the_answer(*, as_chunks: bool) -> None:
    part = b"x" * (1 << 16)
    async with serving(refuses, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.send(chunked("/", *[part] * 80) if as_chunks else posted("/", part * 80))
        answer = await client.answer()

        assert (answer.status, len(answer.body), answer.closes) == (413, 100_000, True)
        assert await client.rest() == b""


@AS_CHUNKS
@pytest.mark.parametrize(("length", "fits"), [(0, True), (999, True), (1_000, True), (1_001, False), (300_000, False)])
async def test_a_body_is_read_if_it_is_not_too_large(length: int, *, fits: bool, as_chunks: bool) -> None:
    async def application(request: Request) -> None:
        body = await request.read(1_000)
        request.answer(200, b"", b"too large" if body is None else b"%d" % len(body))

    body = b"x" * length
    parts = [body[at : at + 400] for at in range(0, length, 400)]
    sent, last = (chunked("/", *parts), -8) if as_chunks else (posted("/", body), -1)
    async with serving(application) as served, served.client() as client:
        await client.send(sent[:last])
        await served.elsewhere()
        answer = await client.ask(sent[last:])  # with its last byte

        assert answer.body == (b"%d" % length if fits else b"too large")


@AS_CHUNKS
async def test_a_body_is_not_measured_as_headers_are(*, as_chunks: bool) -> None:
    parts = [b"%d" % number * 10_000 for number in range(10)]
    async with serving(Desk(), limits=Limits(largest_headers=1_000)) as served, served.client() as client:
        sent = chunked("/", *parts) if as_chunks else posted("/", b"".join(parts))
        for at in range(0, len(sent), 25_000):
            await client.send(sent[at : at + 25_000])
            await served.elsewhere()

        assert await client.answers(1) == [b"/ " + b"".join(parts)]


@pytest.mark.parametrize("largest", [None, 1_000], ids=["not read", "too large"])
async def test_a_body_that_nobody_reads_is_not_kept(largest: int | None) -> None:
    let_go = asyncio.Event()

    async def application(request: Request) -> None:
        if largest is not None:
            assert await request.read(largest) is None
        await let_go.wait()
        request.answer(200, b"", b"after all")

    async with serving(application, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        assert await served.taken(client, posted("/", b"x" * (20 << 20))) < MUCH
        let_go.set()
        assert (await client.answer()).body == b"after all"


@pytest.mark.parametrize("front", [b"", asked("/slow")], ids=["alone", "behind another"])
async def test_a_body_that_is_broken_while_it_is_read_has_one_answer(front: bytes) -> None:
    desk, broken = Desk("/slow"), 0

    async def application(request: Request) -> None:
        nonlocal broken
        try:
            await desk(request)
        except ConnectionError:
            broken += 1

    async with serving(application) as served, served.client() as client:
        await client.send(front, chunked("/broken", b"good", end=b""))
        await served.elsewhere()
        await client.send(b"no length\r\n", asked("/behind"))
        await served.elsewhere()
        desk.let_go("/slow")
        if front:
            assert await client.answers(1) == [b"/slow"]
        answer = await client.answer()

        assert (answer.status, answer.closes) == (400, True)
        assert await client.rest() == b""
    assert broken == 1


async def test_an_answer_to_a_body_that_is_broken_is_the_only_one() -> None:
    came, let_go = asyncio.Event(), asyncio.Event()

    async def application(request: Request) -> None:
        came.set()
        await let_go.wait()
        request.answer(200, b"", b"not looked at")

    async with serving(application) as served, served.client() as client:
        await client.send(chunked("/", b"good", end=b"no length\r\n"))
        await until(came)
        let_go.set()
        answer = await client.answer()

        assert (answer.body, answer.closes) == (b"not looked at", True)
        assert await client.rest() == b""


async def test_what_follows_a_body_is_no_header() -> None:
    notes = Notebook()
    trailer = b"0\r\nauthorization: another\r\nhost: other\r\n\r\n"
    async with serving(notes) as served, served.client() as client:
        await client.ask(chunked("/", b"body", end=trailer, headers=("authorization: mine",)))

    assert (notes[0].headers["authorization"], notes[0].headers["host"]) == ("mine", "localhost")


async def test_what_follows_a_body_is_bounded() -> None:
    trailers = b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1_000) for number in range(2_000))
    async with serving(Desk()) as served, served.client() as client:
        answer = await client.ask(chunked("/", b"body", end=b"0\r\n" + trailers + b"\r\n"))

        assert (answer.status, answer.closes) == (431, True)


async def test_what_follows_a_body_is_bounded_also_where_it_has_no_end() -> None:
    desk, refused = Desk(), asyncio.Event()

    async def application(request: Request) -> None:
        try:
            await desk(request)
        except ConnectionError:
            refused.set()

    async with serving(application) as served, served.client() as client:
        await client.send(chunked("/", b"body", end=b"0\r\nx: "))
        for _ in range(20):
            await client.send(b"y" * 10_000)
            await served.elsewhere()

        assert refused.is_set()
        assert (await client.answer()).status == 431


# 6. Who does not read, and who leaves.


@pytest.mark.parametrize(
    "last",
    [asked("/", "connection: close"), asked("/", "content-length: 9", method="POST")],
    ids=["that leaves", "with a body that nobody reads"],
)
async def test_who_reads_the_last_answer_slowly_gets_all_of_it(last: bytes) -> None:
    async def application(request: Request) -> None:
        request.answer(200, b"", b"x" * (1 << 20))

    limits = Limits(headers_within=SOON)
    async with serving(application, limits=limits, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.send(last)
        await served.until_late()

        assert [len(each) for each in await client.answers(1)] == [1 << 20]


async def test_who_asks_thousands_of_things_and_reads_nothing_is_not_answered_at_once() -> None:
    answered = 0

    async def application(request: Request) -> None:
        nonlocal answered
        answered += 1
        request.answer(200, b"", request.path.ljust(8_192))

    async with serving(application, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        client.writer.write(b"".join(asked(f"/{number}") for number in range(2_000)))

        assert await served.settled(lambda: answered) < 200
        got = await client.answers(2_000)
        assert [each.rstrip() for each in got] == [b"/%d" % number for number in range(2_000)]


async def test_who_asks_thousands_of_things_is_not_read_while_the_first_is_at_work() -> None:
    desk = Desk("/slow")
    async with serving(desk, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        others = asked("/quick", f"x: {'y' * 4_000}") * 2_000

        assert await served.taken(client, asked("/slow") + others) < MUCH
        assert desk.begun == ["/slow"]
        desk.let_go("/slow")
        assert await client.answers(2_001) == [b"/slow", *[b"/quick"] * 2_000]


async def test_a_part_waits_while_nobody_reads() -> None:
    sent = 0

    async def application(request: Request) -> None:
        nonlocal sent
        request.begin(200, b"")
        for _ in range(500):
            await request.part(b"x" * 16_384)
            sent += 1
        request.end()

    async with serving(application, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.send(asked())

        assert await served.settled(lambda: sent) < 100
        assert len((await client.answer()).body) == 500 * 16_384


async def test_a_part_does_not_wait_for_one_who_has_left() -> None:
    sent, over = 0, asyncio.Event()

    async def application(request: Request) -> None:
        nonlocal sent
        request.begin(200, b"")
        while not request.gone:
            await request.part(b"x" * 16_384)
            sent += 1
        over.set()

    async with serving(application, buffers=SMALL) as served:
        async with served.client(buffers=SMALL) as client:
            await client.send(asked())
            assert await served.settled(lambda: sent) > 0
        await until(over)


@pytest.mark.parametrize("how", ["leaves", "leaves in the middle of a body", "answered", "left alone"])
async def test_it_is_told_when_nobody_waits_any_longer(how: str) -> None:
    began, heard = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> None:
        began.set()
        await request.hung_up()
        heard.set()

    async def application(request: Request) -> None:
        waits.append(asyncio.create_task(wait(request)))
        await until(began)
        if how == "answered":
            request.answer(204, b"", b"")
        elif how.startswith("leaves"):
            await heard.wait()

    waits: list[asyncio.Task[None]] = []
    async with serving(application) as served:
        async with served.client() as client:
            await client.send(asked("/", "content-length: 4", method="POST") if "body" in how else asked())
            await until(began)
            await served.elsewhere()
            assert heard.is_set() == (not how.startswith("leaves"))
        await asyncio.wait(waits, timeout=PATIENCE)
        assert heard.is_set()


# 7. An application that fails.


async def raising(_: Request) -> None:
    raise RuntimeError("on purpose")


async def returning(_: Request) -> None:
    return


async def raising_later(request: Request) -> None:
    request.begin(200, b"")
    await request.part(b"part")
    raise RuntimeError("on purpose")


FAILING: list[Application] = [raising, returning, raising_later]


@pytest.mark.parametrize("failing", FAILING)
async def test_an_application_that_fails_ends_its_own_connection(
    failing: Application, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk("/slow")

    async def application(request: Request) -> None:
        await (failing if request.path == b"/bad" else desk)(request)

    async with serving(application) as served, served.client() as client, served.client() as other:
        await other.send(asked("/slow"))
        await desk.came("/slow")
        await client.send(asked("/bad"))

        if failing is raising_later:
            assert (await client.head()).status == 200
            assert await client.part() == b"part"
        assert await client.rest() == b""
        desk.let_go("/slow")
        assert await other.answers(1) == [b"/slow"]
        assert (await other.ask(asked("/more"))).status == 200
    logged = [str(each.exc_info[1]) for each in caplog.records if each.levelno >= logging.ERROR and each.exc_info]
    assert logged == ([] if failing is returning else ["on purpose"])


@pytest.mark.parametrize("failing", FAILING)
async def test_nobody_gets_the_answer_to_another_question(failing: Application) -> None:
    desk = Desk()

    async def application(request: Request) -> None:
        await (failing if request.path == b"/bad" else desk)(request)

    async with serving(application) as served, served.client() as client:
        await client.send(asked("/good"), asked("/bad"), asked("/behind"))

        assert await client.answers(1) == [b"/good"]
        assert b"/behind" not in await client.rest()


@pytest.mark.parametrize("failing", FAILING)
async def test_nobody_gets_the_refusal_of_another_question(failing: Application) -> None:
    async with serving(failing) as served, served.client() as client:
        await client.send(asked("/bad"), b"no HTTP\r\n\r\n")

        assert b"400" not in await client.rest()


# 8. The stop.

UNFINISHED = {
    "said nothing": b"",
    "asked before": asked("/quick"),
    "half way through headers": b"GET / HTTP/1.1\r\nho",
    "half way through the next headers": asked("/quick") + b"GET / HT",
}


@pytest.mark.parametrize("what", UNFINISHED)
async def test_a_stop_closes_at_once_where_nothing_is_asked(what: str) -> None:
    async with serving(Desk()) as served, served.client() as client:
        await client.send(UNFINISHED[what])
        if "quick" in str(UNFINISHED[what]):
            await client.answers(1)
        await served.elsewhere()

        served.stop.request()

        assert await client.rest() == b""
        async with asyncio.timeout(PATIENCE):
            await served.running


async def test_a_stop_waits_for_what_is_at_work() -> None:
    desk = Desk("/slow", "/body")
    async with serving(desk) as served:
        async with served.client() as client, served.client() as other:
            await client.send(asked("/slow"))
            await other.send(asked("/body", "content-length: 4", method="POST"), b"bo")
            await desk.came("/slow")
            await desk.came("/body")
            served.stop.request()
            await until(served.ending)
            with pytest.raises(ConnectionRefusedError):
                await served.elsewhere()

            desk.let_go("/slow")
            desk.let_go("/body")
            answer, whole = await client.answer(), await other.ask(b"dy")

            assert (answer.body, answer.closes) == (b"/slow", True)
            assert (whole.body, whole.closes) == (b"/body body", True)
            assert (await client.rest(), await other.rest()) == (b"", b"")
        async with asyncio.timeout(PATIENCE):
            await served.running


async def test_a_stop_lets_all_be_answered_that_was_asked() -> None:
    desk = Desk("/slow")
    async with serving(desk) as served, served.client() as client:
        await client.send(asked("/slow"), asked("/behind"))
        await desk.came("/slow")
        served.stop.request()
        await until(served.ending)
        desk.let_go("/slow")

        assert await client.answers(2) == [b"/slow", b"/behind"]
        assert await client.rest() == b""


async def test_a_stop_takes_nothing_back_that_was_said() -> None:
    came, let_go = asyncio.Event(), asyncio.Event()

    async def application(request: Request) -> None:
        came.set()
        await let_go.wait()
        request.answer(200, b"", b"x" * 60_000)

    async with serving(application, buffers=4 * SMALL) as served, served.client(buffers=4_096) as client:
        await client.send(asked(), asked())
        await until(came)
        await client.send(asked())  # is not read any more
        served.stop.request()
        await until(served.ending)
        let_go.set()

        assert len(await client.rest()) > 60_000


@pytest.mark.covers("F116")
@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("turns", [0, 50], ids=["at once", "in a while"])
async def test_what_never_ends_is_cut_off_and_nothing_is_left(how: str, turns: int) -> None:
    asking = (b"", asked("/"), b"GET / HT", asked("/slow"), asked("/slow") + asked("/behind"), asked("/stream"))
    through = 0

    async def application(request: Request) -> None:
        nonlocal through
        if request.path == b"/":
            request.answer(204, b"", b"")
            return
        if request.path == b"/stream":
            request.begin(200, b"")
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(turns):  # it has something to put away
                await asyncio.sleep(0)
            through += 1

    before = asyncio.all_tasks()
    async with serving(application, drain=SOON) as served, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in asking]
        for client, data in zip(clients, asking, strict=True):
            await client.send(data)
        await served.elsewhere()
        if how == "stop":
            served.stop.request()
        else:
            served.running.cancel()
        await asyncio.wait((served.running,), timeout=PATIENCE)

        assert asyncio.all_tasks() == before
        assert through == 3
        assert [(await client.rest())[:12] for client in clients] == [
            *(b"", b"HTTP/1.1 204", b"", b"", b""),
            b"HTTP/1.1 200",
        ]
