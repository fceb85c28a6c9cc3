"""A node of a test cluster: put together as in production around any engine, and it dies or stops on command.

It dies at a crash point as if killed there: nothing of it writes any more, and nobody says goodbye for it. It stops
as if by SIGSTOP: it neither beats nor looks nor writes until it goes on, and keeps what it has locked. Not shown:
a process that is stopped between two points, such as in the middle of a statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from mainspring.domain.firing import FireReport
from mainspring.domain.ids import NodeId
from mainspring.domain.selection import Named, Selection
from mainspring.engines.base import Fire, Rhythm
from mainspring.engines.peers import Peers
from mainspring.engines.poll import Poll, TakeLease, Trusted
from mainspring.environment import Environment, SystemEnvironment
from mainspring.service import Service, Stop, run_all
from mainspring.store import nodes
from mainspring.store.database import Database, open_database
from mainspring.store.fire import fire
from mainspring.store.jobs import Definitions
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events, NodeRegistered, ServiceStopped
from mainspring.testing import Crashed, CrashPoints, Recorder
from mainspring.upkeep.guardian import Guardian, Watch
from mainspring.upkeep.heartbeat import Heartbeat
from mainspring.worker.pool import PoolConfig, WorkerPool
from mainspring.worker.runner import Runner
from mainspring.worker.transcript import Transcript

LEASE_FOR: Final = timedelta(minutes=1)  # no slow machine lets one run out; a check that wants it to, says so
BEAT_EVERY: Final = timedelta(milliseconds=250)
LEAVES_FIRING: Final = Watch(every=timedelta(milliseconds=50), overdue=timedelta(days=3650))  # recovers, no more
FIRES_TOO: Final = Watch(every=timedelta(milliseconds=50), overdue=timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a node has for the engine that is built into it."""

    fire: Fire  # the only way to write
    rhythm: Rhythm
    take_lease: TakeLease  # of the leader
    trusted: Trusted  # our heartbeat is recent enough, on our own clock
    events: Events  # told of every batch, by engines.base.tell
    env: Environment
    db: Database  # to read from, such as what is due soon
    node: NodeId


BuildEngine: TypeAlias = Callable[[Seat], Service]


def poll(seat: Seat) -> Service:
    return Poll(seat.rhythm, seat.fire, seat.take_lease, seat.trusted, seat.events)


def peers(seat: Seat) -> Service:
    return Peers(seat.rhythm, seat.fire, seat.events)


def idle(_seat: Seat) -> Service:
    """Build no engine: the node only guards, or only works."""
    return _Idle()


