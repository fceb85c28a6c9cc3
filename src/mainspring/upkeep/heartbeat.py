"""Heartbeat: how a node says "still alive", and knows when it may no longer be believed.

Concede on doubt: past the last good heartbeat plus the lease, less a margin, on our own monotonic clock,
``trusted`` is false, whatever the database would say. A node declared dead ends its process.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from mainspring.domain.errors import Unavailable
from mainspring.domain.ids import NodeId
from mainspring.environment import Environment
from mainspring.service import Stop
from mainspring.store import nodes
from mainspring.store.database import Database
from mainspring.telemetry.events import Events, ServiceInterrupted

_MARGIN: Final = timedelta(seconds=1)
Grant: TypeAlias = Callable[[nodes.Wish, Stop], None]  # what a node does about a wish of its operator


def stop_only(wish: nodes.Wish, stop: Stop) -> None:
    """Grant the wish to stop; a node that runs no tasks has nothing to quiesce."""
    if wish is nodes.Wish.STOP:
        stop.request()


class Heartbeat:
    def __init__(
        self,
        db: Database,
        env: Environment,
        node: NodeId,
        events: Events,
        *,
        every: timedelta = nodes.HEARTBEAT_EVERY,
        lease_for: timedelta = nodes.LEASE_FOR,
        grant: Grant = stop_only,
    ) -> None:
        self._db = db
        self._env = env
        self._node = node
        self._events = events
        self._every = every
        self._grant = grant
        self._trusted_for = (lease_for - _MARGIN).total_seconds()
        self._trusted_until = env.monotonic() + self._trusted_for

    def trusted(self) -> bool:
        return self._env.monotonic() < self._trusted_until

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            sent = (
                self._env.monotonic()
            )  # before asking: the lease counts from when the database heard us, at the earliest
            try:
                wish = await nodes.heartbeat(self._db, self._node)
            except Unavailable as error:
                # Not left to run_all, whose pause may outlast the grace that the living have after an outage.
                again_in = self._every / 4
                self._events.emit(ServiceInterrupted(service="Heartbeat", error=str(error), again_in=again_in))
                await stop.wait(again_in)
                continue
            self._trusted_until = sent + self._trusted_for
            if wish is not None:
                self._grant(wish, stop)
            await stop.wait(self._every)
