"""Partitions of the history are made ahead, so that no slot waits for one, and dropped when they are old."""

from __future__ import annotations

from datetime import timedelta

from mainspring.service import Stop
from mainspring.store import history
from mainspring.store.database import Database


class Partitions:
    def __init__(self, db: Database, *, keep_for: timedelta, ahead: int = 7) -> None:
        self._db = db
        self._keep_for = keep_for
        self._ahead = ahead

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            await history.make_partitions(self._db, days=self._ahead)
            await history.drop_partitions(self._db, keep_for=self._keep_for)
            await stop.wait(timedelta(hours=1))
