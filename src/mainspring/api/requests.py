"""A request as handlers see it, and a reply as they give it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from mainspring.api.incoming import Request
from mainspring.domain.access import Principal
from mainspring.domain.errors import InvalidRequest
from mainspring.rest.reading import check_text, read_as, read_json
from mainspring.rest.routes import Route

JSON: Final = "application/json"
VERSION_TAG: Final = r'^(?:\*|(?:W/)?"([0-9]{1,9})")$'  # a proxy that compresses makes it a weak one
LONGEST_WAIT: Final = timedelta(seconds=60)
_MOST_PARAMETERS: Final = 100
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


class TooLarge(InvalidRequest):
    code = "too_large"


class NotJsonBody(InvalidRequest):
    code = "not_json"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to one route, by somebody who may make it."""

    route: Route
    principal: Principal
    names: Mapping[str, str]  # in the path
    headers: Mapping[str, str]
    query: Any
    body: Any
    raw: bytes  # the body as it came
    request: str  # its name in the log
    peer: str | None  # the address at the other end of the socket
    gone: asyncio.Event | None = None  # set when the client has hung up, where that matters

    @property
    def key(self) -> str | None:
        """The idempotency key, if the client gave one."""
        return self.headers.get("idempotency-key")

    @property
    def if_version(self) -> int | None:
        """The version that If-Match asks for.

        Raises:
            InvalidRequest: it is none of our tags.
        """
        given = self.headers.get("if-match")
        if given is None:
            return None
        tag = re.match(VERSION_TAG, given)
        if tag is None:
            allowed = 'use the ETag that reading the job gave, such as "3", or * for any'
            raise InvalidRequest(f"{given[:40]} is no version", field="If-Match", value=given[:40], allowed=allowed)
        return None if tag[1] is None else int(tag[1])

    @property
    def wait(self) -> timedelta | None:
        """How long the client would rather wait for the end than be answered at once (RFC 7240). Others are ignored."""
        for preference in self.headers.get("prefer", "").split(","):
            name, _, seconds = preference.partition(";")[0].strip().partition("=")
            if name.strip().lower() == "wait" and seconds.strip().isascii() and seconds.strip().isdecimal():
                return min(timedelta(seconds=int(seconds.strip()[:6])), LONGEST_WAIT)
        return None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent back: a body that is there, or parts as they come."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    media: str = JSON
    parts: AsyncGenerator[bytes] | None = None


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status=status, body=_ENCODER.encode(value), headers=headers or {})


async def read_body(request: Request, *, largest: int) -> bytes:
    """Read the body.

    Raises:
        TooLarge: it is longer than ``largest``, or says so.
        ConnectionError: the client hung up.
    """
    declared = request.headers.get("content-length", "")
    body = None if declared.isdecimal() and int(declared[:20]) > largest else await request.read(largest)
    if body is None:
        allowed = f"send at most {largest} bytes; split the batch, or store the payload elsewhere"
        raise TooLarge("it is too large", field="body", value="", allowed=allowed)
    return body


def query_of(route: Route, raw: bytes) -> Any:
    """Read the query parameters of a route; one that has none takes none.

    Raises:
        InvalidRequest: there is one that it does not know, or a value that does not fit.
    """
    if not raw and route.query is None:
        return None
    try:
        pairs = parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_PARAMETERS, errors="strict"
        )
    except ValueError:
        allowed = f"use at most {_MOST_PARAMETERS} parameters, UTF-8 in percent encoding"
        raise InvalidRequest("it cannot be read", field="query", value="", allowed=allowed) from None
    if route.query is None:
        if pairs:
            name = pairs[0][0]
            raise InvalidRequest("there is no such parameter", field=name[:60], value="", allowed="leave it out")
        return None
    several, numbers, flags = _kinds(route.query)
    given: dict[str, Any] = {}
    for name, value in pairs:
        check_text(name, "query")
        check_text(value, name[:60])
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidRequest("it is there twice", field=name[:60], value=value[:60], allowed="give it once")
        elif name in numbers and _NUMBER.fullmatch(value):
            given[name] = int(value)
        else:
            given[name] = value == "true" if name in flags and value in ("true", "false") else value
    return read_as(given, route.query)


@lru_cache
def _kinds(query: Any) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return which parameters may be there several times, and which are numbers and flags: all others are texts."""
    several, numbers, flags = set(), set(), set()
    for each in msgspec.inspect.type_info(query).fields:  # type: ignore[attr-defined]  # it is a struct
        kinds = each.type.types if isinstance(each.type, msgspec.inspect.UnionType) else (each.type,)
        for kind in kinds:
            match kind.type if isinstance(kind, msgspec.inspect.Metadata) else kind:  # that is around what is described
                case msgspec.inspect.VarTupleType():
                    several.add(each.name)
                case msgspec.inspect.IntType():
                    numbers.add(each.name)
                case msgspec.inspect.BoolType():
                    flags.add(each.name)
    return frozenset(several), frozenset(numbers), frozenset(flags)


def body_of(route: Route, raw: bytes, headers: Mapping[str, str], *, deepest: int) -> Any:
    """Read the body of a route; without one it is an empty object, where that will do.

    Raises:
        InvalidRequest: it is not JSON, or does not fit.
    """
    if route.body is None:
        return None
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and media not in (JSON, "application/merge-patch+json"):  # a page of somebody else cannot send these (F113)
        allowed = f"send {JSON}, and say so in Content-Type"
        raise NotJsonBody(f'"{media[:60]}" is not read here', field="Content-Type", value=media[:60], allowed=allowed)
    packed = headers.get("content-encoding", "identity").strip().lower()
    if packed != "identity":  # a few bytes can hold gigabytes
        allowed = "send it as it is, without Content-Encoding"
        raise NotJsonBody("nothing is unpacked here", field="Content-Encoding", value=packed[:60], allowed=allowed)
    document = read_json(raw, deepest=deepest) if raw else {}
    try:
        return read_as(document, route.body)
    except InvalidRequest as error:
        if not route.hides:
            raise
        raise InvalidRequest(error.reason, field=error.field, value="***", allowed=error.allowed) from None
