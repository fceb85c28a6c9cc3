"""A server on a loopback port, somebody who asks it over a bare socket, and applications for it to serve."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from mainspring.api.connection import Application, Limits
from mainspring.api.incoming import Request
from mainspring.api.server import Server, ServerConfig, bound
from mainspring.environment import SystemEnvironment
from mainspring.service import Stop, run_all
from mainspring.telemetry.events import Events

ENV = SystemEnvironment()
PATIENCE = 10  # seconds: the end of hope, not a time anybody waits
SOON = timedelta(seconds=0.2)
LARGEST = 1 << 20
SMALL = 32 << 10  # bytes that a socket holds, where it matters how many
MUCH = 1 << 20  # bytes: more than all buffers on the way together


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


def asked(target: str = "/", *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", "host: localhost", *headers, "", ""]).encode()


def posted(target: str, body: bytes, *headers: str) -> bytes:
    return asked(target, f"content-length: {len(body)}", *headers, method="POST") + body


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


async def refuses(request: Request) -> None:  # without a look at the body
    request.answer(413, b"", b"x" * 100_000)
