"""What tasks say inside the worker's own process: prints and log records, each to the attempt it belongs to.

Which attempt that is, a context variable says: it follows a task through its coroutines, through
``asyncio.to_thread`` and into the threads of ``thread`` mode; not into threads that a task starts itself, unless it
copies its context. What is written outside of any attempt goes where it always went.

An ``Output`` belongs to the loop's thread. From others, lines are handed over in batches, and a thread that writes
faster than the loop takes them has to wait.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TextIO, cast

from mainspring.tasks.context import Output
from mainspring.worker.masking import Mask, hide_in
from mainspring.worker.splitting import Lines, cut

CURRENT: Final[ContextVar[Output | None]] = ContextVar("output", default=None)

_MOST_WAITING: Final = 1_000  # lines on their way from threads to the loop
_PATIENCE: Final = 1.0  # seconds for the loop to take them; then lines are lost, rather than a thread
_PLAIN: Final = logging.Formatter()


class Capture:
    """An output that any thread may use, and streams that end up in it as lines."""

    def __init__(self, output: Output, loop: asyncio.AbstractEventLoop) -> None:
        """Belongs to the running ``loop``, in whose thread ``output`` is used."""
        self.output = output
        self._loop = loop
        self._open = True
        self._lines: dict[str, Lines] = {}
        self._waiting: list[Callable[[], None]] = []
        self._room = threading.Condition()

    @property
    def full(self) -> bool:
        return not self._open or bool(getattr(self.output, "full", False))

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        if not self.full:
            self._tell(partial(self.output.line, text, stream=stream, level=level, at=at))

    def progress(self, done: float, note: str) -> None:
        if self._open:
            self._tell(partial(self.output.progress, done, note))

    def write(self, text: str, stream: str) -> None:
        """Take a piece of a stream; its lines go on when they are complete."""
        if self.full:
            return
        with self._room:
            lines = self._lines.setdefault(stream, Lines()).feed(text.encode(errors="replace"))
        for line in lines:
            self.line(line, stream=stream)

    def close(self) -> None:
        """Pass on lines that have no end, and drop whatever comes after. To be called in the thread of the loop."""
        self._deliver()
        for stream, lines in self._lines.items():
            for line in lines.end():
                self.line(line, stream=stream)
        self._open = False
        with self._room:
            self._room.notify_all()

    def _tell(self, entry: Callable[[], None]) -> None:
        if _running_loop() is self._loop:
            self._deliver()  # what came before
            entry()
            return
        with self._room:
            self._room.wait_for(lambda: len(self._waiting) < _MOST_WAITING or not self._open, _PATIENCE)
            if len(self._waiting) >= _MOST_WAITING or not self._open:
                return
            self._waiting.append(entry)
            first = len(self._waiting) == 1
        if first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._room:
            waiting, self._waiting = self._waiting, []
            self._room.notify_all()
        for entry in waiting:
            entry()


@contextmanager
def capturing(output: Output) -> Iterator[Capture]:
    """Send to ``output`` what is printed and logged in this context and its copies, for the length of the block."""
    capture = Capture(output, asyncio.get_running_loop())
    token = CURRENT.set(capture)
    try:
        yield capture
    finally:
        CURRENT.reset(token)
        capture.close()


def install() -> Callable[[], None]:
    """Put our handler on the root logger, and our streams before the real ones; return what takes them back.

    Where logging is not configured, records from INFO on are kept, and outside of an attempt those from WARNING on
    reach standard error, as they would without us. A level that somebody has set is left alone.
    """
    root, tasks = logging.getLogger(), logging.getLogger("task")
    levels = root.level, tasks.level
    if not root.handlers:
        root.setLevel(min(root.level, logging.INFO))
    if tasks.level == logging.NOTSET:
        tasks.setLevel(logging.INFO)  # what goes through Context.log is meant to be kept
    handler = _Handler()
    root.addHandler(handler)
    make_record = logging.getLogRecordFactory()
    logging.setLogRecordFactory(partial(_record, make_record))
    real = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        cast("TextIO", _Stream(stream, name)) for stream, name in zip(real, ("stdout", "stderr"), strict=True)
    )

    def uninstall() -> None:
        sys.stdout, sys.stderr = real
        root.removeHandler(handler)
        logging.setLogRecordFactory(make_record)
        root.setLevel(levels[0])
        tasks.setLevel(levels[1])

    return uninstall


def _record(make: Callable[..., logging.LogRecord], *given: Any, **named: Any) -> logging.LogRecord:
    """Make a record; one of an attempt that has secrets shows them to no handler, ours or others'."""
    record = make(*given, **named)
    current = CURRENT.get()
    mask: Mask | None = getattr(current.output if isinstance(current, Capture) else current, "mask", None)
    if mask is not None:
        hide_in(record, mask)
    return record


class _Stream:
    """A text stream: an attempt's, when one is at work here, and the real one otherwise."""

    def __init__(self, real: TextIO, name: str) -> None:
        self._real = real
        self._name = name

    def write(self, text: str) -> int:
        capture = _capture()
        if capture is None:
            return self._real.write(text)
        capture.write(text, self._name)
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return CURRENT.get() is None and self._real.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        capture = _capture()
        if capture is None:
            self._as_without_us(record)
            return
        try:
            text = cut(_PLAIN.format(record))
        except Exception:  # noqa: BLE001 - arguments that do not fit their message are no reason to stop
            self.handleError(record)
            return
        capture.line(text, stream="log", level=record.levelname, at=datetime.fromtimestamp(record.created, UTC))

    def _as_without_us(self, record: logging.LogRecord) -> None:
        """Do what logging does where there is no handler, if there is none but us."""
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and logging.getLogger().handlers == [self]:
            last.handle(record)


def _capture() -> Capture | None:
    current = CURRENT.get()
    if current is None or isinstance(current, Capture):
        return current
    loop = _running_loop()
    if loop is None:
        return None  # a bare output, in a thread: nobody knows whose it is
    capture = Capture(current, loop)
    CURRENT.set(capture)
    return capture


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
