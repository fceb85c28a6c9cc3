"""A process dies at each named point, or loses its line at COMMIT: what it left is nothing, or everything.

Each story ends alike. Another process does what is left to do, and the ledger must be as if nobody had died.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from mainspring import Every, Schedule, embedded
from mainspring.domain.errors import StoreUnavailable
from mainspring.domain.firing import Misfire, Overlap, Overlaps
from mainspring.domain.ids import JobId, NodeId, scheduled_run_id
from mainspring.domain.retry import Backoff, RetryPolicy
from mainspring.domain.settling import Discarded, ErrorInfo, Failed, GivenBack, Outcome, Succeeded
from mainspring.environment import SystemEnvironment
from mainspring.roles import NodeSettings, run_node
from mainspring.service import Stop
from mainspring.store import nodes
from mainspring.store.claim import ClaimedRun
from mainspring.store.database import open_database
from mainspring.store.recover import recover_lost
from mainspring.store.settle import Ended, SettleReport, settle
from mainspring.tasks.context import Context
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events
from mainspring.testing import Crashed, CrashPoints
from tests.postgres import copied

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABLES = ("job_cursors", "runs", "run_history", "skips", "attempts", "late_results", "dead_letters")
BROKEN = Failed(error=ErrorInfo(type="ValueError", message="no"))
REFUSED = Discarded("never")

# Points of a verb that must be among those found; whatever else it passes is crashed at, too.
_SETTLE = {"settle.finished", "settle.put_back", "settle.commit", "settle.committed"}
KNOWN = {
    "fire": {"fire.locked", "fire.runs_written", "fire.skips_written", "fire.commit", "fire.committed"},
    "claim": {"claim.commit", "claim.committed"},
    "settle": _SETTLE,
    "recover": {"recover.found", *_SETTLE},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dsn(server: embedded.Server, template: str) -> AsyncIterator[str]:
    """One database for all: the stories empty it themselves, some of them many times."""
    async with copied(server, template, "crashes") as fresh:
        yield fresh


@dataclass(frozen=True)
class Scene:
    """All is ready for a verb to be called."""

    jobs: list[JobId]
    worker: NodeId
    runs: list[ClaimedRun]


async def given(ledger: Ledger, verb: str) -> Scene:
    """Set up three jobs with four due slots each, one of them too many, and the work up to ``verb``."""
    await ledger.execute("; ".join(f"DELETE FROM {table}" for table in (*TABLES, "job_versions", "jobs", "nodes")))
    half_an_hour_ago = ledger.env.now().replace(microsecond=0) - timedelta(minutes=30)
    hourly = Schedule(specs=(Every(timedelta(hours=1), half_an_hour_ago),))  # nothing comes due while the test runs
    jobs: list[JobId] = []
    for overlap in (Overlaps.SKIP, Overlaps.QUEUE, Overlaps.ALLOW):
        jobs += await ledger.given_jobs(
            schedule=hourly,
            due=timedelta(hours=3),
            misfire=Misfire(most=3),
            overlap=Overlap(policy=overlap),
            retry=RetryPolicy(kind=Backoff.IMMEDIATE, attempts=5),
        )
    worker, runs = await ledger.node(), []
    if verb != "fire":
        await ledger.fire()
    if verb in ("settle", "recover"):
        runs = await ledger.claim(worker)
        assert len(runs) == 5  # one each of the exclusive jobs, and all three of the other
    if verb == "recover":
        await nodes.retire(ledger.db, worker)
    return Scene(jobs, worker, runs)


async def settle_all(process: Ledger, scene: Scene) -> SettleReport:
    """Settle in one batch: successors to release, one to try again, one for the dead letters, one given back."""
    outcomes: list[Outcome] = [BROKEN, REFUSED, GivenBack()]
    ended = [Ended(run, Succeeded() if run.job.overlap.exclusive else outcomes.pop()) for run in scene.runs]
    return await settle(process.db, process.env, ended)


VERBS: dict[str, Callable[[Ledger, Scene], Awaitable[object]]] = {
    "fire": lambda process, _: process.fire(),
    "claim": lambda process, scene: process.claim(scene.worker),
    "settle": settle_all,
    "recover": lambda process, _: recover_lost(process.db, process.definitions, process.env),
}


async def contents(ledger: Ledger) -> list[str]:
    rows = " UNION ALL ".join(f"SELECT '{table}' || to_jsonb(t)::text AS row FROM {table} AS t" for table in TABLES)
    return [row["row"] for row in await ledger.rows(f"{rows} ORDER BY row")]


async def finish(ledger: Ledger, scene: Scene) -> None:
    """Do what the others do once the process that died was declared dead."""
    await nodes.retire(ledger.db, scene.worker)
    worker = await ledger.node()
    await ledger.fire()
    await recover_lost(ledger.db, ledger.definitions, ledger.env)
    while runs := await ledger.claim(worker):
        await ledger.settle(runs)


async def judge(ledger: Ledger, scene: Scene, story: str) -> None:
    for job in scene.jobs:
        assert await ledger.decisions(job) == [("coalesced", 1), ("fired", 1), ("fired", 1), ("fired", 1)], story
    history = await ledger.rows("SELECT id, job_id, slot, state FROM run_history ORDER BY id")
    assert len(history) == 9, story
    assert all(row["id"] == scheduled_run_id(row["job_id"], row["slot"]) for row in history), story
    assert await ledger.value("SELECT count(*) FROM runs") == 0, story
    letters = await ledger.rows("SELECT run_id FROM dead_letters")
    assert [row["run_id"] for row in letters] == [row["id"] for row in history if row["state"] == "dead"], story
    assert await ledger.value("SELECT count(*) FROM job_cursors WHERE next_fire_at < clock_timestamp()") == 0, story
    await ledger.check()


def process_with(points: CrashPoints, ledger: Ledger) -> Ledger:
    return ledger.another(SystemEnvironment(on_reach=points.reach))


@pytest.mark.covers("D02", "D03", "D10", "D18", "F06", "F10", "F67")
@pytest.mark.parametrize("verb", VERBS)
async def test_a_crash_at_any_point_leaves_nothing_or_everything_and_another_goes_on(ledger: Ledger, verb: str) -> None:
    recorded = CrashPoints()
    await VERBS[verb](process_with(recorded, ledger), await given(ledger, verb))
    assert set(recorded.reached) >= KNOWN[verb]

    for point in dict.fromkeys(recorded.reached):
        story = f"crashed at {point}"
        scene = await given(ledger, verb)
        before = await contents(ledger)
        points = CrashPoints()
        points.crash_at(point)

        with pytest.raises(Crashed):
            await VERBS[verb](process_with(points, ledger), scene)

        assert (await contents(ledger) != before) == point.endswith(".committed"), story
        await finish(ledger.another(), scene)
        await judge(ledger, scene, story)


class Cut(Enum):
    """What a client that loses its line at COMMIT cannot tell apart."""

    BEFORE_COMMIT_ARRIVED = auto()
    BEFORE_COMMIT_WAS_ANSWERED = auto()


class Line:
    """A line to the server that can be cut at the next COMMIT."""

    def __init__(self, dsn: str) -> None:
        self._dsn = urlsplit(dsn)
        self._socket = f"{parse_qs(self._dsn.query)['host'][0]}/.s.PGSQL.5432"
        self._carrying: set[asyncio.Task[None]] = set()
        self._cut: Cut | None = None

    def cut_at_commit(self, cut: Cut) -> None:
        self._cut = cut

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        try:
            yield f"postgresql://mainspring@127.0.0.1:{port}{self._dsn.path}?sslmode=disable"
        finally:
            listening.close()
            await asyncio.gather(*self._carrying)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._carrying.add(task)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_unix_connection(self._socket)
        answers = asyncio.create_task(_copy(server, to_client))
        while said := await client.read(2**16):
            if self._cut and b"COMMIT;\0" in said:
                await _stop(answers)
                if self._cut is Cut.BEFORE_COMMIT_WAS_ANSWERED:
                    to_server.write(said)
                    await server.readuntil(b"COMMIT\0")
                self._cut = None
                break
            to_server.write(said)
        await _stop(answers)
        with suppress(ConnectionError):
            to_server.write(b"X\0\0\0\4")  # goodbye
            await server.read()  # the end comes when the server's process has let go of all locks
        for writer in (to_server, to_client):
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while said := await reader.read(2**16):
        writer.write(said)
    writer.close()  # a client that says goodbye waits for this


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def on_a_line(dsn: str) -> AsyncIterator[tuple[Ledger, Line]]:
    line = Line(dsn)
    async with line.open() as through, open_database(through) as db:
        yield Ledger(db, SystemEnvironment()), line


@pytest.mark.covers("F08")
@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("verb", VERBS)
async def test_a_commit_without_an_answer_loses_and_doubles_nothing(
    ledger: Ledger, dsn: str, verb: str, cut: Cut
) -> None:
    scene = await given(ledger, verb)
    before = await contents(ledger)

    async with on_a_line(dsn) as (process, line):
        line.cut_at_commit(cut)
        with pytest.raises(StoreUnavailable):
            await VERBS[verb](process, scene)
        assert (await contents(ledger) != before) == (cut is Cut.BEFORE_COMMIT_WAS_ANSWERED)
        await finish(process, scene)

    await judge(ledger, scene, f"{verb} cut {cut.name}")


@pytest.mark.covers("F08")
@pytest.mark.parametrize("cut", Cut)
async def test_firing_again_after_a_lost_answer_is_a_no_op_if_it_was_written(
    ledger: Ledger, dsn: str, cut: Cut
) -> None:
    scene = await given(ledger, "fire")

    async with on_a_line(dsn) as (process, line):
        line.cut_at_commit(cut)
        with pytest.raises(StoreUnavailable):
            await process.fire()
        again = await process.fire()

    assert (again.locked, again.runs) == ((0, 0) if cut is Cut.BEFORE_COMMIT_WAS_ANSWERED else (3, 9))
    await finish(ledger, scene)
    await judge(ledger, scene, cut.name)


@pytest.mark.covers("F08")
@pytest.mark.parametrize("cut", Cut)
async def test_settling_again_after_a_lost_answer_changes_nothing_that_was_written(
    ledger: Ledger, dsn: str, cut: Cut
) -> None:
    scene = await given(ledger, "settle")

    async with on_a_line(dsn) as (process, line):
        line.cut_at_commit(cut)
        with pytest.raises(StoreUnavailable):
            await settle_all(process, scene)
        again = await settle_all(process, scene)

    everyone = {run.id for run in scene.runs}
    if cut is Cut.BEFORE_COMMIT_WAS_ANSWERED:
        assert (again.settled, set(again.late), again.released) == ({}, everyone, 0)
    else:
        assert (set(again.settled), again.late, again.released) == (everyone, (), 2)
    assert await ledger.value("SELECT count(*) FROM dead_letters") == 1
    await finish(ledger, scene)
    await judge(ledger, scene, cut.name)


@pytest.mark.parametrize("point", ["claim.committed", "settle.commit", "settle.committed"])
async def test_a_node_that_lost_its_line_for_a_moment_keeps_no_run_in_its_hands_for_ever(
    ledger: Ledger, point: str
) -> None:
    await given(ledger, "claim")
    lost = {point}

    async def lose_the_line(reached: str) -> None:
        if reached in lost:
            lost.remove(reached)
            raise StoreUnavailable("the line is gone")

    async def noop(_: Context) -> None:
        pass

    env, registry = SystemEnvironment(on_reach=lose_the_line), Registry()
    stop = Stop(env)
    registry.add("noop", noop)
    settings = NodeSettings(engine="peers")
    node = run_node(settings, stop, db=ledger.db, env=env, events=Events(), registry=registry)
    running = asyncio.create_task(node)
    with suppress(TimeoutError):
        async with asyncio.timeout(4):
            while await ledger.value("SELECT count(*) FROM runs"):
                pass  # the query itself gives way
    stuck = await ledger.rows("SELECT state, attempt FROM runs WHERE state = 'running'")
    stop.request()
    await running

    assert lost == set()
    assert stuck == []
    await ledger.check()
