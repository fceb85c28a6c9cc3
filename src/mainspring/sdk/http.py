"""Requests to a server: sent until they are answered, as far as that is safe, and problems turned back into errors.

Promise. What a call asks for is done once, or the caller is told that it may have been done.

By what. A request that never left may always be sent again; so may one that was refused for now (429). If the
connection was cut, or the server had to give up (503), nobody knows whether it was done:

  GET           is asked again: it changes nothing
  POST          is asked again with the same Idempotency-Key, one per call: the server does it once, and answers twice.
                While it is at an earlier try, or may be, it says so (409); that is waited for, and counts as no try
  PUT, PATCH    are asked again after a 503, for they say what shall be and not what to do; but not with If-Match: if
                the first was done after all, the version is another by now, and "stale" would be no true answer
  DELETE        is not: the second would find nothing there
                and after a cut connection none of the three, for the server may be at it still
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from mainspring.domain.errors import InProgress, InvalidRequest, MainspringError, RateLimited, Unavailable
from mainspring.domain.views import Page
from mainspring.environment import Environment
from mainspring.rest.asked import LARGEST_PAGE
from mainspring.rest.problems import MEDIA_TYPE, TITLES, Problem, error_of
from mainspring.rest.routes import BY_NAME, PREFIX, SSE
from mainspring.sdk.session import Cut, Incoming, NotConnected, Outgoing, Send, Stream, Streaming

TRIES: Final = 4
_FIRST_PAUSE: Final = 0.1  # seconds; doubled each time
_LONGEST_PAUSE: Final = 20.0  # whoever would have to wait for longer is told so instead
_AWAY: Final = (502, 503, 504)  # so says the server, or what stands before it
_AT_IT_FOR: Final = 70.0  # the server holds a key for a minute; after that the next one with it does the work
_LONGEST_LOOK: Final = 2.0

_A = TypeVar("_A")
_V = TypeVar("_V")


class Http:
    """A server, and how to ask it."""

    def __init__(
        self, url: str, send: Send, stream: Stream, env: Environment, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self.env = env
        self._send = send
        self._stream = stream
        self._headers = {"Accept": f"application/json, {MEDIA_TYPE}", **(headers or {})}

    async def ask(
        self,
        route: str,
        kind: type[_A],
        *names: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        if_version: int | None = None,
    ) -> _A:
        """Send a request of the table of routes, with ``names`` in its braces, and read the answer.

        Raises:
            MainspringError: the one that the server raised.
            Unavailable: the server is away; :class:`Cut` if it may have done it all the same.
        """
        request = self._request(route, names, query or {}, body, if_version)
        answer = await self._answer(request, guarded=if_version is not None)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError as error:
            reason, allowed = f"its answer cannot be read here, {error}", "use the URL of a server of this release"
            raise InvalidRequest(reason, field="url", value=self.url, allowed=allowed) from None

    async def page(  # noqa: PLR0917 - a question, and how much of the answer
        self,
        route: str,
        kind: type[Any],
        read: Callable[[Any], _V],
        query: Mapping[str, Any],
        limit: int,
        after: str | None,
    ) -> Page[_V]:
        """Return a page of any length, in as many requests as that takes."""
        found: list[_V] = []
        while True:
            most = min(limit - len(found), LARGEST_PAGE)
            page = await self.ask(route, kind, query={**query, "limit": most, "after": after})
            found += map(read, page.items)
            after = page.next
            if after is None or len(found) >= limit:
                return Page(items=tuple(found), next=after)

    def listen(self, query: Mapping[str, Any], last: str | None) -> AbstractAsyncContextManager[Streaming]:
        """Open the stream of events, once; it goes on after the event ``last``."""
        request = self._request("events.stream", (), query, None, None)
        more = {"Accept": f"{SSE}, {MEDIA_TYPE}", **({} if last is None else {"Last-Event-ID": last})}
        return self._stream(request._replace(headers={**request.headers, **more}))

    def _request(
        self, name: str, names: tuple[str, ...], query: Mapping[str, Any], body: Any, if_version: int | None
    ) -> Outgoing:
        route = BY_NAME[name]
        headers, content = dict(self._headers), None
        if route.method == "POST":
            headers["Idempotency-Key"] = self.env.token().hex
        if if_version is not None:
            headers["If-Match"] = f'"{if_version}"'
        if route.body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode({} if body is None else body)
        return Outgoing(route.method, f"{self.url}{PREFIX}{_path(route.path, names)}{_query(query)}", headers, content)

    async def _answer(self, request: Outgoing, *, guarded: bool) -> Incoming:
        tried, looking = 0, _Looking(self.env)
        lost: Cut | None = None  # a POST that may have been done: whatever else is away later, that is what to tell
        while True:
            tried += 1
            pause = _pause(self.env, tried)
            try:
                answer = await self._send(request)
            except NotConnected as error:
                if tried == TRIES:
                    raise lost or error from None
            except Cut as error:
                if tried == TRIES or request.method not in ("GET", "POST"):
                    raise
                lost = error if request.method == "POST" else None
            else:
                if answer.status < 300:
                    return answer
                refused, wanted = refusal(request, answer), _retry_after(answer)
                if isinstance(refused, InProgress):  # the key is nobody's but ours: so it is an earlier try
                    tried, lost = tried - 1, _taken(request)
                    if not looking.patient(wanted):
                        raise lost
                    pause = max(looking.pause(), wanted)
                elif tried == TRIES or wanted > _LONGEST_PAUSE or not _again(request, answer, refused, guarded=guarded):
                    raise lost if lost is not None and isinstance(refused, Unavailable) else refused
                else:
                    pause = max(pause, wanted)
            await self.env.sleep(pause)


class _Looking:
    """Looks after an earlier try of ours that the server is at: for so long and no longer in one call."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._until: float | None = None
        self._looks = 0

    def patient(self, wanted: float) -> bool:
        """Return whether another look is worth it, no sooner than the server wants it."""
        now = self._env.monotonic()
        self._until = now + _AT_IT_FOR if self._until is None else self._until
        return now + wanted <= self._until

    def pause(self) -> float:
        self._looks += 1
        return _pause(self._env, self._looks, longest=_LONGEST_LOOK)


