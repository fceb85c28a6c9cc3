"""Handles: a run and a job, as whoever asked for them holds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from mainspring.domain.asking import Change, Request
from mainspring.domain.errors import InvalidRequest, RunCancelled, RunFailed
from mainspring.domain.ids import JobId, RunId
from mainspring.domain.job import Job, JobState, Json, check_payload
from mainspring.domain.run import FINAL, State
from mainspring.domain.views import AttemptView, JobView, Line, RunView, SlotView, VersionView
from mainspring.insight.wording import explain
from mainspring.sdk.backend import Backend
from mainspring.tasks.arguments import read_value, written
from mainspring.tasks.timing import When, duration_of, instant_of

R_co = TypeVar("R_co", covariant=True)
_FIRST_LOOK: Final = 0.005
_LONGEST_LOOK: Final = 0.25
_LATE_LOOKS: Final = 2  # at the lines of a run that has ended


class Run(Generic[R_co]):
    """A run that was asked for. ``R`` is what its task returns."""

    def __init__(self, backend: Backend, run_id: RunId, returns: Any = Any) -> None:
        self.id = run_id
        self._backend = backend
        self._returns = returns

    async def status(self) -> RunView:
        """Return the run as it is now."""
        return await self._backend.find_run(self.id)

    async def wait(self, timeout: timedelta | float | None = None) -> RunView:  # noqa: ASYNC109 - part of the sketch
        """Wait until the run has ended, whichever way.

        Raises:
            TimeoutError: it has not, within ``timeout`` (seconds, or a timedelta). The run goes on.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        pause = _FIRST_LOOK
        async with asyncio.timeout(seconds):
            while (view := await self.status()).state not in FINAL:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_LOOK)
        return view

    async def result(self, timeout: timedelta | float | None = None) -> R_co:  # noqa: ASYNC109 - part of the sketch
        """Wait for the run and return what its task returned.

        Raises:
            RunFailed: the run is dead; the error says why.
            RunCancelled: it was cancelled.
            TimeoutError: it has not ended within ``timeout``. The run goes on.
        """
        view = await self.wait(timeout)
        if view.state is State.SUCCEEDED:
            value: R_co = read_value(view.result, self._returns)
            return value
        if view.state is State.CANCELLED:
            raise RunCancelled(f"run {self.id} was cancelled")
        why = f": {view.error.type}: {view.error.message}" if view.error else ""
        raise RunFailed(f"run {self.id} is dead, {view.reason}{why}")

    async def cancel(self) -> State:
        """Ask that the run stop; return the state it is in now."""
        return await self._backend.cancel_run(self.id)

    async def attempts(self) -> Sequence[AttemptView]:
        return await self._backend.attempts(await self.status())

    async def logs(self, *, follow: bool = False) -> AsyncIterator[Line]:
        """Give the lines of the run; with ``follow`` until it has ended."""
        place, late = (0, 0), 0
        while True:
            view = await self.status()
            late += view.state in FINAL  # its worker writes lines every 400 ms: the last may come after the end
            ended = late > _LATE_LOOKS
            while lines := await self._backend.lines(view, after=place, limit=1000):
                for line in lines:
                    yield line
                place = (lines[-1].attempt, lines[-1].number)
            if not follow or ended:
                return
            await asyncio.sleep(_LONGEST_LOOK)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


