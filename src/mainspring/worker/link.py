"""The worker's end of one child: a request goes out; lines, progress and an answer come back.

Nothing here waits for the child: what it says is read when it is there, a little at a time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from mainspring.tasks.context import Output
from mainspring.worker import wire
from mainspring.worker.forks import Forks
from mainspring.worker.pipes import Pipe

_AT_ONCE: Final = 100  # messages, before others have their turn
_LOG: Final = msgspec.msgpack.Decoder(wire.Log)
_PROGRESS: Final = msgspec.msgpack.Decoder(wire.Progress)
_ENDED: Final = msgspec.msgpack.Decoder(wire.Ended)


class Link:
    """One child process, from its fork to its end."""

    def __init__(self, forks: Forks) -> None:
        """Fork a child.

        Raises:
            OSError: there is no descriptor left for it.
        """
        self.served = 0  # requests
        self.missed = False  # it ended before it had taken the last one: ask another
        self._forks = forks
        self._loop = asyncio.get_running_loop()
        self._output: Output | None = None
        self._answer: asyncio.Future[wire.Ended | wire.Exited] | None = None
        self._parts: list[bytes] = []
        self._pipes: list[Pipe] = []
        self._number, self.exited = forks.fork(self._connect())
        self.exited.add_done_callback(self._after_exit)

    async def ask(self, request: bytes, output: Output) -> wire.Ended | wire.Exited:
        """Send a request and wait for its answer, or for the end of the child. Its output is complete by then."""
        self._answer = self._loop.create_future()
        self._tell_to(output)
        self.served += 1
        await self._send(request)
        answer = await self._answer
        if isinstance(answer, wire.Ended) and not answer.reusable:
            await asyncio.wait([self.exited])  # unlike a plain await, passes no cancellation on
        for pipe in self._pipes:
            pipe.drain()
        self._tell_to(None)
        return answer

    async def stop(self, grace: timedelta) -> None:
        """Ask the child to end, insist after ``grace``, and return when it has, with all it started."""
        self._forks.signal(self._number, signal.SIGTERM)
        done, _ = await asyncio.wait([self.exited], timeout=grace.total_seconds())
        if not done:
            self._kill()
            await asyncio.wait([self.exited])

    def dismiss(self) -> None:
        """Let a child without a request go: it ends when its line is closed."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line)
            self._line.close()

    def _connect(self) -> list[int]:
        """Open our ends, and return the child's."""
        self._line, their_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs = [their_line.detach()]
        try:
            for stream in ("stdout", "stderr"):
                self._pipes.append(Pipe(stream))
                theirs.append(self._pipes[-1].theirs)
        except OSError:
            for descriptor in theirs:
                os.close(descriptor)
            self._close()
            raise
        self._line.setblocking(False)
        self._loop.add_reader(self._line, self._read)
        return theirs

    async def _send(self, request: bytes) -> None:
        try:
            for packet in wire.packets(wire.Kind.REQUEST, request):
                await self._loop.sock_sendall(self._line, packet)
        except OSError:  # it has ended, and we are about to hear how
            self.missed = True

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._read_one():
                return

    def _read_one(self) -> bool:
        try:
            packet = self._line.recv(wire.PACKET + 1)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # how the kernel says that it closed its end with something unread
            self.missed = True
            packet = b""
        if not packet:
            self._loop.remove_reader(self._line)
            return False
        try:
            self._take(packet[0], packet[1:])
        except (msgspec.MsgspecError, KeyError):  # not our words: the task has got hold of our socket
            self._kill()
        return True

    def _take(self, kind: int, body: bytes) -> None:
        match kind:
            case wire.Kind.LOG if self._output is not None and not getattr(self._output, "full", False):
                log = _LOG.decode(body)
                at = None if log.at is None else datetime.fromtimestamp(log.at, UTC)
                self._output.line(log.text, stream="log", level=log.level, at=at)
            case wire.Kind.PROGRESS if self._output is not None:
                progress = _PROGRESS.decode(body)
                self._output.progress(progress.done, progress.note)
            case wire.Kind.PART:
                self._parts.append(body)
                if len(self._parts) * wire.PACKET > wire.LONGEST_ANSWER:
                    self._kill()
            case wire.Kind.ENDED:
                ended = _ENDED.decode(b"".join([*self._parts, body]))
                self._parts.clear()
                self._answered(ended)

    def _answered(self, answer: wire.Ended | wire.Exited) -> None:
        if self._answer is not None and not self._answer.done():  # nobody waits for it once the task is to stop
            self._answer.set_result(answer)

    def _after_exit(self, exited: asyncio.Future[wire.Exited]) -> None:
        """Read what it left in its socket and its pipes: an answer given before the end counts."""
        while self._line.fileno() >= 0 and self._read_one():
            pass
        for pipe in self._pipes:
            pipe.drain()
        self._close()
        self._answered(exited.result())

    def _kill(self) -> None:
        self._forks.signal(self._number, signal.SIGKILL)

    def _tell_to(self, output: Output | None) -> None:
        self._output = output
        for pipe in self._pipes:
            pipe.output = output

    def _close(self) -> None:
        self.dismiss()
        for pipe in self._pipes:
            pipe.close()
