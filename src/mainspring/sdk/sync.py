"""The blocking front: the same names, for code without an event loop. Nothing is decided here.

One thread with a loop of its own carries the async client; every call waits for it. So the same line works in a
script, in a notebook cell, and inside a running loop, which it blocks as any blocking call does.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

from mainspring.domain.ids import JobId, RunId
from mainspring.domain.job import Json
from mainspring.domain.run import State
from mainspring.domain.schedule import Schedule
from mainspring.domain.views import (
    AttemptView,
    DeadLetter,
    Event,
    JobView,
    Line,
    NodeView,
    Page,
    PoolView,
    RunView,
    SlotView,
    VersionView,
)
from mainspring.sdk.client import request_of
from mainspring.sdk.handles import JobHandle, Run
from mainspring.sdk.loop import Loop
from mainspring.sdk.nouns import Targetted
from mainspring.store.foreign import at_once
from mainspring.tasks.task import Call, Task
from mainspring.tasks.timing import When

if TYPE_CHECKING:
    from mainspring.sdk.client import Client

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_T = TypeVar("_T")


async def _nothing() -> None:
    """Only open the client, or let the loop end."""


class SyncClient:
    """A :class:`~mainspring.sdk.client.Client` that blocks. Get one by ``Client.sync()``."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._loop: Loop | None = None
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        self.wait(_nothing())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens new ones. Other threads that wait for an answer get Closed."""
        with self._opening:  # until it is closed: what is opened next is the same client, and not half of it
            loop, self._loop = self._loop, None
            if loop is not None:
                atexit.unregister(self.close)
                loop.close(self.client.__aexit__())

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the thread of this client, opened now if need be."""
        try:
            loop = self._opened()
        except BaseException:
            work.close()
            raise
        return loop.wait(work)

    def _opened(self) -> Loop:
        with self._opening:
            if self._loop is None:
                loop = Loop()
                try:
                    loop.wait(self.client.__aenter__())
                except BaseException:
                    loop.close(_nothing())
                    raise
                self._loop = loop
                atexit.register(self.close)
            return self._loop

    @property
    def tenant(self) -> str:
        """Whose jobs; a server is asked for it."""
        self.wait(_nothing())
        return self.client.tenant

    @property
    def jobs(self) -> SyncJobs:
        return SyncJobs(self)

    @property
    def runs(self) -> SyncRuns:
        return SyncRuns(self)

    @property
    def dead_letters(self) -> SyncDeadLetters:
        return SyncDeadLetters(self)

    @property
    def workers(self) -> SyncWorkers:
        return SyncWorkers(self)

    def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncRun[R]:
        """Ask for one run of a task; it is durable when this returns."""
        return self.submit_call(task.call(*args, **kwargs))  # refused here, with the caller's own traceback

    def submit_call(self, call: Call[R]) -> SyncRun[R]:
        """Ask for a run by a call that was made before."""
        return SyncRun(self, self.ask(lambda client: client.submit_call(call)))

    def submit_many(self, calls: Iterable[Call[R]]) -> list[SyncRun[R]]:
        """Ask for very many runs, in order."""
        several = list(calls)
        return [SyncRun(self, run) for run in self.ask(lambda client: client.submit_many(several))]

    def watch(self) -> Iterator[Event]:
        """Give what happens from now on, for ever."""
        return self.each(lambda client: client.watch())

    def using(self, connection: Any) -> SyncTransactional:
        """Submit within a transaction of your own, on a blocking connection of psycopg or SQLAlchemy."""
        return SyncTransactional(self, connection)

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
        async def asked() -> _T:
            return await question(self.client)

        return self.wait(asked())

    def each(self, question: Callable[[Client], AsyncIterator[_T]]) -> Iterator[_T]:
        """Give what an async iterator gives, one by one."""
        loop, items = self._opened(), list[AsyncIterator[_T]]()

        async def following() -> list[_T]:
            if not items:
                items.append(question(self.client))
            try:
                return [await anext(items[0])]
            except StopAsyncIteration:
                return []

        try:
            while found := loop.wait(following()):
                yield found[0]
        finally:
            if items:
                loop.finish(items[0])


class SyncTransactional:
    """A client whose submissions are part of somebody's transaction."""

    def __init__(self, client: SyncClient, connection: Any) -> None:
        self._client = client
        self._connection = connection

    def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncRun[R]:
        """Ask for a run that exists if and when the transaction commits."""
        request = request_of(task.call(*args, **kwargs))
        client = self._client.client
        job = task.job(tenant=client.tenant)
        known = self._client.ask(lambda opened: opened.ledger.known_job(job))
        backend = client.ledger
        (run_id,) = at_once(backend.submit_through(self._connection, known, [request]))
        return SyncRun(self._client, Run(backend, run_id, task.returns))


