"""The injected environment, the one moved by hand, and the events that logs and tests share."""

import asyncio
import io
import json
import logging
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mainspring.domain.errors import InvalidRequest
from mainspring.environment import Environment, SystemEnvironment, uuid7
from mainspring.telemetry.events import AnyEvent, Claimed, Events, Fired, JobQuarantined, ServiceInterrupted
from mainspring.telemetry.log import log_to
from mainspring.testing import Crashed, CrashPoints, ManualClock, ManualEnvironment, Recorder

SECOND = timedelta(seconds=1)
AT = datetime(2030, 1, 1, 12, 0, 0, 4000, tzinfo=UTC)


def fired(runs: int) -> Fired:
    return Fired(engine="peers", jobs=runs, runs=runs, skips=0, lag_p50=SECOND / 800, lag_max=90 * SECOND)


# Ids and chance


def test_ids_carry_their_time_and_sort_by_it() -> None:
    early, late = uuid7(AT, (1 << 74) - 1), uuid7(AT + timedelta(milliseconds=1), 0)

    assert early < late
    assert early.version == late.version == 7
    assert early.variant == late.variant == "specified in RFC 4122"
    assert early.int >> 80 == int(AT.timestamp() * 1000)


def test_every_random_bit_reaches_the_id() -> None:
    assert len({uuid7(AT, 0), *(uuid7(AT, 1 << bit) for bit in range(74))}) == 75


@pytest.mark.parametrize("environment", [SystemEnvironment(variables={}), ManualEnvironment()])
def test_every_environment_keeps_the_same_promises(environment: Environment) -> None:
    assert environment.now().tzinfo is UTC
    assert environment.monotonic() <= environment.monotonic()
    assert 0 <= environment.random() < 1
    assert environment.token().version == 4
    assert environment.new_id().version == 7
    assert environment.new_id() != environment.new_id()
    asyncio.run(environment.reach("nowhere"))
    asyncio.run(environment.sleep(0))


def test_a_seed_draws_the_same_again() -> None:
    def drawn(seed: int) -> tuple[float, UUID, UUID]:
        environment = ManualEnvironment(seed=seed)
        return environment.random(), environment.token(), environment.new_id()

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


# Manual time


def test_sleepers_wake_in_order_of_their_instants_and_see_them() -> None:
    async def main() -> list[tuple[str, float]]:
        clock, woken = ManualClock(), list[tuple[str, float]]()

        async def sleeper(name: str, *naps: float) -> None:
            for nap in naps:
                await clock.sleep(nap)
                woken.append((name, clock.monotonic()))

        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper("late", 5))
            group.create_task(sleeper("often", 1, 1, 1))
            group.create_task(sleeper("first of two", 2.5))
            group.create_task(sleeper("second of two", 2.5))
            await clock.advance(4 * SECOND)
            assert clock.now() - ManualClock().now() == 4 * SECOND
            assert clock.next_wake_in == SECOND
            await clock.advance(SECOND)
        return woken

    assert asyncio.run(main()) == [
        ("often", 1.0),
        ("often", 2.0),
        ("first of two", 2.5),
        ("second of two", 2.5),
        ("often", 3.0),
        ("late", 5.0),
    ]


def test_a_sleep_ends_at_its_instant_and_not_a_microsecond_before() -> None:
    async def main() -> None:
        clock = ManualClock()
        asleep = asyncio.create_task(clock.sleep(0.3))

        await clock.advance(timedelta(microseconds=299_999))
        assert not asleep.done()

        await clock.advance(timedelta(microseconds=1))
        assert asleep.done()

    asyncio.run(main())


def test_a_cancelled_sleeper_is_forgotten() -> None:
    async def main() -> None:
        clock = ManualClock()
        asleep = asyncio.create_task(clock.sleep(1))
        await clock.settle()

        asleep.cancel()
        await clock.advance(2 * SECOND)

        assert asleep.cancelled()
        assert clock.next_wake_in is None

    asyncio.run(main())


def test_advancing_waits_for_everything_the_sleeper_sets_in_motion() -> None:
    async def main() -> None:
        clock, queue, seen = ManualClock(), asyncio.Queue[int](), list[int]()

        async def hand_on(left: int) -> None:
            if left:
                await asyncio.create_task(hand_on(left - 1))
            queue.put_nowait(left)

        async def produce() -> None:
            await clock.sleep(1)
            await hand_on(50)

        async def consume() -> None:
            seen.extend([await queue.get() for _ in range(51)])

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
            await clock.advance(SECOND)
            assert seen == list(range(51))

    asyncio.run(main())


def test_a_task_that_never_sleeps_is_found_out() -> None:
    async def main() -> None:
        clock = ManualClock()

        async def spin() -> None:
            while True:
                await clock.sleep(0)

        spinning = asyncio.create_task(spin())
        with pytest.raises(AssertionError, match="never sleep"):
            await clock.advance(SECOND)
        spinning.cancel()

    asyncio.run(main())


def test_the_wall_clock_can_step_without_monotonic_time() -> None:
    clock = ManualClock(AT)

    clock.step(-timedelta(hours=1))

    assert clock.now() == AT - timedelta(hours=1)
    assert clock.monotonic() == 0


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="step"):
        asyncio.run(ManualClock().advance(-SECOND))


