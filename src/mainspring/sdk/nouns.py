"""``client.jobs``, ``client.runs``, ``client.dead_letters``: everything that is not submitting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar
from uuid import UUID

from mainspring.domain.asking import JobFilter, LetterFilter, RunFilter
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import Kind, NodeId, RunId
from mainspring.domain.job import Job, JobState, Json, check_name, check_payload
from mainspring.domain.run import DeadReason, State
from mainspring.domain.schedule import Schedule
from mainspring.domain.views import DeadLetter, Event, NodeView, Page, PoolView, RunView
from mainspring.sdk.backend import Backend
from mainspring.sdk.handles import JobHandle, Run, edited
from mainspring.tasks.arguments import written
from mainspring.tasks.task import ON_DEMAND, Call, Task
from mainspring.tasks.timing import When

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


class Targetted(Protocol):
    """Something to run that is no Python function: the name of its target, and what that needs."""

    @property
    def task(self) -> str: ...

    @property
    def payload(self) -> Json: ...


class Jobs:
    """The jobs of a tenant."""

    def __init__(self, backend: Backend, tenant: str) -> None:
        self._backend = backend
        self._tenant = tenant

    async def put(
        self,
        name: str,
        when: When | Schedule | None,
        target: Task[..., Any] | Call[Any] | Targetted | str,
        *,
        reason: str = "",
        **policies: Any,
    ) -> JobHandle:
        """Write a job under its name: a new one, or a new version of the one that has it.

        ``when`` is ``cron(…)``, ``every(…)``, ``at(…)``, a whole :class:`Schedule`, or None: only when asked for.
        ``target`` is a task, a call of one, an HTTP request by ``mainspring.http``, or the name of a task that is known
        elsewhere. ``policies`` are further fields of the job: ``pool``, ``priority``, ``retry``, ``run_timeout``, ….

        Raises:
            InvalidRequest: a field is out of bounds, or the task cannot be called like this.
        """
        job = self._definition(name, when, target, policies)
        return JobHandle(self._backend, await self._backend.put_job(job, reason=reason))

    def _definition(
        self,
        name: str,
        when: When | Schedule | None,
        target: Task[..., Any] | Call[Any] | Targetted | str,
        policies: dict[str, Any],
    ) -> Job:
        if isinstance(when, Schedule):
            when = When(schedule=when)
        base = _job_of(target, self._tenant)
        schedule = {"when": when} if when is not None else {"schedule": ON_DEMAND}
        job = edited(base, {**schedule, "name": name, **policies})
        check_payload(None if job.payload is None else written(job.payload))
        return job

    async def get(self, name_or_id: str | UUID) -> JobHandle:
        """Return a job by its name or its id.

        Raises:
            NotFound: there is none.
        """
        return JobHandle(self._backend, await self._backend.find_job(name_or_id))

    async def list(
        self,
        *,
        state: JobState | str | Sequence[JobState | str] = (),
        task: str | None = None,
        prefix: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[JobHandle]:
        """Return jobs by name, a page at a time: give the page's ``next`` as ``after`` for the one behind it."""
        wanted = JobFilter(states=words(JobState, state, "state"), task=task, prefix=prefix)
        page = await self._backend.list_jobs(wanted, limit=limit, after=after)
        return Page(items=tuple(JobHandle(self._backend, view) for view in page.items), next=page.next)

    def each(self, **wanted: Any) -> AsyncIterator[JobHandle]:
        """Give every job that :meth:`list` would, page by page."""
        return _each(lambda after: self.list(**wanted, after=after))

    async def edit(self, name_or_id: str | UUID, **changes: Any) -> JobHandle:
        """Look at a job and change its definition, as :meth:`JobHandle.edit` does.

        Raises:
            StaleVersion: somebody else changed it between the two; nothing was done, so the same may be asked again.
        """
        return await (await self.get(name_or_id)).edit(**changes)

    async def pause(self, name_or_id: str | UUID, **how: Any) -> JobHandle:
        return await (await self.get(name_or_id)).pause(**how)

    async def resume(self, name_or_id: str | UUID, **how: Any) -> JobHandle:
        return await (await self.get(name_or_id)).resume(**how)

    async def trigger(self, name_or_id: str | UUID, **how: Any) -> Run[Any]:
        return await (await self.get(name_or_id)).trigger(**how)

    async def delete(self, name_or_id: str | UUID, *, reason: str = "") -> None:
        await (await self.get(name_or_id)).delete(reason=reason)

    async def cancel(self, name_or_id: str | UUID) -> int:
        """Cancel all runs of a job that are in motion; the job itself stays. Return how many that were."""
        return await self._backend.cancel_runs((await self.get(name_or_id)).id)

    async def backfill(self, name_or_id: str | UUID, start: datetime | str, end: datetime | str, **how: Any) -> int:
        return await (await self.get(name_or_id)).backfill(start, end, **how)

    async def upcoming(self, name_or_id: str | UUID, number: int = 5) -> Sequence[datetime]:
        return (await self.get(name_or_id)).upcoming(number)

    async def slots(self, name_or_id: str | UUID, start: datetime, end: datetime, *, limit: int = 1000) -> Any:
        return await (await self.get(name_or_id)).slots(start, end, limit=limit)


