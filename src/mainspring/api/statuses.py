"""Reads that are asked for while another is on its way go together in the next.

A statement of its own for each would cost more than all the rest of a request. Together they share it, and nobody waits
for longer than one read takes, or two milliseconds where there are many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from mainspring.api.patience import within
from mainspring.domain.errors import StoreUnavailable

_V = TypeVar("_V")
_Tell: TypeAlias = Callable[[Mapping[str, _V]], None]
_FEW: Final = 2  # asked for at once: these need not wait for company
_APART: Final = 0.002  # seconds, from the beginning of one read of many to the next
_READ_WITHIN: Final = 10.0  # one that hangs must not hold up all that come after it


class Gathering(Generic[_V]):
    """Looks things up by a text, many at a time. Keeps nothing: every answer was read after it was asked for.

    Whoever reads tells what it has found before it says COMMIT: those who asked are answered by then, and the next read
    has begun.
    """

    def __init__(self, read: Callable[[Collection[str], _Tell[_V]], Coroutine[Any, Any, None]]) -> None:
        self._read = read
        self._asked: dict[str, list[asyncio.Future[_V | None]]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._busy = False
        self._not_before = 0.0

    async def get(self, text: str) -> _V | None:
        """Return what is there under this text, or None."""
        answer: asyncio.Future[_V | None] = self._loop.create_future()
        self._asked.setdefault(text, []).append(answer)
        if not self._busy:
            self._next()
        return await answer

    def _next(self) -> None:
        """Read what is asked for, or soon, if much was a moment ago."""
        early = self._not_before - self._loop.time()
        self._busy = bool(self._asked)
        if self._busy and early > 0:
            self._loop.call_later(early, self._begin)
        elif self._busy:
            self._begin()

    def _begin(self) -> None:
        asked, self._asked = self._asked, {}
        if len(asked) > _FEW:
            self._not_before = self._loop.time() + _APART
        reading = asyncio.create_task(self._go(asked))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _go(self, asked: dict[str, list[asyncio.Future[_V | None]]]) -> None:
        told = False

        def tell(found: Mapping[str, _V]) -> None:
            nonlocal told
            told = True
            for text, waiting in asked.items():
                for answer in waiting:
                    if not answer.done():
                        answer.set_result(found.get(text))
            self._next()

        error: BaseException = StoreUnavailable("nothing was read")
        try:
            await within(_READ_WITHIN, self._read(asked.keys(), tell))
        except TimeoutError:
            error = StoreUnavailable("the database did not answer in time")
        except BaseException as failed:  # noqa: BLE001 - it is theirs who asked
            error = failed
        if not told:
            for waiting in asked.values():
                for answer in waiting:
                    if not answer.done():
                        answer.set_exception(error)
            self._next()
