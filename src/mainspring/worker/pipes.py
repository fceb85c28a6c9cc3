"""Pipes: what another process writes, line by line, as it is written."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from mainspring.tasks.context import Output
from mainspring.worker.splitting import Lines

_PIECE: Final = 64 * 1024  # bytes: what a pipe holds
_MOST_LEFT: Final = 32  # pieces to look for at the end: whoever still writes then is not ours to follow


class Pipe:
    """One stream of a process, for whichever ``output`` it works at the time; without one it is read and dropped.

    A piece is read at a time, so a flood is slowed down by its own pipe, and the loop goes on. Once the output
    is full, pieces are dropped unseen.
    """

    def __init__(self, stream: str) -> None:
        """Open a pipe; ``theirs`` is the end to give away.

        Raises:
            OSError: there is no descriptor left.
        """
        self.output: Output | None = None
        self._stream = stream
        self._lines = Lines()
        self._loop = asyncio.get_running_loop()
        self._ours, self.theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._ours, False)
        self._loop.add_reader(self._ours, self._read)

    def drain(self) -> None:
        """Pass on what has been written so far, with a last line that has no end."""
        for _ in range(_MOST_LEFT):
            if not self._read():
                break
        self._pass_on(self._lines.end())

    def close(self) -> None:
        """Close our end; idempotent. A process that still writes gets an error."""
        if self._ours >= 0:
            self._loop.remove_reader(self._ours)
            os.close(self._ours)
            self._ours = -1

    def _read(self) -> bool:
        """Read one piece; return whether there was one."""
        try:
            piece = os.read(self._ours, _PIECE) if self._ours >= 0 else b""
        except BlockingIOError:
            return False
        if not piece:
            self.close()
        elif self.output is None or getattr(self.output, "full", False):
            self._lines = Lines()
        else:
            self._pass_on(self._lines.feed(piece))
        return bool(piece)

    def _pass_on(self, lines: list[str]) -> None:
        if self.output is not None:
            for line in lines:
                self.output.line(line, stream=self._stream)
