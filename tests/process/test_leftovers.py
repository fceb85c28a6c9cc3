"""What a task writes is heard, and nothing that it started is left, whoever dies."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainspring.domain.settling import Failed, Succeeded

from .keeper import (
    PATIENCE,
    ROOT,
    ZOO,
    Heard,
    Worker,
    _with,
    descriptors,
    ends,
    failure,
    resident,
    result,
    sleepers,
    worker_with,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
