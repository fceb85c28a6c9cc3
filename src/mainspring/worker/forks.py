"""The worker's end of a template: starts it, asks it for children, hears of their ends and of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final

import msgspec

from mainspring.worker import wire
from mainspring.worker.descendants import kill_marked

_MESSAGES: Final = msgspec.msgpack.Decoder(wire.FromTemplate)
_MARK: Final = "MAINSPRING_TEMPLATE"  # in the environment of all that a template starts
_GRACE: Final = 10.0  # seconds for a template to end all it has started
_LONGEST: Final = 1024 * 1024
_AT_ONCE: Final = 100  # messages, before others have their turn


class Forks:
    """One template process. Once ``gone``, it is of no more use; make another."""

    def __init__(self, modules: Sequence[str]) -> None:
        """Start a template; ``ready`` is done when it has imported the modules, with the reason if it cannot."""
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[str | None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.ended = False  # it is about to be gone
        self._modules = modules
        self._exits: dict[int, asyncio.Future[wire.Exited]] = {}
        self._numbers = count(1)
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()
        self._mark = secrets.token_hex(8)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            self._process = _start(theirs.fileno(), self._mark)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._control, self._read)
        self._loop.add_reader(self._pidfd, self._end)
        self._send(wire.Load(tuple(modules), tuple(sys.path)))

    def fork(self, descriptors: Sequence[int]) -> tuple[int, asyncio.Future[wire.Exited]]:
        """Start a child with these as its socket, stdout and stderr, which are closed here.

        Returns its number, and its end to wait for: that of the child and of whatever it started.
        """
        number = next(self._numbers)
        self._exits[number] = exited = self._loop.create_future()
        self._send(wire.Fork(number), descriptors)
        return number, exited

    def signal(self, child: int, number: signal.Signals) -> None:
        """Send a signal to a child and its group; to nobody, if it has ended."""
        self._send(wire.Send(child, number))

    async def close(self) -> None:
        """End the template and all it has started, and return when they have ended."""
        if not self.gone.done():
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
            await asyncio.wait([self.gone], timeout=_GRACE)
            self._process.kill()
            await asyncio.wait([self.gone])

    def _send(self, message: wire.FromWorker, descriptors: Sequence[int] = ()) -> None:
        self._unsent.append((msgspec.msgpack.encode(message), descriptors))
        if len(self._unsent) == 1:
            self._send_on()

    def _send_on(self) -> None:
        while self._unsent:
            packet, descriptors = self._unsent[0]
            try:
                socket.send_fds(self._control, [packet], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._control, self._send_on)
                return
            except OSError:  # it is gone, and we are about to hear of it
                pass
            self._unsent.popleft()
            _close(descriptors)
        if self._control.fileno() >= 0:
            self._loop.remove_writer(self._control)

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet = self._control.recv(_LONGEST)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._loop.remove_reader(self._control)
                return
            self._take(_MESSAGES.decode(packet))

    def _take(self, message: wire.FromTemplate) -> None:
        match message:
            case wire.Ready():
                self.ready.set_result(None)
            case wire.Refused(reason=reason):
                self.ready.set_result(reason)
            case wire.Exited(child=child):
                self._exits.pop(child).set_result(message)

    def _end(self) -> None:
        """The template is no more. Its last words count, then those it has left behind are seen to."""
        self.ended = True
        self._read()
        status = self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        for _, descriptors in self._unsent:
            _close(descriptors)
        self._unsent.clear()
        self._control.close()
        if not self.ready.done():
            self.ready.set_result(f"{_how(status)} while it imported {', '.join(self._modules)}")
        self._loop.run_in_executor(None, kill_marked, self._mark).add_done_callback(lambda _: self._bury(status))

    def _bury(self, status: int) -> None:
        for number, exited in self._exits.items():
            exited.set_result(wire.Exited(number, 0, reason=f"the process it was forked from {_how(status)}"))
        self._exits.clear()
        self.gone.set_result(None)


def _start(control: int, mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "mainspring.worker.template", str(control), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # what modules print when they are imported, the worker has printed already
        pass_fds=[control],
        start_new_session=True,  # Ctrl-C at a terminal is for the worker, which lets its tasks finish
        env={**os.environ, _MARK: mark},
    )


def _how(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
