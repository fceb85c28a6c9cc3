"""What a run tells its task, and what a task may tell about its run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from mainspring.domain.ids import JobId, Kind, RunId
from mainspring.domain.job import Json
from mainspring.domain.schedule import Schedule


class Output(Protocol):
    """Where the lines and the progress of one attempt go. Called from the worker's own thread only."""

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        """Keep one line, as far as the cap allows. ``stream`` is ``stdout``, ``stderr`` or ``log``."""

    def progress(self, done: float, note: str) -> None:
        """Keep how far the task has come; the latest counts."""


class Completion(Protocol):
    """The right to settle one attempt as succeeded, in a transaction of the task's own."""

    asked: bool  # it was used; whether that was committed the ledger knows

    async def complete(self, connection: Any, result: Json) -> None: ...

    def complete_sync(self, connection: Any, result: Json) -> None: ...


@dataclass(slots=True, kw_only=True)  # not frozen, at a third of the cost: there is one for every attempt
class Context:
    """What a run tells its task.

    A parameter annotated with it is filled in by the worker, and is no argument of the task:

    >>> from mainspring import Context, task
    >>> @task
    ... async def report(ctx: Context, day: str) -> str:
    ...     return f"{day}, attempt {ctx.attempt}"
    """

    run_id: RunId
    job_id: JobId
    job: str
    slot: datetime
    attempt: int
    payload: Json
    kind: Kind = Kind.SCHEDULE
    fence: str = ""  # rises with every attempt, also over a fail-over of the database
    last_success: LastSuccess | None = None  # of this job; only for tasks that ask for it by @task(last_success=True)
    schedule: Schedule | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    tell: Output | None = None
    completion: Completion | None = None

    @property
    def log(self) -> TaskLog:
        """A logger for this task: ``ctx.log.info("sent", to=address)``. Plain ``logging`` is kept just as well."""
        return TaskLog(logging.getLogger(f"task.{self.job}"))

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of a run, and for no other run."""
        return str(self.run_id)

    @property
    def backfilled(self) -> bool:
        return self.kind is Kind.BACKFILL

    @property
    def prev_slot(self) -> datetime | None:
        """The slot before this one, by the schedule as it is now."""
        return None if self.schedule is None else self.schedule.previous_before(self.slot)

    @property
    def next_slots(self) -> tuple[datetime, ...]:
        """The next five slots after this one."""
        slots: list[datetime] = []
        slot: datetime | None = self.slot
        while self.schedule is not None and slot is not None and len(slots) < 5:
            slot = self.schedule.next_after(slot)
            slots += [slot] if slot is not None else []
        return tuple(slots)

    def progress(self, done: float, note: str = "") -> None:
        """Say how far the task has come, from 0 to 1; people see it while the run is at work."""
        if self.tell is not None:
            self.tell.progress(min(max(float(done), 0.0), 1.0), note)

    async def complete(self, connection: Any, result: Json = None) -> None:
        """Record the success of this run in the transaction of ``connection``: your writes and it commit together.

        The effects of a task that does this last are there exactly once, whatever dies when. ``connection`` is of
        asyncpg, psycopg or SQLAlchemy, to the database of Mainspring. What the task returns afterwards is ignored. ::

            async with pool.acquire() as conn, conn.transaction():
                await conn.execute("INSERT INTO payments …")
                await ctx.complete(conn, {"paid": True})

        Raises:
            Superseded: another attempt has taken over. Let it out: the transaction must not commit.
        """
        await self._completion.complete(connection, result)

    def complete_sync(self, connection: Any, result: Json = None) -> None:
        """Do the same with a blocking connection of psycopg or SQLAlchemy."""
        self._completion.complete_sync(connection, result)

    @property
    def _completion(self) -> Completion:
        if self.completion is None:
            raise RuntimeError("a run can be completed by its worker's task only")
        return self.completion

    def __getitem__(self, name: str) -> Any:
        """Return a resource of the worker by its name."""
        try:
            return self.resources[name]
        except KeyError:
            known = ", ".join(sorted(self.resources)) or "none"
            raise KeyError(f'there is no resource "{name}"; this worker has {known}') from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSuccess:
    """The newest run of a job that succeeded, before this one."""

    run_id: UUID
    at: datetime
    result: Json


class TaskLog:
    """Lines with named values, through the standard library's logging."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **values: object) -> None:
        self._write(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        self._write(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        self._write(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        self._write(logging.ERROR, event, values)

    def exception(self, event: str, **values: object) -> None:
        """Like :meth:`error`, with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, values, exc_info=True)

    def _write(self, level: int, event: str, values: Mapping[str, object], *, exc_info: bool = False) -> None:
        named = "".join(f" {name}={value}" for name, value in values.items())
        self._logger.log(level, "%s%s", event, named, exc_info=exc_info)
