"""What is asked for while something like it is being done is done together, next.

A statement or a durable commit for each would cost more than all the rest of a request. Together they share one, and
nobody waits for longer than one takes, or for as long as they are kept apart where there are many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

from mainspring.api.patience import within
from mainspring.domain.errors import MainspringError, StoreUnavailable

_A = TypeVar("_A")
_V = TypeVar("_V")
_FEW: Final = 2  # asked for at once: these need not wait for company
_WITHIN: Final = 10.0  # one that hangs must not hold up all that come after it; no transaction lives that long


class Together(Generic[_A, _V]):
    """Does things for tenants, many at a time, and for each of them one time after the other.

    Keeps nothing: all is done after it was asked for. An answer that is an error is raised where it was asked for, and
    nowhere else.
    """

    def __init__(
        self, do: Callable[[str, Sequence[_A]], Coroutine[Any, Any, Sequence[_V | MainspringError]]], *, apart: float
    ) -> None:
        self._do = do
        self._apart = apart  # seconds, from the beginning of one time with many to the next
        self._asked: dict[str, list[tuple[_A, asyncio.Future[_V]]]] = {}
        self._doing: dict[str, asyncio.Task[None]] = {}

    async def ask(self, tenant: str, asked: _A) -> _V:
        """Return the answer to one."""
        answer: asyncio.Future[_V] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(tenant, []).append((asked, answer))
        if tenant not in self._doing:
            self._doing[tenant] = asyncio.create_task(self._go_on(tenant))
        return await answer

    async def _go_on(self, tenant: str) -> None:
        loop = asyncio.get_running_loop()
        while waiting := self._asked.pop(tenant, None):
            began = loop.time()
            await self._answer(tenant, waiting)
            if len(waiting) > _FEW:
                await asyncio.sleep(began + self._apart - loop.time())  # of those meanwhile there will be many, too
        del self._doing[tenant]

    async def _answer(self, tenant: str, waiting: Sequence[tuple[_A, asyncio.Future[_V]]]) -> None:
        said: Sequence[_V | BaseException]
        try:
            said = await within(_WITHIN, self._do(tenant, [asked for asked, _ in waiting]))
        except TimeoutError:
            late = "the database did not answer in time; try again, with the same key if there was one"
            said = [StoreUnavailable(late)] * len(waiting)
        except BaseException as error:  # noqa: BLE001 - it is theirs who asked
            said = [error] * len(waiting)
        for (_, answer), one in zip(waiting, said, strict=True):
            if answer.done():  # whoever asked has left
                continue
            if isinstance(one, BaseException):
                answer.set_exception(one)
            else:
                answer.set_result(one)
