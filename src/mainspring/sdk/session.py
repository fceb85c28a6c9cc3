"""The connection to a server: what leaves this process and what comes back, and nothing about what it means.

The key is added here, at the last moment, so that no request that is shown, logged or printed has it. Redirects are not
followed, for they would carry it elsewhere; cookies are not kept, and no proxy is taken from the surroundings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import BytesIO
from typing import Final, NamedTuple, Protocol, TypeAlias

import aiohttp
from yarl import URL

from mainspring.domain.errors import InvalidRequest, Unavailable

_CONNECT_WITHIN: Final = 5.0
_ANSWER_WITHIN: Final = 30.0
_SILENT_FOR: Final = 30.0  # a stream has a beat every ten seconds
_LONGEST_LINE: Final = 1 << 20


class Outgoing(NamedTuple):
    """A request as it is sent, but for the key."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


class Incoming(NamedTuple):
    """An answer, whatever it says."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Send(Protocol):
    """Sends a request and returns the answer; raises what :class:`Session` does."""

    async def __call__(self, request: Outgoing, /) -> Incoming: ...


Through: TypeAlias = Callable[[Send], Send]  # what every request passes on its way


class Streaming(NamedTuple):
    """An answer whose body comes bit by bit, unless it is a refusal."""

    answer: Incoming
    lines: AsyncIterator[bytes]


class NotConnected(Unavailable):
    """The server cannot be reached, so it was asked nothing."""

    code = "server_unreachable"


class Cut(Unavailable):
    """The answer did not come. Done or not, nobody knows: look, then decide."""

    code = "answer_lost"


@asynccontextmanager
async def open_session(key: str | None, *, size: int) -> AsyncIterator[Session]:
    """Keep connections for the length of a block, at most ``size`` at a time besides streams.

    Raises:
        InvalidRequest: the key is none.
    """
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        allowed = "use it as it was made, without blanks around it"
        raise InvalidRequest("it is no key", field="key", value="", allowed=allowed)
    connector = aiohttp.TCPConnector(limit=0)  # the session counts: who waits there has no time running
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as client:
        # On its own it would send PUT and DELETE again after a cut connection, which is for us to decide.
        client._retry_connection = False  # noqa: SLF001 - there is no other way
        yield Session(client, key, size)


class Session:
    """Connections to a server. Not to be shown: it has the key."""

    def __init__(self, client: aiohttp.ClientSession, key: str | None, size: int) -> None:
        self._client = client
        self._key = key
        self._room = asyncio.Semaphore(size)

    async def send(self, request: Outgoing, /) -> Incoming:
        """Send a request and return its answer.

        Raises:
            NotConnected: it did not leave.
            Cut: it did, and no answer came.
        """
        limits = aiohttp.ClientTimeout(total=_ANSWER_WITHIN, sock_connect=_CONNECT_WITHIN)
        async with self._room, self._asking(request, limits) as answer:
            return Incoming(answer.status, answer.headers, await answer.read())

    @asynccontextmanager
    async def stream(self, request: Outgoing) -> AsyncIterator[Streaming]:
        """Send a request and read its answer line by line, for as long as it goes on. Raises as :meth:`send`."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN, sock_read=_SILENT_FOR)
        async with self._asking(request, limits) as answer:
            refused = answer.status >= 300
            head = Incoming(answer.status, answer.headers, await answer.read() if refused else b"")
            yield Streaming(head, _lines(answer.content))

    @asynccontextmanager
    async def _asking(self, request: Outgoing, limits: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {**request.headers, **({} if self._key is None else {"Authorization": f"Bearer {self._key}"})}
        where = URL(request.url, encoded=True)  # as it is: dots and slashes in names stay what they are
        shown = request.url.partition("?")[0]
        data = None if request.body is None else BytesIO(request.body)  # sent piece by piece: others have their turn
        try:
            async with self._client.request(
                request.method, where, headers=headers, data=data, timeout=limits, allow_redirects=False
            ) as answer:
                yield answer
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = f"{where.host}:{where.port} cannot be reached: {_why(error)}"
            raise NotConnected(reason) from None
        except aiohttp.InvalidURL:
            raise InvalidRequest("it is no URL", field="url", value=shown, allowed="use https://host") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = f"{request.method} {shown} was not answered: {_why(error)}"
            raise Cut(reason) from None  # without its cause: that knows the headers


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for part in content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > _LONGEST_LINE:
            raise Cut("a line of the stream does not end")


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error) or type(error).__name__
    return str(error) or type(error).__name__


Stream: TypeAlias = Callable[[Outgoing], AbstractAsyncContextManager[Streaming]]
