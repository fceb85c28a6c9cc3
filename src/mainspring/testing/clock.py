"""An environment moved by hand: time stands still until told otherwise, chance is drawn from a seed.

Two nodes of one test share a :class:`ManualClock`, and each has a :class:`ManualEnvironment` of its own, so
that one can be crashed or held at a point which the other passes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random  # noqa: TID251 - seeded: the same numbers every time
from typing import Any, Final, cast
from uuid import UUID

from mainspring.environment import uuid7

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_PASSES: Final = 10_000  # of the loop, before we say that it will never settle


class ManualClock:
    """Wall and monotonic time that move only by :meth:`advance`."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed = 0  # microseconds, as everything here: whole numbers add up
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._moving = asyncio.Lock()

    def now(self) -> datetime:
        return self._start + self._elapsed * _MICROSECOND

    def monotonic(self) -> float:
        return self._elapsed / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        until = self._elapsed + max(1, round(seconds * 1_000_000))
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (until, next(self._order), woken))
        await woken

    async def advance(self, by: timedelta) -> None:
        """Move time on, stopping at each instant somebody sleeps until.

        Whoever wakes finds the time it asked for, runs until it blocks again, and if it goes back to sleep
        within ``by`` is woken again. Those of one instant wake together, first come first.
        """
        if by < timedelta(0):
            raise ValueError(f"time does not go back: {by}; step() moves the wall clock alone")
        async with self._moving:
            await self.settle()
            target = self._elapsed + by // _MICROSECOND
            while (instant := self._next_instant()) is not None and instant <= target:
                self._elapsed = instant
                self._wake(instant)
                await self.settle()
            self._elapsed = target

    def step(self, by: timedelta) -> None:
        """Set the wall clock forward or back, as an operator might; monotonic time and sleepers do not notice."""
        self._start += by

    @property
    def next_wake_in(self) -> timedelta | None:
        """How far the nearest sleeper's instant is away; None if nobody sleeps."""
        instant = self._next_instant()
        return None if instant is None else (instant - self._elapsed) * _MICROSECOND

    async def settle(self) -> None:
        """Let the loop run until all tasks wait for time, for one another, or for the outside world.

        Raises:
            AssertionError: it never ends: a task goes round without sleeping.
        """
        # The only way to know that nothing is ready. It holds on asyncio's own loop, which is the one tests use.
        ready = cast("Any", asyncio.get_running_loop())._ready  # noqa: SLF001
        for _ in range(_PASSES):
            await asyncio.sleep(0)
            if not ready:
                return
        raise AssertionError(f"tasks are still busy after {_PASSES} passes of the loop; does one never sleep?")

    def _next_instant(self) -> int | None:
        while self._sleepers and self._sleepers[0][2].done():  # cancelled in its sleep
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self, instant: int) -> None:
        while self._next_instant() == instant:
            heapq.heappop(self._sleepers)[2].set_result(None)


class Crashed(BaseException):  # not an Exception: no handler of ours may survive it
    """The process died here, as far as the test is concerned."""


class Hold:
    """A crash point where whoever arrives waits."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let those who wait go on, and later ones pass."""
        self._released.set()

    async def stay(self) -> None:
        self.reached.set()
        await self._released.wait()


class CrashPoints:
    """What happens at which point. ``SystemEnvironment(on_reach=points.reach)`` has it in real time."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._counts: Counter[str] = Counter()
        self._crashes: dict[str, range] = {}
        self._holds: dict[str, Hold] = {}

    def crash_at(self, point: str, *, times: int = 1, after: int = 0) -> None:
        """Raise :class:`Crashed` the next ``times`` that ``point`` is reached, having let ``after`` pass."""
        first = self._counts[point] + after + 1
        self._crashes[point] = range(first, first + times)

    def hold(self, point: str) -> Hold:
        self._holds[point] = Hold()
        return self._holds[point]

    async def reach(self, point: str) -> None:
        self.reached.append(point)
        self._counts[point] += 1
        crash = self._counts[point] in self._crashes.get(point, ())
        if point in self._holds:
            await self._holds[point].stay()
        if crash:
            raise Crashed(point)


class ManualEnvironment:
    """An :class:`~mainspring.environment.Environment` for tests: manual time, seeded chance, crash points."""

    def __init__(self, *, clock: ManualClock | None = None, seed: int = 0) -> None:
        self.clock = clock or ManualClock()
        self.points = CrashPoints()
        self._random = Random(seed)  # noqa: S311 - predictable is the point
        self.now = self.clock.now
        self.monotonic = self.clock.monotonic
        self.sleep = self.clock.sleep
        self.advance = self.clock.advance
        self.random = self._random.random
        self.reach = self.points.reach
        self.crash_at = self.points.crash_at
        self.hold = self.points.hold

    def token(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def new_id(self) -> UUID:
        return uuid7(self.now(), self._random.getrandbits(74))

    def new_ids(self, number: int) -> list[UUID]:
        return [self.new_id() for _ in range(number)]
