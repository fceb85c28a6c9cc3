"""A thread with an event loop, which carries an async client for code that has none.

Closing cancels what other threads wait for, and they are told so by :class:`Closed`: none waits for a loop that has
stopped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from mainspring.domain.errors import Unavailable

_T = TypeVar("_T")


class Closed(Unavailable):
    """The client was closed before the answer came. Done or not, nobody knows: look, then decide."""

    code = "client_closed"


class Loop:
    """A thread that runs coroutines for others, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mainspring-client", daemon=True)
        self._closed = False
        # Held for a moment only, and again by the same thread if it collects garbage just then (see finish).
        self._beginning = threading.RLock()
        self._asked: set[asyncio.Task[Any]] = set()  # what somebody waits for; known to the loop's thread only
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result.

        Raises:
            Closed: the loop was closed, before or meanwhile.
        """
        waiting = self._begin(work)
        try:
            return waiting.result()
        except CancelledError:
            if not self._closed:
                raise
            raise _closed() from None
        except BaseException:
            waiting.cancel()  # Ctrl-C while we wait: the call ends with us
            raise

    def finish(self, items: AsyncIterator[Any]) -> None:
        """Close an iterator that is left half way, and what it holds open with it; after a close there is no need."""
        with suppress(Closed):
            if threading.current_thread() is self._thread:  # collected as garbage here, where waiting would never end
                self._begin(_ended(items))
            else:
                self.wait(_ended(items))

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what is asked for and wait until it has ended, run the ``last`` thing, and stop."""
        with self._beginning:
            ending = self._begin(self._end(last))
            self._closed = True
        try:
            ending.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        with self._beginning:
            if self._closed:
                work.close()
                raise _closed()
            return asyncio.run_coroutine_threadsafe(self._noted(work), self._loop)

    async def _noted(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.current_task()
        assert task is not None
        self._asked.add(task)
        try:
            return await work
        finally:
            self._asked.discard(task)

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        # Nothing begins after us, and what began before has got as far as being noted: a loop keeps the order.
        await self._cancel(self._asked)
        try:
            await last
        finally:
            await self._cancel(asyncio.all_tasks())
            await self._loop.shutdown_asyncgens()

    async def _cancel(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        others = [task for task in tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _closed() -> Closed:
    return Closed("the client was closed before the answer came; what was asked for may have been done")


async def _ended(items: AsyncIterator[Any]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()
