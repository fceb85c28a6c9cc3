"""Requests at a fixed rate, whatever the answers do.

The latency of each counts from when it was due, not from when it could be sent: a server that stalls for a second is
charged for everything that was to be asked in that second.
"""

import math
import select
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICK = 0.001  # seconds; as short as epoll waits
_PATIENCE = 10.0


@dataclass(slots=True)
class Measured:
    """What became of the requests of one round."""

    took: list[float] = field(default_factory=list)  # seconds, of each; infinite if it was not answered
    due: list[float] = field(default_factory=list)  # when each was, in seconds from the beginning
    statuses: dict[int, int] = field(default_factory=dict)
    elapsed: float = 0.0
    unanswered: int = 0
    stolen: float = 0.0  # share of the cores that the machine under this one gave to others meanwhile

    def percentile(self, share: float) -> float:
        """Return a percentile in milliseconds."""
        return _percentile(self.took, share)

    def of_the_median_second(self, share: float) -> float:
        """Return the percentile of each second, and of these the median.

        What happens in every second counts in full, as the firing of jobs does; what disturbs the machine now and then
        does not.
        """
        seconds: dict[int, list[float]] = {}
        for due, took in zip(self.due, self.took, strict=True):
            seconds.setdefault(int(due), []).append(took)
        return statistics.median(_percentile(each, share) for each in seconds.values())

    @property
    def rate(self) -> float:
        return (len(self.took) - self.unanswered) / self.elapsed


def _percentile(took: Sequence[float], share: float) -> float:
    ordered = sorted(took)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


class _Cores:
    """How the time of all cores was spent since this was made, where the system tells."""

    def __init__(self) -> None:
        self._before = self._spent()

    @staticmethod
    def _spent() -> list[int]:
        try:
            return [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except OSError:
            return []

    def stolen(self) -> float:
        spent = [after - before for before, after in zip(self._before, self._spent(), strict=True)]
        return spent[7] / sum(spent) if any(spent) else 0.0


class _Connection:
    """One kept connection, one request at a time; just enough HTTP for our own answers."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._rest = b""

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.socket.sendall(request)

    def receive(self) -> int:
        """Take what has come; return the status once the answer is whole, until then 0."""
        data = self.socket.recv(65_536)
        if not data:
            raise ConnectionError("the server hung up")
        text = self._rest + data
        end = text.find(b"\r\n\r\n")
        at = text.find(b"content-length: ", 0, end)
        if end < 0 or len(text) < end + 4 + int(text[at + 16 : text.index(b"\r\n", at)]):
            self._rest = text
            return 0
        self._rest = b""
        return int(text[9:12])


def load(
    host: str, port: int, request: Callable[[int], bytes], *, rate: int, seconds: float, connections: int = 64
) -> Measured:
    """Send so many requests a second for so long.

    On plain sockets: an event loop would take as much of the machine as the server that is measured.
    """
    measured, ready, cores = Measured(), select.epoll(), _Cores()
    opened = {each.socket.fileno(): each for each in (_Connection(host, port) for _ in range(connections))}
    for number in opened:
        ready.register(number, select.EPOLLIN)
    free, waiting = deque(opened.values()), deque[tuple[bytes, float]]()
    asked, total, began = 0, int(rate * seconds), time.perf_counter()
    patience = began + seconds + _PATIENCE
    while len(measured.took) < total and time.perf_counter() < patience:
        due_now = min(total, int((time.perf_counter() - began) * rate) + 1)
        for each in range(asked, due_now):
            waiting.append((request(each), began + each / rate))
        asked = due_now
        while waiting and free:
            free.popleft().send(*waiting.popleft())
        for number, _ in ready.poll(_TICK):
            connection = opened[number]
            if status := connection.receive():
                measured.took.append(time.perf_counter() - connection.due)
                measured.due.append(connection.due - began)
                measured.statuses[status] = measured.statuses.get(status, 0) + 1
                free.append(connection)
    measured.elapsed, measured.stolen = time.perf_counter() - began, cores.stolen()
    measured.unanswered = total - len(measured.took)
    late = [*(due for _, due in waiting), *(each.due for each in opened.values() if each not in free)]
    measured.took += [math.inf] * len(late)
    measured.due += [due - began for due in late]
    for connection in opened.values():
        connection.socket.close()
    ready.close()
    return measured


def get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


def post(path: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
