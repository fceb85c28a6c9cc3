"""What tests of execution modes say: a worker with children and threads, claimed runs, what was heard of them."""

import asyncio
import os
import select
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import Every, Schedule
from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import Job
from mainspring.domain.settling import Failed, Outcome, Succeeded
from mainspring.environment import SystemEnvironment
from mainspring.store.claim import ClaimedRun
from mainspring.tasks.context import Context
from mainspring.tasks.loading import load
from mainspring.tasks.task import Mode
from mainspring.worker.attempt import Attempt
from mainspring.worker.capture import install
from mainspring.worker.isolation import Children
from mainspring.worker.targets.threads import Threads

ROOT = Path(__file__).parents[2]


ZOO = "tests.process.task_zoo"


REGISTRY = load([ZOO])


MODES = ["thread", "process", "isolated"]


PROCESSES = ["process", "isolated"]


PATIENCE = 30  # seconds: the end of hope, not a time anybody waits


SLOT = datetime(2027, 3, 14, 7, tzinfo=UTC)


ENV = SystemEnvironment()


class Heard:
    """An output that is full after ``most`` lines, and keeps the last of them."""

    def __init__(self, most: int = 2_000, keep: int | None = None) -> None:
        self.number = 0
        self.lines: deque[tuple[str, str]] = deque(maxlen=keep)
        self.records: list[tuple[str, str, datetime]] = []
        self.told: list[tuple[float, str]] = []
        self.full = False
        self._most = most
        self._news = asyncio.Event()

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        self.number += 1
        self.lines.append((stream, text))
        if at is not None:
            self.records.append((level, text, at))
        self.full = self.number >= self._most
        self._news.set()

    def progress(self, done: float, note: str) -> None:
        self.told.append((done, note))
        self._news.set()

    def of(self, stream: str) -> list[str]:
        return [text for each, text in self.lines if each == stream]

    async def until(self, text: str) -> None:
        while text not in [line for _, line in self.lines]:
            self._news.clear()
            await self._news.wait()

    async def pid(self) -> int:
        """Wait until the task has logged which process it is."""
        while not self.of("log"):
            self._news.clear()
            await self._news.wait()
        return int(self.of("log")[0].removeprefix("pid "))


class Worker:
    """Children and threads, and attempts made by hand."""

    def __init__(self, children: Children) -> None:
        self.children = children
        self.threads = Threads()

    async def run(self, name: str, output: Heard | None = None, **payload: Any) -> Outcome:
        task = REGISTRY.get(name)
        attempt = Attempt(run=claimed(name, payload), fence="1.2", output=output or Heard())
        if task.declared.mode is not Mode.THREAD:
            return await self.children.run(task, attempt)
        run = attempt.run
        context = Context(
            run_id=run.id,
            job_id=run.job_id,
            job=run.name,
            slot=run.slot,
            attempt=run.attempt,
            payload=run.payload,
            fence=attempt.fence,
            schedule=run.job.schedule,
        )
        uninstall = install()  # here, because pytest puts its own streams in place for each test
        try:
            return await self.threads.run(task, attempt, context)
        finally:
            uninstall()

    async def pid(self) -> int:
        """Return which child is the next to serve."""
        return int(result(await self.run("pid")))


def claimed(name: str, payload: Any) -> ClaimedRun:
    job = Job(name="nightly", task=name, schedule=Schedule(specs=(Every(timedelta(hours=1)),)))
    return ClaimedRun(
        id=RunId(UUID(int=7)),
        job_id=JobId(UUID(int=8)),
        name=job.name,
        payload=payload,
        job=job,
        version=1,
        kind=Kind.MANUAL,
        slot=SLOT,
        rank=SLOT,
        attempt=2,
        failures=1,
        token=UUID(int=9),
        worker=NodeId(UUID(int=10)),
        started_at=SLOT,
    )


@asynccontextmanager
async def worker_with(modules: tuple[str, ...] = (ZOO,), *, warm: int = 2, **given: Any) -> AsyncIterator[Worker]:
    async with asyncio.timeout(PATIENCE), Children(modules, warm=warm, **given) as children:
        yield Worker(children)


def result(outcome: Outcome) -> Any:
    assert isinstance(outcome, Succeeded), outcome
    return outcome.result


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


async def cancelled_when(said: str, work: Callable[[Heard], Coroutine[Any, Any, Outcome]]) -> Heard:
    """Cancel an attempt once it has said something, and see that the cancellation comes out."""
    heard = Heard()
    running = asyncio.create_task(work(heard))
    await heard.until(said)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return heard


def sleepers(mark: str) -> list[int]:
    return _with("cmdline", mark)


def _with(file: str, text: str) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and text.encode() in (each / file).read_bytes():
                found.append(int(each.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def children_of(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


async def ends(pid: int) -> None:
    """Wait until a process has ended that is not ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await asyncio.to_thread(select.select, [pidfd], [], [], PATIENCE)
    finally:
        os.close(pidfd)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
