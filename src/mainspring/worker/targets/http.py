"""The HTTP target: sends what a job describes, once per attempt, and says how it ended.

Promise. All requests of a run carry its id as ``Idempotency-Key``, and a fence that rises with every attempt: a
server that remembers the highest one can refuse an attempt that was replaced. Nothing is dialled that the operator
did not open (``guard.py``). No secret goes to another origin than the job named, and none is kept. No answer costs
more memory than its cap and more time than its timeout. What an answer means is written in ``answers.py``.

Not promised. That a server sees a request once: the connection may break after it acted and before it answered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Final, Self
from urllib.parse import urldefrag, urljoin

import msgspec
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, StreamReader
from aiohttp.abc import AbstractResolver

from mainspring.domain.addresses import USUAL_PORTS, Network, Reach
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import slot_text
from mainspring.domain.references import names_secret
from mainspring.domain.requests import ABSENT, LONGEST_BODY, HttpRequest, check_header, request_from_json
from mainspring.domain.settling import Discarded, ErrorInfo, Failed, Outcome
from mainspring.domain.urls import HIDDEN, Url, parse_url
from mainspring.environment import Environment
from mainspring.worker.attempt import Attempt
from mainspring.worker.masking import NOTHING_HIDDEN, Mask
from mainspring.worker.secrets import Secrets, opened
from mainspring.worker.targets.answers import Answer, judge, judge_error
from mainspring.worker.targets.guard import guarded_connector
from mainspring.worker.targets.signing import signature_headers

_REDIRECTS: Final = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """What the operator of a worker decides about HTTP jobs."""

    allow_networks: tuple[Network, ...] = ()  # let through although not public, on any port
    deny_networks: tuple[Network, ...] = ()  # never, not even inside allow_networks: our own database and brokers
    ports: frozenset[int] = USUAL_PORTS  # of public addresses
    connect_within: timedelta = timedelta(seconds=5)  # for each address of a name, its TLS included
    answer_within: timedelta = timedelta(seconds=60)  # for all of it, unless the job says otherwise
    largest_answer: int = 1 << 20  # bytes, as decompressed; the rest is not read
    keep_body: int = 8_000  # bytes of JSON: a result has to fit into the ledger
    connections: int = 1_000  # at once; more requests wait for one, within their time
    names_for: timedelta = timedelta(seconds=10)  # how long an answer of the name server is used
    user_agent: str = "Mainspring"


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """One attempt's requests and what came back: one, or several if redirects are followed."""

    attempt: Attempt
    request: HttpRequest
    url: Url
    method: str
    body: bytes | None
    headers: dict[str, str]
    secret_headers: dict[str, str]
    keys: tuple[str, ...]
    mask: Mask
    secret_body: bool
    answer: Answer | None = None
    seen: list[str] = field(default_factory=list)  # URLs that redirected us


