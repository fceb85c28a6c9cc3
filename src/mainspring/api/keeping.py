"""What is read now and then, and asked for by every request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mainspring.environment import Environment

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class _Value(Generic[_V]):
    value: _V
    good_until: float  # as good as new
    fair_until: float


class Kept(Generic[_V]):
    """A value that is read by one, however many ask.

    For a while it is as good as new; for as long again it is given out while the next one is read. So nobody waits for
    it where many ask, and where few do it is not old. What takes long to read is good for longer: reading it takes no
    more than a fiftieth of the time.
    """

    def __init__(self, read: Callable[[], Coroutine[Any, Any, _V]], env: Environment, *, lasts: float) -> None:
        self._read = read
        self._env = env
        self._lasts = lasts
        self._last: _Value[_V] | None = None
        self._reading: asyncio.Task[_V] | None = None

    async def get(self) -> _V:
        """Return the value; the errors are those of reading it."""
        now = self._env.monotonic()
        if (last := self._last) is not None and now < last.good_until:
            return last.value
        reading = self._begun()
        if last is not None and now < last.fair_until:
            return last.value
        return await asyncio.shield(reading)

    async def again(self) -> _V:
        """Return the value as it is now."""
        return await asyncio.shield(self._begun())

    def _begun(self) -> asyncio.Task[_V]:
        if self._reading is None:
            self._reading = asyncio.create_task(self._go())
            self._reading.add_done_callback(self._done)
        return self._reading

    async def _go(self) -> _V:
        asked_at = self._env.monotonic()
        value = await self._read()
        lasts = max(self._lasts, 50 * (self._env.monotonic() - asked_at))
        self._last = _Value(value, good_until=asked_at + lasts, fair_until=asked_at + 2 * lasts)
        return value

    def _done(self, reading: asyncio.Task[_V]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # whoever waited has it; if nobody did, the next one asks again
