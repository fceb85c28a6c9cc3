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
  no answer                    the end, and what was asked behind it is not answered either
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from email.utils import formatdate
from typing import Any, Final, TypeAlias, cast

import httptools
import msgspec

from mainspring.api.incoming import STATUS, Request
from mainspring.rest.problems import MEDIA_TYPE, TITLES, Problem

_logger = logging.getLogger(__name__)

_LEAST_READ: Final = 4 << 10  # bytes, by one who is still reading
_HEARD_OUT_AT_THE_END: Final = 0.5  # seconds, by a server that stops
_PUT_AWAY_WITHIN: Final = 5.0  # seconds, by those who are cancelled at the end
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_USUAL: Final = {
    name.encode(): name.lower()
    for usual in ("Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type", "Host")
    for name in (usual, usual.lower())
} | {b"Idempotency-Key": "idempotency-key", b"User-Agent": "user-agent", b"user-agent": "user-agent"}

Application: TypeAlias = Callable[[Request], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how much a connection may take."""

    headers_within: timedelta = timedelta(seconds=10)
    largest_headers: int = 64 << 10
    read_within: timedelta = timedelta(seconds=30)  # what we send, at least a little of it
    kept_for: timedelta = timedelta(seconds=75)  # longer than by most proxies: no request of theirs meets a closed end


class Connections:
    """All that are open, and all that is being answered."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.stopping = False
        self._application = application
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
        task = request.work = self.loop.create_task(self._application(request))
        self._working[task] = request
        task.add_done_callback(self._done)

    def date(self) -> bytes:
        """Return the header that says what time it is."""
        second = int(self.loop.time())
        if second != self._second:
            self._second, self._date = second, f"date: {formatdate(usegmt=True)}\r\n".encode()
        return self._date

    async def stop(self, within: timedelta) -> None:
        """Let everybody finish who has begun, for so long."""
        self.stopping = True
        for connection in list(self._open):
            connection.stop()
        self._look()
        await asyncio.wait((asyncio.ensure_future(self._over.wait()),), timeout=within.total_seconds())

    async def abort(self) -> None:
        """End whatever is left."""
        self._over.set()
        for task in self._working:
            task.cancel()
        for connection in list(self._open):
            connection.abort()
        if self._working:
            await asyncio.wait(list(self._working), timeout=_PUT_AWAY_WITHIN)

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
        self._all = all_
        self._limits = all_.limits
        self._loop = all_.loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)  # until it is made
        self._url = b""
        self._headers: dict[str, str] = {}
        self._beginning = False  # a request whose headers have not all come
        self._size = 0  # of its headers, those that have
        self._heard = 0  # bytes that were neither of a body nor the end of the headers
        self._two_hosts = False
        self._replayed = False  # the headers that are read are those of a request that is there already
        self._incoming: Request | None = None  # whose body comes next
        self._answering: Request | None = None
        self._behind: deque[Request] = deque()  # came before the one in front was answered
        self._refusal: bytes | None = None  # to be sent last
        self._refused: Request | None = None  # in the middle of its body
        self._parting = False  # nothing is said any more
        self._held = False  # nothing is read
        self._writable: asyncio.Future[None] | None = None  # while what was written is not read
        self._idle_since = 0.0
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
            if self._size > self._limits.largest_headers:
                self._refuse_large()
            else:
                self._refuse(400, "this is no HTTP request", "malformed_request")
            return
        unfinished = self._beginning or self._incoming is not None
        if unfinished and self._heard > self._limits.largest_headers:
            self._refuse_large()
        elif self._behind or (self._incoming is not None and self._incoming.unread):
            self._hold()  # nobody is late whom we do not read
        elif self._beginning and self._headers_timer is None:
            self._watch_headers()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._watch_unread()

    def resume_writing(self) -> None:
        if self._unread_timer is not None and not self._transport.is_closing() and not self._parting:
            self._unread_timer.cancel()
            self._unread_timer = None
        self._let_write()
        self._go_on()

    # From the parser.

    def on_message_begin(self) -> None:
        if not self._replayed:
            self._beginning = True
            self._heard, self._size, self._two_hosts = 0, 0, False  # of what else is in this packet we know no more
            self._url, self._headers = b"", {}

    def on_url(self, url: bytes) -> None:
        if not self._replayed:
            self._url += url
            self._measure(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._measure(len(name) + len(value))
        if not self._beginning:
            return  # what follows a body is no header of it
        known, text = _USUAL.get(name) or name.lower().decode("latin-1"), value.rstrip(b" \t").decode("latin-1")
        headers = self._headers
        if known in headers:
            self._two_hosts = self._two_hosts or known == "host"
            text = f"{headers[known]}, {text}"
        headers[known] = text

    def on_headers_complete(self) -> None:
        if self._replayed:
            self._replayed = False
            return
        self._beginning, self._heard = False, 0
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version not in _VERSIONS or self._two_hosts or (version == "1.1" and "host" not in headers):
            raise ValueError("nobody speaks like that")  # for the parser to hand on
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/") or b"#" in self._url:
            parts = httptools.parse_url(self._url)
            path, query = parts.path or b"/", parts.query or b""
        request = Request(self, parser.get_method().decode("ascii"), path, query, headers)
        request.version = version
        request.kept = version == "1.1" and parser.should_keep_alive() and not self._all.stopping
        self._incoming = request
        if self._answering is None and self._writable is None:
            self._answering = request
            self._all.work(request)
        else:
            self._behind.append(request)

    def on_body(self, body: bytes) -> None:
        self._heard = 0
        if self._incoming is not None:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        request = self._incoming
        if request is not None and not self._parser.should_upgrade():
            self._incoming = None
            request.complete()

    # From the requests.

    def read_on(self) -> None:
        if self._held and not self._behind:
            self._held = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
            if self._beginning and self._headers_timer is None:
                self._watch_headers()

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
        if request.kept:
            self._go_on()
        else:
            self._part()

    def dropped(self, request: Request) -> None:
        self._answering = None
        if request is not self._refused or request.begun:
            self._refusal = b""  # whatever we say would be taken for its answer
        for each in self._behind:
            each.leave()
        self._behind.clear()
        self._go_on()

    def stop(self) -> None:
        """Close when all that was asked is answered: now, if nothing was."""
        asked = [request for request in (self._answering, *self._behind) if request is not None]
        if asked:
            asked[-1].kept = False
        elif self._parting:
            self._hear_out()
        elif self._writable is None:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    # Our own.

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:  # to something that nobody speaks here: it stays as it is
                self._read_past_upgrade()
                data = data[upgrade.args[0] :]
            else:
                break

    def _read_past_upgrade(self) -> None:
        """Go on as if nobody had asked for an upgrade: to the parser the request ends with its headers, body or not."""
        self._parser = httptools.HttpRequestParser(self)
        if (request := self._incoming) is None:
            return
        framing = [
            f"{name}: {request.headers[name]}\r\n"
            for name in ("content-length", "transfer-encoding")
            if name in request.headers
        ]
        self._replayed = True
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{''.join(framing)}\r\n".encode("latin-1"))

    def _measure(self, more: int) -> None:
        self._size += more
        if self._size > self._limits.largest_headers:
            raise ValueError("the headers are too large")  # for the parser to hand on

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

    def _refuse_large(self) -> None:
        most = self._limits.largest_headers
        self._refuse(431, f"the headers are too large; send less than {most} bytes", "headers_too_large")

    def _refuse(self, status: int, detail: str, code: str) -> None:
        """Say that what came cannot be answered, when all before it is; and read no more."""
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None
        body = msgspec.json.encode(Problem(title=TITLES[status], status=status, detail=detail, code=code))
        kind = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (MEDIA_TYPE.encode(), len(body))
        self._refusal = b"".join((STATUS[status], self._all.date(), kind, body))
        self._beginning = False
        self._refused = self._incoming
        if self._refused is not None:
            self._refused.leave()  # it is the body that is wrong
        self._go_on()

    def _part(self) -> None:
        """Say that this was the last, and hear them out: whoever is reset before it has read it loses the answer."""
        if self._transport.is_closing():
            return
        self._parting = True
        self._transport.write_eof()
        self._behind.clear()
        self._hear_out()
        self.read_on()

    def _hear_out(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
        seconds = _HEARD_OUT_AT_THE_END if self._all.stopping else self._limits.headers_within.total_seconds()
        self._headers_timer = self._loop.call_later(seconds, self._heard_out)

    def _heard_out(self) -> None:
        if not self._transport.get_write_buffer_size():
            self.abort()
            return
        if self._unread_timer is None:
            self._watch_unread()
        self._hear_out()  # it is still reading

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
        self._headers_timer = None
        if self._beginning:
            self._refuse(408, "the request did not arrive in time; send it at once", "request_timeout")
        else:
            self._close()  # it said nothing: nor do we

    def _watch_idle(self, seconds: float) -> None:
        """Look again when it could have been idle for long enough. A timer for each request would cost more."""
        self._idle_timer = self._loop.call_later(seconds, self._look_idle)

    def _look_idle(self) -> None:
        left = self._idle_since + self._limits.kept_for.total_seconds() - self._loop.time()
        busy = self._answering is not None or self._writable is not None or self._beginning or self._parting
        if busy or self._behind:
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
        if not left:
            self._unread_timer = None
        elif left > before - _LEAST_READ:
            self.abort()
        else:
            self._watch_unread()
