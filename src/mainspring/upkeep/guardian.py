"""Guardian: on every scheduler node, whoever owns what. It alone is enough for I1; engines only make it prompt."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from mainspring.domain.asking import Change
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.firing import FireReport
from mainspring.domain.ids import NodeId
from mainspring.domain.job import JobState
from mainspring.domain.selection import DueNow, Selection
from mainspring.environment import Environment
from mainspring.service import Stop
from mainspring.store import nodes
from mainspring.store.changes import change_job, jobs_to_resume
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.store.recover import jobs_done, recover_expired, recover_lost, recover_stranded
from mainspring.telemetry.events import Events, NodeDeclaredDead, Recovered

Fire: TypeAlias = Callable[[Selection], Awaitable[FireReport]]

_RESUME: Final = Change(state=JobState.ACTIVE, only_from=JobState.PAUSED, reason="its pause is over")
_DELETE: Final = Change(state=JobState.DELETED, only_from=JobState.FINISHED, reason="its last run is final")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    every: timedelta = timedelta(milliseconds=500)
    overdue: timedelta = timedelta(seconds=1)  # later than this an engine has failed its job; together well under 2 s
    batch: int = 500
    tidy_every: timedelta = timedelta(seconds=5)  # for what only an edit at the wrong moment can leave behind


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
        tidied_at = -math.inf
        while not stop.requested:
            report = await self._fire(DueNow(limit=self._watch.batch, overdue=self._watch.overdue))
            self._tell("overdue", report.runs)
            for dead in await nodes.declare_dead(self._db, self._node):
                self._events.emit(NodeDeclaredDead(node=dead, by=self._node))
            lost = await recover_lost(self._db, self._definitions, self._env)
            self._tell("lost", len(lost.settled))
            self._tell("expired", await recover_expired(self._db, self._env))
            self._tell("done", await self._delete_done())
            self._tell("resumed", await self._resume())
            if self._env.monotonic() >= tidied_at + self._watch.tidy_every.total_seconds():
                self._tell("stranded", await recover_stranded(self._db))
                tidied_at = self._env.monotonic()
            if report.locked < self._watch.batch:
                await stop.wait(self._watch.every)

    async def _delete_done(self) -> int:
        done = await jobs_done(self._db)
        for job in done:
            with suppress(NotFound, Conflict):  # another guardian was quicker, or somebody gave it new slots
                await change_job(self._db, self._env, job, _DELETE)
        return len(done)

    async def _resume(self) -> int:
        waiting = await jobs_to_resume(self._db)
        for job in waiting:
            with suppress(NotFound, Conflict):  # another guardian was quicker, or somebody changed his mind
                await change_job(self._db, self._env, job, _RESUME)
        return len(waiting)

    def _tell(self, kind: str, count: int) -> None:
        if count:
            self._events.emit(Recovered(kind=kind, count=count))