class SyncRun(Generic[R_co]):
    """A run that was asked for."""

    def __init__(self, client: SyncClient, run: Run[R_co]) -> None:
        self._client = client
        self._run = run

    @property
    def id(self) -> RunId:
        return self._run.id

    def status(self) -> RunView:
        return self._client.wait(self._run.status())

    def wait(self, timeout: timedelta | float | None = None) -> RunView:
        return self._client.wait(self._run.wait(timeout))

    def result(self, timeout: timedelta | float | None = None) -> R_co:
        """Wait for the run and return what its task returned; raises as the async one does."""
        return self._client.wait(self._run.result(timeout))

    def cancel(self) -> State:
        return self._client.wait(self._run.cancel())

    def attempts(self) -> Sequence[AttemptView]:
        return self._client.wait(self._run.attempts())

    def logs(self, *, follow: bool = False) -> Iterator[Line]:
        return self._client.each(lambda _: self._run.logs(follow=follow))

    def __repr__(self) -> str:
        return repr(self._run)


class SyncJob:
    """A job, as it was when it was last looked at."""

    def __init__(self, client: SyncClient, job: JobHandle) -> None:
        self._client = client
        self._job = job
        self.upcoming = job.upcoming
        self.explain = job.explain

    @property
    def view(self) -> JobView:
        return self._job.view

    @property
    def id(self) -> JobId:
        return self._job.id

    @property
    def name(self) -> str:
        return self._job.name

    def explain_slot(self, at: datetime) -> Sequence[str]:
        return self._client.wait(self._job.explain_slot(at))

    def refresh(self) -> SyncJob:
        self._client.wait(self._job.refresh())
        return self

    def edit(self, **changes: Any) -> SyncJob:
        self._client.wait(self._job.edit(**changes))
        return self

    def pause(self, *, reason: str = "", until: datetime | str | None = None) -> SyncJob:
        self._client.wait(self._job.pause(reason=reason, until=until))
        return self

    def resume(self, *, reason: str = "") -> SyncJob:
        self._client.wait(self._job.resume(reason=reason))
        return self

    def delete(self, *, reason: str = "") -> None:
        self._client.wait(self._job.delete(reason=reason))

    def trigger(self, *, payload: Json = None, key: str | None = None, priority: int | None = None) -> SyncRun[Any]:
        asked = self._job.trigger(payload=payload, key=key, priority=priority)
        return SyncRun(self._client, self._client.wait(asked))

    def backfill(self, start: datetime | str, end: datetime | str, **how: Any) -> int:
        return self._client.wait(self._job.backfill(start, end, **how))

    def slots(self, start: datetime, end: datetime, *, limit: int = 1000) -> Sequence[SlotView]:
        return self._client.wait(self._job.slots(start, end, limit=limit))

    def versions(self, *, limit: int = 20) -> Sequence[VersionView]:
        return self._client.wait(self._job.versions(limit=limit))

    def __repr__(self) -> str:
        return repr(self._job)


class SyncJobs:
    """The jobs of a tenant."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def put(
        self,
        name: str,
        when: When | Schedule | None,
        target: Task[..., Any] | Call[Any] | Targetted | str,
        **policies: Any,
    ) -> SyncJob:
        """Write a job under its name: a new one, or a new version of the one that has it."""
        return self._job(lambda client: client.jobs.put(name, when, target, **policies))

    def get(self, name_or_id: str | UUID) -> SyncJob:
        return self._job(lambda client: client.jobs.get(name_or_id))

    def list(self, **wanted: Any) -> Page[SyncJob]:
        """Return jobs by name, a page at a time: give the page's ``next`` as ``after`` for the one behind it."""
        page = self._client.ask(lambda client: client.jobs.list(**wanted))
        return Page(items=tuple(SyncJob(self._client, job) for job in page.items), next=page.next)

    def each(self, **wanted: Any) -> Iterator[SyncJob]:
        """Give every job that :meth:`list` would, page by page."""
        for job in self._client.each(lambda client: client.jobs.each(**wanted)):
            yield SyncJob(self._client, job)

    def edit(self, name_or_id: str | UUID, **changes: Any) -> SyncJob:
        return self._job(lambda client: client.jobs.edit(name_or_id, **changes))

    def pause(self, name_or_id: str | UUID, **how: Any) -> SyncJob:
        return self._job(lambda client: client.jobs.pause(name_or_id, **how))

    def resume(self, name_or_id: str | UUID, **how: Any) -> SyncJob:
        return self._job(lambda client: client.jobs.resume(name_or_id, **how))

    def trigger(self, name_or_id: str | UUID, **how: Any) -> SyncRun[Any]:
        return SyncRun(self._client, self._client.ask(lambda client: client.jobs.trigger(name_or_id, **how)))

    def delete(self, name_or_id: str | UUID, *, reason: str = "") -> None:
        self._client.ask(lambda client: client.jobs.delete(name_or_id, reason=reason))

    def cancel(self, name_or_id: str | UUID) -> int:
        """Cancel all runs of a job that are in motion; the job itself stays. Return how many that were."""
        return self._client.ask(lambda client: client.jobs.cancel(name_or_id))

    def backfill(self, name_or_id: str | UUID, start: datetime | str, end: datetime | str, **how: Any) -> int:
        return self._client.ask(lambda client: client.jobs.backfill(name_or_id, start, end, **how))

    def upcoming(self, name_or_id: str | UUID, number: int = 5) -> Sequence[datetime]:
        return self._client.ask(lambda client: client.jobs.upcoming(name_or_id, number))

    def slots(self, name_or_id: str | UUID, start: datetime, end: datetime, *, limit: int = 1000) -> Sequence[SlotView]:
        return self._client.ask(lambda client: client.jobs.slots(name_or_id, start, end, limit=limit))

    def _job(self, question: Callable[[Client], Coroutine[Any, Any, JobHandle]]) -> SyncJob:
        return SyncJob(self._client, self._client.ask(question))


