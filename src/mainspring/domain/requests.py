"""The HTTP request that a job describes: its payload as a value, checked when written and again when run.

::

    {"method": "POST", "url": "https://api.example.com/ping", "headers": {"Accept": "application/json"},
     "json": {"a": 1},                                        or "body": "text"
     "secret_headers": {"Authorization": "env:API_TOKEN"},    references, resolved by the worker
     "sign_with": "env:HOOK_KEY",                             or several, while keys are rotated
     "redirects": 3, "success": ["2xx", 404], "timeout": "30s"}

Promise. What passes here has one reading only: a URL is plain ASCII with a plain host, so that every parser sees
the host we see (``domain/urls.py``), and no header can end early or begin another. A secret's value is neither
accepted nor repeated. Whether the host may be reached is decided when it is dialled (``domain/addresses.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias

from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.inline import header_says_secret
from mainspring.domain.references import is_reference
from mainspring.domain.urls import HIDDEN, Url, parse_url

Json: TypeAlias = Any

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
LONGEST_HEADER: Final = 4_000
LONGEST_BODY: Final = 1 << 20
LONGEST_TIMEOUT: Final = timedelta(hours=1)
MOST_HEADERS: Final = 50
MOST_REDIRECTS: Final = 10
MOST_KEYS: Final = 4

# Framing and hops belong to the client, the rest of these to us: a job cannot pretend to be another run.
RESERVED: Final = {
    *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection"),
    *("te", "trailer", "upgrade", "expect", "user-agent", "idempotency-key", "traceparent", "tracestate"),
    *("webhook-id", "webhook-timestamp", "webhook-signature"),
}
_RESERVED_PREFIX: Final = "mainspring-"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?", re.ASCII)
_CLASS: Final = re.compile(r"[2-5]xx", re.ASCII)


class Absent(Enum):
    """No JSON at all, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What a job wants sent, and which answers are good."""

    method: str
    url: Url
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Json | Absent = ABSENT
    body: str | None = None
    secret_headers: Mapping[str, str] = field(default_factory=dict)  # name to reference
    sign_with: tuple[str, ...] = ()  # references
    redirects: int = 0
    success: tuple[int | str, ...] = ("2xx",)
    timeout: timedelta | None = None  # for all of it, the body and every redirect included

    def succeeds(self, status: int) -> bool:
        return f"{status // 100}xx" in self.success or status in self.success


def request_from_json(payload: Json) -> HttpRequest:
    """Read the payload of an HTTP job.

    Raises:
        InvalidRequest: a field is missing, unknown or out of bounds; it is named ``payload.<field>``.
    """
    if not isinstance(payload, Mapping):
        _refuse("payload", payload, "this is no description of a request", 'use {"method": "GET", "url": "https://…"}')
    given: dict[str, Any] = {}
    for name, value in payload.items():
        read = _READ.get(name)
        if read is None:
            _refuse(f"payload.{str(name)[:40]}", HIDDEN, "there is no such field", f"use {', '.join(_READ)}")
        given[name] = read(value)
    for name in ("method", "url"):
        if name not in given:
            _refuse(f"payload.{name}", None, "it is missing", "every request has a method and a url")
    if "json" in given and given.get("body") is not None:
        _refuse("payload.body", HIDDEN, "there is json as well", "use one of them")
    twice = {name.lower() for name in given.get("headers", ())} & set(map(str.lower, given.get("secret_headers", ())))
    if twice:
        _refuse("payload.secret_headers", twice.pop(), "a header is in headers as well", "name it in one place")
    return HttpRequest(**given)


def request_to_json(request: HttpRequest) -> dict[str, Json]:
    """Write a request as :func:`request_from_json` reads it; what has its default is left out."""
    written: dict[str, Json] = {"method": request.method, "url": request.url.text}
    for name in ("headers", "secret_headers"):
        if value := getattr(request, name):
            written[name] = dict(value)
    if request.json is not ABSENT:
        written["json"] = request.json
    if request.body is not None:
        written["body"] = request.body
    if request.sign_with:
        written["sign_with"] = request.sign_with[0] if len(request.sign_with) == 1 else list(request.sign_with)
    if request.redirects:
        written["redirects"] = request.redirects
    if request.success != ("2xx",):
        written["success"] = list(request.success)
    if request.timeout is not None:
        written["timeout"] = format_duration(request.timeout)
    return written


def check_header(name: str, value: str, *, field: str) -> None:
    """Check one header, as it will be sent.

    Raises:
        InvalidRequest: it is reserved, no header at all, or would not end where it should.
    """
    lowered = _checked_name(name, field)
    if len(value) > LONGEST_HEADER or _VALUE.fullmatch(value) is None:
        allowed = f"use up to {LONGEST_HEADER} printable ASCII characters, without blanks around them"
        _refuse(field, HIDDEN, f'the value of "{lowered}" cannot be sent', allowed)


def _refuse(where: str, value: object, reason: str, allowed: str) -> NoReturn:
    raise InvalidRequest(reason, field=where, value=value, allowed=allowed)


def _read_method(value: Json) -> str:
    method = value.upper() if isinstance(value, str) else ""
    if method not in METHODS:
        _refuse("payload.method", value, f"{value!r:.40} is no method", f"use {', '.join(METHODS)}")
    return method


def _read_url(value: Json) -> Url:
    if not isinstance(value, str):
        _refuse("payload.url", value, "this is no text", "use a URL")
    return parse_url(value)


def _read_headers(value: Json) -> dict[str, str]:
    where = "payload.headers"
    headers = _names(value, where)
    for name, content in headers.items():
        check_header(name, content, field=where)
        if header_says_secret(name):
            allowed = 'put it into secret_headers with a reference, such as "env:API_TOKEN"'
            _refuse(where, HIDDEN, f'"{name}" would keep a secret in the job', allowed)
    return headers


def _read_secret_headers(value: Json) -> dict[str, str]:
    where = "payload.secret_headers"
    headers = _names(value, where)
    for name, reference in headers.items():
        _checked_name(name, where)
        _read_reference(reference, where)
    return headers


def _names(value: Json, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > MOST_HEADERS:
        _refuse(where, HIDDEN, "these are no headers", f"use an object of up to {MOST_HEADERS} names with their values")
    if not all(isinstance(text, str) for pair in value.items() for text in pair):
        _refuse(where, HIDDEN, "a name or a value is no text", "use text for both")
    if len({name.lower() for name in value}) < len(value):
        _refuse(where, HIDDEN, "a header is there twice", "join its values with commas")
    return dict(value)


@lru_cache(maxsize=2_000)
def _checked_name(name: str, where: str) -> str:
    if _TOKEN.fullmatch(name) is None:
        _refuse(where, name, f"{name!r:.60} is no name of a header", "use letters, digits and hyphens")
    lowered = name.lower()
    if lowered in RESERVED or lowered.startswith(_RESERVED_PREFIX):
        _refuse(where, name, f'"{name}" is set by Mainspring or by the connection', "leave it out")
    return lowered


def _read_reference(value: Json, where: str) -> str:
    if not is_reference(value):  # it may be the secret itself: not repeated
        _refuse(where, HIDDEN, "this is no reference to a secret", "use one such as env:API_TOKEN or file:api/token")
    return str(value)


def _read_keys(value: Json) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= MOST_KEYS:
        _refuse("payload.sign_with", HIDDEN, "this names no key", f"use a reference, or up to {MOST_KEYS} of them")
    return tuple(_read_reference(each, "payload.sign_with") for each in given)


def _read_body(value: Json) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > LONGEST_BODY):
        _refuse("payload.body", HIDDEN, "this cannot be sent", f"use text of up to {LONGEST_BODY} characters, or json")
    return value


def _read_redirects(value: Json) -> int:
    if type(value) is not int or not 0 <= value <= MOST_REDIRECTS:
        _refuse("payload.redirects", value, f"{value!r:.40} is out of bounds", f"use 0 to {MOST_REDIRECTS}")
    return value


def _read_success(value: Json) -> tuple[int | str, ...]:
    good = isinstance(value, list | tuple) and 1 <= len(value) <= 50
    if not good or not all(map(_is_status, value)):
        allowed = 'use a list of statuses from 200 to 599 and of classes, such as ["2xx", 404]'
        _refuse("payload.success", value, f"{value!r:.60} are no statuses", allowed)
    return tuple(value)


def _is_status(value: Json) -> bool:
    if isinstance(value, str):
        return _CLASS.fullmatch(value) is not None
    return type(value) is int and 200 <= value <= 599


def _read_timeout(value: Json) -> timedelta | None:
    if value is None:
        return None
    if not isinstance(value, str):
        _refuse("payload.timeout", value, f"{value!r:.40} is no duration", "use one such as 30s")
    timeout = parse_duration(value, field="payload.timeout")
    if timeout > LONGEST_TIMEOUT:
        _refuse("payload.timeout", value, f"{value} is too long", f"use up to {format_duration(LONGEST_TIMEOUT)}")
    return timeout


_READ: Final[Mapping[str, Callable[[Json], Any]]] = {
    "method": _read_method,
    "url": _read_url,
    "headers": _read_headers,
    "json": lambda value: value,
    "body": _read_body,
    "secret_headers": _read_secret_headers,
    "sign_with": _read_keys,
    "redirects": _read_redirects,
    "success": _read_success,
    "timeout": _read_timeout,
}