# Crash points


def test_a_crash_goes_through_every_handler_the_chosen_number_of_times() -> None:
    async def main() -> None:
        environment = ManualEnvironment()
        environment.crash_at("fire.commit", times=2, after=1)

        async def commit() -> str:
            try:
                await environment.reach("fire.lock")
                await environment.reach("fire.commit")
            except Exception:  # noqa: BLE001 - what production code might do
                return "survived"
            return "committed"

        assert await commit() == "committed"
        for _ in range(2):
            with pytest.raises(Crashed, match=r"fire\.commit"):
                await commit()
        assert await commit() == "committed"
        assert environment.points.reached == ["fire.lock", "fire.commit"] * 4

    asyncio.run(main())


def test_a_hold_keeps_one_node_at_a_point_while_another_passes() -> None:
    async def main() -> None:
        clock = ManualClock()
        slow, quick = ManualEnvironment(clock=clock), ManualEnvironment(clock=clock, seed=1)
        hold = slow.hold("fire.lock")

        held = asyncio.create_task(slow.reach("fire.lock"))
        await hold.reached.wait()
        await quick.reach("fire.lock")
        await clock.advance(60 * SECOND)
        assert not held.done()

        hold.release()
        await held
        await slow.reach("fire.lock")

    asyncio.run(main())


def test_crash_points_work_in_real_time_too() -> None:
    points = CrashPoints()
    points.crash_at("settle.commit")
    environment = SystemEnvironment(variables={}, on_reach=points.reach)

    with pytest.raises(Crashed):
        asyncio.run(environment.reach("settle.commit"))


@pytest.mark.parametrize("value", [":1", "fire.commit:0", "fire.commit:x", "fire.commit:-1"])
def test_a_crash_point_that_cannot_be_read_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match="MAINSPRING_CRASH_AT"):
        SystemEnvironment(variables={"MAINSPRING_CRASH_AT": value, "MAINSPRING_TESTING": "1"})


# Events


def test_subscribers_get_events_in_order_until_they_leave() -> None:
    events, seen = Events(), list[AnyEvent]()
    leave = events.subscribe(seen.append)
    events.emit(fired(1))
    events.emit(fired(2))

    leave()
    events.emit(fired(3))

    assert seen == [fired(1), fired(2)]


def test_a_failing_subscriber_hurts_nobody_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: AnyEvent) -> None:
        raise OSError("disk full")

    seen = list[AnyEvent]()
    events = Events(fail, seen.append)

    with caplog.at_level(logging.ERROR):
        events.emit(fired(1))
        events.emit(fired(2))

    assert seen == [fired(1), fired(2)]
    assert len(caplog.records) == 1
    assert "disk full" in caplog.text


def test_the_recorder_waits_for_what_is_still_to_come() -> None:
    async def main() -> None:
        recorder = Recorder()
        events = Events(recorder)
        events.emit(fired(400))
        half = asyncio.create_task(recorder.until(lambda seen: seen.fired >= 500))
        all_of_it = asyncio.create_task(recorder.until(lambda seen: seen.fired >= 1000))
        await asyncio.sleep(0)

        events.emit(Claimed(pool="default", runs=3))
        events.emit(fired(600))
        await asyncio.gather(half, all_of_it)

        assert recorder.of(Claimed) == [Claimed(pool="default", runs=3)]

    asyncio.run(main())


def test_the_recorder_lists_what_it_saw_instead() -> None:
    async def main() -> None:
        recorder = Recorder()
        recorder(Claimed(pool="default", runs=3))

        with pytest.raises(AssertionError, match=r"Claimed\(pool='default', runs=3\)"):
            await recorder.until(lambda seen: seen.fired > 0, timeout=0)

    asyncio.run(main())


# Lines


def lines(*events: AnyEvent, as_json: bool = False) -> list[str]:
    stream = io.StringIO()
    hub = Events(log_to(stream, now=lambda: AT, as_json=as_json))
    for event in events:
        hub.emit(event)
    return stream.getvalue().splitlines()


def test_an_event_is_one_readable_line() -> None:
    interrupted = ServiceInterrupted(service="Peers", error="Gone: no\nroute", again_in=SECOND / 4)

    assert lines(fired(12), interrupted) == [
        "2030-01-01T12:00:00.004Z fired engine=peers jobs=12 runs=12 skips=0 lag_p50=1.25ms lag_max=1m30s",
        r'2030-01-01T12:00:00.004Z WARNING service interrupted service=Peers error="Gone: no\nroute" again_in=250ms',
    ]


def test_an_error_message_cannot_steer_the_terminal() -> None:
    [line] = lines(JobQuarantined(job=UUID(int=7), error="\x1b[2J\x9b1A\u2028"))

    assert line.isprintable()


def test_an_event_is_one_json_object_by_option() -> None:
    [line] = lines(fired(12), as_json=True)

    assert json.loads(line) == {
        "at": "2030-01-01T12:00:00.004Z",
        "level": "info",
        "event": "fired",
        "engine": "peers",
        "jobs": 12,
        "runs": 12,
        "skips": 0,
        "lag_p50": 0.00125,
        "lag_max": 90.0,
    }
