"""Tasks in threads and in processes: how each end is told, and that nothing is left behind. Real processes."""

import asyncio
import os
import select
import signal
import sys
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from mainspring import Every, Schedule
from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import Job
from mainspring.domain.settling import Discarded, Failed, Outcome, Snoozed, Succeeded
from mainspring.environment import SystemEnvironment
from mainspring.store.claim import ClaimedRun
from mainspring.tasks.context import Context, LastSuccess
from mainspring.tasks.loading import load
from mainspring.tasks.task import Mode
from mainspring.worker.attempt import Attempt
from mainspring.worker.capture import install
from mainspring.worker.isolation import Children
from mainspring.worker.targets.threads import Threads

pytestmark = pytest.mark.asyncio(loop_scope="session")

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


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shared() -> AsyncIterator[Worker]:
    async with Children([ZOO], warm=2) as children:
        yield Worker(children)


@pytest_asyncio.fixture(loop_scope="session")
async def worker(shared: Worker) -> AsyncIterator[Worker]:
    """Lend one worker to all tests, each with its own patience; what a task leaves behind, the next would see."""
    async with asyncio.timeout(PATIENCE):
        yield shared


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


# Processes.

_marks = count()


@pytest.fixture
def mark() -> str:
    """How long sleepers sleep: nobody else's sleep that long."""
    return f"3600.{os.getpid():07}{next(_marks):03}"


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


# How tasks end.


@pytest.mark.parametrize("mode", MODES)
async def test_a_task_gets_its_arguments_and_returns(worker: Worker, mode: str) -> None:
    assert await worker.run(f"add.{mode}", a=2) == Succeeded(3)
    assert await worker.run(f"add.{mode}", a=2, b=2**80) == Succeeded(2 + 2**80)


@pytest.mark.parametrize("mode", MODES)
async def test_a_task_with_a_context_tells_how_it_goes(worker: Worker, mode: str) -> None:
    heard = Heard()
    before = ENV.now()

    outcome = await worker.run(f"report.{mode}", heard, day="2027-03-14T00:00:00Z")

    assert result(outcome) == {
        "attempt": 2,
        "day": "2027-03-14T00:00:00Z",
        "fence": "1.2",
        "key": str(UUID(int=7)),
        "next": "2027-03-14T08:00:00Z",
        "job": "nightly",
    }
    assert heard.told == [(0.5, "half way")]
    levels = [(level, text) for level, text, _ in heard.records]
    assert levels == [("INFO", "working day=2027-03-14"), ("WARNING", "plain logging")]
    assert all(before <= at <= ENV.now() for _, _, at in heard.records)
    assert heard.of("stdout") == ["to stdout", "no end"]
    assert heard.of("stderr") == ["to stderr"]


async def test_a_task_learns_of_the_last_success(worker: Worker) -> None:
    task = REGISTRY.get("last")
    attempt = Attempt(run=claimed("last", None), fence="1.2", output=Heard())
    last = LastSuccess(run_id=UUID(int=3), at=SLOT, result={"rows": [1, 2]})

    assert await worker.children.run(task, attempt, last_success=last) == Succeeded(
        [str(UUID(int=3)), {"rows": [1, 2]}]
    )
    assert await worker.children.run(task, attempt) == Succeeded()


async def test_an_async_task_runs_in_a_loop_of_its_own(worker: Worker) -> None:
    assert await worker.run("async_sum", numbers=[1, 2, 3]) == Succeeded(6)


@pytest.mark.parametrize("mode", MODES)
async def test_an_error_is_told_with_its_traceback(worker: Worker, mode: str) -> None:
    error = failure(await worker.run(f"bounce.{mode}", address="nobody")).error

    assert error.type == "tests.process.task_zoo.Bounced"
    assert error.message == "no such mailbox: nobody"
    assert error.bases == ("RuntimeError", "Exception")
    assert "in bounce" in error.traceback
    assert "mainspring/worker" not in error.traceback


