"""The SDK over HTTP: the same operations as over a database, asked of a server. Nothing is decided here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec

from mainspring.domain.asking import Change, JobFilter, LetterFilter, Request, RunFilter
from mainspring.domain.durations import format_duration
from mainspring.domain.errors import AlreadyExists, Conflict, NotFound
from mainspring.domain.ids import JobId, NodeId, RunId
from mainspring.domain.job import Job, JobState, instant_text
from mainspring.domain.run import State
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
from mainspring.rest import shapes
from mainspring.rest.asked import LARGEST_PAGE
from mainspring.rest.definitions import definition_of
from mainspring.sdk.addresses import checked_url
from mainspring.sdk.events import over_http
from mainspring.sdk.http import Http
from mainspring.sdk.session import Through, open_session
from mainspring.tasks.task import ON_DEMAND

TENANT: Final = "Mainspring-Tenant"
_MOST_RUNS: Final = 5_000  # in one request
_MOST_BYTES: Final = 8 << 20
_MOST_LINES: Final = 1_000


@asynccontextmanager
async def open_remote(
    url: str,
    key: str | None = None,
    *,
    tenant: str | None = None,
    size: int = 10,
    insecure: bool = False,
    through: Through | None = None,
    env: Environment | None = None,
) -> AsyncIterator[Remote]:
    """Find a server, and who we are to it.

    Raises:
        Unauthenticated: it does not know the key.
        Unavailable: it cannot be reached.
    """
    where = checked_url(url, insecure=insecure)
    async with open_session(key, size=size) as session:
        send = session.send if through is None else through(session.send)
        headers = {} if tenant is None else {TENANT: tenant}
        http = Http(where, send, session.stream, env or SystemEnvironment(), headers=headers)
        yield Remote(http, (await http.ask("me.get", shapes.MeAnswer)).tenant)


class Remote:
    """The :class:`~mainspring.sdk.backend.Backend` over HTTP."""

    def __init__(self, http: Http, tenant: str) -> None:
        self.tenant = tenant  # the one that the server takes us for
        self._http = http
        self._ask = http.ask
        self._page = http.page

    async def submit(self, job: Job, wanted: Sequence[Request]) -> list[RunId]:
        if not job.on_demand:
            job = await self._scheduled(job)
        definition = definition_of(job)
        made: list[RunId] = []
        for part in _parts(map(_asked, wanted)):
            body = {"job": definition, "runs": part}
            made += map(RunId, (await self._ask("runs.submit", shapes.Submitted, body=body)).ids)
        return made

    async def _scheduled(self, job: Job) -> Job:
        """See to it that a job with a schedule is there; return it without one, as runs are asked for."""
        try:
            await self.find_job(job.name)
        except NotFound:
            body = {**msgspec.to_builtins(definition_of(job)), "reason": "submitted to"}
            with suppress(AlreadyExists):  # somebody was quicker
                await self._ask("jobs.create", shapes.JobAnswer, body=body)
        return replace(job, schedule=ON_DEMAND)

    async def submit_many(self, job: Job, wanted: Iterable[Request]) -> list[RunId]:
        made: list[RunId] = []
        waiting = iter(wanted)
        while some := list(islice(waiting, _MOST_RUNS)):  # taken as they are written, not before
            made += await self.submit(job, some)
        return made

    async def trigger(self, job: JobId, wanted: Request) -> RunId:
        return RunId((await self._ask("jobs.trigger", shapes.RunAnswer, str(job), body=_asked(wanted))).id)

    async def put_job(self, job: Job, *, reason: str) -> JobView:
        return await self._put(job.name, job, reason)

    async def _put(self, where: str, job: Job, reason: str, if_version: int | None = None) -> JobView:
        body = {**msgspec.to_builtins(definition_of(job)), "reason": reason}
        answer = await self._ask("jobs.put", shapes.JobChanged, where, body=body, if_version=if_version)
        return shapes.job_view(answer)

    async def find_job(self, name_or_id: str | UUID) -> JobView:
        return shapes.job_view(await self._ask("jobs.get", shapes.JobAnswer, str(name_or_id)))

    async def list_jobs(self, wanted: JobFilter, *, limit: int, after: str | None) -> Page[JobView]:
        query = {
            "state": wanted.states,
            "task": wanted.task,
            "prefix": wanted.prefix,
            "owner": wanted.owner,
            "tag": wanted.tags,
        }
        return await self._page("jobs.list", shapes.JobPage, shapes.job_view, query, limit, after)

    async def change_job(self, job: JobId, change: Change) -> JobView:
        if change.only_from is not None or (change.definition is not None and change.state is not None):
            raise Conflict("a server changes a job's definition or its state, one at a time")
        version, why = change.if_version, {"reason": change.reason}
        if change.definition is not None:  # all of it: who may write a job sees all of it
            return await self._put(str(job), change.definition, change.reason, version)
        match change.state:
            case JobState.PAUSED:
                body = why | ({} if change.resume_at is None else {"until": instant_text(change.resume_at)})
                asking = self._ask("jobs.pause", shapes.JobChanged, str(job), body=body, if_version=version)
            case JobState.DELETED:
                asking = self._ask("jobs.delete", shapes.JobChanged, str(job), query=why, if_version=version)
            case _:
                asking = self._ask("jobs.resume", shapes.JobChanged, str(job), body=why, if_version=version)
        return shapes.job_view(await asking)

    async def versions(self, job: JobId, *, limit: int) -> Sequence[VersionView]:
        answer = await self._ask("jobs.versions", shapes.Versions, str(job), query={"limit": limit})
        return [shapes.version_view(each, self.tenant) for each in answer.items]

    async def backfill(
        self, job: JobId, *, start: datetime, end: datetime, request: str | None, pace: timedelta
    ) -> int:
        body = {"start": instant_text(start), "end": instant_text(end)}
        body |= ({"pace": format_duration(pace)} if pace else {}) | ({} if request is None else {"key": request})
        return (await self._ask("jobs.backfill", shapes.Backfilled, str(job), body=body)).runs

    async def slots(self, job: JobId, *, start: datetime, end: datetime, limit: int) -> Sequence[SlotView]:
        found: list[SlotView] = []
        while True:  # newest first: the next are before the last one
            most = min(limit - len(found), LARGEST_PAGE)
            query = {"start": instant_text(start), "end": instant_text(end), "limit": most}
            some = (await self._ask("jobs.slots", shapes.Slots, str(job), query=query)).items
            found += map(shapes.slot_view, some)
            if len(some) < most or len(found) == limit:
                return found
            end = some[-1].slot

    async def explain(self, job: JobId, at: datetime) -> Sequence[str]:
        query = {"at": instant_text(at)}
        return list((await self._ask("jobs.explain", shapes.Explained, str(job), query=query)).sentences)

    async def list_runs(self, wanted: RunFilter, *, limit: int, after: str | None) -> Page[RunView]:
        query = {
            "job": wanted.job,
            "state": wanted.states,
            "pool": wanted.pool,
            "kind": wanted.kind,
            **_range(wanted),
        }
        return await self._page("runs.list", shapes.RunPage, shapes.run_view, query, limit, after)

    async def find_run(self, run: UUID) -> RunView:
        return shapes.run_view(await self._ask("runs.get", shapes.RunAnswer, str(run)))

    async def attempts(self, run: RunView) -> Sequence[AttemptView]:
        answer = await self._ask("runs.attempts", shapes.Attempts, str(run.id))
        return list(map(shapes.attempt_view, answer.items))

    async def lines(self, run: RunView, *, after: tuple[int, int], limit: int) -> Sequence[Line]:
        query = {"after": f"{after[0]}.{after[1]}", "limit": min(limit, _MOST_LINES)}
        return list(map(shapes.line_view, (await self._ask("runs.logs", shapes.Lines, str(run.id), query=query)).items))

    async def cancel_run(self, run: RunId) -> State:
        return (await self._ask("runs.cancel", shapes.RunStopped, str(run))).state

    async def cancel_runs(self, job: JobId) -> int:
        return (await self._ask("jobs.cancel", shapes.Cancelled, str(job))).runs

    async def retry_run(self, run: RunView) -> RunId:
        return RunId((await self._ask("runs.retry", shapes.RunAnswer, str(run.id))).id)

    async def list_letters(self, wanted: LetterFilter, *, limit: int, after: str | None) -> Page[DeadLetter]:
        query = {"job": wanted.job, "reason": wanted.reason, **_range(wanted)}
        return await self._page("dead_letters.list", shapes.LetterPage, shapes.letter_view, query, limit, after)

    async def find_letter(self, run: UUID) -> DeadLetter:
        return shapes.letter_view(await self._ask("dead_letters.get", shapes.LetterAnswer, str(run)))

    async def replay(self, letter: DeadLetter, *, payload: str | None) -> RunId:
        body = {} if payload is None else {"payload": msgspec.Raw(payload.encode())}
        return RunId((await self._ask("dead_letters.replay", shapes.RunAnswer, str(letter.run_id), body=body)).id)

    async def discard(self, run: UUID, *, reason: str) -> bool:
        asking = self._ask("dead_letters.discard", shapes.Discarded, str(run), body={"reason": reason})
        return (await asking).discarded

    async def nodes(self) -> Sequence[NodeView]:
        return list(map(shapes.node_view, (await self._ask("cluster.show", shapes.ClusterAnswer)).nodes))

    async def pools(self) -> Sequence[PoolView]:
        return list(map(shapes.pool_view, (await self._ask("pools.list", shapes.Pools)).items))

    async def pause_pool(self, pool: str, *, reason: str) -> None:
        await self._ask("pools.pause", shapes.Health, pool, body={"reason": reason})

    async def resume_pool(self, pool: str) -> bool:
        return (await self._ask("pools.resume", shapes.PoolResumed, pool)).resumed

    async def ask_node(self, node: NodeId, wish: str) -> None:
        await self._ask(f"workers.{wish}", shapes.Health, str(node))

    def watch(self, *, job: JobId | None, run: UUID | None) -> AsyncGenerator[Event]:
        return over_http(self._http, {"job": job, "run": run})


def _asked(wanted: Request) -> dict[str, Any]:
    """Return a run that is asked for, as it travels; what is not given is left out."""
    given: dict[str, Any] = {"key": wanted.key, "priority": wanted.priority, "pool": wanted.pool}
    if wanted.payload is not None:
        given["payload"] = msgspec.Raw(wanted.payload.encode())
    if wanted.due_at is not None:
        given["due_at"] = instant_text(wanted.due_at)
    if wanted.delay is not None:
        given["delay"] = format_duration(wanted.delay)
    return {name: value for name, value in given.items() if value is not None}


def _parts(wanted: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Divide runs into requests that the server takes: not too many of them, nor too many bytes."""
    part, size = list[dict[str, Any]](), 0
    for each in wanted:
        length = 200 + len(each.get("payload", b""))  # besides its payload a run is short
        if part and (len(part) == _MOST_RUNS or size + length > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part


def _range(wanted: RunFilter | LetterFilter) -> dict[str, str | None]:
    given = {"since": wanted.since, "until": wanted.until}
    return {name: None if at is None else instant_text(at) for name, at in given.items()}
