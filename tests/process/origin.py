"""Servers to be called: real ones, on loopback, that answer as told and remember who came."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

Answer = Callable[["Received", asyncio.StreamWriter], Coroutine[None, None, None]]


@dataclass
class Received:
    """One request, as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    names: list[str]
    body: bytes


@dataclass
class Origin:
    """A server, and what it has seen."""

    answer: Answer
    host: str
    port: int = 0
    connections: int = 0
    requests: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # by the client, with its request unanswered

    def url(self, path: str = "/", scheme: str = "http") -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{path}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            while True:
                request = await received(reader)
                self.requests.append(request)
                self.arrived.set()
                answering = asyncio.create_task(self.answer(request, writer))
                leaving = asyncio.create_task(_left(reader))
                await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    answering.cancel()
                    self.closed.set()
                leaving.cancel()
                await asyncio.wait([answering, leaving])
                if not answering.cancelled() and isinstance(answering.exception(), ConnectionError):
                    self.closed.set()
                if answering.cancelled() or writer.is_closing():
                    break
                answering.result()
                await writer.drain()


async def received(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = [line.split(": ", 1) for line in lines]
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, [name.lower() for name, _ in pairs], body)


def answers(
    status: int = 200, body: bytes | str = b"", *, close: bool = False, chunked: bool = False, **headers: str
) -> Answer:
    """Return an answer that is the same for everybody; ``content_type="…"`` is a header."""
    content = body.encode() if isinstance(body, str) else body

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        lines = [
            f"HTTP/1.1 {status} Whatever",
            *(f"{name.replace('_', '-')}: {each}" for name, each in headers.items()),
        ]
        lines += [f"Content-Length: {len(content)}"] * (status != 204 and not chunked) + ["Connection: close"] * close
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        if close:
            writer.close()

    return answer


def says(raw: bytes, *, close: bool = True) -> Answer:
    """Return an answer of just these bytes."""

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        if close:
            writer.close()

    return answer


def resets(raw: bytes) -> Answer:
    """Return an answer that breaks off in the middle, the hard way."""

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.transport.abort()

    return answer


async def never(_: Received, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def origin(
    answer: Answer, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Origin]:
    """Serve until the block ends, on a port that is free unless one is given."""
    made = Origin(answer, host, port)
    server = await asyncio.start_server(made.accept, host, port, ssl=tls, backlog=1_000)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        await server.wait_closed()


async def _left(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():
        if await reader.read(1):
            raise AssertionError("a second request before the answer to the first")