class Runs:
    """The runs of a tenant."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, run: UUID | str) -> RunView:
        """Return a run as it is now.

        Raises:
            NotFound: there is none, or its history was dropped.
        """
        return await self._backend.find_run(_id(run))

    async def list(
        self,
        *,
        job: str | UUID | None = None,
        state: State | str | Sequence[State | str] = (),
        pool: str | None = None,
        kind: Kind | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[RunView]:
        """Return runs, newest slot first, a page at a time."""
        job_id = None if job is None else (await self._backend.find_job(job)).id
        why = None if kind is None else words(Kind, kind, "kind")[0]
        states = words(State, state, "state")
        wanted = RunFilter(job=job_id, states=states, pool=pool, kind=why, since=since, until=until)
        return await self._backend.list_runs(wanted, limit=limit, after=after)

    def each(self, **wanted: Any) -> AsyncIterator[RunView]:
        """Give every run that :meth:`list` would, page by page."""
        return _each(lambda after: self.list(**wanted, after=after))

    def handle(self, run: UUID | str) -> Run[Any]:
        """Return a handle on a run whose id is known."""
        return Run(self._backend, RunId(_id(run)))

    async def cancel(self, run: UUID | str) -> State:
        """Ask that a run stop; return the state it is in now: cancelled, or running until its task has stopped."""
        return await self._backend.cancel_run(RunId(_id(run)))

    async def retry(self, run: UUID | str) -> Run[Any]:
        """Try again: at once if it waits for that, else as a new run with a fresh budget.

        Raises:
            Conflict: it is at work, or has not been tried yet.
        """
        view = await self._backend.find_run(_id(run))
        return Run(self._backend, await self._backend.retry_run(view))

    def logs(self, run: UUID | str, *, follow: bool = False) -> AsyncIterator[Any]:
        """Give the lines of a run; with ``follow`` until it has ended."""
        return self.handle(run).logs(follow=follow)

    async def watch(self, *, job: str | UUID | None = None, run: UUID | str | None = None) -> AsyncGenerator[Event]:
        """Give every state that the runs of a job, or one run, come to from now on; first those they are in. For ever.

        Raises:
            NotFound: there is no such job or run.
        """
        job_id = None if job is None else (await self._backend.find_job(job)).id
        run_id = None if run is None else (await self._backend.find_run(_id(run))).id
        async for event in self._backend.watch(job=job_id, run=run_id):
            yield event


class DeadLetters:
    """Runs that came to nothing, and wait for somebody to look."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def list(
        self,
        *,
        job: str | UUID | None = None,
        reason: DeadReason | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Return the open letters, newest first, a page at a time."""
        job_id = None if job is None else (await self._backend.find_job(job)).id
        why = None if reason is None else words(DeadReason, reason, "reason")[0]
        wanted = LetterFilter(job=job_id, reason=why, since=since, until=until)
        return await self._backend.list_letters(wanted, limit=limit, after=after)

    def each(self, **wanted: Any) -> AsyncIterator[DeadLetter]:
        """Give every letter that :meth:`list` would, page by page."""
        return _each(lambda after: self.list(**wanted, after=after))

    async def get(self, run: UUID | str) -> DeadLetter:
        return await self._backend.find_letter(_id(run))

    async def replay(self, run: UUID | str, *, payload: Json = None) -> Run[Any]:
        """Run it again: a new run, a fresh budget, the recorded payload or another. Twice is once.

        Raises:
            Conflict: it was discarded.
        """
        text = None if payload is None else check_payload(written(payload))
        letter = await self._backend.find_letter(_id(run))
        return Run(self._backend, await self._backend.replay(letter, payload=text))

    async def discard(self, run: UUID | str, *, reason: str = "") -> bool:
        """Close it for good; return whether it was open."""
        await self._backend.find_letter(_id(run))
        return await self._backend.discard(_id(run), reason=reason)


class Workers:
    """The processes of a cluster, and the pools they work for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def list(self) -> Sequence[NodeView]:
        return await self._backend.nodes()

    async def pools(self) -> Sequence[PoolView]:
        return await self._backend.pools()

    async def pause_pool(self, pool: str, *, reason: str = "") -> None:
        """Let nothing more be claimed from a pool, by any worker; what is at work goes on."""
        check_name(pool, "pool")
        await self._backend.pause_pool(pool, reason=reason)

    async def resume_pool(self, pool: str) -> bool:
        """Let a pool go on; return whether it was paused."""
        return await self._backend.resume_pool(pool)

    async def quiesce(self, node: UUID | str) -> None:
        """Ask a worker to take nothing more; it finishes what it has in hand, and stays.

        Raises:
            NotFound: there is no such node, or it is dead.
        """
        await self._backend.ask_node(NodeId(_id(node)), "quiesce")

    async def stop(self, node: UUID | str) -> None:
        """Ask a process to drain and end; it hears of it with its next heartbeat."""
        await self._backend.ask_node(NodeId(_id(node)), "stop")


