"""The server: uvicorn inside our own lifecycle, with a clock on whoever is slow to ask.

uvicorn waits for the headers of a request for as long as they take to come. Here a connection that has not said what
it wants within a few seconds, or says it at great length, is closed: a thousand of them cost a thousand sockets for
that long, and no more. So is one that is sent an answer and does not read it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mainspring.domain.errors import InvalidRequest
from mainspring.rest.problems import MEDIA_TYPE, TITLES, Problem
from mainspring.service import Stop

_LEAST_READ: Final = 4 << 10  # bytes, by one who is still reading
_KEEP_ALIVE: Final = 75  # seconds; longer than most proxies, so that they close first and no request meets a closed end
_BACKLOG: Final = 2_048
_REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    or_any_port: bool = False  # if that one is taken
    drain: timedelta = timedelta(seconds=10)
    headers_within: timedelta = timedelta(seconds=10)
    largest_headers: int = 64 << 10
    read_within: timedelta = timedelta(seconds=30)  # what we send, at least a little of it


def bound(config: ServerConfig) -> socket.socket:
    """Return a socket that listens.

    Raises:
        InvalidRequest: the address is not ours, or taken.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # The protocol by its name: asyncio sets TCP_NODELAY only where it reads TCP; without it answers wait for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((config.host, config.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if config.or_any_port and error.errno == errno.EADDRINUSE:
            return bound(replace(config, port=0, or_any_port=False))
        where = f"{config.host}:{config.port}"
        allowed = "choose another port, or 0 for any that is free"
        reason = f"{where} cannot be listened on: {error.strerror or error}"
        raise InvalidRequest(reason, field="api.port", value=config.port, allowed=allowed) from error
    listening.setblocking(False)
    return listening


class Server:
    """Serves an ASGI application until the stop; a service as any other."""

    name = "Api"

    def __init__(self, app: Any, listening: socket.socket, config: ServerConfig, ending: asyncio.Event) -> None:
        self._app = app
        self._listening = listening
        self._config = config
        self._ending = ending  # tells the streams to end: they would not by themselves

    async def run(self, stop: Stop) -> None:
        settings = _Settings(
            self._app,
            http=_Guarded,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, int(self._config.drain.total_seconds())),
        )
        settings.guard = self._config
        server = _Server(settings)
        serving = asyncio.create_task(server.serve(sockets=[self._listening]))
        asked = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((serving, asked), return_when=asyncio.FIRST_COMPLETED)
            self._ending.set()
            server.should_exit = True
            await serving
        finally:
            asked.cancel()
            if not serving.done():
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving


class _Server(uvicorn.Server):
    """Leaves the signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Settings(uvicorn.Config):
    guard: ServerConfig


class _Guarded(HttpToolsProtocol):
    """A connection whose headers have to come within a time, and a size; and whose other end has to read."""

    _waiting: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _length = 0
    _complete = False  # the headers, with what came last
    _answering: Any = None  # what is at work; of several requests that came at once, the first

    def connection_made(self, transport: Any) -> None:
        self._guard: ServerConfig = cast("_Settings", self.config).guard
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._length += len(data)
        self._complete = False
        super().data_received(data)
        cycle: Any = self.cycle  # None until there was a request
        if self._waiting is None and not self._complete and (cycle is None or cycle.response_complete):
            self._watch()  # the beginning of another request, on a connection that was kept
            self._length = len(data)
        if self._waiting is not None and self._length > self._guard.largest_headers:
            most = self._guard.largest_headers
            self._refuse(431, f"the headers are too large; send less than {most} bytes", "headers_too_large")

    def on_headers_complete(self) -> None:
        self._complete = True
        self._unwatch()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._read_on()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True  # else only the last of several requests would learn of it
            self._answering.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_again(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._read_on()
        super().resume_writing()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        del msg
        self._refuse(400, "this is no HTTP request", "malformed_request")

    def _watch(self) -> None:
        self._length = 0
        self._waiting = self.loop.call_later(self._guard.headers_within.total_seconds(), self._late)

    def _unwatch(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _look_again(self, unread: int) -> None:
        self._sending = self.loop.call_later(self._guard.read_within.total_seconds(), self._look, unread)

    def _look(self, unread: int) -> None:
        """Hang up on one who has read next to nothing. Nothing is added while this much waits to be sent."""
        left = self.transport.get_write_buffer_size()
        if left > unread - _LEAST_READ:
            self.transport.abort()  # to close would wait for it to read
        else:
            self._look_again(left)

    def _read_on(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _late(self) -> None:
        if self._length:
            self._refuse(408, "the request did not arrive in time; send it at once", "request_timeout")
        elif not self.transport.is_closing():
            self.transport.close()  # it said nothing: nor do we

    def _refuse(self, status: int, detail: str, code: str) -> None:
        self._unwatch()
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(Problem(title=TITLES[status], status=status, detail=detail, code=code))
        head = b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, _REASONS[status], MEDIA_TYPE.encode(), len(body)) + body)
        self.transport.close()
