"""What process tests say: start nodes, stop and kill them; hold tasks at a gate; wait for the ledger, and judge it."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from mainspring import At, Every, Schedule
from mainspring.domain.asking import Change
from mainspring.domain.errors import StoreUnavailable
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job, JobState
from mainspring.domain.settling import OnLoss
from mainspring.environment import SystemEnvironment
from mainspring.insight.audit import run_audit
from mainspring.insight.report import AuditReport
from mainspring.roles import put_jobs
from mainspring.store.changes import change_job
from mainspring.store.database import Database
from mainspring.testing.invariants import check_ledger

from .node import Options

SRC = Path(__file__).parents[2] / "src"
PATIENCE = 60  # seconds: the end of hope, not a time anybody waits
LOOK_EVERY = 0.02
ENV = SystemEnvironment()
PARALLEL = Overlap(policy=Overlaps.ALLOW)
EVERY_SECOND = Schedule(specs=(Every(timedelta(seconds=1)),))


class Node:
    """A node process. ``id`` is what the ledger calls it."""

    def __init__(self, process: Process, errors: Path) -> None:
        self.id, self.pid = "", process.pid
        self._process, self._errors = process, errors

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def complaints(self) -> str:
        return self._errors.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def says(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self._process.stdout.readline()).decode().strip()

    async def ends(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and what was said on standard error."""
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait(), self.complaints

    def described(self) -> str:
        status = "is alive" if self.alive else f"ended with {self._process.returncode}"
        return f"node {self.id}, pid {self.pid}, {status}: {self.complaints[-2000:] or 'no complaint'}"

    async def kill(self) -> None:
        if self.alive:
            self.send(signal.SIGKILL)
            await self._process.wait()


class Fleet:
    """Node processes on one database, alike but for what ``start`` is told. None outlives its block."""

    def __init__(self, options: Options, room: Path) -> None:
        self._options, self._room = options, room
        self._numbers = count()
        self.nodes: list[Node] = []  # oldest first; also those that have ended

    async def start(self, **options: Any) -> Node:
        given = replace(self._options, **options)
        errors = self._room / f"{next(self._numbers)}.errors"
        command = (sys.executable, str(Path(__file__).with_name("node.py")), json.dumps(asdict(given)))
        environ = {**os.environ, "PYTHONPATH": str(SRC)}
        with errors.open("w") as stream:
            process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=stream, env=environ)
        node = Node(process, errors)
        self.nodes.append(node)
        node.id = await node.says()
        assert node.id, f"it did not register: {node.complaints}"
        return node

    async def stop(self, *, quietly: bool = True) -> None:
        """Ask all that are left to end, and see that they do, and that nobody had complained."""
        left = [node for node in self.nodes if node.alive]
        for node in left:
            node.send(signal.SIGTERM)
        ends = [await node.ends() for node in left]
        assert all(status == 0 and (not quietly or not complaints) for status, complaints in ends), ends


@dataclass(frozen=True)
class Arrival:
    """A task that has begun. There is one per start, whoever starts it and however often."""

    run: str
    attempt: int
    pid: int
    writer: asyncio.StreamWriter

    def tell(self, result: object) -> None:
        """Let it return; a process that is stopped hears of it when it goes on."""
        self.writer.write(json.dumps(result).encode() + b"\n")


