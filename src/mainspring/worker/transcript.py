"""What attempts say while they work: kept up to a cap, written in batches, readable before they end."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from mainspring.domain.errors import Unavailable
from mainspring.environment import Environment
from mainspring.service import Stop, shielded
from mainspring.store.claim import ClaimedRun
from mainspring.store.database import Database
from mainspring.store.lines import Said, write_lines

MOST_LINES: Final = 2_000  # of one attempt
MOST_TEXT: Final = 256_000  # characters of one attempt
LONGEST_LINE: Final = 8_000
_AT_ONCE: Final = 5_000
_MOST_KEPT: Final = 100_000  # while the database is away


class Transcript:
    """A service that writes what was said, a little after it was said."""

    def __init__(self, db: Database, env: Environment, *, every: timedelta = timedelta(milliseconds=400)) -> None:
        self._db = db
        self._env = env
        self._every = every
        self._said: list[Said] = []

    def of(self, run: ClaimedRun) -> AttemptOutput:
        """Return where one attempt speaks."""
        return AttemptOutput(self, run)

    async def run(self, stop: Stop) -> None:
        """Write every now and then; what is said while everything stops is written by :meth:`flush`."""
        while not await stop.wait(self._every):
            with suppress(Unavailable):  # kept, and tried again; others tell that the database is away
                await self.flush()

    async def flush(self) -> None:
        """Write all that was said so far."""
        while self._said:
            part, self._said = self._said[:_AT_ONCE], self._said[_AT_ONCE:]
            try:
                await shielded(write_lines(self._db, part))
            except Unavailable:
                self._said = (part + self._said)[:_MOST_KEPT]
                raise

    def add(self, said: Said) -> None:
        if len(self._said) < _MOST_KEPT:
            self._said.append(said)

    def now(self) -> datetime:
        return self._env.now()


class AttemptOutput:
    """The :class:`~mainspring.tasks.context.Output` of one attempt."""

    __slots__ = ("_left", "_number", "_run", "_transcript", "full")

    def __init__(self, transcript: Transcript, run: ClaimedRun) -> None:
        self._transcript = transcript
        self._run = run
        self._number = 0
        self._left = MOST_TEXT
        self.full = False  # nothing more is kept: whoever reads for us may read and drop

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        if self.full:
            return
        text = text[:LONGEST_LINE].replace("\0", "\N{REPLACEMENT CHARACTER}")
        self._left -= len(text) + 1
        if self._left < 0 or self._number >= MOST_LINES:
            self.full = True
            text, stream, level = (
                f"[cut: an attempt keeps {MOST_LINES} lines, {MOST_TEXT} characters]",
                "log",
                "WARNING",
            )
        self._add(text, stream, level, at)

    def progress(self, done: float, note: str) -> None:
        self._add(f"{done:.4f} {note[:1000]}".rstrip(), "progress", "", None)

    def _add(self, text: str, stream: str, level: str, at: datetime | None) -> None:
        self._number += 1
        run = self._run
        storable = text.encode(errors="replace").decode()
        moment = at or self._transcript.now()
        self._transcript.add(Said(run.id, run.slot, run.attempt, self._number, moment, stream, level, storable))
