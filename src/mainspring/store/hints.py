"""Hints that there is work, from one process to another. Each may be lost: whoever waits also looks by himself.

NOTIFY never goes into a transaction that does something: it takes a lock of the whole database at commit. It is sent
afterwards, once for all that was written meanwhile, and only where the connection is direct.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Self

from mainspring.domain.errors import Unavailable
from mainspring.service import Stop, first_of
from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("hints")
CHANNEL: Final = "mainspring_work"
_QUIET: Final = 0.005
_AGAIN: Final = 1.0


class Bell:
    """Tells workers of a pool to look at once; says nothing through a pooler."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pools: set[str] = set()
        self._rung = asyncio.Event()
        self._ringing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if not self._db.pooled:
            self._ringing = asyncio.create_task(self._ring())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ringing is not None:
            self._ringing.cancel()
            with suppress(asyncio.CancelledError):
                await self._ringing

    def ring(self, pool: str) -> None:
        """Say that there is work in a pool; in any, if it has no name."""
        self._pools.add(pool)
        self._rung.set()

    async def _ring(self) -> None:
        while True:
            await self._rung.wait()
            with suppress(Unavailable):
                async with self._db.own_connection() as connection:
                    await connection.execute(_SQL["unflushed"])
                    while True:
                        await self._rung.wait()
                        self._rung.clear()
                        pools, self._pools = self._pools, set()
                        for pool in pools:
                            await connection.execute(_SQL["ring"], pool)
                        await asyncio.sleep(_QUIET)  # whoever was told looks anyway for a while
            await asyncio.sleep(_AGAIN)


class Ear:
    """A service that hears the bell, on a connection of its own, and goes on without when it breaks."""

    def __init__(self, db: Database, heard: Callable[[str], None]) -> None:
        self._db = db
        self._heard = heard

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            with suppress(Unavailable):
                await self._listen(stop)
            await stop.wait(timedelta(seconds=1))

    async def _listen(self, stop: Stop) -> None:
        async with self._db.own_connection() as connection:
            broken = asyncio.Event()
            connection.add_termination_listener(lambda _: broken.set())
            await connection.add_listener(CHANNEL, self._pass_on)
            await first_of(broken.wait(), stop.wait())

    def _pass_on(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        del connection, pid, channel
        self._heard(str(payload))
