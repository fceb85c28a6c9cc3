"""What tasks say inside the worker's process: whose line it is, in order, from any thread."""

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from mainspring.worker.capture import CURRENT, capturing, install
from mainspring.worker.splitting import LONGEST_LINE, Lines, cut

LOG = logging.getLogger("somewhere")


class Heard:
    def __init__(self, most: int = 10**9) -> None:
        self.lines: list[tuple[str, str, str]] = []
        self.threads: set[int] = set()
        self.full = False
        self._most = most

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        assert (at is not None) == (stream == "log")
        self.threads.add(threading.get_ident())
        self.lines.append((stream, level, text))
        self.full = len(self.lines) >= self._most

    def progress(self, done: float, note: str) -> None:
        self.threads.add(threading.get_ident())
        self.lines.append(("progress", str(done), note))


class Streams:
    """Stands for the real streams, and for a logging that nobody has configured. Within a test: so does pytest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "stdout", self.out)
        monkeypatch.setattr(sys, "stderr", self.err)
        monkeypatch.setattr(logging.getLogger(), "handlers", [])


@contextmanager
def installed() -> Iterator[Streams]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        given = Streams(monkeypatch)
        uninstall = install()
        try:
            yield given
        finally:
            uninstall()


def say(text: str, **given: Any) -> None:
    print(text, **given)  # noqa: T201 - as tasks do


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), timeout=10))


def test_lines_of_two_attempts_at_once_do_not_mix() -> None:
    first, second = Heard(), Heard()

    async def attempt(output: Heard, name: str) -> None:
        with capturing(output):
            say(f"{name} ", end="")
            await asyncio.sleep(0)
            say("begins")
            await asyncio.to_thread(say, f"{name} in a thread")
            LOG.info("%s logs", name)
            say("an error", file=sys.stderr)
            say("no end", end="")

    async def both() -> None:
        await asyncio.gather(attempt(first, "first"), attempt(second, "second"))

    with installed() as streams:
        run(both)

    assert first.lines == [
        ("stdout", "", "first begins"),
        ("stdout", "", "first in a thread"),
        ("log", "INFO", "first logs"),
        ("stderr", "", "an error"),
        ("stdout", "", "no end"),
    ]
    assert [text for _, _, text in second.lines][:2] == ["second begins", "second in a thread"]
    assert first.threads == {threading.get_ident()}
    assert (streams.out.getvalue(), streams.err.getvalue()) == ("", "")


def test_outside_of_an_attempt_all_is_as_it_was() -> None:
    with installed() as streams:
        say("plain")
        LOG.info("not for anybody")
        LOG.warning("to whom it may concern")

    assert streams.out.getvalue() == "plain\n"
    assert streams.err.getvalue() == "to whom it may concern\n"


def test_taking_it_back_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    given, level = Streams(monkeypatch), logging.getLogger().level

    install()()

    assert (sys.stdout, sys.stderr) == (given.out, given.err)
    assert logging.getLogger().handlers == []
    assert logging.getLogger().level == level


def test_a_level_somebody_has_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Streams(monkeypatch)
    logging.getLogger().addHandler(logging.StreamHandler(given.err))
    heard = Heard()

    async def attempt() -> None:
        with capturing(heard):
            LOG.info("too quiet")
            LOG.warning("loud enough")
            logging.getLogger("task.nightly").info("meant to be kept")

    uninstall = install()
    run(attempt)
    uninstall()

    assert [text for _, _, text in heard.lines] == ["loud enough", "meant to be kept"]


def test_a_bare_output_in_the_context_is_heard_too() -> None:
    heard = Heard()

    async def attempt() -> None:
        CURRENT.set(heard)
        say("hello ", end="")
        say("there")

    with installed() as streams:
        run(attempt)

    assert heard.lines == [("stdout", "", "hello there")]
    assert streams.out.getvalue() == ""


def test_a_flood_from_a_thread_arrives_whole_and_in_order() -> None:
    heard, short = Heard(), Heard(most=10)

    def flood() -> None:
        for number in range(20_000):
            say(str(number))

    async def attempt() -> None:
        for output in (heard, short):
            with capturing(output) as captured:
                await asyncio.to_thread(flood)
                captured.progress(1.0, "done")

    with installed() as streams:
        run(attempt)

    assert heard.lines == [*(("stdout", "", str(number)) for number in range(20_000)), ("progress", "1.0", "done")]
    assert len(short.lines) < 2_000  # what was on its way when it became full
    assert streams.out.getvalue() == ""


def test_what_comes_after_the_end_is_dropped() -> None:
    heard = Heard()
    over, said = threading.Event(), threading.Event()

    def late() -> None:
        over.wait()
        say("too late")
        said.set()

    async def attempt() -> None:
        with capturing(heard):
            late_one = asyncio.create_task(asyncio.to_thread(late))
            await asyncio.sleep(0)
        over.set()
        await late_one

    with installed() as streams:
        run(attempt)

    assert said.is_set()
    assert heard.lines == []
    assert streams.out.getvalue() == ""


def test_a_record_whose_arguments_do_not_fit_hurts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    heard = Heard()

    async def attempt() -> None:
        with capturing(heard):
            LOG.warning("%d", "no number")
            LOG.warning("next")

    with installed() as streams:
        run(attempt)

    assert [text for _, _, text in heard.lines] == ["next"]
    assert streams.out.getvalue() == ""


def test_pieces_are_put_together_into_lines() -> None:
    lines = Lines()

    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o\r\n\nthr") == ["two", ""]
    assert lines.feed("ée".encode()) == []
    assert lines.end() == ["thrée"]
    assert lines.end() == []


@pytest.mark.covers("F72")
def test_a_line_is_cut_however_it_comes() -> None:
    lines = Lines()
    for _ in range(1_000):
        assert lines.feed(b"x" * 1_000) == []
    cut_line = "x" * LONGEST_LINE + "…"

    assert lines.feed(b"\nnext\n") == [cut_line, "next"]
    assert lines.feed(b"x" * 100_000 + b"\n") == [cut_line]
    assert cut("x" * 100_000) == cut_line
    assert cut("half a pair \ud800") == "half a pair ?"