BUILT_IN: Final[Mapping[str, BuildEngine]] = {"peers": peers, "poll": poll}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a node is made of."""

    engine: BuildEngine
    watch: Watch | None = LEAVES_FIRING  # None: no guardian
    work: Callable[..., Any] | None = None  # what its workers do; None: no workers
    rhythm: Rhythm = Rhythm()  # noqa: RUF009 - frozen
    clock_off: timedelta = timedelta(0)  # its wall clock is ahead by this much
    hangs: bool = False  # its engine goes to look, and never comes back


class StoppableEnvironment:
    """An environment in real time, for a node that may be stopped, or die at a crash point."""

    def __init__(self, *, clock_off: timedelta = timedelta(0)) -> None:
        self._real = SystemEnvironment(variables={})
        self._clock_off = clock_off
        self._going = asyncio.Event()
        self._going.set()
        self._stops: dict[str, asyncio.Event] = {}
        self.points = CrashPoints()
        self.crashed: Crashed | None = None
        self.sleeps: list[float] = []  # as long as they were asked for
        self.monotonic = self._real.monotonic
        self.random = self._real.random
        self.token = self._real.token
        self.new_id = self._real.new_id
        self.new_ids = self._real.new_ids

    def now(self) -> datetime:
        return self._real.now() + self._clock_off

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await self._real.sleep(seconds)
        await self._going.wait()

    async def reach(self, point: str) -> None:
        if self.crashed is not None:
            raise self.crashed  # what is shielded from cancellation is not shielded from death
        try:
            await self.points.reach(point)
        except Crashed as crashed:
            self.crashed = crashed
            raise
        if point in self._stops:
            self.stop()
            self._stops.pop(point).set()
        await self._going.wait()

    def stop_at(self, point: str) -> asyncio.Event:
        """Stop when the point is reached next, and say so."""
        return self._stops.setdefault(point, asyncio.Event())

    def stop(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()


class Node:
    """One process, as far as the others can tell. It runs within ``async with``, and is asked to stop at the end.

    Raises:
        AssertionError: it did not stop when asked.
        Exception: it ended for this reason, and :meth:`died` was not there to hear it.
    """

    def __init__(self, dsn: str, parts: Parts, *, everyone: Recorder, patience: timedelta) -> None:
        self.env = StoppableEnvironment(clock_off=parts.clock_off)
        self.pulse = StoppableEnvironment()  # the heartbeat's: who wakes up may be slow to hear that he is dead
        self.events = Recorder()
        self.looks = 0  # of its engine, whatever came of them
        self.id: NodeId
        self._dsn, self._parts, self._patience = dsn, parts, patience
        self._events = Events(self.events, everyone)
        self._stop, self._last_beat = Stop(self.env), Stop(self.pulse)
        self._looked = asyncio.Event()
        self._heard = False

    async def __aenter__(self) -> Self:
        self._process = asyncio.create_task(self._run())
        registered = asyncio.ensure_future(self.events.until(lambda seen: bool(seen.of(NodeRegistered)), self._seconds))
        await asyncio.wait([self._process, registered], return_when=asyncio.FIRST_COMPLETED)
        if not self.events.of(NodeRegistered):
            self._process.cancel()
            await self._process  # raises what kept it from registering
        registered.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        self._stop.request()
        self._last_beat.request()
        if error is not None:
            self._process.cancel()
        await asyncio.wait([self._process], timeout=self._seconds)
        reason = self._reason()
        if error is not None:
            error.add_note(f"{self._name} ended by {reason!r}, having passed {self.env.points.reached[-20:]}")
        elif reason is not None and not self._heard:
            raise reason
        elif reason is None:
            forced = [event.service for event in self.events.of(ServiceStopped) if event.forced]
            assert not forced, f"did not stop when asked, and had to be cancelled: {forced}"

    async def died(self) -> BaseException:
        """Wait until the node has ended though nobody asked it to, and return why."""
        await asyncio.wait([self._process], timeout=self._seconds)
        reason = self._reason()
        assert reason is not None, f"it lives on, having passed {sorted(set(self.env.points.reached))}"
        self._heard = True
        return reason

    async def looked(self, times: int = 1) -> None:
        """Wait until its engine has looked for due jobs this many times more."""
        enough = self.looks + times
        try:
            async with asyncio.timeout(self._seconds):
                while self.looks < enough:
                    self._looked.clear()
                    await self._looked.wait()
        except TimeoutError:
            raise AssertionError(f"{self._name} has looked {self.looks} times, and not {enough}") from None

    def stop(self) -> None:
        """Stop as if by SIGSTOP, the heartbeat included."""
        self.env.stop()
        self.pulse.stop()

    def go_on(self) -> None:
        self.env.go_on()
        self.pulse.go_on()

    @property
    def _name(self) -> str:
        return f"a node of {getattr(self._parts.engine, '__name__', 'this engine')}"

    @property
    def _seconds(self) -> float:
        return self._patience.total_seconds()

    def _reason(self) -> BaseException | None:
        if not self._process.done():
            return AssertionError("it never ended, neither asked nor cancelled") if self._stop.requested else None
        error = None if self._process.cancelled() else self._process.exception()
        return self.env.crashed or error

    async def _run(self) -> None:
        async with open_database(self._dsn) as db:
            # Host and pid alike for all: neither is an identity (F05).
            self.id = await nodes.register(db, self.env, role="node", host="host", pid=1, lease_for=LEASE_FOR)
            self._events.emit(NodeRegistered(node=self.id, role="node"))
            services = self._services(db)
            await run_all(self._stop, *services, environment=self.env, events=self._events, grace=self._patience / 2)
            await nodes.retire(db, self.id)

    def _services(self, db: Database) -> list[Service]:
        parts, events, definitions = self._parts, self._events, Definitions()
        heartbeat = Heartbeat(db, self.pulse, self.id, events, every=BEAT_EVERY, lease_for=LEASE_FOR)
        fires = partial(fire, db, definitions, self.env)
        seat = Seat(
            fire=partial(self._look, fires),
            rhythm=parts.rhythm,
            take_lease=partial(nodes.take_lease, db, "leader", self.id),
            trusted=heartbeat.trusted,
            events=events,
            env=self.env,
            db=db,
            node=self.id,
        )
        services: list[Service] = [_Apart(heartbeat, self._last_beat), parts.engine(seat)]
        if parts.watch is not None:
            services.append(
                Guardian(
                    parts.watch,
                    db=db,
                    definitions=definitions,
                    env=self.env,
                    node=self.id,
                    fire=fires,
                    events=events,
                )
            )
        if parts.work is not None:
            registry = Registry()
            registry.add("work", parts.work)
            services.append(
                WorkerPool(
                    PoolConfig(),
                    db=db,
                    definitions=definitions,
                    env=self.env,
                    node=self.id,
                    runner=Runner(registry, env=self.env),
                    transcript=Transcript(db, self.env),
                    events=events,
                )
            )
        return services

    async def _look(self, fires: Fire, selection: Selection) -> FireReport:
        if self._parts.hangs:
            await self._stop.wait()
            selection = Named(jobs=(), fence=selection.fence)
        try:
            return await fires(selection)
        finally:
            self.looks += 1
            self._looked.set()


@dataclass(frozen=True, slots=True)
class _Apart:
    """A service with a stop of its own, so that it can be stopped and go on apart from the others."""

    service: Service
    stop: Stop

    async def run(self, _stop: Stop) -> None:
        await self.service.run(self.stop)


class _Idle:
    async def run(self, stop: Stop) -> None:
        await stop.wait()