class Gate:
    """Where the tasks called "wait" wait until they are told what to return."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.always_open = False  # nobody has to wait
        self.arrivals: list[Arrival] = []
        self._news = asyncio.Event()

    def of(self, node: Node) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.pid == node.pid]

    def open(self, arrivals: Iterable[Arrival], result: object = None) -> None:
        for arrival in arrivals:
            arrival.tell(result)

    async def until(self, enough: Callable[[], bool], within: float = PATIENCE) -> None:
        async with asyncio.timeout(within):
            while not enough():
                self._news.clear()
                await self._news.wait()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.readline()
        if said:  # else it died on the doorstep
            self.arrivals.append(Arrival(**json.loads(said), writer=writer))
            self._news.set()
            if self.always_open:
                self.arrivals[-1].tell(None)
            await reader.read()  # until it closes its end, or dies
        writer.close()


@asynccontextmanager
async def gate_open() -> AsyncIterator[Gate]:
    with tempfile.TemporaryDirectory(prefix="mainspring-gate-") as room:
        gate = Gate(f"{room}/gate")
        listening = await asyncio.start_unix_server(gate.take, gate.path, backlog=1024)  # they come in herds
        try:
            yield gate
        finally:
            listening.close()


@asynccontextmanager
async def fleet_on(dsn: str, gate: Gate | None = None, **options: Any) -> AsyncIterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="mainspring-fleet-") as room:
        fleet = Fleet(Options(dsn=dsn, gate=gate.path if gate else None, **options), Path(room))
        try:
            yield fleet
        except BaseException as error:
            error.add_note("\n".join(node.described() for node in fleet.nodes))
            raise
        finally:
            for node in fleet.nodes:
                await node.kill()


async def given_ticking(db: Database, number: int, **changes: Any) -> None:
    """Write jobs that are due every second, whatever became of the runs before."""
    job = Job(name="tick", task="noop", schedule=EVERY_SECOND, overlap=PARALLEL)
    await put_jobs(db, ENV, [replace(job, name=f"tick-{n}", **changes) for n in range(number)])


async def given_waiting(db: Database, number: int, *, on_loss: OnLoss = OnLoss.RETRY) -> None:
    """Write jobs that are due once, in a second, and wait at the gate."""
    soon = ENV.now() + timedelta(seconds=1)
    soon = soon.replace(microsecond=soon.microsecond // 1000 * 1000)
    job = Job(name="wait", task="wait", schedule=Schedule(specs=(At(soon),)), on_loss=on_loss)
    await put_jobs(db, ENV, [replace(job, name=f"wait-{ENV.new_id()}") for _ in range(number)])


async def change_some(db: Database) -> None:
    """Edit a job, pause one, pause and resume one, delete one."""
    first, second, third, fourth = [JobId(job) for (job,) in await rows(db, "SELECT id FROM jobs ORDER BY id LIMIT 4")]
    slower = Job(name="slower", task="noop", schedule=Schedule(specs=(Every(timedelta(seconds=2)),)))
    await change_job(db, ENV, first, Change(definition=slower, if_version=1))
    await change_job(db, ENV, second, Change(state=JobState.PAUSED))
    await change_job(db, ENV, third, Change(state=JobState.PAUSED))
    await change_job(db, ENV, third, Change(state=JobState.ACTIVE))
    await change_job(db, ENV, fourth, Change(state=JobState.DELETED))


async def rows(db: Database, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    async with db.connection() as connection:
        return [tuple(row) for row in await connection.fetch(query, *arguments)]


async def until(db: Database, query: str, *arguments: Any, within: float = PATIENCE) -> None:
    """Wait until the ledger answers true; one that is away does not."""
    async with asyncio.timeout(within):
        while True:
            with suppress(StoreUnavailable):
                if await rows(db, query, *arguments) == [(True,)]:
                    return
            await asyncio.sleep(LOOK_EVERY)


async def until_decided(db: Database, instant: datetime, within: float = PATIENCE) -> None:
    """Wait until every cursor has passed an instant."""
    passed = "SELECT coalesce(bool_and(next_fire_at > $1), true) FROM job_cursors WHERE state = 'active'"
    await until(db, passed, instant, within=within)


async def until_settled(db: Database, *, before: datetime | None = None) -> None:
    """Wait until no run is in motion, or none of a slot before an instant."""
    await until(db, "SELECT count(*) = 0 FROM runs WHERE slot < coalesce($1, 'infinity'::timestamptz)", before)


async def judged(db: Database, *, since: datetime, until: datetime | None = None) -> AuditReport:
    """Return the audit, with nothing missed, doubled or invented in it, and the invariants checked."""
    await check_ledger(db)
    report = await run_audit(db, start=since, end=until or ENV.now())
    assert report.exit_status == 0, report.findings[:5]
    return report
