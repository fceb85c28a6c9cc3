"""The API as one application: every request goes through here, once, in this order.

path → who is asking → may they → how often → body → key → handler → reply. Whatever goes wrong on the way becomes a
problem with a stable code; of what is a fault of ours the caller learns a name to look for in the log, and no more.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from time import perf_counter
from typing import Final, Protocol, TypeAlias

import msgspec

from mainspring.api.answering import Answering
from mainspring.api.incoming import Request
from mainspring.api.paths import Paths
from mainspring.api.requests import JSON, Call, Reply, body_of, query_of, read_body
from mainspring.domain.access import Principal, Scope
from mainspring.domain.errors import InProgress, MainspringError, RateLimited, Unauthenticated
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
    scope: Scope | None = None  # None: open to everybody, also to those nobody knows


# Nothing of ours is guessed at or stored by a proxy, and no page is framed.
_SAFE: Final = "x-content-type-options: nosniff\r\ncache-control: no-store\r\n"
_SAFE_PAGE: Final = f"{_SAFE}x-frame-options: DENY\r\nreferrer-policy: no-referrer\r\n"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # would end a header, and begin another
_TICK: Final = 0.1  # seconds, by which a request may be let go too late
_WHEN_AWAY: Final = timedelta(seconds=2)  # after a 503


class Gate(Protocol):
    """Who is asking, and whether they may go on."""

    async def principal(self, headers: Mapping[str, str], peer: str | None) -> Principal: ...

    async def admit(self, principal: Principal) -> dict[str, str]:
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
    """The application. Handlers are by the name of their route; pages, open to everybody, by their path."""

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
        self._patience = config.request_timeout.total_seconds()
        self._clock = _Clock()
        self._gate = gate
        self._handlers = handlers
        self._pages = pages
        self._answering = answering
        self._observe = observe
        self._ending = ending or asyncio.Event()  # the server is about to stop: nobody waits any longer
        self._paths = Paths(ROUTES, PREFIX)
        self._process, self._numbers = env.token().hex[:12], count(1)  # the names of requests in the log

    async def __call__(self, request: Request) -> None:
        began, name = perf_counter(), f"{self._process}-{next(self._numbers):x}"
        progress = _Progress(self._clock, request, name, self._patience)
        try:
            reply = await self._reply(request, name, progress)
        except TimeoutError:
            reply = _late(progress, name)
        except MainspringError as error:
            reply = _refused(error, name)
        except asyncio.CancelledError:
            if progress.late is None:
                raise
            reply = progress.late
        except Exception as error:
            if progress.reading and isinstance(error, ConnectionError):
                return  # it hung up before it had asked
            _logger.exception("request %s failed", name)
            reply = _problem(fault(name))
        finally:
            progress.end()
        if progress.late is None:
            await _send(reply, request, name, progress.headers)
        self._observe(progress.route, reply.status, perf_counter() - began)

    async def _reply(self, request: Request, name: str, progress: _Progress) -> Reply:
        path = request.path.decode("latin-1")
        page = self._pages.get(path)
        if page is not None:
            progress.route = path
            return await self._page(page, request, name)
        found = self._paths.find(path)
        route = found.routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            return _wrong_method(", ".join(sorted(found.routes)), name)
        principal = await self._gate.principal(request.headers, request.peer)
        progress.route = route.name
        if route.scope is not None:
            principal.require(route.scope)
        progress.headers = await self._gate.admit(principal)
        call, watching = await self._read(route, principal, found.names, request, name, progress)
        try:
            if route.method != "POST":
                return await self._handlers[route.name](call)
            return await self._answering.once(call, self._handlers[route.name])
        finally:
            if watching is not None:
                watching.cancel()

    async def _page(self, page: Page, request: Request, name: str) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return _wrong_method("GET", name)
        if page.scope is not None:
            (await self._gate.principal(request.headers, request.peer)).require(page.scope)
        return await page.read()

    async def _read(  # noqa: PLR0917 - the parts of one request
        self,
        route: Route,
        principal: Principal,
        names: Mapping[str, str],
        request: Request,
        name: str,
        progress: _Progress,
    ) -> tuple[Call, asyncio.Task[None] | None]:
        query, headers = query_of(route, request.query), request.headers
        raw = b""
        if route.method != "GET":
            progress.reading = True
            progress.move(self._patience)
            raw = await read_body(request, largest=self._config.largest_body)
            progress.reading = False
        body = body_of(route, raw, headers, deepest=self._config.deepest_json)
        gone, watching = None, None
        if route.waits and "prefer" in headers:
            gone = asyncio.Event()
            watching = asyncio.create_task(self._watch(request, gone))
        call = Call(
            route=route,
            principal=principal,
            names=names,
            headers=headers,
            query=query,
            body=body,
            raw=raw,
            request=name,
            peer=request.peer,
            gone=gone,
        )
        if route.changes:
            wait = call.wait if route.waits else None
            progress.move(self._patience + (wait.total_seconds() if wait is not None else 0))
        return call, watching

    async def _watch(self, request: Request, gone: asyncio.Event) -> None:
        """Say when nobody waits any longer, or nobody may."""
        await first_of(request.hung_up(), self._ending.wait())
        gone.set()


class _Progress:
    """How far a request has come, and by when it has to be through.

    What takes too long is told so, cancelled, and left behind: a driver whose server has stopped answering waits for it
    also when it is cancelled.
    """

    __slots__ = ("_clock", "_name", "_request", "at", "headers", "late", "reading", "route")

    def __init__(self, clock: _Clock, request: Request, name: str, seconds: float) -> None:
        self.route = "none"
        self.reading = False
        self.headers: Mapping[str, str] = {}  # that go with whatever is answered
        self.late: Reply | None = None  # what it was told when it took too long
        self.at = clock.loop.time() + seconds
        self._clock = clock
        self._request = request
        self._name = name
        clock.watch(self)

    def move(self, seconds: float) -> None:
        """Grant so many seconds from now on."""
        self.at = self._clock.loop.time() + seconds

    def end(self) -> None:
        self._clock.leave(self)

    def stop(self) -> None:
        self.late = reply = _late(self, self._name)
        self._request.answer(reply.status, _head(reply, self._name, self.headers), reply.body)
        if self._request.work is not None:
            self._request.work.cancel()


class _Clock:
    """One timer for all requests that are being answered. One for each would take a tenth of its time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._watched: set[_Progress] = set()
        self._ticking = False

    def watch(self, progress: _Progress) -> None:
        self._watched.add(progress)
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(_TICK, self._tick)

    def leave(self, progress: _Progress) -> None:
        self._watched.discard(progress)

    def _tick(self) -> None:
        now = self.loop.time()
        for late in [each for each in self._watched if each.at <= now]:
            self._watched.discard(late)
            late.stop()
        self._ticking = bool(self._watched)
        if self._ticking:
            self.loop.call_later(_TICK, self._tick)


