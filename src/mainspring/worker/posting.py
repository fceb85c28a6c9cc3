"""A child's line to its worker, and how SIGTERM reaches the task: never in the middle of a message."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from types import FrameType
from typing import Any

import msgspec

from mainspring.worker import wire
from mainspring.worker.outcomes import TaskStopped
from mainspring.worker.splitting import cut

_PLAIN = logging.Formatter()


class Stopping:
    """SIGTERM, as the task of this process is to see it: raised in it, once."""

    def __init__(self) -> None:
        self.asked = False
        self.idle = True  # there is no request: the process just ends
        self._armed = False  # it is the task's own code that runs
        self._held = 0  # except here: we are sending for it
        self._cancel: Callable[[], object] | None = None  # the task is async
        signal.signal(signal.SIGTERM, self._on_signal)

    def arm(self) -> None:
        """Let the task be interrupted from here on; a request to stop that came before counts."""
        signal.signal(signal.SIGTERM, self._on_signal)  # again: the task before may have changed it
        self._armed = True
        self._raise_if_due()

    def disarm(self) -> None:
        self._armed = False

    async def cancelling(self, call: Callable[[], Coroutine[Any, Any, object]]) -> object:
        """Await a coroutine function, which is to be cancelled in its loop rather than interrupted anywhere."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await call()
        finally:
            self._cancel = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the interruption back for the length of a block. Signals are handled in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        self._raise_if_due()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.idle:
            os._exit(0)
        first, self.asked = not self.asked, True
        if first and self._cancel is not None:
            self._cancel()
        else:
            self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self.asked and self._armed and not self._held and self._cancel is None:
            self._armed = False
            raise TaskStopped


class Post:
    """Sends what a task tells, and how it did. An ``Output``; any thread may use it, and forks of the task too."""

    def __init__(self, line: socket.socket, stopping: Stopping) -> None:
        self.pid = os.getpid()
        self.handler: logging.Handler = _Handler(self)
        self._line = line
        self._stopping = stopping
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def receive(self) -> wire.Request | None:
        """Wait for a request. None: the worker has no more for us, or is gone."""
        parts = []
        self._stopping.idle = True
        with suppress(ConnectionError):
            # Wait without taking it: killed in its sleep, this process leaves the request to be given to another.
            self._line.recv(1, socket.MSG_PEEK)
            while packet := self._line.recv(wire.PACKET + 1):
                parts.append(packet[1:])
                if packet[0] == wire.Kind.REQUEST:
                    self._stopping.idle = False
                    return msgspec.msgpack.decode(b"".join(parts), type=wire.Request)
        return None

    def send(self, kind: wire.Kind, body: bytes) -> None:
        with self._stopping.held(), self._lock:
            for packet in wire.packets(kind, body):
                self._line.sendall(packet)

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        """Send a line of the log; ``stream`` is not said: the others have pipes of their own."""
        del stream
        self.log(level, None if at is None else at.timestamp(), text)

    def log(self, level: str, at: float | None, text: str) -> None:
        self._tell(wire.Kind.LOG, wire.Log(level, at, cut(text)))

    def progress(self, done: float, note: str) -> None:
        self._tell(wire.Kind.PROGRESS, wire.Progress(done, cut(note)))

    def _tell(self, kind: wire.Kind, message: wire.Log | wire.Progress) -> None:
        with suppress(OSError):  # the worker is gone, and we are about to go
            self.send(kind, msgspec.msgpack.encode(message))

    def _forked(self) -> None:
        """In a process that the task has forked: TERM ends it as usual, and nobody here holds the lock."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._lock = threading.Lock()


class _Handler(logging.Handler):
    def __init__(self, post: Post) -> None:
        super().__init__()
        self._post = post

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = _PLAIN.format(record)
        except Exception:  # noqa: BLE001 - arguments that do not fit their message are no reason to stop
            self.handleError(record)
        else:
            self._post.log(record.levelname, record.created, text)
