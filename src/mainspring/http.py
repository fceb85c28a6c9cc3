"""HTTP calls as jobs: no code of yours runs, a worker sends the request and judges the answer.

>>> from mainspring import http
>>> call = http.post("https://api.example.com/ping", json={"a": 1}, secret_header="env:API_TOKEN")
>>> call.task, call.payload["secret_headers"]
('http', {'Authorization': 'env:API_TOKEN'})

Every request carries ``Idempotency-Key`` (the same for all attempts of a run) and ``Mainspring-Fence`` (rising with
every attempt). Answers of 2xx are good unless ``success`` says otherwise; 408, 425, 429 and 5xx are tried again by the
job's retry policy, with respect for ``Retry-After``; anything else is given up at once.

A secret is named, never given: a value in ``headers`` would end up in the database and on pages.

>>> http.get("https://api.example.com/", headers={"Authorization": "Bearer 0451"})
Traceback (most recent call last):
mainspring.domain.errors.InvalidRequest: payload.headers: "Authorization" would keep a secret in the job; put it into \
secret_headers with a reference, such as "env:API_TOKEN"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from json import dumps
from typing import ClassVar, TypedDict, Unpack

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json
from mainspring.domain.requests import LONGEST_BODY, request_from_json, request_to_json
from mainspring.domain.urls import HIDDEN

__all__ = ["HttpCall", "Wanted", "delete", "get", "patch", "post", "put", "request"]


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request for one run, or for every run of a job."""

    task: ClassVar[str] = "http"
    payload: Json


class Wanted(TypedDict, total=False):
    """What a request may have beside its method and its URL."""

    json: Json
    body: str  # text, in place of json
    headers: Mapping[str, str]
    secret_header: str  # a reference for Authorization
    secret_headers: Mapping[str, str]  # names to references: env:NAME, file:path
    sign_with: str | Iterable[str]  # a reference, or several while keys are rotated: Standard Webhooks
    redirects: int  # how many to follow; none unless asked for
    success: Iterable[int | str]  # statuses and classes of them that are good: ["2xx", 404]
    timeout: timedelta | str  # for the whole request, its answer included


def request(method: str, url: str, **wanted: Unpack[Wanted]) -> HttpCall:
    """Describe a request, checked at once.

    >>> request("OPTIONS", "https://example.com/", success=["2xx", 404], timeout="10s").payload["success"]
    ['2xx', 404]

    Raises:
        InvalidRequest: something in it cannot be sent; the message names the field.
    """
    given: dict[str, Json] = {"method": method, "url": url, **wanted}
    if "json" in given:
        _check_json(given["json"])
    if (authorization := given.pop("secret_header", None)) is not None:
        given["secret_headers"] = {**given.get("secret_headers", {}), "Authorization": authorization}
    if isinstance(timeout := given.get("timeout"), timedelta):
        given["timeout"] = format_duration(timeout)
    for name in ("sign_with", "success"):
        if name in given and not isinstance(given[name], str):
            given[name] = list(given[name])
    return HttpCall(request_to_json(request_from_json(given)))


def get(url: str, **wanted: Unpack[Wanted]) -> HttpCall:
    """Describe a GET.

    >>> get("https://example.com/health", redirects=1).payload
    {'method': 'GET', 'url': 'https://example.com/health', 'redirects': 1}
    """
    return request("GET", url, **wanted)


def post(url: str, **wanted: Unpack[Wanted]) -> HttpCall:
    """Describe a POST.

    >>> post("https://example.com/hook", json=[1], sign_with="env:HOOK_KEY").payload["sign_with"]
    'env:HOOK_KEY'
    """
    return request("POST", url, **wanted)


def put(url: str, **wanted: Unpack[Wanted]) -> HttpCall:
    """Describe a PUT."""
    return request("PUT", url, **wanted)


def patch(url: str, **wanted: Unpack[Wanted]) -> HttpCall:
    """Describe a PATCH."""
    return request("PATCH", url, **wanted)


def delete(url: str, **wanted: Unpack[Wanted]) -> HttpCall:
    """Describe a DELETE."""
    return request("DELETE", url, **wanted)


def _check_json(value: Json) -> None:
    allowed = f"use what JSON can hold, up to {LONGEST_BODY} characters of it"
    try:
        length = len(dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(str(error), field="payload.json", value=HIDDEN, allowed=allowed) from None
    if length > LONGEST_BODY:
        raise InvalidRequest(f"{length} characters", field="payload.json", value=HIDDEN, allowed=allowed)
