"""Reads that are asked for while another is on its way go together in the next.

A transaction of its own for each costs three round trips. At a few thousand requests a second most of that is spent
on saying BEGIN and COMMIT; together they share it, and nobody waits for longer than one read takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

from mainspring.api.patience import within
from mainspring.domain.errors import StoreUnavailable

_V = TypeVar("_V")
_READ_WITHIN: Final = 10.0  # one that hangs must not hold up all that come after it


class Gathering(Generic[_V]):
    """Looks things up by a text, many at a time. Keeps nothing: every answer was read after it was asked for."""

    def __init__(self, read: Callable[[Collection[str]], Coroutine[Any, Any, Mapping[str, _V]]]) -> None:
        self._read = read
        self._asked: dict[str, list[asyncio.Future[_V | None]]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, text: str) -> _V | None:
        """Return what is there under this text, or None."""
        answer: asyncio.Future[_V | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(text, []).append(answer)
        if self._reading is None:
            self._reading = asyncio.create_task(self._go_on())
        return await answer

    async def _go_on(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                found = await within(_READ_WITHIN, self._read(asked.keys()))
            except TimeoutError:
                self._fail(asked, StoreUnavailable("the database did not answer in time"))
            except BaseException as error:  # noqa: BLE001 - it is theirs who asked
                self._fail(asked, error)
            else:
                for text, waiting in asked.items():
                    for answer in waiting:
                        if not answer.done():
                            answer.set_result(found.get(text))
        self._reading = None

    @staticmethod
    def _fail(asked: Mapping[str, list[asyncio.Future[_V | None]]], error: BaseException) -> None:
        for waiting in asked.values():
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
