"""The SDK straight over a database: for one process, for tests, and inside the user's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from mainspring.domain.asking import Change, JobFilter, LetterFilter, Request, RunFilter
from mainspring.domain.errors import Conflict, NotFound, WrongDatabase
from mainspring.domain.ids import JobId, NodeId, RunId
from mainspring.domain.inline import check_inline
from mainspring.domain.job import Job, JobState
from mainspring.domain.run import FINAL, State
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
from mainspring.environment import Environment, SystemEnvironment
from mainspring.insight.explain import explain_slot
from mainspring.sdk.looking import over_database
from mainspring.store import dead_letters, nodes, reading
from mainspring.store.backfill import Range, backfill
from mainspring.store.changes import change_job, put_job
from mainspring.store.database import Connection, Database, Note, open_database
from mainspring.store.foreign import adapted
from mainspring.store.hints import Bell
from mainspring.store.jobs import Definitions, insert_jobs
from mainspring.store.lines import read_lines
from mainspring.store.migrations import pending
from mainspring.store.runs import cancel_run, retry_now
from mainspring.store.slots import evidence
from mainspring.store.submit import AT_ONCE, KeyedRequest, Known, replay_run, submit, submit_in, submit_many

_TRIES: Final = 5  # to submit to a job that is being edited meanwhile
_MOST_KNOWN: Final = 1_000  # jobs that were submitted to, each with its payload
_MOVING: Final = tuple(state for state in State if state not in FINAL)
_Name: TypeAlias = tuple[str, str]  # of a job, and the task that whoever submits to it expects


class _Asked(NamedTuple):
    """Runs that wait to be written together with others of the same job."""

    wanted: Sequence[Request]
    note: Note | None
    answer: asyncio.Future[list[RunId]]


@dataclass(frozen=True, slots=True)
class _Notes:
    """The notes of many changes that are made together."""

    notes: Sequence[Note]

    async def write(self, tx: Connection, tenant: str | None) -> None:
        for note in self.notes:
            await note.write(tx, tenant)


@asynccontextmanager
async def open_direct(dsn: str, *, tenant: str, author: str, size: int) -> AsyncIterator[Direct]:
    """Connect to a ledger that is up to date.

    Raises:
        WrongDatabase: its schema is older than this code; it is not for a client to change that.
    """
    async with open_database(dsn, size=size) as db:
        if missing := await pending(db):
            reason = f"its schema lacks {missing[0].name}"
            allowed = "run mainspring migrate, or start a node, which does it"
            raise WrongDatabase(reason, field="dsn", value=missing[0].name, allowed=allowed)
        async with Bell(db) as bell:
            yield Direct(db, SystemEnvironment(), bell, tenant=tenant, author=author)


class Direct:
    """The :class:`~mainspring.sdk.backend.Backend` over a database."""

    def __init__(self, db: Database, env: Environment, bell: Bell, *, tenant: str, author: str) -> None:
        self._db = db
        self._env = env
        self._bell = bell
        self._tenant = tenant
        self._author = author
        self._definitions = Definitions(whole=True, keep=_MOST_KNOWN)
        self._note: Note | None = None
        self._known: dict[str, Known] = {}
        self._asked: dict[_Name, list[_Asked]] = {}
        self._writing: set[_Name] = set()  # jobs that somebody is writing runs of
        self._tasks: set[asyncio.Task[None]] = set()

    def on_behalf_of(self, author: str, note: Note | None = None) -> Direct:
        """Return the same for one change of somebody's, which the log takes down along with it."""
        again = copy(self)  # what is known of jobs, and who writes, is shared
        again._author = author  # noqa: SLF001 - it is one of us
        if note is not None:
            again._db, again._note = self._db.noting(note), note  # noqa: SLF001
        return again

    @property
    def noted(self) -> bool:
        """Whether the change that this is for was made, by this."""
        return self._db.noted

    async def submit(self, job: Job, wanted: Sequence[Request]) -> list[RunId]:
        """Ask for runs; what is asked for while others are being written is written together, next."""
        name = (job.name, job.task)
        if name not in self._writing:
            self._writing.add(name)
            try:
                return await self._submit(self._db, job, wanted)
            finally:
                self._next(job)
        answer: asyncio.Future[list[RunId]] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(name, []).append(_Asked(wanted, self._note, answer))
        return await answer

    def _next(self, job: Job) -> None:
        """Go on with what was asked for meanwhile, if anything was."""
        name = (job.name, job.task)
        asked = self._asked.pop(name, None)
        if asked is None:
            self._writing.discard(name)
        else:
            writing = asyncio.create_task(self._write(job, asked))
            self._tasks.add(writing)
            writing.add_done_callback(self._tasks.discard)

    async def _write(self, job: Job, asked: Sequence[_Asked]) -> None:
        notes = [each.note for each in asked if each.note is not None]
        db = self._db.noting(_Notes(notes)) if notes else self._db
        try:
            ids = iter(await self._submit(db, job, [one for each in asked for one in each.wanted]))
            for each in asked:
                mine = list(islice(ids, len(each.wanted)))
                if not each.answer.done():
                    each.answer.set_result(mine)
        except BaseException as error:  # noqa: BLE001 - it is theirs who asked
            for each in asked:
                if not each.answer.done():
                    each.answer.set_exception(error)
        finally:
            self._next(job)

    async def _submit(self, db: Database, job: Job, wanted: Sequence[Request]) -> list[RunId]:
        for _ in range(_TRIES):
            known = await self.known_job(job)
            ids = await submit(db, self._env, known, wanted)
            if ids is not None:
                self._bell.ring(known.job.pool)
                return ids
            self._known.pop(job.name, None)
        raise Conflict(f'job "{job.name}" changes all the time; try again')

    async def submit_through(self, connection: Any, known: Known, wanted: Sequence[Request]) -> list[RunId]:
        """Submit within a transaction of somebody else: the runs are there when it commits, or never."""
        async with adapted(connection) as tx:
            ids = await submit_in(tx, self._env, known, wanted)
        if ids is None:
            self._known.pop(known.job.name, None)
            raise Conflict(f'job "{known.job.name}" was edited at this moment; try again')
        return ids

    async def submit_many(self, job: Job, wanted: Iterable[Request]) -> list[RunId]:
        made: list[RunId] = []
        waiting = iter(wanted)
        while True:
            known, seen = await self.known_job(job), list[Request]()
            try:
                ids = None if known.exclusive else await submit_many(self._db, self._env, known, waiting, seen)
            except KeyedRequest:
                ids = None
            if ids is None:  # has a lane or keys, or was edited: the ordinary way, for this part of them
                seen += islice(waiting, AT_ONCE - len(seen))
                ids = await self.submit(job, seen) if seen else []
            made += ids
            if len(ids) < AT_ONCE:
                return made

    async def known_job(self, job: Job) -> Known:
        """Return the job of that name, as we know it; made now if there is none."""
        known = self._known.get(job.name)
        if known is None or known.job.task != job.task:
            try:
                view = await self.find_job(job.name)
            except NotFound:
                async with self._db.transaction() as tx:
                    await insert_jobs(
                        tx, [(JobId(self._env.new_id()), job)], author=self._author, reason="submitted to"
                    )
                view = await self.find_job(job.name)
            if view.definition.task != job.task:
                raise Conflict(f'the job "{job.name}" runs task "{view.definition.task}", not "{job.task}"; rename one')
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[job.name] = Known(view.id, view.version, view.definition)
        return known

    async def trigger(self, job: JobId, wanted: Request) -> RunId:
        for _ in range(_TRIES):
            view = await self.find_job(job)
            if view.state is JobState.DELETED:
                raise NotFound(f'job "{view.name}" was deleted')
            known = Known(view.id, view.version, view.definition)
            ids = await submit(self._db, self._env, known, [wanted])
            if ids is not None:
                self._bell.ring(view.definition.pool)
                return ids[0]
        raise Conflict(f"job {job} changes all the time; try again")

    async def put_job(self, job: Job, *, reason: str) -> JobView:
        check_inline(job.payload)
        job_id = await put_job(self._db, self._env, job, author=self._author, reason=reason)
        return await self.find_job(job_id)

    async def find_job(self, name_or_id: str | UUID) -> JobView:
        async with self._db.connection() as connection:
            return await reading.find_job(connection, self._tenant, name_or_id)

    async def list_jobs(self, wanted: JobFilter, *, limit: int, after: str | None) -> Page[JobView]:
        return await reading.list_jobs(self._db, self._tenant, wanted, limit=limit, after=after)

    async def change_job(self, job: JobId, change: Change) -> JobView:
        if change.definition is not None:
            check_inline(change.definition.payload)
        await self.find_job(job)  # of this tenant
        await change_job(self._db, self._env, job, replace(change, author=self._author))
        return await self.find_job(job)

    async def versions(self, job: JobId, *, limit: int) -> Sequence[VersionView]:
        await self.find_job(job)
        return await reading.versions_of(self._db, job, limit=limit)

    async def backfill(
        self, job: JobId, *, start: datetime, end: datetime, request: str | None, pace: timedelta
    ) -> int:
        view = await self.find_job(job)
        written = await backfill(
            self._db,
            self._definitions,
            job,
            Range(start=start, end=end),
            request=request or self._env.new_id().hex,
            pace=pace,
        )
        self._bell.ring(view.definition.pool)
        return written

    async def slots(self, job: JobId, *, start: datetime, end: datetime, limit: int) -> Sequence[SlotView]:
        await self.find_job(job)
        return await reading.slots_of(self._db, job, start=start, end=end, limit=limit)

    async def explain(self, job: JobId, at: datetime) -> Sequence[str]:
        await self.find_job(job)
        return explain_slot(await evidence(self._db, str(job), at), at)

    async def list_runs(self, wanted: RunFilter, *, limit: int, after: str | None) -> Page[RunView]:
        return await reading.list_runs(self._db, self._tenant, wanted, limit=limit, after=after)

    async def find_run(self, run: UUID) -> RunView:
        return await reading.find_run(self._db, self._tenant, run)

    async def attempts(self, run: RunView) -> Sequence[AttemptView]:
        return await reading.attempts_of(self._db, run)

    async def lines(self, run: RunView, *, after: tuple[int, int], limit: int) -> Sequence[Line]:
        return await read_lines(self._db, run, after=after, limit=limit)

    async def cancel_run(self, run: RunId) -> State:
        return await cancel_run(self._db, run, tenant=self._tenant)

    async def cancel_runs(self, job: JobId) -> int:
        cancelled, after = 0, None
        while True:
            page = await self.list_runs(RunFilter(job=job, states=_MOVING), limit=500, after=after)
            for run in page.items:
                with suppress(NotFound):  # it ended meanwhile
                    await self.cancel_run(run.id)
                    cancelled += 1
            if page.next is None:
                return cancelled
            after = page.next

    async def retry_run(self, run: RunView, *, key: str | None = None) -> RunId:
        if run.state is State.WAITING and await retry_now(self._db, run.id):
            self._bell.ring(run.pool)
            return run.id
        if run.settled_at is None:
            raise Conflict(f"run {run.id} is {run.state}; it can be retried when it waits or has ended")
        if run.state is State.DEAD:
            return await self.replay(await self.find_letter(run.id), payload=None)
        again = await replay_run(self._db, self._definitions, self._env, run, key=key)
        self._bell.ring(run.pool)
        return again

    async def list_letters(self, wanted: LetterFilter, *, limit: int, after: str | None) -> Page[DeadLetter]:
        return await dead_letters.list_letters(self._db, self._tenant, wanted, limit=limit, after=after)

    async def find_letter(self, run: UUID) -> DeadLetter:
        return await dead_letters.find_letter(self._db, self._tenant, run)

    async def replay(self, letter: DeadLetter, *, payload: str | None) -> RunId:
        again = await dead_letters.replay(self._db, self._definitions, letter, payload=payload)
        self._bell.ring("")
        return again

    async def discard(self, run: UUID, *, reason: str) -> bool:
        return await dead_letters.discard(self._db, self._tenant, run, reason=reason)

    async def nodes(self) -> Sequence[NodeView]:
        return await reading.list_nodes(self._db)

    async def pools(self) -> Sequence[PoolView]:
        return await reading.list_pools(self._db)

    async def pause_pool(self, pool: str, *, reason: str) -> None:
        await nodes.pause_pool(self._db, pool, author=self._author, reason=reason)

    async def resume_pool(self, pool: str) -> bool:
        return await nodes.resume_pool(self._db, pool)

    async def ask_node(self, node: NodeId, wish: str) -> None:
        await nodes.ask(self._db, node, nodes.Wish(wish))

    def watch(self, *, job: JobId | None, run: UUID | None) -> AsyncGenerator[Event]:
        return over_database(self._db, self._env, self._tenant, job=job, run=run)
