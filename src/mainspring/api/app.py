"""The API as an ASGI application: every request goes through here, once, in this order.

path → who is asking → may they → how often → body → key → handler → reply. Whatever goes wrong on the way becomes a
problem with a stable code; of what is a fault of ours the caller learns a name to look for in the log, and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from mainspring.api.answering import Answering
from mainspring.api.paths import Paths
from mainspring.api.requests import (
    JSON,
    Call,
    Receive,
    Reply,
    Scope,
    Send,
    body_of,
    headers_of,
    query_of,
    read_body,
)
from mainspring.domain.access import Principal
from mainspring.domain.access import Scope as AccessScope
from mainspring.domain.errors import MainspringError, RateLimited, Unauthenticated
from mainspring.environment import Environment
from mainspring.rest.problems import MEDIA_TYPE, TITLES, Problem, fault, problem_of, status_of
from mainspring.rest.routes import PREFIX, ROUTES, Route
from mainspring.service import first_of

_logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Page:
    """Something that is no part of the API: a path of its own, read only."""

    read: Callable[[], Awaitable[Reply]]
    scope: AccessScope | None = None  # None: open to everybody, also to those nobody knows


# Nothing of ours is guessed at or stored by a proxy, and no page is framed.
_SAFE: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_SAFE_PAGE: Final = (*_SAFE, (b"x-frame-options", b"DENY"), (b"referrer-policy", b"no-referrer"))
_WHEN_AWAY: Final = timedelta(seconds=2)  # after a 503


class Gate(Protocol):
    """Who is asking, and whether they may go on."""

    async def principal(self, headers: Mapping[str, str], peer: str | None) -> Principal: ...

    async def admit(self, principal: Principal, cost: int) -> dict[str, str]:
        """Count a request; return the headers that say how many are left.

        Raises:
            RateLimited: none is.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    largest_body: int = 16 << 20
    deepest_json: int = 64
    request_timeout: timedelta = timedelta(seconds=30)  # for the body to come, and then again for the answer


class App:
    """The ASGI application. Handlers are by the name of their route; pages, open to everybody, by their path."""

    def __init__(
        self,
        config: AppConfig,
        *,
        gate: Gate,
        handlers: Mapping[str, Handler],
        pages: Mapping[str, Page],
        answering: Answering,
        env: Environment,
        observe: Callable[[str, int, float], None] = lambda *_: None,
        ending: asyncio.Event | None = None,
    ) -> None:
        missing = {route.name for route in ROUTES} ^ set(handlers)
        if missing:
            raise AssertionError(f"routes without a handler, or the reverse: {', '.join(sorted(missing))}")
        self._config = config
        self._gate = gate
        self._handlers = handlers
        self._pages = pages
        self._answering = answering
        self._observe = observe
        self._ending = ending or asyncio.Event()  # the server is about to stop: nobody waits any longer
        self._paths = Paths(ROUTES, PREFIX)
        self._process, self._numbers = env.token().hex[:12], count(1)  # the names of requests in the log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1002})
        began, request = perf_counter(), f"{self._process}-{next(self._numbers):x}"
        progress = _Progress(self._config.request_timeout.total_seconds())
        progress.when_late(lambda: _send(_late(progress, request), request, receive, send))
        try:
            reply = await self._reply(scope, receive, request, progress)
        except TimeoutError:
            reply = _late(progress, request)
        except MainspringError as error:
            reply = _refused(error, request)
        except asyncio.CancelledError:
            if progress.told is None:
                raise
            reply = _late(progress, request)
        except Exception as error:
            if progress.reading and isinstance(error, ConnectionError):
                progress.end()
                return None  # it hung up before it had asked
            _logger.exception("request %s failed", request)
            reply = _problem(fault(request))
        progress.end()
        if progress.told is not None:
            await progress.told
        else:
            headers = progress.headers
            await _send(reply, request, receive, send, headers, with_body=scope["method"] != "HEAD")
        self._observe(progress.route, reply.status, perf_counter() - began)
        return None

    async def _reply(self, scope: Scope, receive: Receive, request: str, progress: _Progress) -> Reply:
        page = self._pages.get(scope["path"])
        if page is not None:
            progress.route = scope["path"]
            return await self._page(page, scope, request)
        found = self._paths.find(scope.get("raw_path", b"").partition(b"?")[0] or scope["path"].encode())
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route = found.routes.get(method)
        if route is None:
            return _wrong_method(", ".join(sorted(found.routes)), request)
        headers = headers_of(scope)
        principal = await self._gate.principal(headers, _peer(scope))
        progress.route = route.name
        if route.scope is not None:
            principal.require(route.scope)
        progress.headers = await self._gate.admit(principal, 1)
        call, watching = await self._read(route, principal, found.names, headers, scope, receive, request, progress)
        try:
            return await self._answering.once(call, self._handlers[route.name])
        finally:
            if watching is not None:
                watching.cancel()

    async def _page(self, page: Page, scope: Scope, request: str) -> Reply:
        if scope["method"] not in ("GET", "HEAD"):
            return _wrong_method("GET", request)
        if page.scope is not None:
            (await self._gate.principal(headers_of(scope), _peer(scope))).require(page.scope)
        return await page.read()

    async def _read(  # noqa: PLR0917 - the parts of one request
        self,
        route: Route,
        principal: Principal,
        names: Mapping[str, str],
        headers: Mapping[str, str],
        scope: Scope,
        receive: Receive,
        request: str,
        progress: _Progress,
    ) -> tuple[Call, asyncio.Task[None] | None]:
        query = query_of(route, scope.get("query_string", b""))
        raw = b""
        if route.method != "GET":
            progress.reading = True
            progress.move(self._config.request_timeout.total_seconds())
            raw = await read_body(headers, receive, largest=self._config.largest_body)
            progress.reading = False
        body = body_of(route, raw, headers, deepest=self._config.deepest_json)
        gone, watching = None, None
        if route.waits and "prefer" in headers:
            gone = asyncio.Event()
            watching = asyncio.create_task(self._watch(receive, gone))
        call = Call(
            route=route,
            principal=principal,
            names=names,
            headers=headers,
            query=query,
            body=body,
            raw=raw,
            request=request,
            peer=_peer(scope),
            gone=gone,
        )
        if route.changes:
            wait = call.wait if route.waits else None
            progress.move((self._config.request_timeout + (wait or timedelta(0))).total_seconds())
        return call, watching

    async def _watch(self, receive: Receive, gone: asyncio.Event) -> None:
        """Say when nobody waits any longer, or nobody may."""
        await first_of(_until_gone(receive), self._ending.wait())
        gone.set()


