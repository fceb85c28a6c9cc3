"""Tasks of every temper, for the tests of where tasks run. Those in ``EVERYWHERE`` exist once for each mode."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from mainspring import Context, Discard, Retry, Snooze, task

LOG = logging.getLogger("zoo")
FOR_EVER = 3600


def say(text: str, **given: Any) -> None:
    print(text, **given)  # noqa: T201 - as tasks do


class Bounced(RuntimeError):
    pass


def add(a: int, b: int = 1) -> int:
    return a + b


def report(ctx: Context, day: datetime) -> dict[str, Any]:
    ctx.progress(0.5, "half way")
    ctx.log.info("working", day=day.date())
    LOG.warning("plain logging")
    say("to stdout")
    say("to stderr", file=sys.stderr)
    say("no end", end="")
    return {
        "attempt": ctx.attempt,
        "day": day,
        "fence": ctx.fence,
        "key": ctx.idempotency_key,
        "next": ctx.next_slots[0],
        "job": ctx.job,
    }


def bounce(address: str) -> None:
    raise Bounced(f"no such mailbox: {address}")


def snooze() -> None:
    raise Snooze(minutes=5, because="input not ready")


def discard() -> None:
    raise Discard("no such customer")


def retry() -> None:
    raise Retry("the bank is busy", after="30s")


def leave() -> None:
    sys.exit(3)


def opaque() -> object:
    return threading.Lock()


def linger() -> None:
    """Work until told to stop, and clean up."""
    LOG.info("pid %d", os.getpid())
    try:
        say("at work")
        while True:
            time.sleep(0.01)
    finally:
        say("cleaned up")


EVERYWHERE: tuple[Callable[..., Any], ...] = (add, report, bounce, snooze, discard, retry, leave, opaque, linger)
for _function in EVERYWHERE:
    for _mode in ("thread", "process", "isolated"):
        _name = f"{_function.__name__}.{_mode}"
        globals()[_name] = task(name=_name, mode=_mode, grace="10s")(_function)


@task(mode="process")
def last(ctx: Context) -> list[Any] | None:
    return None if ctx.last_success is None else [ctx.last_success.run_id, ctx.last_success.result]


@task(mode="process")
def pid() -> int:
    return os.getpid()


@task(mode="process")
async def async_sum(numbers: list[int]) -> int:
    await asyncio.sleep(0)
    return sum(numbers)


@task(mode="process")
async def async_linger() -> None:
    say("at work")
    try:
        await asyncio.sleep(FOR_EVER)
    finally:
        await asyncio.sleep(0)  # a loop that still runs
        say("cleaned up")


@task(mode="process", grace="300ms")
def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    LOG.info("pid %d", os.getpid())
    say("at work")
    time.sleep(FOR_EVER)


@task(mode="thread", grace="100ms")
def stuck(path: str) -> None:
    """Wait where no exception arrives: in one call, which writes more than a pipe holds."""
    pipe = os.open(path, os.O_WRONLY)
    os.write(pipe, bytes(1_000_000))
    os.close(pipe)


@task(mode="process")
def crash() -> None:
    ctypes.string_at(0)


@task(mode="process")
def vanish() -> None:
    os._exit(3)


@task(mode="process")
def burn(path: str) -> int:
    """Keep a core busy until there is a file."""
    say("burning")
    rounds = 0
    while not Path(path).exists():
        rounds += sum(1 for _ in range(10_000))
    return rounds


@task(mode="isolated", memory="300MB")
def hoard() -> int:
    return len(bytearray(1_000_000_000))


@task(mode="process", memory="300MB")
def modest() -> int:
    return len(bytearray(100_000_000))


@task(mode="process")
def large() -> int:
    return len(bytearray(400_000_000))


@task(mode="process", cpu="1s")
def overheat() -> None:
    while True:
        pass


@task(mode="process", files=32)
def hold_files() -> None:
    _ = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]


@task(mode="process")
def hold_more_files() -> int:
    return len([Path("/dev/null").open() for _ in range(100)])


@task(mode="process")
def flood(megabytes: int) -> str:
    piece = ("x" * 99 + "\n") * 10_000
    for _ in range(megabytes):
        sys.stdout.write(piece)
    say("the last line")
    return "done"


@task(mode="process")
def flood_log(records: int) -> str:
    for number in range(records):
        LOG.info("record %d", number)
    return "done"


@task(mode="process")
def endless_line(megabytes: int) -> None:
    for _ in range(megabytes):
        sys.stdout.write("x" * 1_000_000)
    say("")


@task(mode="process")
def result_of(size: int) -> str:
    return "x" * size


@task(mode="process")
def odd_text() -> str:
    say("half a pair: \ud800, a nul: \0")
    os.write(1, b"not utf-8: \xff\n")
    return "nul: \0, nothing: "


@task(mode="process")
def helper() -> None:
    subprocess.run(["/bin/sh", "-c", "echo from a helper; echo and its errors >&2"], check=True)


@task(mode="process")
def forked_back() -> int:
    """Come back from the task twice, once in a fork of it."""
    ours = os.getpid()
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
    return ours


@task(mode="process")
def leave_thread() -> int:
    threading.Thread(target=time.sleep, args=(FOR_EVER,), daemon=True).start()
    return os.getpid()


@task(mode="process")
def go_elsewhere() -> None:
    os.chdir("/")


@task(mode="process")
def where() -> str:
    return str(Path.cwd())


@task(mode="process")
def close_everything() -> None:
    os.closerange(3, 100)


def grow(mark: str, count: int) -> None:
    """Start ``count`` processes that sleep for ``mark`` seconds; return when all of them do."""
    read, write = os.pipe()  # closed by each when it becomes another program
    for number in range(count):
        if os.fork() == 0:
            _become_sleeper(mark, number)
    os.close(write)
    os.read(read, 1)
    os.close(read)


def _become_sleeper(mark: str, number: int) -> None:
    try:
        if number % 5 in (1, 2):
            os.setsid()
        if number % 5 in (2, 3) and os.fork() != 0:
            os._exit(0)  # its parent is gone before it begins
        if number % 5 == 4:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execv("/bin/sleep", ["sleep", mark])
    finally:
        os._exit(1)


@task(mode="process")
def tree(mark: str, count: int) -> int:
    grow(mark, count)
    return count


@task(mode="isolated", grace="300ms")
def tree_that_stays(mark: str, count: int) -> None:
    grow(mark, count)
    say("grown")
    time.sleep(FOR_EVER)


@task(mode="process")
def tree_that_crashes(mark: str, count: int) -> None:
    grow(mark, count)
    os.kill(os.getpid(), signal.SIGKILL)
