"""Requests at a fixed rate, whatever the answers do.

The latency of each counts from when it was due, not from when it could be sent: a server that stalls for a second is
charged for everything that was to be asked in that second.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

_TICK = 0.001


@dataclass(slots=True)
class Measured:
    """What became of the requests of one round."""

    took: list[float] = field(default_factory=list)  # seconds, of each that was answered
    statuses: dict[int, int] = field(default_factory=dict)
    elapsed: float = 0.0
    unanswered: int = 0

    def percentile(self, share: float) -> float:
        """Return a percentile in milliseconds."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000

    @property
    def rate(self) -> float:
        return len(self.took) / self.elapsed


class _Connection(asyncio.Protocol):
    """One kept connection, one request at a time; just enough HTTP for our own answers."""

    def __init__(self, free: deque["_Connection"], measured: Measured, answered: Callable[[], None]) -> None:
        self._free = free
        self._measured = measured
        self._answered = answered
        self._transport: asyncio.Transport | None = None
        self._due = 0.0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        end = self._rest.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._rest[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 : head.find(b"\r\n", at) if head.find(b"\r\n", at) > 0 else None])
        if len(self._rest) < end + 4 + length:
            return
        status = int(head[9:12])
        self._measured.statuses[status] = self._measured.statuses.get(status, 0) + 1
        self._measured.took.append(time.perf_counter() - self._due)
        self._rest = self._rest[end + 4 + length :]
        self._free.append(self)
        self._answered()


async def load(
    host: str, port: int, request: Callable[[int], bytes], *, rate: int, seconds: float, connections: int = 64
) -> Measured:
    """Send so many requests a second for so long."""
    loop = asyncio.get_running_loop()
    measured, free = Measured(), deque[_Connection]()
    waiting: deque[tuple[bytes, float]] = deque()

    def answered() -> None:
        if waiting:
            text, due = waiting.popleft()
            free.popleft().send(text, due)

    opened = [
        await loop.create_connection(lambda: _Connection(free, measured, answered), host, port)
        for _ in range(connections)
    ]
    free.extend(protocol for _, protocol in opened)
    number, total = 0, int(rate * seconds)
    began = time.perf_counter()
    while number < total:
        due_now = min(total, int((time.perf_counter() - began) * rate) + 1)
        while number < due_now:
            text, due = request(number), began + number / rate
            if free:
                free.popleft().send(text, due)
            else:
                waiting.append((text, due))
            number += 1
        await asyncio.sleep(_TICK)  # less than that is no sleep at all on uvloop, and takes a core from the server
    patience = time.perf_counter() + 10
    while len(measured.took) < total and time.perf_counter() < patience:  # noqa: ASYNC110 - not in the hot path
        await asyncio.sleep(0.01)
    measured.elapsed = time.perf_counter() - began
    measured.unanswered = total - len(measured.took)
    for transport, _ in opened:
        transport.close()
    return measured


def get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


def post(path: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
