"""Waiting no longer than is good for whoever waits.

A driver whose server has stopped answering waits for it also when it is cancelled: to cancel a statement is one more
question. So the work is asked to end, and left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_LEFT: Final[set[asyncio.Task[Any]]] = set()  # nobody else holds them while they end


async def within(seconds: float, work: Coroutine[Any, Any, _T]) -> _T:
    """Return what the work returns.

    Raises:
        TimeoutError: it did not in time. It is cancelled, and nobody waits until it has noticed.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task,), timeout=seconds)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            _LEFT.add(task)
            task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _LEFT.discard(task)
    if not task.cancelled():
        task.exception()  # whoever wanted to know has been told that it took too long
