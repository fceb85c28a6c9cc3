"""A request as it came over a connection, and the way back."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final, Protocol

MOST_UNASKED: Final = 64 << 10  # bytes of a body that nobody reads yet
STATUS: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
_BODILESS: Final = frozenset({204, 304})


class Wire(Protocol):
    """What a request needs of its connection."""

    peer: str | None

    def write(self, status: bytes, *rest: bytes) -> None:
        """Send the beginning of an answer."""

    def send(self, data: bytes) -> None:
        """Send whatever follows it."""

    async def writable(self) -> None:
        """Wait until what was sent has been read, or nearly."""

    def read_on(self) -> None:
        """Read from the client again, if that was put off."""

    def answered(self, request: Request) -> None: ...

    def dropped(self, request: Request) -> None: ...


class Request:
    """One request, and the way back to whoever sent it. Its headers are by lower-case name."""

    __slots__ = (
        "_chunked",
        "_continues",
        "_length",
        "_news",
        "_parts",
        "_wanted",
        "_wire",
        "answered",
        "begun",
        "gone",
        "headers",
        "kept",
        "method",
        "path",
        "query",
        "version",
        "whole",
        "work",
    )

    def __init__(self, wire: Wire, method: str, path: bytes, query: bytes, headers: dict[str, str]) -> None:
        self.method = method
        self.path = path  # as it came, without the query
        self.query = query
        self.headers = headers
        self.version = "1.1"
        self.kept = True  # the connection, once this is answered
        self.whole = False  # all of its body has come
        self.begun = False  # its answer
        self.answered = False
        self.gone = False  # nobody is there any more
        self.work: asyncio.Task[None] | None = None  # on its answer
        self._wire = wire
        self._continues = headers.get("expect", "").lower() == "100-continue"
        self._length = 0
        self._parts: list[bytes] = []
        self._wanted = False  # the body, by us
        self._chunked = False
        self._news: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str | None:
        """The address at the other end of the socket."""
        return self._wire.peer

    @property
    def unread(self) -> bool:
        """Whether there is more of a body than should be kept for somebody who may not want it."""
        return self._length > MOST_UNASKED and not self._wanted and not self.answered

    async def read(self, largest: int) -> bytes | None:
        """Return the body; None if there is more of it than that.

        Raises:
            ConnectionError: the client hung up.
        """
        self._wanted = True
        if self._continues and not self.whole and self.version != "1.0":
            self._wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._continues = False
        self._wire.read_on()
        while not self.whole and self._length <= largest:
            if self.gone:
                raise ConnectionError("the client hung up")
            await self._changed()
        if self._length <= largest:
            return b"".join(self._parts)
        self._wanted = False
        self._parts.clear()
        return None

    async def hung_up(self) -> None:
        """Wait until the client has hung up, or nothing more is sent to it."""
        while not self.gone and not self.answered:
            await self._changed()

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer with a body that is there; ``headers`` are lines, each with its end."""
        length = b"" if status in _BODILESS else b"content-length: %d\r\n" % len(body)
        sent = b"" if self.method == "HEAD" or status in _BODILESS else body
        self._wire.write(STATUS[status], headers, length, self._ending(), b"\r\n", sent)
        self._over()

    def begin(self, status: int, headers: bytes) -> None:
        """Begin an answer whose parts are still to come."""
        self.begun, self._chunked = True, self.version != "1.0"
        how = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._wire.write(STATUS[status], headers, how, self._ending(), b"\r\n")

    async def part(self, data: bytes) -> None:
        """Send a part, once what was sent before has been read, or nearly. Nothing is sent to who has left."""
        await self._wire.writable()
        if data and self.method != "HEAD":
            self._wire.send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        """Say that this was all."""
        if self._chunked and self.method != "HEAD":
            self._wire.send(b"0\r\n\r\n")
        self._over()

    def drop(self) -> None:
        """Leave it without an answer: there is nobody to have it, or nobody who could be understood."""
        self.answered = True
        self._tell()
        self._wire.dropped(self)

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""
        if not self.answered:
            self._parts.append(data)
            self._length += len(data)
            self._tell()

    def complete(self) -> None:
        """Hear that the body was all."""
        self.whole = True
        self._tell()

    def leave(self) -> None:
        """Hear that nobody is there, or nobody who can be understood."""
        self.gone, self.kept = True, False
        self._tell()

    def _ending(self) -> bytes:
        """Return what announces the end of the connection, where nobody could tell where the next request begins."""
        self.kept = self.kept and self.whole
        return b"" if self.kept else b"connection: close\r\n"

    def _over(self) -> None:
        self.answered = True
        self._parts.clear()
        self._tell()
        self._wire.answered(self)

    async def _changed(self) -> None:
        """Wait for news. One waits at a time: first for the body, then for the end."""
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