@pytest.mark.parametrize("mode", MODES)
async def test_a_task_steers_its_run(worker: Worker, mode: str) -> None:
    assert await worker.run(f"snooze.{mode}") == Snoozed(timedelta(minutes=5), "input not ready")
    assert await worker.run(f"discard.{mode}") == Discarded("no such customer")

    again = failure(await worker.run(f"retry.{mode}"))

    assert again.retry_after == timedelta(seconds=30)
    assert again.error.message == "the bank is busy"


@pytest.mark.parametrize("mode", MODES)
async def test_arguments_that_do_not_fit_are_not_tried_again(worker: Worker, mode: str) -> None:
    outcome = await worker.run(f"add.{mode}", a="two")

    assert isinstance(outcome, Discarded)
    assert "payload.a: expected int, got str" in outcome.reason


@pytest.mark.parametrize("mode", MODES)
async def test_a_result_without_json_form_is_a_clear_failure(worker: Worker, mode: str) -> None:
    error = failure(await worker.run(f"opaque.{mode}")).error

    assert error.type == "TypeError"
    assert "no JSON form" in error.message


@pytest.mark.parametrize("mode", MODES)
async def test_sys_exit_ends_the_attempt_only(worker: Worker, mode: str) -> None:
    error = failure(await worker.run(f"leave.{mode}")).error

    assert error.type == "crashed"
    assert error.message.startswith("exited with status 3")


async def test_a_process_that_ends_itself_is_told_by_its_status(worker: Worker) -> None:
    error = failure(await worker.run("vanish")).error

    assert error.type == "crashed"
    assert error.message.startswith("exited with status 3")
    assert await worker.run("add.process", a=1) == Succeeded(2)


async def test_a_crash_is_told_by_its_signal_and_shows_where(worker: Worker) -> None:
    heard = Heard()

    error = failure(await worker.run("crash", heard)).error

    assert (error.type, error.message) == ("crashed", "killed by SIGSEGV")
    assert any("in crash" in line for line in heard.of("stderr"))


@pytest.mark.parametrize("mode", PROCESSES)
async def test_a_child_killed_from_outside_is_told_and_the_next_run_works(worker: Worker, mode: str) -> None:
    heard = Heard()
    running = asyncio.create_task(worker.run(f"linger.{mode}", heard))
    await heard.until("at work")

    os.kill(await heard.pid(), signal.SIGKILL)

    error = failure(await running).error
    assert error.type == "crashed"
    assert error.message.startswith("killed by SIGKILL")
    assert await worker.run(f"add.{mode}", a=1) == Succeeded(2)


async def test_a_child_that_dies_while_it_waits_costs_no_attempt(worker: Worker) -> None:
    pid = await worker.pid()
    forks = worker.children._forks
    assert forks is not None

    for child in children_of(forks._process.pid):  # those that wait for more, and the spare one
        os.kill(child, signal.SIGKILL)

    assert await worker.pid() != pid
    assert await worker.run("add.isolated", a=1) == Succeeded(2)


async def test_a_task_that_closes_our_socket_fails_and_nothing_else(worker: Worker) -> None:
    assert failure(await worker.run("close_everything")).error.type == "crashed"
    assert await worker.run("add.process", a=1) == Succeeded(2)


async def test_a_fork_that_comes_back_from_the_task_answers_nothing(worker: Worker) -> None:
    first = result(await worker.run("forked_back"))

    assert await worker.pid() == first


# How they are stopped.


@pytest.mark.parametrize("mode", MODES)
async def test_a_task_whose_time_is_up_cleans_up_before_the_timeout_comes_out(worker: Worker, mode: str) -> None:
    heard = Heard()

    async def run_out_of_time() -> None:
        async with asyncio.timeout(None) as limit:
            working = asyncio.create_task(heard.until("at work"))
            working.add_done_callback(lambda _: limit.reschedule(asyncio.get_running_loop().time()))
            await worker.run(f"linger.{mode}", heard)

    with pytest.raises(TimeoutError):
        await run_out_of_time()
    assert heard.of("stdout") == ["at work", "cleaned up"]
    assert await worker.run(f"add.{mode}", a=1) == Succeeded(2)


