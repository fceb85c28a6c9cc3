"""One connection: HTTP/1.1 as it comes over a socket, and answers in the order of the requests.

A server for any application builds a good many objects for each request; this one knows its only application, and
builds one. Half of what a read cost was spent there.

Promise. An answer is written in one piece, and never before the answer to an earlier request. Nobody holds more of our
memory than a request may have: reading stops while somebody has not read what it was sent, has asked several things at
once, or sends a body that nobody has asked for yet.

Failures.
  headers late, or too large   408 or 431, and the end of the connection; without a word, if nothing was said
  no HTTP                      400, and the end
  the end, while they talk     what still comes is thrown away for a while: a reset would take our last answer with it
  answer not read              the end, once next to nothing was read for a while
  hung up                      whoever answers goes on to its end, and may be told (``Request.hung_up``)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast

import httptools
import msgspec

from mainspring.rest.problems import MEDIA_TYPE, TITLES, Problem

_logger = logging.getLogger(__name__)

_LEAST_READ: Final = 4 << 10  # bytes, by one who is still reading
_MOST_UNASKED: Final = 64 << 10  # bytes of a body that nobody reads yet
_STATUS: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
_USUAL: Final = {
    name.encode(): name.lower()
    for usual in ("Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type", "Host")
    for name in (usual, usual.lower())
} | {b"Idempotency-Key": "idempotency-key", b"User-Agent": "user-agent", b"user-agent": "user-agent"}
_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how much a connection may take."""

    headers_within: timedelta = timedelta(seconds=10)
    largest_headers: int = 64 << 10
    read_within: timedelta = timedelta(seconds=30)  # what we send, at least a little of it
    kept_for: timedelta = timedelta(seconds=75)  # longer than by most proxies: no request of theirs meets a closed end


