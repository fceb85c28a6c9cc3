"""The guard: a connector whose sockets are only ever made for addresses that may be dialled.

Promise. No connection is opened to an address that ``Reach`` refuses, whatever the URL looked like and whatever the
name server said, before or since. The socket factory is handed the very address that is dialled next: after names
are resolved, for literals too, and again for every other address of the name.

A connection that is kept open was judged when it was made, by the same rules, and serves the same origin only.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from aiohttp import AddrInfoType, TCPConnector
from aiohttp.abc import AbstractResolver

from mainspring.domain.addresses import Reach, parse_address

_BLOCKED: Final = 0x4D53  # in place of an errno; no system has one this high
_KEEP_ALIVE: Final = 4.0  # seconds; many servers close after five, and a POST into a closing connection is lost


class Blocked(OSError):
    """An address that may not be dialled. An OSError, so that the connector goes on to the name's next address."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(_BLOCKED, f"{address} {reason}")

    def __str__(self) -> str:
        return str(self.strerror)


def refusal(error: BaseException) -> str | None:
    """Return why nothing was dialled, if that is what an error of the connector means.

    If all addresses of a name were refused, the connector makes one error of them, which keeps only their number.
    """
    if isinstance(error, OSError) and error.errno == _BLOCKED:
        return str(error.strerror).removeprefix("Multiple exceptions: ")
    return None


def guarded_connector(
    reach: Reach,
    *,
    connections: int,
    names_for: timedelta,
    resolver: AbstractResolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> TCPConnector:
    """Return a connector that dials only what ``reach`` allows; ``names_for`` is how long it trusts the name server."""
    return TCPConnector(
        limit=connections,
        use_dns_cache=names_for > timedelta(0),
        ttl_dns_cache=max(1, int(names_for.total_seconds())),
        keepalive_timeout=_KEEP_ALIVE,
        resolver=resolver,
        ssl=tls if tls is not None else True,
        socket_factory=socket_factory(reach),
    )


def socket_factory(reach: Reach) -> Callable[[AddrInfoType], socket.socket]:
    """Return what makes a socket for an address, or raises :class:`Blocked`."""

    def make(addr_info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, end_point = addr_info
        host, port = str(end_point[0]), int(end_point[1])
        address = parse_address(host)
        # What is not an address would be looked up once more, behind our back.
        reason = "is no address" if address is None else reach.refusal(address, port)
        if reason is not None:
            raise Blocked(host, reason)
        return socket.socket(family=family, type=kind, proto=protocol)

    return make
