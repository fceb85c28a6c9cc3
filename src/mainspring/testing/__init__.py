"""Doubles and observers that ship with Mainspring: for our tests, and for those of its users.

What is here needs no database. The contract suite for engines, which does, is in :mod:`mainspring.testing.engines`,
the invariant check in :mod:`mainspring.testing.invariants`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.telemetry.events import AnyEvent, Fired
from mainspring.testing.clock import Crashed, CrashPoints, Hold, ManualClock, ManualEnvironment

if TYPE_CHECKING:
    from mainspring.testing.engines import exercise_engine
    from mainspring.testing.world import World

__all__ = ["CrashPoints", "Crashed", "Hold", "ManualClock", "ManualEnvironment", "Recorder", "World", "exercise_engine"]

_E = TypeVar("_E", bound=AnyEvent)


def __getattr__(name: str) -> Any:
    """Find these when they are asked for: they bring the store and its driver along."""
    if name == "World":
        from mainspring.testing import world  # noqa: PLC0415

        return world.World
    if name == "exercise_engine":
        from mainspring.testing import engines  # noqa: PLC0415

        return engines.exercise_engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Recorder:
    """A subscriber that keeps every event, and lets a test wait for what it wants to have seen.

    ::

        events = Events(recorder := Recorder())
        ...
        await recorder.until(lambda seen: seen.fired == 1_000)
    """

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: AnyEvent) -> None:
        self.events.append(event)
        self._news.set()

    def of(self, kind: type[_E]) -> list[_E]:
        """Return the events of one kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def fired(self) -> int:
        """How many slots became runs."""
        return sum(event.runs for event in self.of(Fired))

    async def until(self, predicate: Callable[[Recorder], bool], timeout: float = 10) -> None:  # noqa: ASYNC109 - real seconds
        """Wait until what was seen so far satisfies ``predicate``.

        Raises:
            AssertionError: not within ``timeout`` real seconds; the message lists what was seen.
        """
        try:
            async with asyncio.timeout(timeout):
                while not predicate(self):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"not seen within {timeout:g} s, but:\n{self._listed()}") from None

    def _listed(self) -> str:
        return "\n".join(f"  {event}" for event in self.events) or "  nothing at all"