class Request:
    """One request, and the way back to whoever sent it. Its headers are by lower-case name."""

    __slots__ = (
        "_connection",
        "_continues",
        "_length",
        "_news",
        "_parts",
        "_streams",
        "_wanted",
        "answered",
        "gone",
        "headers",
        "kept",
        "method",
        "path",
        "query",
        "whole",
    )

    def __init__(
        self, connection: Connection, method: str, path: bytes, query: bytes, headers: dict[str, str], *, kept: bool
    ) -> None:
        self.method = method
        self.path = path  # as it came, without the query
        self.query = query
        self.headers = headers
        self.kept = kept  # the connection, once this is answered
        self.whole = False  # all of its body has come
        self.answered = False
        self.gone = False  # nobody is there any more
        self._connection = connection
        self._continues = headers.get("expect", "").lower() == "100-continue"
        self._length = 0
        self._parts: list[bytes] = []
        self._wanted = False  # the body, by us
        self._streams = False
        self._news: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str | None:
        """The address at the other end of the socket."""
        return self._connection.peer

    @property
    def unread(self) -> bool:
        """Whether there is more of a body than should be kept for somebody who may not want it."""
        return self._length > _MOST_UNASKED and not self._wanted and not self.answered

    @property
    def leaves_open(self) -> bool:
        """Whether it can be told where the next request begins."""
        return self.kept and self.whole

    async def read(self, largest: int) -> bytes | None:
        """Return the body; None if there is more of it than that.

        Raises:
            ConnectionError: the client hung up.
        """
        self._wanted = True
        if self._continues and not self.whole:
            self._connection.go_ahead()
        self._continues = False
        self._connection.read_on()
        while not self.whole and self._length <= largest:
            if self.gone:
                raise ConnectionError("the client hung up")
            await self._changed()
        return b"".join(self._parts) if self._length <= largest else None

    async def hung_up(self) -> None:
        """Wait until the client has hung up, or has been answered."""
        while not self.gone and not self.answered:
            await self._changed()

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer with a body that is there; ``headers`` are lines, each with its end."""
        length = b"" if status in _BODILESS else b"content-length: %d\r\n" % len(body)
        sent = b"" if self.method == "HEAD" or status in _BODILESS else body
        self._connection.write(_STATUS[status], headers, length, self._ending(), b"\r\n", sent)
        self.end()

    def begin(self, status: int, headers: bytes) -> None:
        """Begin an answer whose parts are still to come."""
        self._streams = self._connection.version != "1.0" and self.method != "HEAD"
        how = b"transfer-encoding: chunked\r\n" if self._streams else b""
        self._connection.write(_STATUS[status], headers, how, self._ending(), b"\r\n")

    async def part(self, data: bytes) -> None:
        """Send a part, once what was sent before has been read, or nearly. Nothing is sent to who has left."""
        await self._connection.writable()
        if self._streams:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._connection.send(data)

    def end(self) -> None:
        """Say that this was all."""
        if self._streams:
            self._connection.send(b"0\r\n\r\n")
        self.answered = True
        self._parts.clear()
        self._tell()
        self._connection.answered(self)

    def drop(self) -> None:
        """Leave it without an answer: there is nobody to have it, or nobody who could be understood."""
        self.answered = True
        self._connection.dropped()

    def feed(self, data: bytes) -> None:
        if not self.answered:
            self._parts.append(data)
            self._length += len(data)
            self._tell()

    def complete(self) -> None:
        self.whole = True
        self._tell()

    def leave(self) -> None:
        """Hear that nobody is there, or nobody who can be understood."""
        self.gone, self.kept = True, False
        self._tell()

    def _ending(self) -> bytes:
        return b"" if self.leaves_open else b"connection: close\r\n"

    async def _changed(self) -> None:
        """Wait for news. One waits at a time: first for the body, then for the end."""
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


Application: TypeAlias = Callable[[Request], Coroutine[Any, Any, None]]


class Connections:
    """All that are open, and all that is being answered."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.stopping = False
        self._open: set[Connection] = set()
        self._working: dict[asyncio.Task[None], Request] = {}
        self._over = asyncio.Event()
        self._second = -1
        self._date = b""

    def connect(self) -> Connection:
        return Connection(self)

    def joined(self, connection: Connection) -> None:
        self._open.add(connection)
        if self.stopping:
            connection.stop()

    def left(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._look()

    def work(self, request: Request) -> None:
        task = self.loop.create_task(self.application(request))
        self._working[task] = request
        task.add_done_callback(self._done)

    def date(self) -> bytes:
        """Return the header that says what time it is."""
        second = int(self.loop.time())
        if second != self._second:
            self._second, self._date = second, f"date: {formatdate(usegmt=True)}\r\n".encode()
        return self._date

    async def stop(self, within: timedelta) -> None:
        """Let everybody finish, for so long; then nobody."""
        self.stopping = True
        for connection in list(self._open):
            connection.stop()
        self._look()
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        for task in self._working:
            task.cancel()
        for connection in list(self._open):
            connection.abort()

    def _done(self, task: asyncio.Task[None]) -> None:
        request = self._working.pop(task)
        if not request.answered:
            request.drop()
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a request was not answered", exc_info=error)
        self._look()

    def _look(self) -> None:
        if self.stopping and not self._open and not self._working:
            self._over.set()


class Connection(asyncio.Protocol):
    """One connection of somebody."""

    def __init__(self, all_: Connections) -> None:
        self.peer: str | None = None
        self.version = "1.1"
        self._all = all_
        self._limits = all_.limits
        self._loop = all_.loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)  # until it is made
        self._url = b""
        self._headers: dict[str, str] = {}
        self._incoming: Request | None = None  # whose body comes next
        self._answering: Request | None = None
        self._behind: deque[Request] = deque()  # came before the one in front was answered
        self._refusal: bytes | None = None  # to be sent last
        self._beginning = False  # a request whose headers have not all come
        self._heard = 0  # bytes of it
        self._idle_since = 0.0
        self._held = False  # nothing is read
        self._parting = False  # nothing is said any more
        self._writable: asyncio.Future[None] | None = None  # while what was written is not read
        self._headers_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    # From the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else None
        self._watch_headers()
        self._all.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for timer in (self._headers_timer, self._idle_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        for request in (self._answering, self._incoming, *self._behind):
            if request is not None:
                request.leave()
        self._behind.clear()
        self._let_write()
        del self._parser  # the two hold each other
        self._all.left(self)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self._parting:
            return
        self._heard += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(400, "this is no HTTP request", "malformed_request")
            return
        if not self._beginning:
            self._heard = 0
        elif self._heard > self._limits.largest_headers:
            most = self._limits.largest_headers
            self._refuse(431, f"the headers are too large; send less than {most} bytes", "headers_too_large")
        elif self._headers_timer is None:
            self._watch_headers()
        if self._behind or (self._incoming is not None and self._incoming.unread):
            self._hold()

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:  # to something that nobody speaks here: it stays as it is
                self._parser = httptools.HttpRequestParser(self)
                data = data[upgrade.args[0] :]
            else:
                break

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._watch_unread()

    def resume_writing(self) -> None:
        if self._unread_timer is not None and not self._transport.is_closing():
            self._unread_timer.cancel()
            self._unread_timer = None
        self._let_write()
        self._go_on()

    # From the parser.

    def on_message_begin(self) -> None:
        self._beginning = True
        self._url, self._headers = b"", {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        known, text = _USUAL.get(name) or name.lower().decode("latin-1"), value.decode("latin-1")
        headers = self._headers
        headers[known] = f"{headers[known]}, {text}" if known in headers else text

    def on_headers_complete(self) -> None:
        self._beginning = False
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None
        parser = self._parser
        self.version = parser.get_http_version()
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/") or b"#" in self._url:
            parts = httptools.parse_url(self._url)
            path, query = parts.path or b"/", parts.query or b""
        if self.version == "1.1" and "host" not in self._headers:
            raise ValueError("there is no Host")  # for the parser to hand on
        kept = self.version != "1.0" and parser.should_keep_alive() and not self._all.stopping
        request = Request(self, parser.get_method().decode("ascii"), path, query, self._headers, kept=kept)
        self._incoming = request
        if self._answering is None and self._writable is None:
            self._answering = request
            self._all.work(request)
        else:
            self._behind.append(request)

    def on_body(self, body: bytes) -> None:
        if self._incoming is not None:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        if request is not None:
            request.complete()

    # From the requests.

    def go_ahead(self) -> None:
        self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def read_on(self) -> None:
        if self._held and not self._behind:
            self._held = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def write(self, status: bytes, *rest: bytes) -> None:
        self.send(b"".join((status, self._all.date(), *rest)))

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def writable(self) -> None:
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def answered(self, request: Request) -> None:
        self._answering = None
        if request.leaves_open:
            self._go_on()
        elif request.whole:
            self._close()
        else:
            self._part()

    def dropped(self) -> None:
        self._answering = None
        self._refusal = self._refusal or b""
        self._go_on()

    def stop(self) -> None:
        """Close when all that was asked is answered: now, if nothing was."""
        if self._answering is None and not self._behind:
            self._close()
        for request in (self._answering, *self._behind):
            if request is not None:
                request.kept = False

    def abort(self) -> None:
        self._transport.abort()

    # Our own.

    def _go_on(self) -> None:
        """Turn to the next request, or wait for one."""
        busy = self._answering is not None or self._writable is not None
        if busy or self._parting or self._transport.is_closing():
            return
        if self._behind:
            self._answering = self._behind.popleft()
            self._all.work(self._answering)
        elif self._refusal is not None:
            self.send(self._refusal)
            self._part()
        elif self._all.stopping and not self._beginning:
            self._close()
        else:
            self._idle_since = self._loop.time()
            if self._idle_timer is None:
                self._watch_idle(self._limits.kept_for.total_seconds())
        self.read_on()

    def _refuse(self, status: int, detail: str, code: str) -> None:
        """Say that what came cannot be answered, when all before it is; and read no more."""
        body = msgspec.json.encode(Problem(title=TITLES[status], status=status, detail=detail, code=code))
        kind = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (MEDIA_TYPE.encode(), len(body))
        self._refusal = b"".join((_STATUS[status], self._all.date(), kind, body))
        if self._incoming is not None:
            self._incoming.leave()  # it is the body that is wrong
        self._go_on()

    def _part(self) -> None:
        """Say that this was the last, and hear them out: whoever is reset before it has read it loses the answer."""
        if self._transport.is_closing():
            return
        self._parting = True
        self._transport.write_eof()
        if self._headers_timer is not None:
            self._headers_timer.cancel()
        self._headers_timer = self._loop.call_later(self._limits.headers_within.total_seconds(), self.abort)
        self.read_on()

    def _close(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.close()
        if self._transport.get_write_buffer_size() and self._unread_timer is None:
            self._watch_unread()  # to close waits until all is read

    def _hold(self) -> None:
        if not self._held and not self._transport.is_closing():
            self._held = True
            self._transport.pause_reading()

    def _let_write(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _watch_headers(self) -> None:
        self._headers_timer = self._loop.call_later(self._limits.headers_within.total_seconds(), self._late)

    def _late(self) -> None:
        if self._beginning:
            self._refuse(408, "the request did not arrive in time; send it at once", "request_timeout")
        else:
            self._close()  # it said nothing: nor do we

    def _watch_idle(self, seconds: float) -> None:
        """Look again when it could have been idle for long enough. A timer for each request would cost more."""
        self._idle_timer = self._loop.call_later(seconds, self._look_idle)

    def _look_idle(self) -> None:
        left = self._idle_since + self._limits.kept_for.total_seconds() - self._loop.time()
        if self._answering is not None or self._beginning:
            self._watch_idle(self._limits.kept_for.total_seconds())
        elif left > 0:
            self._watch_idle(left)
        else:
            self._close()

    def _watch_unread(self) -> None:
        unread = self._transport.get_write_buffer_size()
        self._unread_timer = self._loop.call_later(self._limits.read_within.total_seconds(), self._look_unread, unread)

    def _look_unread(self, before: int) -> None:
        """Hang up on one who has read next to nothing. Nothing is added while this much waits to be sent."""
        left = self._transport.get_write_buffer_size()
        if left > before - _LEAST_READ:
            self.abort()
        else:
            self._watch_unread()