class SyncRuns:
    """The runs of a tenant."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def get(self, run: UUID | str) -> RunView:
        return self._client.ask(lambda client: client.runs.get(run))

    def list(self, **wanted: Any) -> Page[RunView]:
        """Return runs, newest slot first, a page at a time."""
        return self._client.ask(lambda client: client.runs.list(**wanted))

    def each(self, **wanted: Any) -> Iterator[RunView]:
        """Give every run that :meth:`list` would, page by page."""
        return self._client.each(lambda client: client.runs.each(**wanted))

    def handle(self, run: UUID | str) -> SyncRun[Any]:
        """Return a handle on a run whose id is known."""

        async def made(client: Client) -> Run[Any]:  # there is nothing to wait for but an open client
            return client.runs.handle(run)

        return SyncRun(self._client, self._client.ask(made))

    def cancel(self, run: UUID | str) -> State:
        return self._client.ask(lambda client: client.runs.cancel(run))

    def retry(self, run: UUID | str) -> SyncRun[Any]:
        return SyncRun(self._client, self._client.ask(lambda client: client.runs.retry(run)))

    def logs(self, run: UUID | str, *, follow: bool = False) -> Iterator[Line]:
        return self._client.each(lambda client: client.runs.logs(run, follow=follow))

    def watch(self, *, job: str | UUID | None = None, run: UUID | str | None = None) -> Iterator[Event]:
        return self._client.each(lambda client: client.runs.watch(job=job, run=run))


class SyncDeadLetters:
    """Runs that came to nothing."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def get(self, run: UUID | str) -> DeadLetter:
        return self._client.ask(lambda client: client.dead_letters.get(run))

    def list(self, **wanted: Any) -> Page[DeadLetter]:
        """Return the open letters, newest first, a page at a time."""
        return self._client.ask(lambda client: client.dead_letters.list(**wanted))

    def each(self, **wanted: Any) -> Iterator[DeadLetter]:
        """Give every letter that :meth:`list` would, page by page."""
        return self._client.each(lambda client: client.dead_letters.each(**wanted))

    def replay(self, run: UUID | str, *, payload: Json = None) -> SyncRun[Any]:
        replayed = self._client.ask(lambda client: client.dead_letters.replay(run, payload=payload))
        return SyncRun(self._client, replayed)

    def discard(self, run: UUID | str, *, reason: str = "") -> bool:
        return self._client.ask(lambda client: client.dead_letters.discard(run, reason=reason))


class SyncWorkers:
    """The processes of a cluster, and the pools they work for."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def list(self) -> Sequence[NodeView]:
        return self._client.ask(lambda client: client.workers.list())

    def pools(self) -> Sequence[PoolView]:
        return self._client.ask(lambda client: client.workers.pools())

    def pause_pool(self, pool: str, *, reason: str = "") -> None:
        """Let nothing more be claimed from a pool, by any worker; what is at work goes on."""
        self._client.ask(lambda client: client.workers.pause_pool(pool, reason=reason))

    def resume_pool(self, pool: str) -> bool:
        """Let a pool go on; return whether it was paused."""
        return self._client.ask(lambda client: client.workers.resume_pool(pool))

    def quiesce(self, node: UUID | str) -> None:
        """Ask a worker to take nothing more; it finishes what it has in hand, and stays."""
        self._client.ask(lambda client: client.workers.quiesce(node))

    def stop(self, node: UUID | str) -> None:
        """Ask a process to drain and end; it hears of it with its next heartbeat."""
        self._client.ask(lambda client: client.workers.stop(node))
