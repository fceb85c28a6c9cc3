"""Somebody who listens to a stream of events: over a socket of its own, so that there can be a thousand of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 30  # seconds: the end of hope, not a time anybody waits


@dataclass(frozen=True)
class Told:
    """One event as it came."""

    id: str
    kind: str
    data: Any


class Listener:
    """One stream, and what has come so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.status = 0
        self.told: list[Told] = []
        self.beats = 0
        self.welcome = ""  # the id that it came with
        self.ended: str | None = None  # with this word
        self.over = False
        self._news = asyncio.Event()
        self._text = b""

    async def begin(self) -> None:
        self.status = int((await self._reader.readuntil(b"\r\n\r\n")).split()[1])

    async def listen(self) -> None:
        """Take what comes, to the end."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while length := int(await self._reader.readline() or b"0", 16):
                self._text += (await self._reader.readexactly(length + 2))[:-2]
                *whole, self._text = self._text.split(b"\n\n")
                for each in whole:
                    self._take(each.decode())
                self._news.set()
        self.over = True
        self._news.set()

    def _take(self, text: str) -> None:
        fields = dict(line.split(": ", 1) for line in text.splitlines())
        if "event" not in fields:
            self.beats += 1
            self.welcome = self.welcome or fields.get("id", "")
        elif fields["event"] == "end":
            self.ended = fields["data"]
        else:
            self.told.append(Told(fields["id"], fields["event"], json.loads(fields["data"])))

    async def until(self, enough: Callable[["Listener"], bool], within: float = PATIENCE) -> None:
        async with asyncio.timeout(within):
            while not enough(self):
                assert not self.over, f"it ended with {self.ended}, {len(self.told)} events"
                self._news.clear()
                await self._news.wait()

    async def ends(self, within: float = PATIENCE) -> str | None:
        """Wait for the end; return the word that it ended with."""
        async with asyncio.timeout(within):
            while not self.over:
                self._news.clear()
                await self._news.wait()
        return self.ended

    def subjects(self) -> list[str]:
        return [each.data["subject"] for each in self.told if each.kind == "change"]


async def connect(url: str, path: str = "/api/v1/events", **headers: str) -> Listener:
    """Open a stream, and read little further than its head."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    given = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {where.netloc}\r\n{given}\r\n".encode())
    listener = Listener(reader, writer)
    await listener.begin()
    return listener


@asynccontextmanager
async def listening(url: str, path: str = "/api/v1/events", **headers: str) -> AsyncIterator[Listener]:
    listener = await connect(url, path, **headers)
    task = asyncio.create_task(listener.listen())
    try:
        yield listener
    finally:
        task.cancel()
        await asyncio.wait((task,))
        listener.writer.close()