class JobHandle:
    """A job, as it was when it was last looked at."""

    def __init__(self, backend: Backend, view: JobView) -> None:
        self._backend = backend
        self.view = view

    @property
    def id(self) -> JobId:
        return self.view.id

    @property
    def name(self) -> str:
        return self.view.name

    def upcoming(self, number: int = 5, *, after: datetime | None = None) -> list[datetime]:
        """Return the next slots."""
        found: list[datetime] = []
        at = after or (self.view.next_fire_at and self.view.next_fire_at - timedelta(milliseconds=1))
        while at is not None and len(found) < number:
            at = self.view.definition.schedule.next_after(at)
            found += [at] if at is not None else []
        return found

    def explain(self) -> str:
        """Put the schedule into a sentence."""
        return explain(self.view.definition.schedule)

    async def explain_slot(self, at: datetime) -> Sequence[str]:
        """Say what happened at an instant, and why."""
        return await self._backend.explain(self.id, at)

    async def refresh(self) -> JobHandle:
        """Look again."""
        self.view = await self._backend.find_job(self.id)
        return self

    async def edit(self, *, if_version: int | None = None, reason: str = "", **changes: Any) -> JobHandle:
        """Change the definition: any field of :class:`~mainspring.domain.job.Job`, or ``when``.

        What is not named stays as this handle knows it. So the version that it knows is the condition, unless you name
        another: what was changed since is never undone.

        Raises:
            StaleVersion: the job was changed since this handle looked; :meth:`refresh` it, then decide.
        """
        version = self.view.version if if_version is None else if_version
        definition = edited(self.view.definition, changes)
        return await self._change(Change(definition=definition, if_version=version, reason=reason))

    async def pause(self, *, reason: str = "", until: datetime | str | None = None) -> JobHandle:
        """Fire nothing from now on, until resumed; by itself at ``until``, if that is given."""
        resume_at = None if until is None else instant_of(until, field="until")
        return await self._change(Change(state=JobState.PAUSED, reason=reason, resume_at=resume_at))

    async def resume(self, *, reason: str = "") -> JobHandle:
        """Go on with the next slot from now; what was passed over is not caught up, backfill does that."""
        return await self._change(Change(state=JobState.ACTIVE, reason=reason))

    async def delete(self, *, reason: str = "") -> None:
        """Fire nothing any more, cancel what waits, ask what runs to stop."""
        await self._change(Change(state=JobState.DELETED, reason=reason))

    async def trigger(self, *, payload: Json = None, key: str | None = None, priority: int | None = None) -> Run[Any]:
        """Run it now, besides its schedule."""
        text = None if payload is None else check_payload(written(payload))
        asked = Request(payload=text, key=key, priority=priority).checked()
        return Run(self._backend, await self._backend.trigger(self.id, asked))

    async def backfill(
        self,
        start: datetime | str,
        end: datetime | str,
        *,
        pace: timedelta | str = timedelta(0),
        key: str | None = None,
    ) -> int:
        """Run the slots of a range of the past, oldest first, ``pace`` apart; return how many runs are new."""
        first, last = instant_of(start, field="start"), instant_of(end, field="end")
        length = duration_of(pace, "pace")
        return await self._backend.backfill(self.id, start=first, end=last, request=key, pace=length)

    async def slots(self, start: datetime, end: datetime, *, limit: int = 1000) -> Sequence[SlotView]:
        """Return what became of the slots in a range, newest first."""
        return await self._backend.slots(self.id, start=start, end=end, limit=limit)

    async def versions(self, *, limit: int = 20) -> Sequence[VersionView]:
        return await self._backend.versions(self.id, limit=limit)

    async def _change(self, change: Change) -> JobHandle:
        self.view = await self._backend.change_job(self.id, change)
        return self

    def __repr__(self) -> str:
        return f"<job {self.name}>"


def edited(job: Job, changes: dict[str, Any]) -> Job:
    """Return a definition with some fields changed; ``when`` stands for schedule, overlap, misfire and jitter."""
    when: When | None = changes.pop("when", None)
    if when is not None:
        given = {"schedule": when.schedule, "overlap": when.overlap, "misfire": when.misfire, "jitter": when.jitter}
        changes = {**given, **changes}  # what is named by itself counts
    unknown = sorted(changes.keys() - {field.name for field in fields(Job)})
    if unknown:
        allowed = f"use {', '.join(field.name for field in fields(Job))}"
        raise InvalidRequest("there is no such field", field=unknown[0], value=changes[unknown[0]], allowed=allowed)
    return replace(job, **changes)