def _job_of(target: Task[..., Any] | Call[Any] | Targetted | str, tenant: str) -> Job:
    """Return a job that runs the target, with the options its task declares."""
    if isinstance(target, str):
        return Job(name=target, task=target, tenant=tenant, schedule=ON_DEMAND)
    if isinstance(target, Task):
        target.arguments.check(None)  # no call of it: so it must do without arguments
        return target.job(tenant=tenant)
    if isinstance(target, Call):
        return replace(target.task.job(tenant=tenant), payload=target.payload or None)
    return Job(name=target.task, task=target.task, tenant=tenant, schedule=ON_DEMAND, payload=target.payload)


async def _each(page_after: Callable[[str | None], Awaitable[Page[_T]]]) -> AsyncIterator[_T]:
    after: str | None = None
    while True:
        page = await page_after(after)
        for item in page.items:
            yield item
        if page.next is None:
            return
        after = page.next


def words(kind: type[_E], given: _E | str | Sequence[_E | str], field: str) -> tuple[_E, ...]:
    """Read one word of an enum, or several.

    Raises:
        InvalidRequest: there is no such word.
    """
    several: Iterable[_E | str] = (given,) if isinstance(given, str) else given
    try:
        return tuple(kind(word) for word in several)
    except ValueError as error:
        allowed = f"use {', '.join(kind)}"
        raise InvalidRequest(str(error), field=field, value=given, allowed=allowed) from None


def _id(text: UUID | str) -> UUID:
    try:
        return text if isinstance(text, UUID) else UUID(text)
    except ValueError:
        allowed = "use the id that submitting or listing gave"
        raise InvalidRequest(
            f'"{str(text)[:60]}" is no id of a run', field="run", value=text, allowed=allowed
        ) from None
