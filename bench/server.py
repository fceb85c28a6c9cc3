"""Databases on one server, and a fresh process for each measurement.

A fresh process, because caches, the heap and the garbage collector's thresholds of one contender must not
be the next one's. Its clock is CLOCK_MONOTONIC, the same in all processes, so spans of two can be joined.
"""

import asyncio
import multiprocessing
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias, TypeVar

import asyncpg

T = TypeVar("T")
Ready: TypeAlias = Callable[[], None]  # "prepared": returns when all who work together are
Work: TypeAlias = Callable[[Ready], T]


class Span(NamedTuple):
    """From when to when something lasted."""

    began: float
    ended: float


class WrongResult(Exception):
    """What was measured did not do its work, so that its figure means nothing."""


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def create(server: str, name: str, *, template: str = "template1") -> str:
    """Make a database, the copy of another if one is named; return its DSN."""
    asyncio.run(_execute(server, f"CREATE DATABASE {name} TEMPLATE {template}", "CHECKPOINT"))
    return server.replace("/postgres?", f"/{name}?")


def drop(server: str, name: str) -> None:
    asyncio.run(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def calm(dsn: str) -> None:
    """Leave nothing for autovacuum or a checkpoint to do in the middle of a measurement."""
    await _execute(dsn, "VACUUM (ANALYZE)", "CHECKPOINT")


def commit_takes(dsn: str, times: int = 200) -> float:
    """Return the milliseconds of one durable commit of one row: what the disk says about this machine."""

    async def measure() -> float:
        async with connected(dsn) as connection:
            await connection.execute("CREATE TABLE commits (number integer)")
            began = time.perf_counter()
            for number in range(times):
                await connection.execute("INSERT INTO commits VALUES ($1)", number)
            return (time.perf_counter() - began) / times * 1000

    return asyncio.run(measure())


def together(*works: Work[T]) -> list[T]:
    """Run each work in a process of its own, from a common start; return what they returned."""
    context = multiprocessing.get_context("forkserver")  # which has imported everything, and measured nothing
    ends: list[Connection] = []
    processes = []
    for work in works:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(work, theirs), daemon=True)
        process.start()
        theirs.close()  # theirs alone now: should they die, we read the end of the pipe
        ends.append(ours)
        processes.append(process)
    try:
        for end in ends:
            end.recv()  # prepared
        for end in ends:
            end.send(None)
        return [end.recv() for end in ends]
    except EOFError as error:
        raise WrongResult("a measuring process failed; see above") from error
    finally:
        for process in processes:
            process.join(timeout=10)


def alone(work: Work[T]) -> T:
    return together(work)[0]


def _work(work: Work[object], end: Connection) -> None:
    def ready() -> None:
        end.send(None)
        end.recv()

    try:
        end.send(work(ready))
    except BaseException:  # noqa: BLE001 - whatever it is, the parent is told by the closed pipe
        traceback.print_exc()
    finally:
        end.close()


async def _execute(dsn: str, *statements: str) -> None:
    async with connected(dsn) as connection:
        for statement in statements:
            await connection.execute(statement)
