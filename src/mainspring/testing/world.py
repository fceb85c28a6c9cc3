"""A world in memory, for the tests of whoever writes tasks: no database, no waiting, the clock moved by hand.

Slots, retries, snoozes and dead letters are decided by the same pure functions as in production. A task takes no time
here, so runs never overlap. ::

    async def test_the_digest_goes_out_on_weekdays() -> None:
        world = World([digest], start="2026-11-13T00:00:00Z")  # a Friday

        await world.advance(days=4)

        assert [run.slot.strftime("%a %H:%M") for run in world.runs] == ["Fri 08:00", "Mon 08:00"]
"""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Generic, ParamSpec, TypeVar

from mainspring.domain.errors import InvalidRequest, RunFailed
from mainspring.domain.ids import JobId, Kind, RunId, run_id, slot_text
from mainspring.domain.job import Json
from mainspring.domain.run import FINAL, DeadReason, State
from mainspring.domain.settling import Discarded, Outcome, RunningRun, Succeeded, plan_settle
from mainspring.tasks.arguments import read_value, written
from mainspring.tasks.context import Context
from mainspring.tasks.loading import Registry
from mainspring.tasks.task import Call, Task
from mainspring.tasks.timing import instant_of
from mainspring.testing.clock import START, ManualEnvironment
from mainspring.worker.outcomes import outcome_of

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(slots=True, kw_only=True)
class WorldRun(Generic[R_co]):
    """A run in a :class:`World`: what became of it so far."""

    id: RunId
    task: Task[..., R_co]
    kind: Kind
    slot: datetime
    payload: Json
    state: State = State.QUEUED
    attempt: int = 0
    failures: int = 0
    reason: DeadReason | None = None
    outcomes: list[Outcome] = field(default_factory=list)  # of every attempt
    progress: float | None = None

    async def result(self, timeout: float | None = None) -> R_co:  # noqa: ASYNC109 - the client's signature
        """Return what the task returned; time has to be advanced for it, if it is to run later.

        Raises:
            RunFailed: the run is dead, or has not run yet.
        """
        del timeout
        if self.state is not State.SUCCEEDED:
            raise RunFailed(f"run of {self.task.name} is {self.state}{f', {self.reason}' if self.reason else ''}")
        last = self.outcomes[-1]
        assert isinstance(last, Succeeded)
        value: R_co = read_value(last.result, self.task.returns)
        return value


class World:
    """Tasks, their schedules and a clock, in memory.

    >>> import asyncio
    >>> from mainspring import cron, task
    >>> from mainspring.testing import World
    >>> @task(schedule=cron("0 9 * * *"))
    ... async def digest() -> str:
    ...     return "sent"
    >>> world = World([digest], start="2026-11-16T00:00:00Z")
    >>> asyncio.run(world.advance(days=3))
    >>> [run.slot.day for run in world.runs]
    [16, 17, 18]
    """

    def __init__(self, tasks: Iterable[Task[..., Any]], *, start: datetime | str = START) -> None:
        self.runs: list[WorldRun[Any]] = []  # in the order in which they became due
        self.resources: dict[str, Any] = {}  # what ctx["name"] gives
        self._env = ManualEnvironment()
        self._now = instant_of(start, field="start")
        self._due: list[tuple[datetime, int, WorldRun[Any] | Task[..., Any]]] = []
        self._order = count()
        self._jobs: dict[str, JobId] = {}
        for task in Registry(tasks):
            self._plan(task)

    @property
    def now(self) -> datetime:
        return self._now

    @property
    def dead_letters(self) -> list[WorldRun[Any]]:
        """The runs that came to nothing."""
        return [run for run in self.runs if run.state is State.DEAD]

    async def advance(self, by: timedelta | None = None, **length: float) -> None:
        """Let time pass: by a timedelta, or ``days=3``. Whatever comes due runs, in order, at its instant."""
        until = self._now + (by or timedelta(**length))
        while self._due and self._due[0][0] <= until:
            self._now, _, what = heapq.heappop(self._due)
            if isinstance(what, Task):
                self._fire(what, self._now)
            else:
                await self._attempt(what)
        self._now = until

    async def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> WorldRun[R]:
        """Run a task now, or when its delay is over; by the same name as the client's."""
        call: Call[R] = task.call(*args, **kwargs)
        at = call.options.due_at or self._now + (call.options.delay or timedelta(0))
        key = call.options.key
        kept = None if key is None else next((run for run in self.runs if run.id == self._id(task, key)), None)
        if kept is not None:
            return kept
        made = self._run(task, Kind.MANUAL, key or self._env.new_id().hex, at, call.payload or None)
        await self.advance(timedelta(0))
        return made

    def _plan(self, task: Task[..., Any]) -> None:
        slot = task.job().schedule.next_after(self._now)
        if slot is not None:
            heapq.heappush(self._due, (slot, next(self._order), task))

    def _fire(self, task: Task[..., Any], slot: datetime) -> None:
        self._run(task, Kind.SCHEDULE, slot_text(slot), slot, None)
        self._plan(task)

    def _run(self, task: Task[..., Any], kind: Kind, key: str, at: datetime, payload: Json) -> WorldRun[Any]:
        made: WorldRun[Any] = WorldRun(id=self._id(task, key, kind), task=task, kind=kind, slot=at, payload=payload)
        self.runs.append(made)
        heapq.heappush(self._due, (at, next(self._order), made))
        return made

    def _id(self, task: Task[..., Any], key: str, kind: Kind = Kind.MANUAL) -> RunId:
        job = self._jobs.setdefault(task.name, JobId(self._env.new_id()))
        return run_id(job, kind, key, at=START)

    async def _attempt(self, run: WorldRun[Any]) -> None:
        run.attempt += 1
        run.state = State.RUNNING
        outcome = await self._called(run)
        job = run.task.job()
        held = RunningRun(
            id=str(run.id),
            attempt=run.attempt,
            failures=run.failures,
            first_due=run.slot,
            deadline=None if job.deadline is None else run.slot + job.deadline,
            retry=job.retry,
            on_loss=job.on_loss,
            cancel_requested=False,
        )
        settled = plan_settle(held, outcome, now=self._now)
        run.outcomes.append(outcome)
        run.state, run.reason, run.failures = settled.state, settled.reason, settled.failures
        if settled.state not in FINAL:
            heapq.heappush(self._due, (settled.next_at or self._now, next(self._order), run))

    async def _called(self, run: WorldRun[Any]) -> Outcome:
        arguments = run.task.arguments
        try:
            given = arguments.read(run.payload)
        except InvalidRequest as error:
            return Discarded(str(error))
        if arguments.context_name is not None:
            given[arguments.context_name] = self._context(run)
        try:
            result = run.task.function(**given)
            if inspect.isawaitable(result):
                result = await result
            written(result)
        except Exception as error:  # noqa: BLE001 - whatever the task raises is an outcome
            return outcome_of(error)
        return Succeeded(result)

    def _context(self, run: WorldRun[Any]) -> Context:
        return Context(
            run_id=run.id,
            job_id=self._jobs[run.task.name],
            job=run.task.name,
            slot=run.slot,
            attempt=run.attempt,
            payload=run.payload,
            kind=run.kind,
            fence=f"1.{run.attempt}",
            schedule=run.task.job().schedule,
            resources=self.resources,
            tell=_Tell(run),
        )


class _Tell:
    """Where a task in a world speaks."""

    def __init__(self, run: WorldRun[Any]) -> None:
        self._run = run

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        """Drop it: prints and log records go where the test runner wants them."""

    def progress(self, done: float, note: str) -> None:
        del note
        self._run.progress = done
