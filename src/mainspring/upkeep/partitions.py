"""Partitions of the history are made ahead, so that no slot waits for one."""

from __future__ import annotations

from datetime import timedelta

from mainspring.service import Stop
from mainspring.store import history
from mainspring.store.database import Database


class Partitions:
    def __init__(self, db: Database, *, ahead: int = 7, every: timedelta = timedelta(hours=1)) -> None:
        self._db = db
        self._ahead = ahead
        self._every = every

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            await history.make_partitions(self._db, days=self._ahead)
            await stop.wait(self._every)
