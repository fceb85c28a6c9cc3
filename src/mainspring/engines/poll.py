"""Poll: the leader alone reads the due index. Leadership is a hint: two leaders would share the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeAlias

from mainspring.domain.errors import LeaseLost
from mainspring.domain.selection import Fence
from mainspring.engines.base import Fire, Look, Rhythm, pause, tell
from mainspring.service import Stop
from mainspring.telemetry.events import Events, LeadershipLost, LeadershipTaken

TakeLease: TypeAlias = Callable[[], Awaitable[Fence | None]]
Trusted: TypeAlias = Callable[[], bool]

_ASK_EVERY: Final = timedelta(seconds=1)  # for a lease that another node has


class Poll:
    """Fires under a fence while it holds the lease, and concedes on any doubt (F04)."""

    def __init__(self, rhythm: Rhythm, fire: Fire, take_lease: TakeLease, trusted: Trusted, events: Events) -> None:
        self._rhythm = rhythm
        self._fire = fire
        self._take_lease = take_lease
        self._trusted = trusted  # our own heartbeat is recent enough, on our own clock
        self._events = events

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            fence = await self._take_lease() if self._trusted() else None
            if fence is None:
                await stop.wait(_ASK_EVERY)
                continue
            self._events.emit(LeadershipTaken(node=fence.node, epoch=fence.epoch))
            reason = await self._lead(fence, stop)
            self._events.emit(LeadershipLost(node=fence.node, epoch=fence.epoch, reason=reason))

    async def _lead(self, fence: Fence, stop: Stop) -> str:
        look = Look(self._rhythm)
        while not stop.requested:
            if not self._trusted():
                return "our heartbeat is late"
            try:
                report = await self._fire(look.selection(fence))
            except LeaseLost as lost:
                return str(lost)
            look.saw(report)
            tell(self._events, "poll", report)
            await stop.wait(pause(report, self._rhythm))
        return "stopping"