@pytest.mark.parametrize("name", [*(f"linger.{mode}" for mode in MODES), "async_linger"])
async def test_a_cancelled_task_cleans_up(worker: Worker, name: str) -> None:
    heard = await cancelled_when("at work", lambda heard: worker.run(name, heard))

    assert heard.of("stdout") == ["at work", "cleaned up"]


async def test_a_task_that_ignores_the_request_is_killed_after_its_grace(worker: Worker) -> None:
    began = asyncio.get_running_loop().time()

    heard = await cancelled_when("at work", lambda heard: worker.run("stubborn", heard))

    assert asyncio.get_running_loop().time() - began >= REGISTRY.get("stubborn").declared.grace.total_seconds()
    assert heard.of("stdout") == ["at work"]
    assert await worker.run("add.process", a=1) == Succeeded(2)


async def test_a_second_cancellation_does_not_leave_the_child_behind(worker: Worker) -> None:
    heard = Heard()
    running = asyncio.create_task(worker.run("stubborn", heard))
    await heard.until("at work")
    child = await heard.pid()

    running.cancel()
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert child not in _with("comm", "")


async def test_a_run_cancelled_before_its_child_is_there_leaves_none() -> None:
    async with worker_with() as worker:
        running = asyncio.create_task(worker.run("linger.isolated"))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert await worker.run("add.isolated", a=1) == Succeeded(2)


