"""One lifecycle for every loop: start, run again when something is out of reach, stop politely, then at once.

``run_all`` is a TaskGroup with manners. Of all errors it answers one, ``Unavailable``, by running the
service again after a pause; so a service is written without a try. Any other error is a bug or a refusal:
it cancels the rest and comes out as it went in, traceback and cause intact.

``Stop`` asks, cancellation insists. A service looks at ``stop.requested`` between two units of work and
sleeps in ``stop.wait``; one that has not returned when its grace is over is cancelled. What records an
outcome goes through ``shielded``, and is written even then.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from mainspring.domain.errors import BrokenInvariant, Unavailable
from mainspring.environment import Environment
from mainspring.telemetry.events import Events, ServiceFailed, ServiceInterrupted, ServiceStarted, ServiceStopped

GRACE: Final = timedelta(seconds=30)

_T = TypeVar("_T")


class ServiceEnded(BrokenInvariant):
    """A service returned though nobody had asked it to stop."""

    code = "service_ended"

    def __init__(self, service: str) -> None:
        super().__init__(f"{service} returned before it was asked to stop")
        self.service = service


class Stop:
    """The polite request to end, for all services of a process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._asked = asyncio.Event()

    @property
    def requested(self) -> bool:
        return self._asked.is_set()

    def request(self) -> None:
        self._asked.set()

    async def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ASYNC109 - in the environment's time
        """Sleep for ``timeout``, or less if the stop is requested; return whether it is."""
        if timeout is None:
            await self._asked.wait()
        elif not self.requested:
            await first_of(self._asked.wait(), self._environment.sleep(timeout.total_seconds()))
        return self.requested


class Service(Protocol):
    """A loop in a role. It goes by the name of its class, or by its ``name`` if it has one."""

    async def run(self, stop: Stop) -> None:
        """Work until the stop is requested; then finish what is in hand and return.

        Raises:
            Unavailable: run me again later. Whatever was held in memory may be out of date by then.
        """


@dataclass(frozen=True, slots=True)
class Finite:
    """A service that may return by itself; the others go on without it."""

    service: Service

    @property
    def name(self) -> str:
        return name_of(self.service)

    async def run(self, stop: Stop) -> None:
        await self.service.run(stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long an interrupted service pauses: twice as long each time, up to a limit, less up to half by chance."""

    first: timedelta = timedelta(milliseconds=100)
    longest: timedelta = timedelta(seconds=5)  # also how late we notice that the database is back
    forget_after: timedelta = timedelta(seconds=30)  # having run this long, the next interruption is a first one

    def pause(self, interruptions: int, chance: float) -> timedelta:
        doubled = self.first * (1 << min(interruptions, 16))
        return min(doubled, self.longest) * (1 - chance / 2)


async def run_all(
    stop: Stop,
    *services: Service,
    environment: Environment,
    events: Events,
    backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    grace: timedelta = GRACE,
) -> None:
    """Run the services side by side until they have stopped.

    Returns after a requested stop, or when all were ``Finite`` and are through. A single failure is raised
    as it is; several at once as a group.

    Raises:
        ServiceEnded: one returned before its time.
    """
    supervisor = _Supervisor(stop=stop, environment=environment, events=events, backoff=backoff)
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(supervisor.keep(service), name=name_of(service)) for service in services]
            insist = group.create_task(_cancel_after(grace, stop, environment, running))
            for task in running:
                await asyncio.wait([task])
            insist.cancel()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        failure = failures.exceptions[0]
    else:
        return
    raise failure  # out here, where nothing is added to its cause and context


def run(main: Coroutine[object, object, _T]) -> _T:
    """Run a process's main coroutine to its end, on uvloop where there is one.

    The collector of cycles looks less often: there are a hundred thousand definitions in memory, none of them part of
    a cycle, and going through them for every few thousand runs took a third of the time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional: some platforms have none
    except ImportError:
        return None
    return uvloop.new_event_loop


async def first_of(*waits: Coroutine[object, object, object]) -> None:
    """Wait for whichever ends first, and cancel the rest.

    For conditions that stay true (a stop, a hint, the end of a sleep), not for taking from a queue: what a
    cancelled one had in hand is lost.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()


async def shielded(work: Awaitable[_T]) -> _T:
    """Wait for ``work`` to complete, even when cancelled meanwhile; the cancellation follows afterwards.

    It carries an error of the work as its cause: a task that is being cancelled must not look as if it
    could go on.
    """
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])  # unlike a plain await, passes no cancellation on
        except asyncio.CancelledError as error:
            cancellation = error
    failure = None if task.cancelled() else task.exception()
    if cancellation is not None and (failure is None or isinstance(failure, Exception)):
        raise cancellation from failure
    return task.result()


@contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """Let TERM and INT request the stop, and a second one cancel the current task.

    A third finds the system's own handling again, so that a write which hangs can always be interrupted.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def restore() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def ask_then_insist() -> None:
        if not stop.requested:
            stop.request()
            return
        restore()
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_then_insist)
    try:
        yield
    finally:
        restore()


def name_of(service: Service) -> str:
    return str(getattr(service, "name", type(service).__name__))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supervisor:
    stop: Stop
    environment: Environment
    events: Events
    backoff: Backoff

    async def keep(self, service: Service) -> None:
        """Run a service to its end, and tell how it ended."""
        name = name_of(service)
        self.events.emit(ServiceStarted(service=name))
        try:
            await self._run_through(service, name)
        except asyncio.CancelledError:
            self.events.emit(ServiceStopped(service=name, forced=True))
            raise
        except Exception as error:
            self.events.emit(ServiceFailed(service=name, error=_described(error)))
            raise
        self.events.emit(ServiceStopped(service=name, forced=_being_cancelled()))

    async def _run_through(self, service: Service, name: str) -> None:
        interruptions = 0
        while True:
            began = self.environment.monotonic()
            interruption = await self._run_once(service, name)
            if interruption is None:
                return
            if self.environment.monotonic() - began >= self.backoff.forget_after.total_seconds():
                interruptions = 0
            pause = None if self._ending() else self.backoff.pause(interruptions, self.environment.random())
            self.events.emit(ServiceInterrupted(service=name, error=_described(interruption), again_in=pause))
            if pause is None or await self.stop.wait(pause):
                return
            interruptions += 1

    async def _run_once(self, service: Service, name: str) -> Unavailable | None:
        try:
            await service.run(self.stop)
        except (Unavailable, ExceptionGroup) as error:
            interruption = _only_unavailable(error)
            if interruption is None:
                raise
            return interruption
        if not isinstance(service, Finite) and not self._ending():
            raise ServiceEnded(name)
        return None

    def _ending(self) -> bool:
        # A clean-up that fails, or a service that swallows its cancellation, must not look like a service to restart.
        return self.stop.requested or _being_cancelled()


async def _cancel_after(
    grace: timedelta, stop: Stop, environment: Environment, running: list[asyncio.Task[None]]
) -> None:
    await stop.wait()
    await environment.sleep(grace.total_seconds())
    for task in running:
        task.cancel()


def _only_unavailable(error: Exception) -> Unavailable | None:
    """Return the reason if unavailability is all that happened, here or in the tasks of a group."""
    if isinstance(error, ExceptionGroup):
        reasons = [_only_unavailable(inner) for inner in error.exceptions]
        return None if None in reasons else reasons[0]
    return error if isinstance(error, Unavailable) else None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
