"""URLs that have one reading only: plain ASCII, a plain host, and nobody's password."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, NamedTuple, NoReturn

from mainspring.domain.addresses import parse_address
from mainspring.domain.errors import InvalidRequest

LONGEST_URL: Final = 4_000
HIDDEN: Final = "***"

_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,254})(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>[/?][!-~]*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL: Final = re.compile(r"(?!-)[0-9a-z_-]{1,63}(?<!-)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # how old libraries spell the last part of an address
_PORTS: Final = {"http": 80, "https": 443}


class Url(NamedTuple):
    """A URL and the parts of it that decide who is called."""

    text: str
    scheme: str
    host: str  # without brackets, in lower case
    port: int

    @property
    def origin(self) -> tuple[str, str, int]:
        return self[1:]

    @property
    def shown(self) -> str:
        """Without its query, where people put what is not for logs."""
        return self.text.partition("?")[0]


@lru_cache(maxsize=2_000)
def parse_url(text: str) -> Url:
    """Read a URL that has one reading only.

    >>> parse_url("https://api.example.com:8443/ping?a=1").origin
    ('https', 'api.example.com', 8443)

    Raises:
        InvalidRequest: another scheme than http and https, a user or password, or a host in an odd spelling.
    """
    found = _URL.fullmatch(text) if len(text) <= LONGEST_URL else None
    if found is None or "\\" in text or "#" in text:
        _refuse_url(text)
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    if not 1 <= port <= 65_535:
        _refuse(_shown(text), f"{_shown(text)} has no possible port", "use 1 to 65535")
    _check_host(host)
    return Url(text, scheme, host.strip("[]"), port)


def _shown(text: str) -> str:
    """Return as much of a broken URL as is safe to repeat."""
    start, at, end = text.partition("?")[0].rpartition("@")
    return repr((HIDDEN + at + end if start else end)[:80])


def _refuse_url(text: str) -> NoReturn:
    shown = _shown(text)
    scheme, separator, rest = text.partition("://")
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if not separator or scheme.lower() not in _PORTS:
        _refuse(shown, f"{shown} does not begin with http:// or https://", "use one of these schemes")
    if len(text) > LONGEST_URL:
        _refuse(shown, f"{len(text)} characters are too many", f"use up to {LONGEST_URL}")
    if "@" in authority:
        _refuse(shown, f"{shown} has a user or password in it", "use secret_headers with a reference")
    if "#" in text:
        _refuse(shown, f"{shown} has a fragment, which is never sent", "leave out what follows the #")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        allowed = "percent-encode paths, and write names in their ASCII form (xn--…)"
        _refuse(shown, f"{shown} has characters that no URL may have", allowed)
    _refuse(shown, f"{shown} has no plain host", "use a name, four decimal numbers, or an address in brackets")


def _check_host(host: str) -> None:
    if host.startswith("["):
        if isinstance(parse_address(host[1:-1]), IPv6Address):
            return
        _refuse(host, f"{host} is no IPv6 address", "use one such as [2001:db8::1]")
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if parse_address(host) is None:
            _refuse(host, f'"{host}" is an odd spelling of an address', "use four decimal numbers")
    elif len(host) > 254 or not all(map(_LABEL.fullmatch, labels)):
        _refuse(host, f'"{host}" is no name of a host', "use letters, digits, hyphens and dots")


def _refuse(value: str, reason: str, allowed: str) -> NoReturn:
    raise InvalidRequest(reason, field="payload.url", value=value, allowed=allowed)