def _refused(error: MainspringError, request: str) -> Reply:
    status = status_of(error)
    if status == 500:
        _logger.error("request %s failed", request, exc_info=error)
    elif status == 503:
        _logger.warning("request %s: %s", request, error)
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = error.challenge
    if isinstance(error, InProgress):
        headers["Retry-After"] = "1"
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, -(-error.retry_after // timedelta(seconds=1))))
    elif status == 503:
        headers["Retry-After"] = str(int(_WHEN_AWAY.total_seconds()))
    return _problem(problem_of(error, request=request), headers)


def _late(progress: _Progress, request: str) -> Reply:
    """Answer a request that took too long: to be sent, or to be answered."""
    if progress.reading:
        detail, code = "the body did not arrive in time; send it at once", "request_timeout"
        return _problem(Problem(title=TITLES[408], status=408, detail=detail, code=code, request=request))
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


def _head(reply: Reply, name: str, also: Mapping[str, str]) -> bytes:
    """Return the headers of a reply, each with its end."""
    safe = _SAFE if reply.media in (JSON, MEDIA_TYPE) else _SAFE_PAGE
    lines = [f"{header}: {value}" for header, value in {**also, **reply.headers}.items()]
    if _CONTROL.search("".join(lines)):
        raise AssertionError("a header cannot have this in it")
    more = "\r\n".join([*lines, ""])
    return f"content-type: {reply.media}\r\nmainspring-request: {name}\r\n{safe}{more}".encode("latin-1", "replace")


async def _send(reply: Reply, request: Request, name: str, also: Mapping[str, str]) -> None:
    head = _head(reply, name, also)
    if reply.parts is None:
        request.answer(reply.status, head, reply.body)
        return
    request.begin(reply.status, head)
    if request.method == "HEAD":
        await reply.parts.aclose()
    else:
        # The end of the one who listens is waited for beside it: parts that are still to come do not notice it.
        await first_of(request.hung_up(), _send_parts(reply.parts, request, name))
    request.end()


async def _send_parts(parts: AsyncGenerator[bytes], request: Request, name: str) -> None:
    try:
        async with aclosing(parts) as coming:
            async for part in coming:
                await request.part(part)
    except Exception:
        _logger.exception("request %s failed", name)