class HttpTarget:
    """Calls URLs. Open it once per worker, ``async with``: connections are shared by all attempts."""

    def __init__(
        self,
        config: HttpConfig,
        secrets: Secrets,
        environment: Environment,
        *,
        traceparent: Callable[[Attempt], str | None] | None = None,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._secrets = secrets
        self._environment = environment
        self._traceparent = traceparent
        self._resolver = resolver
        self._tls = tls
        self._session: ClientSession

    async def __aenter__(self) -> Self:
        config = self._config
        reach = Reach(allow=config.allow_networks, deny=config.deny_networks, ports=config.ports)
        self._session = ClientSession(
            connector=guarded_connector(
                reach,
                connections=config.connections,
                names_for=config.names_for,
                resolver=self._resolver,
                tls=self._tls,
            ),
            cookie_jar=DummyCookieJar(),
            trust_env=False,  # no proxy by a stray variable: it would dial for us, unguarded
            timeout=ClientTimeout(total=None, sock_connect=config.connect_within.total_seconds()),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self, attempt: Attempt) -> Outcome:
        """Send the request and judge the answer. Raises nothing but cancellation, which closes the connection."""
        try:
            return await self._run(await self._prepared(attempt))
        except InvalidRequest as error:
            return Discarded(str(error))
        except Exception as error:  # noqa: BLE001 - a provider of secrets, or we: what it says may be secret
            return Failed(error=ErrorInfo(type="http_failed", message=f"could not be sent: {type(error).__name__}"))

    async def _run(self, exchange: _Exchange) -> Outcome:
        request, mask = exchange.request, exchange.mask
        try:
            async with asyncio.timeout((request.timeout or self._config.answer_within).total_seconds()):
                answer = await self._followed(exchange)
        except InvalidRequest as error:
            return Discarded(mask.text(str(error)))
        except Exception as error:  # noqa: BLE001 - whatever went wrong on the way is an outcome
            if exchange.answer is None or request.succeeds(exchange.answer.status):
                return judge_error(error, exchange.url, mask=mask)
            answer = exchange.answer
        return judge(request, answer, mask=mask, keep=self._config.keep_body, now=self._environment.now())

    async def _followed(self, exchange: _Exchange) -> Answer:
        while True:
            answer = await self._sent(exchange)
            url = _next(exchange, answer)
            if url is None:
                return answer
            told = exchange.mask.text(f"{answer.title} from {answer.url.shown}: on to {url.shown}")
            exchange.attempt.output.line(told, stream="log", level="info")
            _redirect(exchange, answer.status, url)

    async def _sent(self, exchange: _Exchange) -> Answer:
        exchange.answer = None
        response = await self._session.request(
            exchange.method,
            exchange.url.text,
            data=exchange.body,
            headers=self._sealed(exchange),
            allow_redirects=False,  # each hop is ours to judge
        )
        answer = exchange.answer = Answer(exchange.url, response.status, response.headers)
        try:
            await _read(response.content, answer, self._config.largest_answer)
        finally:
            response.close()  # of no effect after the end of a body; before it, nothing is drained
        return answer

    async def _prepared(self, attempt: Attempt) -> _Exchange:
        request, tenant = request_from_json(attempt.run.payload), attempt.run.job.tenant
        values = {
            name: await self._secrets.resolve(reference, tenant=tenant)
            for name, reference in request.secret_headers.items()
        }
        signing = [await self._secrets.resolve(reference, tenant=tenant) for reference in request.sign_with]
        keys = tuple(key for each in signing for key in each.split())
        within: tuple[str, ...] = ()
        if names_secret(request.json):
            content, within = await opened(self._secrets, request.json, tenant=tenant)
            request = replace(request, json=content)
        for name, value in values.items():
            check_header(name, value, field="payload.secret_headers")
        return _Exchange(
            attempt=attempt,
            request=request,
            url=request.url,
            method=request.method,
            body=_body(request),
            headers=self._headers(attempt, request),
            secret_headers=values,
            keys=keys,
            mask=Mask((*values.values(), *keys, *within)) if values or keys or within else NOTHING_HIDDEN,
            secret_body=bool(within),
        )

    def _headers(self, attempt: Attempt, request: HttpRequest) -> dict[str, str]:
        run = attempt.run
        identity = str(run.id)
        headers = {
            "User-Agent": self._config.user_agent,
            "Accept-Encoding": "identity",  # answers are short
            "Idempotency-Key": identity,
            "Mainspring-Run-Id": identity,
            "Mainspring-Job-Id": str(run.job_id),
            "Mainspring-Slot": _slot_text(run.slot),
            "Mainspring-Attempt": str(run.attempt),
            "Mainspring-Fence": attempt.fence,
        }
        if request.json is not ABSENT:
            headers["Content-Type"] = "application/json"
        elif request.body is not None:
            headers["Content-Type"] = "text/plain; charset=utf-8"
        if self._traceparent is not None and (parent := self._traceparent(attempt)) is not None:
            headers["traceparent"] = parent
        for name, value in request.headers.items():
            headers[_USUAL_CASE.get(name.lower(), name)] = value
        return headers

    def _sealed(self, exchange: _Exchange) -> dict[str, str]:
        headers = {**exchange.headers, **exchange.secret_headers}
        if exchange.keys:
            identity, now = headers["Idempotency-Key"], self._environment.now()
            headers |= signature_headers(exchange.body or b"", exchange.keys, message_id=identity, now=now)
        return headers


_slot_text: Final = lru_cache(maxsize=100)(slot_text)  # many runs share one
_USUAL_CASE: Final = {"content-type": "Content-Type", "accept-encoding": "Accept-Encoding"}  # ours, if not theirs


def _body(request: HttpRequest) -> bytes | None:
    field, given = ("body", request.body) if request.json is ABSENT else ("json", request.json)
    if field == "body" and given is None:
        return None
    try:
        body = msgspec.json.encode(given) if field == "json" else str(given).encode()
    except (UnicodeError, TypeError, RecursionError):
        body = None
    if body is None or len(body) > LONGEST_BODY:
        allowed = f"use up to {LONGEST_BODY} bytes of UTF-8"
        raise InvalidRequest("this cannot be sent", field=f"payload.{field}", value=HIDDEN, allowed=allowed)
    return body


async def _read(content: StreamReader, answer: Answer, largest: int) -> None:
    while chunk := await content.readany():
        answer.body += chunk
        if len(answer.body) > largest:
            del answer.body[largest:]
            answer.truncated = True
            return


def _next(exchange: _Exchange, answer: Answer) -> Url | None:
    """Return where an answer sends us, or None if it is the last one.

    Raises:
        InvalidRequest: there is no going there.
    """
    location, request = answer.headers.get("Location"), exchange.request
    if answer.status not in _REDIRECTS or location is None or request.succeeds(answer.status):
        return None
    if len(exchange.seen) >= request.redirects:
        return None
    try:
        url = parse_url(urldefrag(urljoin(exchange.url.text, location)).url)
    except InvalidRequest as error:
        raise _astray(answer, error.reason) from None
    except ValueError:
        raise _astray(answer, "no URL at all") from None
    if url.text in (*exchange.seen, exchange.url.text):
        raise _astray(answer, "back in a circle")
    if url.scheme != exchange.url.scheme == "https":
        raise _astray(answer, f"from https down to {url.shown}")
    return url


def _astray(answer: Answer, where: str) -> InvalidRequest:
    reason = f"{answer.title} from {answer.url.shown} leads astray: {where}"
    return InvalidRequest(reason, field="payload.redirects", value=HIDDEN, allowed="name the right place as the url")


def _redirect(exchange: _Exchange, status: int, url: Url) -> None:
    exchange.seen.append(exchange.url.text)
    if url.origin != exchange.url.origin:  # and it stays so, should they send us back
        exchange.secret_headers, exchange.keys = {}, ()
        if exchange.secret_body and not _body_is_dropped(exchange, status):
            reason = "a redirect to another server would take a secret along, in its body"
            allowed = "name the right place as the url"
            raise InvalidRequest(reason, field="payload.redirects", value=HIDDEN, allowed=allowed)
    if _body_is_dropped(exchange, status):
        exchange.method, exchange.body = "GET", None
        exchange.headers.pop("Content-Type", None)
    exchange.url = url


def _body_is_dropped(exchange: _Exchange, status: int) -> bool:
    return (status == 303 and exchange.method != "HEAD") or (status in (301, 302) and exchange.method == "POST")