def _taken(request: Outgoing) -> Cut:
    shown = request.url.partition("?")[0]
    return Cut(f"{request.method} {shown} was not answered: the server took it, and nobody knows what became of it")


def _pause(env: Environment, number: int, *, longest: float = _LONGEST_PAUSE) -> float:
    """Return the length of a pause between two requests: longer each time, and never the same for everybody."""
    return min(_FIRST_PAUSE * 2.0 ** (number - 1), longest) * (0.5 + env.random() / 2)


def _again(request: Outgoing, answer: Incoming, error: MainspringError, *, guarded: bool) -> bool:
    """Return whether what was answered like this may be asked again."""
    if isinstance(error, RateLimited):
        return True  # nothing was done
    if answer.status not in _AWAY:
        return False
    return request.method in ("GET", "POST") or (request.method in ("PUT", "PATCH") and not guarded)


def refusal(request: Outgoing, answer: Incoming) -> MainspringError:
    """Return the error that an answer stands for."""
    if 300 <= answer.status < 400:  # followed, it would carry the key elsewhere
        reason = f"it sends us elsewhere, to {answer.headers.get('Location', '')[:200]!r}"
        return InvalidRequest(reason, field="url", value=request.url, allowed="give the address that it leads to")
    problem = _problem(answer)
    if problem is None:
        title = TITLES.get(answer.status, "nobody knows what that means")
        detail = f"{request.method} {request.url.partition('?')[0]} was answered with {answer.status}: {title}"
        if answer.status in _AWAY:
            return Unavailable(detail)
        problem = Problem(title=title, status=answer.status, detail=detail, code="unknown")
    return error_of(problem, retry_after=timedelta(seconds=_retry_after(answer) or 1))


def _problem(answer: Incoming) -> Problem | None:
    """Return the problem in an answer; None: it is not by Mainspring but by something on the way."""
    if not answer.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
        return None
    try:
        return msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return None


def _retry_after(answer: Incoming) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text[:9]) if text.isascii() and text.isdecimal() else 0.0


def _path(path: str, names: tuple[str, ...]) -> str:
    given = iter(names)
    return "/".join(_segment(next(given)) if part.startswith("{") else part for part in path.split("/"))


def _segment(name: str) -> str:
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")  # as it is, ".." would lead up


def _query(given: Mapping[str, Any]) -> str:
    pairs = [(name, value) for name, value in given.items() if value not in (None, "", ())]
    return f"?{urlencode(pairs, doseq=True, quote_via=quote)}" if pairs else ""
