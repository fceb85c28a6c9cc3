"""One lifecycle for every loop. Time is moved by hand; what is awaited is an event."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta

import pytest

from mainspring.domain.errors import StoreUnavailable, Unavailable
from mainspring.service import Backoff, Finite, Service, ServiceEnded, Stop, first_of, run_all, shielded
from mainspring.telemetry.events import Events, ServiceFailed, ServiceInterrupted, ServiceStarted, ServiceStopped
from mainspring.testing import Crashed, ManualEnvironment, Recorder

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(first=SECOND, longest=10 * SECOND, forget_after=60 * SECOND)


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, timeout=10))  # a lifecycle that is broken tends to hang


class Act:
    """A service given as a function."""

    def __init__(self, run: Callable[[Stop], Awaitable[None]], name: str = "Act") -> None:
        self._run = run
        self.name = name

    async def run(self, stop: Stop) -> None:
        await self._run(stop)


class Idle:
    async def run(self, stop: Stop) -> None:
        await stop.wait()


class Stage:
    """A stop, an environment and a recorder, and run_all with them."""

    def __init__(self) -> None:
        self.environment = ManualEnvironment()
        self.environment.random = lambda: 0.0  # no jitter, unless a test is about it
        self.stop = Stop(self.environment)
        self.recorder = Recorder()
        self.advance = self.environment.advance

    async def run(self, *services: Service, grace: timedelta = 30 * SECOND) -> None:
        events = Events(self.recorder)
        await run_all(self.stop, *services, environment=self.environment, events=events, backoff=BACKOFF, grace=grace)

    def pauses(self) -> list[timedelta | None]:
        return [event.again_in for event in self.recorder.of(ServiceInterrupted)]


def failing(*stints: float) -> Callable[[Stop], Awaitable[None]]:
    """Return a service that is interrupted after each of these many seconds, and then runs well."""
    left = list(stints)

    async def run(stop: Stop) -> None:
        if not left:
            await stop.wait()
        elif not await stop.wait(left.pop(0) * SECOND):
            raise StoreUnavailable("no route to the database")

    return run


# Stop


def test_waiting_ends_with_the_time_or_with_the_stop() -> None:
    async def main() -> None:
        stage = Stage()
        patient = asyncio.create_task(stage.stop.wait())
        brief, long = (asyncio.create_task(stage.stop.wait(n * SECOND)) for n in (1, 60))

        await stage.advance(SECOND)
        assert brief.done()
        assert not brief.result()
        assert not long.done()

        stage.stop.request()
        assert await long
        assert await patient
        assert await stage.stop.wait(60 * SECOND)
        await stage.environment.clock.settle()
        assert stage.environment.clock.next_wake_in is None

    run(main())


def test_a_wait_of_no_time_gives_way_and_returns() -> None:
    async def main() -> None:
        assert not await Stage().stop.wait(-SECOND)

    run(main())


def test_the_first_of_several_waits_raises_what_it_raised() -> None:
    async def fail() -> None:
        raise Unavailable("gone")

    async def main() -> None:
        with pytest.raises(Unavailable):
            await first_of(asyncio.Event().wait(), fail())

    run(main())


# The ordinary life


def test_services_run_until_the_stop_and_say_so() -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.run(Idle(), Act(Idle().run, name="claims default")))
        await stage.recorder.until(lambda seen: len(seen.of(ServiceStarted)) == 2)

        stage.stop.request()
        await running

        assert stage.recorder.of(ServiceStarted) == [
            ServiceStarted(service="Idle"),
            ServiceStarted(service="claims default"),
        ]
        assert {event.service: event.forced for event in stage.recorder.of(ServiceStopped)} == {
            "Idle": False,
            "claims default": False,
        }
        assert stage.environment.clock.next_wake_in is None  # the grace is not slept through

    run(main())


def test_a_service_that_returns_early_is_a_bug() -> None:
    async def main() -> None:
        stage = Stage()

        async def leave(_: Stop) -> None: ...

        with pytest.raises(ServiceEnded, match="Act returned before"):
            await stage.run(Idle(), Act(leave))
        assert ServiceStopped(service="Idle", forced=True) in stage.recorder.events

    run(main())


def test_a_finite_service_may_return_and_the_others_go_on() -> None:
    async def main() -> None:
        stage = Stage()

        async def later(stop: Stop) -> None:
            await stop.wait(5 * SECOND)

        running = asyncio.create_task(stage.run(Idle(), Finite(Act(later))))
        await stage.advance(10 * SECOND)
        assert stage.recorder.of(ServiceStopped) == [ServiceStopped(service="Act", forced=False)]
        assert not running.done()

        stage.stop.request()
        await running

    run(main())


def test_when_all_are_finite_and_through_it_is_over() -> None:
    async def main() -> None:
        stage = Stage()

        async def leave(_: Stop) -> None: ...

        await stage.run(Finite(Act(leave)), Finite(Act(leave)))
        await stage.run()

    run(main())


# Unavailable


def test_an_interrupted_service_runs_again_with_growing_capped_pauses() -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.run(Act(failing(0, 0, 0, 0, 0, 0)), Idle()))

        await stage.advance(60 * SECOND)
        assert stage.pauses() == [1 * SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 10 * SECOND, 10 * SECOND]
        assert stage.recorder.of(ServiceInterrupted)[0].error == "StoreUnavailable: no route to the database"

        stage.stop.request()
        await running

    run(main())


def test_having_run_well_for_a_while_the_pauses_begin_anew() -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.run(Act(failing(0, 0, 59, 60, 0))))

        await stage.advance(300 * SECOND)
        assert stage.pauses() == [1 * SECOND, 2 * SECOND, 4 * SECOND, 1 * SECOND, 2 * SECOND]

        stage.stop.request()
        await running

    run(main())


def test_chance_shortens_a_pause_by_up_to_half() -> None:
    assert BACKOFF.pause(2, 0.0) == 4 * SECOND
    assert BACKOFF.pause(2, 0.5) == 3 * SECOND
    assert BACKOFF.pause(10_000, 0.999999) > 5 * SECOND


def test_a_stop_ends_the_pause() -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.run(Act(failing(0, 0))))
        await stage.recorder.until(lambda seen: bool(seen.of(ServiceInterrupted)))

        stage.stop.request()
        await running

        assert stage.pauses() == [SECOND]

    run(main())


def test_unavailable_while_stopping_is_told_and_not_repeated() -> None:
    async def main() -> None:
        stage = Stage()

        async def drain_in_vain(stop: Stop) -> None:
            await stop.wait()
            raise Unavailable("gone")

        stage.stop.request()
        await stage.run(Act(drain_in_vain))

        assert stage.pauses() == [None]

    run(main())


def test_a_group_of_nothing_but_unavailable_counts_as_one() -> None:
    async def main() -> None:
        stage = Stage()
        groups = [
            ExceptionGroup("tasks", [Unavailable("a"), ExceptionGroup("more", [Unavailable("b")])]),
            ExceptionGroup("tasks", [Unavailable("a"), KeyError("b")]),
        ]

        async def fail(_: Stop) -> None:
            raise groups.pop(0)

        running = asyncio.create_task(stage.run(Act(fail)))
        await stage.advance(10 * SECOND)

        with pytest.raises(ExceptionGroup, match="tasks"):
            await running
        assert [event.error for event in stage.recorder.of(ServiceInterrupted)] == ["Unavailable: a"]

    run(main())


# Loud failure


def test_any_other_error_ends_everything_with_its_traceback_and_cause() -> None:
    async def main() -> None:
        stage = Stage()

        async def broken(stop: Stop) -> None:
            await stop.wait(SECOND)
            raise KeyError("ours") from OSError("the driver's word")

        running = asyncio.create_task(stage.run(Idle(), Act(broken)))
        await stage.advance(SECOND)
        with pytest.raises(KeyError) as caught:
            await running

        assert isinstance(caught.value.__cause__, OSError)
        assert "broken" in {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
        assert stage.recorder.of(ServiceFailed) == [ServiceFailed(service="Act", error="KeyError: 'ours'")]
        assert stage.recorder.of(ServiceStopped) == [ServiceStopped(service="Idle", forced=True)]

    run(main())


def test_a_crash_goes_through_as_it_is() -> None:
    async def main() -> None:
        stage = Stage()
        stage.environment.crash_at("fire.commit")

        async def fire(_: Stop) -> None:
            await stage.environment.reach("fire.commit")

        with pytest.raises(Crashed):
            await stage.run(Idle(), Act(fire))
        assert not stage.recorder.of(ServiceFailed)  # the dead tell nothing

    run(main())


def test_two_failures_at_once_are_both_told() -> None:
    async def main() -> None:
        stage = Stage()

        async def broken(stop: Stop) -> None:
            try:
                await stop.wait()
            finally:
                raise ValueError("in the clean-up")

        async def leave(_: Stop) -> None: ...

        with pytest.raises(ExceptionGroup) as caught:
            await stage.run(Act(broken), Act(leave))
        assert {type(error) for error in caught.value.exceptions} == {ServiceEnded, ValueError}

    run(main())


def test_a_clean_up_out_of_reach_does_not_bring_a_cancelled_service_back() -> None:
    async def main() -> None:
        stage = Stage()

        async def untidy(stop: Stop) -> None:
            try:
                await stop.wait()
            finally:
                raise Unavailable("gone")

        async def broken(stop: Stop) -> None:
            await stop.wait(SECOND)
            raise KeyError

        running = asyncio.create_task(stage.run(Act(untidy, name="Untidy"), Act(broken)))
        await stage.advance(SECOND)
        with pytest.raises(KeyError):
            await running

        assert stage.pauses() == [None]
        assert ServiceStopped(service="Untidy", forced=True) in stage.recorder.events

    run(main())


# Grace


def test_after_the_grace_those_still_running_are_cancelled() -> None:
    async def main() -> None:
        stage = Stage()

        async def stubborn(_: Stop) -> None:
            await asyncio.Event().wait()

        async def slow(stop: Stop) -> None:
            await stop.wait()
            await stage.environment.sleep(20)

        running = asyncio.create_task(
            stage.run(Act(stubborn, name="Stubborn"), Act(slow, name="Slow"), grace=30 * SECOND)
        )
        await stage.advance(SECOND)
        stage.stop.request()

        await stage.advance(29 * SECOND)
        assert stage.recorder.of(ServiceStopped) == [ServiceStopped(service="Slow", forced=False)]
        assert not running.done()

        await stage.advance(SECOND)
        await running
        assert stage.recorder.of(ServiceStopped)[1:] == [ServiceStopped(service="Stubborn", forced=True)]

    run(main())


def test_cancelling_run_all_cancels_the_services_at_once() -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.run(Idle(), Idle()))
        await stage.recorder.until(lambda seen: len(seen.of(ServiceStarted)) == 2)

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert [event.forced for event in stage.recorder.of(ServiceStopped)] == [True, True]

    run(main())


# Shielded


def test_a_shielded_write_completes_and_then_the_cancellation_follows() -> None:
    async def main() -> None:
        environment, written = ManualEnvironment(), list[str]()
        hold = environment.hold("settle.commit")

        async def write() -> None:
            await environment.reach("settle.commit")
            written.append("outcome")

        writing = asyncio.create_task(shielded(write()))
        await hold.reached.wait()
        for _ in range(2):  # insisting does not help
            writing.cancel()
            await environment.clock.settle()
            assert not writing.done()

        hold.release()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert written == ["outcome"]

    run(main())


def test_a_shielded_result_or_error_comes_through() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise Unavailable("gone")

    async def main() -> None:
        assert await shielded(answer()) == 42
        with pytest.raises(Unavailable):
            await shielded(fail())

    run(main())


@pytest.mark.parametrize(("failure", "expected"), [(Unavailable("gone"), asyncio.CancelledError), (Crashed(), Crashed)])
def test_a_cancelled_writer_stays_cancelled_when_its_write_fails(
    failure: BaseException, expected: type[BaseException]
) -> None:
    async def main() -> None:
        environment = ManualEnvironment()
        hold = environment.hold("settle.commit")

        async def write() -> None:
            await environment.reach("settle.commit")
            raise failure

        writing = asyncio.create_task(shielded(write()))
        await hold.reached.wait()
        writing.cancel()
        await environment.clock.settle()
        hold.release()

        with pytest.raises(expected) as caught:
            await writing
        assert failure in (caught.value, caught.value.__cause__)

    run(main())


def test_work_done_in_grace_is_written_though_its_service_is_cancelled() -> None:
    async def main() -> None:
        stage, written = Stage(), list[str]()
        hold = stage.environment.hold("settle.commit")

        async def write() -> None:
            await stage.environment.reach("settle.commit")
            written.append("outcome")

        async def settle(_: Stop) -> None:
            while True:
                await shielded(write())

        running = asyncio.create_task(stage.run(Act(settle), grace=SECOND))
        await hold.reached.wait()
        stage.stop.request()
        await stage.advance(2 * SECOND)
        assert not running.done()

        hold.release()
        await running
        assert written == ["outcome"]

    run(main())
