"""Guardian: on every scheduler node, whoever owns what. It alone is enough for I1; engines only make it prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from mainspring.domain.firing import FireReport
from mainspring.domain.ids import NodeId
from mainspring.domain.selection import DueNow, Selection
from mainspring.environment import Environment
from mainspring.service import Stop
from mainspring.store import nodes
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.store.recover import recover_lost, recover_stranded
from mainspring.telemetry.events import Events, NodeDeclaredDead, Recovered

Fire: TypeAlias = Callable[[Selection], Awaitable[FireReport]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    every: timedelta = timedelta(milliseconds=500)
    overdue: timedelta = timedelta(seconds=1)  # later than this an engine has failed its job; together well under 2 s
    batch: int = 500


class Guardian:
    """Fires what is overdue, declares the dead, and sets in motion what they left behind."""

    def __init__(
        self,
        watch: Watch,
        *,
        db: Database,
        definitions: Definitions,
        env: Environment,
        node: NodeId,
        fire: Fire,
        events: Events,
    ) -> None:
        self._watch = watch
        self._db = db
        self._definitions = definitions
        self._env = env
        self._node = node
        self._fire = fire
        self._events = events

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            report = await self._fire(DueNow(limit=self._watch.batch, overdue=self._watch.overdue))
            self._tell("overdue", report.runs)
            for dead in await nodes.declare_dead(self._db, self._node):
                self._events.emit(NodeDeclaredDead(node=dead, by=self._node))
            lost = await recover_lost(self._db, self._definitions, self._env)
            self._tell("lost", len(lost.settled))
            self._tell("stranded", await recover_stranded(self._db))
            if report.locked < self._watch.batch:
                await stop.wait(self._watch.every)

    def _tell(self, kind: str, count: int) -> None:
        if count:
            self._events.emit(Recovered(kind=kind, count=count))
