"""Peers: every scheduler node reads the due index, and SKIP LOCKED shares it out."""

from __future__ import annotations

from mainspring.engines.base import Fire, Look, Rhythm, pause, tell
from mainspring.service import Stop
from mainspring.telemetry.events import Events


class Peers:
    """There is nothing to be wrong about: no owner, no leader, any number of nodes."""

    def __init__(self, rhythm: Rhythm, fire: Fire, events: Events) -> None:
        self._rhythm = rhythm
        self._fire = fire
        self._events = events

    async def run(self, stop: Stop) -> None:
        look = Look(self._rhythm)
        while not stop.requested:
            report = await self._fire(look.selection())
            look.saw(report)
            tell(self._events, "peers", report)
            await stop.wait(pause(report, self._rhythm))
