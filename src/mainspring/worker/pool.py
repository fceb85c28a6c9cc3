"""A worker of one pool: pull, so that saturation is back-pressure.

A claim takes no more than can start now, so nothing is hoarded and nothing lost is more than what was at
work (F122). Outcomes are settled in batches by one task: whatever has ended while the last batch was being
written goes with the next. A drain claims nothing more, waits out its grace, and gives the rest back.

With the database out of reach nothing is claimed, and what is at work goes on: the token decides afterwards.
Outcomes are kept until they are written. A claim whose answer was lost may have left runs in our name that
we do not know of; they are given back as soon as the database answers again.

A cancel is a request: the task is interrupted where it waits, and what it makes of that is its outcome.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mainspring.domain.errors import Unavailable
from mainspring.domain.ids import NodeId, RunId
from mainspring.domain.run import State
from mainspring.domain.settling import Cancelled, GivenBack, Outcome
from mainspring.environment import Environment
from mainspring.service import Stop, first_of, shielded
from mainspring.store.claim import FIRST, ClaimedRun, Place, claim
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.store.recover import recover_unknown
from mainspring.store.runs import cancels_asked
from mainspring.store.settle import Ended, settle
from mainspring.telemetry.events import Claimed, Events, ServiceInterrupted, Settled, Started
from mainspring.worker.runner import Runner
from mainspring.worker.transcript import Transcript

_AGAIN_IN: Final = timedelta(milliseconds=250)
_LARGEST_CLAIM: Final = 1000
_GATHER: Final = timedelta(milliseconds=5)  # for more room than a little: many small claims cost more than they start
_SHORTCUTS: Final = 20  # claims that begin where the last one ended, before one looks from the first again


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    pool: str = "short"
    concurrency: int = 100
    look_every: timedelta = timedelta(milliseconds=25)  # an idle look is one indexed query
    cancel_every: timedelta = timedelta(seconds=1)  # how soon a cancel reaches a task
    grace: timedelta = timedelta(seconds=20)


class WorkerPool:
    """Works for one pool until the stop, then drains."""

    def __init__(
        self,
        config: PoolConfig,
        *,
        db: Database,
        definitions: Definitions,
        env: Environment,
        node: NodeId,
        runner: Runner,
        transcript: Transcript,
        events: Events,
    ) -> None:
        self._config = config
        self._db = db
        self._env = env
        self._node = node
        self._runner = runner
        self._transcript = transcript
        self._events = events
        self._definitions = definitions
        self._working: dict[asyncio.Task[None], ClaimedRun] = {}
        self._of_task: Counter[str] = Counter()  # at work, of tasks that have a limit of their own
        self._cancelled: set[RunId] = set()  # at work, and told to stop
        self._ended: list[Ended] = []
        self._settling: list[Ended] = []
        self._quiet = False
        self._in_doubt = False  # the answer to a claim was lost
        self._after = FIRST  # where the last full claim ended
        self._shortcuts = 0
        self._broken: BaseException | None = None
        self._news = asyncio.Event()  # there is something to settle
        self._look = asyncio.Event()  # there is room again, or settling released a run: look at once

    @property
    def name(self) -> str:
        return f"worker {self._config.pool}"

    @property
    def pool(self) -> str:
        return self._config.pool

    def quiesce(self) -> None:
        """Take nothing more; what is at work goes on."""
        self._quiet = True

    def look(self) -> None:
        """Look for work at once: a hint that some was fired."""
        self._look.set()

    async def run(self, stop: Stop) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                settling = group.create_task(self._settle_until_drained(stop))
                cancelling = group.create_task(self._pass_on_cancels())
                await self._claim(stop)
                await self._drain()
                cancelling.cancel()
                self._news.set()
                await settling
        finally:
            for task in self._working:  # none, unless we are made to stop
                task.cancel()

    async def _claim(self, stop: Stop) -> None:
        loop = asyncio.get_running_loop()
        while not stop.requested:
            self._look.clear()  # before counting: whatever is freed from here on sets it again
            if self._broken is not None:
                raise self._broken
            room = self._room()
            if 0 < room < self._config.concurrency // 4:
                await stop.wait(_GATHER)
                room = self._room()
            try:
                runs = await self._take(room) if room > 0 else []
            except Unavailable as error:
                self._in_doubt = True
                await self._interrupted(error, stop)
                continue
            for run in runs:
                task = loop.create_task(self._work(run))  # not in the group: its bookkeeping costs as much as the task
                self._working[task] = run
                self._of_task[run.job.task] += run.job.task in self._runner.limits
                task.add_done_callback(self._freed)
            if not runs:
                await first_of(stop.wait(self._config.look_every if room > 0 else None), self._look.wait())

    def _room(self) -> int:
        """Return how many more may start. Outcomes not written yet count once they are as many as may be at work."""
        if self._quiet:
            return 0
        unwritten = len(self._ended) + len(self._settling)
        return self._config.concurrency - len(self._working) - max(unwritten - self._config.concurrency, 0)

    def _freed(self, task: asyncio.Task[None]) -> None:
        run = self._working.pop(task)
        self._cancelled.discard(run.id)
        self._of_task[run.job.task] -= run.job.task in self._runner.limits
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error  # of ours, not of a task: those end in an outcome
        self._look.set()

    async def _pass_on_cancels(self) -> None:
        while True:
            await self._env.sleep(self._config.cancel_every.total_seconds())
            asked: set[RunId] = set()
            if self._working:
                with suppress(Unavailable):  # claiming will tell of it
                    asked.update(await cancels_asked(self._db, self._node))
            for task, run in self._working.items():
                if run.id in asked and run.id not in self._cancelled:
                    self._cancelled.add(run.id)
                    task.cancel()

    async def _take(self, room: int) -> list[ClaimedRun]:
        if self._in_doubt:
            known = {run.id for run in self._working.values()} | {item.run.id for item in self._ended + self._settling}
            await recover_unknown(self._db, self._definitions, self._env, self._node, known)
            self._in_doubt = False
        limit = min(room, _LARGEST_CLAIM)
        runs = await self._take_unlimited(limit) if self._runner.unlimited else []
        for task, most in self._runner.limits.items():  # apart, or a claim could take more than may start
            if (left := min(most - self._of_task[task], limit - len(runs))) > 0:
                runs += await self._claim_after(FIRST, left, [task])
        if runs:
            self._events.emit(Claimed(pool=self._config.pool, runs=len(runs)))
        return runs

    async def _take_unlimited(self, limit: int) -> list[ClaimedRun]:
        tasks = self._runner.unlimited
        runs = await self._claim_after(self._after, limit, tasks)
        if len(runs) < limit and self._after != FIRST:
            self._after = FIRST
            runs += await self._claim_after(FIRST, limit - len(runs), tasks)
        elif len(runs) == limit and self._shortcuts < _SHORTCUTS:
            self._after = max(run.place for run in runs)
            self._shortcuts += 1
        else:
            self._after, self._shortcuts = FIRST, 0
        return runs

    async def _claim_after(self, after: Place, limit: int, tasks: Sequence[str]) -> list[ClaimedRun]:
        return await claim(
            self._db,
            self._definitions,
            self._env,
            pool=self._config.pool,
            worker=self._node,
            tasks=tasks,
            limit=limit,
            after=after,
        )

    async def _work(self, run: ClaimedRun) -> None:
        self._events.emit(
            Started(
                run=run.id,
                job=run.job_id,
                task=run.job.task,
                pool=self._config.pool,
                attempt=run.attempt,
                slot=run.slot,
                late=run.started_at - run.slot,
            )
        )
        outcome: Outcome = GivenBack()
        try:
            outcome = await self._runner.run(run, self._transcript.of(run))
        except asyncio.CancelledError:
            if run.id in self._cancelled:
                outcome = Cancelled()
            raise
        finally:
            self._ended.append(Ended(run, outcome))
            self._news.set()

    async def _drain(self) -> None:
        """Let what is at work finish within the grace; what does not is given back, at no cost to its budget."""
        if self._working:
            await asyncio.wait(self._working, timeout=self._config.grace.total_seconds())
        for task in list(self._working):
            task.cancel()
        while self._working:
            await asyncio.wait(self._working)

    async def _settle_until_drained(self, stop: Stop) -> None:
        while not (stop.requested and not self._working and not self._ended):
            await self._news.wait()
            self._news.clear()
            while self._ended:
                self._settling, self._ended = self._ended[:1000], self._ended[1000:]
                try:
                    await shielded(self._settle(self._settling))
                except Unavailable as error:  # settling again is safe: what was written matches no row
                    self._ended = self._settling + self._ended
                    await self._interrupted(error, stop)
                self._settling = []
                self._look.set()

    async def _interrupted(self, error: Unavailable, stop: Stop) -> None:
        """Wait a little; not in ``run_all``, which would have to stop the runs at work to start us again."""
        self._events.emit(ServiceInterrupted(service=self.name, error=str(error), again_in=_AGAIN_IN))
        if stop.requested:
            await self._env.sleep(_AGAIN_IN.total_seconds())
        else:
            await stop.wait(_AGAIN_IN)

    async def _settle(self, batch: list[Ended]) -> None:
        report = await settle(self._db, self._env, batch)
        if report.released:
            self._look.set()
        states = [plan.state for plan in report.settled.values()]
        self._events.emit(
            Settled(
                succeeded=states.count(State.SUCCEEDED) + report.completed,
                failed=states.count(State.WAITING),
                dead=states.count(State.DEAD),
                cancelled=states.count(State.CANCELLED),
                late=len(report.late),
            )
        )