async def test_a_thread_stuck_in_c_is_abandoned_and_the_worker_lives_on(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader, begun = os.open(path, os.O_RDONLY | os.O_NONBLOCK), asyncio.Event()
    asyncio.get_running_loop().add_reader(reader, begun.set)
    running = asyncio.create_task(worker.run("stuck", path=str(path)))
    await begun.wait()
    asyncio.get_running_loop().remove_reader(reader)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert worker.threads.abandoned == 1
    assert await worker.run("add.thread", a=1) == Succeeded(2)
    stuck = next(iter(worker.threads._abandoned))
    os.close(reader)  # its return, or what it raises, is of no interest to anybody
    await stuck.ended
    assert worker.threads.abandoned == 0


# What they may use.


@pytest.mark.covers("F59")
async def test_a_task_that_burns_cpu_does_not_hold_up_the_loop(worker: Worker, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    running = asyncio.create_task(worker.run("burn", path=str(enough)))

    for _ in range(50):
        await asyncio.sleep(0.01)
    assert not running.done()
    enough.touch()

    assert result(await running) > 0


async def test_out_of_memory_is_told_with_the_limit(worker: Worker) -> None:
    error = failure(await worker.run("hoard")).error

    assert error.type == "out_of_memory"
    assert "300 MB" in error.message
    assert "MemoryError" in error.bases
    assert "in hoard" in error.traceback


async def test_out_of_cpu_time_is_told_with_the_limit(worker: Worker) -> None:
    error = failure(await worker.run("overheat")).error

    assert error.type == "cpu_limit"
    assert "its limit is 1 s" in error.message


async def test_the_limits_of_a_task_do_not_reach_the_next(worker: Worker) -> None:
    before = await worker.pid()

    assert await worker.run("modest") == Succeeded(100_000_000)
    assert "Too many open files" in failure(await worker.run("hold_files")).error.message

    assert await worker.run("large") == Succeeded(400_000_000)
    assert await worker.run("hold_more_files") == Succeeded(100)
    assert await worker.pid() == before


async def test_a_child_is_replaced_after_so_many_runs() -> None:
    async with worker_with(recycle_after=3) as worker:
        served = [await worker.pid() for _ in range(7)]

    assert [served.count(pid) for pid in dict.fromkeys(served)] == [3, 3, 1]


async def test_a_child_that_has_grown_is_replaced() -> None:
    async with worker_with(recycle_above=1) as worker:
        assert await worker.pid() != await worker.pid()


async def test_a_child_with_a_thread_left_over_serves_nobody_else(worker: Worker) -> None:
    assert await worker.pid() == result(await worker.run("leave_thread")) != await worker.pid()


async def test_the_working_directory_of_a_task_is_not_passed_on(worker: Worker) -> None:
    home = result(await worker.run("where"))

    await worker.run("go_elsewhere")

    assert await worker.run("where") == Succeeded(home)


async def test_no_more_children_than_asked_for_wait_for_work() -> None:
    async with worker_with(warm=2) as worker:
        heard = [Heard() for _ in range(50)]
        running = [asyncio.create_task(worker.run("linger.process", each)) for each in heard]
        for each in heard:
            await each.until("at work")
        at_once = [asyncio.create_task(worker.pid()) for _ in range(50)]
        assert len({await each for each in at_once}) > 2

        for task in running:
            task.cancel()
        await asyncio.wait(running)

        assert len(worker.children._idle) == 2
        assert await worker.pid() == await worker.pid()


# What they say.


async def test_what_helpers_of_a_task_write_is_heard(worker: Worker) -> None:
    heard = Heard()

    await worker.run("helper", heard)

    assert sorted(heard.lines) == [("stderr", "and its errors"), ("stdout", "from a helper")]


@pytest.mark.covers("F72")
@pytest.mark.parametrize("most", [2_000, 10**9], ids=["capped", "all of it"])
async def test_a_flood_of_output_neither_fills_memory_nor_holds_up_the_loop(worker: Worker, most: int) -> None:
    heard, before, gap = Heard(most, keep=1), resident(), 0.0
    running = asyncio.create_task(worker.run("flood", heard, megabytes=100))
    while not running.done():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.005)
        gap = max(gap, asyncio.get_running_loop().time() - began)

    assert await running == Succeeded("done")
    assert gap < 0.5
    assert resident() - before < 50_000_000
    if most == 10**9:
        assert (heard.number, heard.of("stdout")) == (1_000_001, ["the last line"])
    else:
        assert most <= heard.number < most + 1_000  # it may hear out the piece in which it became full


async def test_a_flood_of_records_is_heard_to_its_last_and_dropped_when_full(worker: Worker) -> None:
    patient, short = Heard(most=10**9), Heard(most=10)

    assert await worker.run("flood_log", patient, records=20_000) == Succeeded("done")
    assert await worker.run("flood_log", short, records=20_000) == Succeeded("done")

    assert patient.of("log") == [f"record {number}" for number in range(20_000)]
    assert len(short.lines) == 10


@pytest.mark.covers("F72")
async def test_a_line_without_end_is_cut(worker: Worker) -> None:
    heard = Heard()

    await worker.run("endless_line", heard, megabytes=20)

    assert heard.of("stdout") == ["x" * 8192 + "…"]


@pytest.mark.covers("F72")
async def test_a_result_that_is_too_large_is_refused_clearly(worker: Worker) -> None:
    assert len(result(await worker.run("result_of", size=5_000_000))) == 5_000_000

    error = failure(await worker.run("result_of", size=20_000_000)).error

    assert error.type == "result_too_large"
    assert "20,000,002 bytes" in error.message


@pytest.mark.covers("F72")
async def test_odd_text_gets_through(worker: Worker) -> None:
    heard = Heard()

    assert await worker.run("odd_text", heard) == Succeeded("nul: \0, nothing: ")
    assert heard.of("stdout") == ["half a pair: ?, a nul: \0", "not utf-8: \N{REPLACEMENT CHARACTER}"]


async def test_a_large_payload_arrives(worker: Worker) -> None:
    assert await worker.run("async_sum", numbers=[1] * 500_000) == Succeeded(500_000)


# What they leave behind.


@pytest.mark.parametrize("end", ["tree", "tree_that_crashes"])
async def test_nothing_is_left_of_a_tree_when_the_task_has_ended(worker: Worker, mark: str, end: str) -> None:
    outcome = await worker.run(end, mark=mark, count=50)

    assert isinstance(outcome, Succeeded if end == "tree" else Failed)
    assert sleepers(mark) == []


async def test_nothing_is_left_of_a_tree_when_its_time_is_up(worker: Worker, mark: str) -> None:
    heard = Heard()
    running = asyncio.create_task(worker.run("tree_that_stays", heard, mark=mark, count=50))
    await heard.until("grown")
    grown = sleepers(mark)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert len(grown) == 50
    assert sleepers(mark) == []


async def test_nothing_is_left_when_the_children_are_closed(mark: str) -> None:
    heard = Heard()
    async with worker_with() as worker:
        running = asyncio.create_task(worker.run("tree_that_stays", heard, mark=mark, count=10))
        await heard.until("grown")

    assert failure(await running).error.type == "crashed"
    assert sleepers(mark) == []


async def test_descriptors_do_not_leak() -> None:
    names = ["add.process", "add.isolated", "add.thread"]
    async with worker_with(warm=1) as worker:
        for name in names:
            await worker.run(name, a=1)
        before = descriptors()

        for turn in range(50):
            await worker.run(names[turn % 3], a=1)
            if turn % 10 == 0:
                await worker.run("vanish")
        await worker.run("add.process", a=1)

        assert descriptors() == before


# What happens when others go.

WORKER = """
import asyncio, os, signal, sys, uvloop
from tests.process.test_isolation import Heard, worker_with

async def main():
    heard, finish = Heard(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, finish.set)
    async with worker_with() as worker:
        name, payload = sys.argv[1], dict(each.split("=") for each in sys.argv[2:])
        payload |= {"count": int(payload["count"])} if "count" in payload else {}
        running = asyncio.create_task(worker.run(name, heard, **payload))
        while not heard.lines:
            await asyncio.sleep(0.001)
        print(heard.lines[0][1], flush=True)
        await finish.wait()
        print("interrupted", flush=True)
        print((await running).result, flush=True)

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as a worker does
    runner.run(main())
"""


@asynccontextmanager
async def worker_process(mark: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a worker in a session of its own, with ``mark`` in the environment of all that it starts."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "MARK": mark}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, *arguments, stdout=PIPE, env=environ, cwd=ROOT, start_new_session=True
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def says(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def test_nothing_is_left_when_the_worker_is_killed(mark: str) -> None:
    async with worker_process(mark, "tree_that_stays", f"mark={mark}", "count=50") as process:
        assert await says(process) == "grown"
        started = _with("environ", f"MARK={mark}")
        assert len(started) >= 53  # with the worker, its template, its child

        process.kill()
        for pid in started:
            await ends(pid)

    assert _with("environ", f"MARK={mark}") == []


async def test_ctrl_c_is_for_the_worker_not_for_its_children(mark: str, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    async with worker_process(mark, "burn", f"path={enough}") as process:
        assert await says(process) == "burning"

        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert await says(process) == "interrupted"
        enough.touch()

        assert int(await says(process)) > 0


async def test_a_killed_template_is_told_and_replaced(mark: str) -> None:
    async with worker_with() as worker:
        heard = Heard()
        running = asyncio.create_task(worker.run("tree_that_stays", heard, mark=mark, count=10))
        await heard.until("grown")
        forks = worker.children._forks
        assert forks is not None

        os.kill(forks._process.pid, signal.SIGKILL)

        error = failure(await running).error
        assert error.type == "crashed"
        assert error.message == "the process it was forked from was killed by SIGKILL"
        assert sleepers(mark) == []
        assert await worker.run("add.process", a=1) == Succeeded(2)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError"),
        ("import os; os._exit(4)", "exited with status 4 while it imported"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL while it imported"),
    ],
)
async def test_modules_that_cannot_be_imported_are_told_and_tried_again(tmp_path: Path, source: str, said: str) -> None:
    module = tmp_path / "broken_zoo.py"
    module.write_text(source)
    async with worker_with((str(module),)) as worker:
        errors = await asyncio.gather(*(worker.run("add.process", a=1) for _ in range(3)))

        assert all(said in failure(each).error.message for each in errors)

        module.write_text(f"from {ZOO} import *; add = globals()['add.process']")
        assert await worker.run("add.process", a=1) == Succeeded(2)


async def test_a_task_that_its_modules_do_not_have_is_told(tmp_path: Path) -> None:
    module = tmp_path / "small_zoo.py"
    module.write_text(f"from {ZOO} import pid")
    async with worker_with((str(module),)) as worker:
        error = failure(await worker.run("add.process", a=1)).error

    assert error.type == "mainspring.domain.errors.UnknownTask"
    assert "use one of pid" in error.message