class _Progress:
    """How far a request has come, and a clock on it.

    What takes too long is told so, cancelled, and left behind: a driver whose server has stopped answering waits for it
    also when it is cancelled. A timer for each costs a tenth of a task for each.
    """

    __slots__ = ("_at", "_loop", "_tell", "_timer", "_work", "headers", "reading", "route", "told")

    def __init__(self, seconds: float) -> None:
        self.route = "none"
        self.reading = False
        self.headers: Mapping[str, str] = {}  # that go with whatever is answered
        self.told: asyncio.Task[None] | None = None  # that it took too long
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + seconds
        self._work = asyncio.current_task()
        self._timer = self._loop.call_at(self._at, self._look)

    def when_late(self, tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tell = tell

    def move(self, seconds: float) -> None:
        """Grant so many seconds from now on."""
        self._at = self._loop.time() + seconds

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._loop.time() < self._at:
            self._timer = self._loop.call_at(self._at, self._look)
            return
        self.told = self._loop.create_task(self._tell())
        if self._work is not None:
            self._work.cancel()


async def _until_gone(receive: Receive) -> None:
    """Wait until the client has hung up, or has been answered."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _peer(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def _refused(error: MainspringError, request: str) -> Reply:
    status = status_of(error)
    if status == 500:
        _logger.error("request %s failed", request, exc_info=error)
    elif status == 503:
        _logger.warning("request %s: %s", request, error)
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = error.challenge
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, -(-error.retry_after // timedelta(seconds=1))))
    elif status == 503:
        headers["Retry-After"] = str(int(_WHEN_AWAY.total_seconds()))
    return _problem(problem_of(error, request=request), headers)


def _late(progress: _Progress, request: str) -> Reply:
    """Answer a request that took too long: to be sent, or to be answered."""
    if progress.reading:
        detail, code = "the body did not arrive in time; send it at once", "request_timeout"
        problem = Problem(title=TITLES[408], status=408, detail=detail, code=code, request=request)
        return _problem(problem, {"Connection": "close"})  # nobody waits for the rest of it
    _logger.warning("request %s took too long", request)
    detail = "it took too long; try the same again"
    problem = Problem(title=TITLES[503], status=503, detail=detail, code="timeout", request=request)
    return _problem(problem, {"Retry-After": str(int(_WHEN_AWAY.total_seconds()))})


def _wrong_method(allowed: str, request: str) -> Reply:
    detail = f"use {allowed}"
    problem = Problem(title=TITLES[405], status=405, detail=detail, code="method_not_allowed", request=request)
    return _problem(problem, {"Allow": allowed})


def _problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status=problem.status, body=msgspec.json.encode(problem), headers=headers or {}, media=MEDIA_TYPE)


async def _send(
    reply: Reply,
    request: str,
    receive: Receive,
    send: Send,
    also: Mapping[str, str] = MappingProxyType({}),
    *,
    with_body: bool = True,
) -> None:
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", reply.media.encode() if reply.media != JSON else b"application/json"),
        (b"mainspring-request", request.encode()),
    ]
    headers += _SAFE if reply.media in (JSON, MEDIA_TYPE) else _SAFE_PAGE
    for name, value in {**also, **reply.headers}.items():
        headers.append((name.lower().encode("latin-1"), value.encode("latin-1", "replace")))
    if reply.parts is None:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.parts is None or not with_body:
        return await send({"type": "http.response.body", "body": reply.body if with_body else b""})
    sending = asyncio.create_task(_send_parts(reply.parts, request, send))
    try:
        await _until_gone(receive)
    finally:
        sending.cancel()
        await asyncio.wait((sending,))
    return None


async def _send_parts(parts: AsyncGenerator[bytes], request: str, send: Send) -> None:
    """Send parts as they come, to the last. Its own task: it would not notice by itself that nobody listens."""
    try:
        async with aclosing(parts) as coming:
            async for part in coming:
                await send({"type": "http.response.body", "body": part, "more_body": True})
    except Exception:
        _logger.exception("request %s failed", request)
    await send({"type": "http.response.body", "body": b""})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            return await send({"type": "lifespan.shutdown.complete"})
