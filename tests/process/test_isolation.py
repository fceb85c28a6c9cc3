"""Tasks in threads and child processes: how they end, how they are stopped, what limits them."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from mainspring.domain.settling import Discarded, Snoozed, Succeeded
from mainspring.tasks.context import LastSuccess
from mainspring.worker.attempt import Attempt

from .keeper import (
    ENV,
    MODES,
    PROCESSES,
    REGISTRY,
    SLOT,
    Heard,
    Worker,
    _with,
    cancelled_when,
    children_of,
    claimed,
    failure,
    result,
    worker_with,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
