"""What can be done with runs and dead letters, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
from msgspec import UNSET

from mainspring.api.app import Handler
from mainspring.api.checks import Checks
from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.domain.access import Scope
from mainspring.domain.asking import LetterFilter, Request, RunFilter
from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import Conflict, InvalidRequest, NotFound
from mainspring.domain.ids import JobId, RunId
from mainspring.domain.job import JobState, Json, check_payload, job_to_json
from mainspring.domain.run import FINAL, State
from mainspring.domain.views import RunView
from mainspring.rest import shapes
from mainspring.rest.asked import RunRequest
from mainspring.rest.definitions import job_of
from mainspring.sdk.direct import Direct

_FIRST_LOOK: Final = 0.01
_LONGEST_LOOK: Final = 0.25


class Runs:
    """Handlers of the routes of runs."""

    def __init__(self, desk: Desk, checks: Checks) -> None:
        self._desk = desk
        self._checks = checks

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "runs.submit": self.submit,
            "runs.list": self.list,
            "runs.get": self.get,
            "runs.attempts": self.attempts,
            "runs.logs": self.logs,
            "runs.cancel": self.cancel,
            "runs.retry": self.retry,
            "dead_letters.list": self.list_letters,
            "dead_letters.get": self.get_letter,
            "dead_letters.replay": self.replay,
            "dead_letters.discard": self.discard,
        }

    async def submit(self, call: Call) -> Reply:
        job = job_of(call.body.job, tenant=call.principal.tenant)
        if not job.on_demand:
            allowed = "leave it out; write jobs that have one with PUT /jobs/{name}"
            raise InvalidRequest("runs are asked for, not scheduled", field="job.schedule", value="", allowed=allowed)
        making = not await self._is_there(call, job.name)
        if making:
            call.principal.require(Scope.JOBS_WRITE)
        await self._checks.new_jobs(call.principal, [job], more=1 if making else 0)
        await self._checks.batch(call.principal, len(call.body.runs), "runs")
        wanted = [await self._request(call, job.task, each, place) for place, each in enumerate(call.body.runs)]
        after: Json = {"runs": len(wanted), **({"definition": job_to_json(job)} if making else {})}
        backend = self._desk.changing(call, job.name, after=after, reason=call.body.reason)
        ids = await backend.submit(job, wanted)
        return json_reply(shapes.Submitted(ids=tuple(ids)), status=201)

    async def _is_there(self, call: Call, name: str) -> bool:
        try:
            return (await self._desk.of(call).find_job(name)).state is not JobState.DELETED
        except NotFound:
            return False

    async def _request(self, call: Call, task: str, asked: RunRequest, place: int) -> Request:
        payload = None if asked.payload is UNSET else written(asked.payload)
        await self._checks.payload(call.principal, task, payload, asked.payload, f"runs[{place}].payload")
        delay = None if asked.delay is None else parse_duration(asked.delay, field=f"runs[{place}].delay")
        key = asked.key or (f"{call.key}/{place}" if call.key else None)  # the same request again: the same runs
        return Request(
            key=key, payload=payload, due_at=asked.due_at, delay=delay, priority=asked.priority, pool=asked.pool
        ).checked()

    async def list(self, call: Call) -> Reply:
        asked = call.query
        wanted = RunFilter(
            job=await self._job(call, asked.job),
            states=asked.state,
            pool=asked.pool,
            kind=asked.kind,
            since=asked.since,
            until=asked.until,
        )
        page = await self._desk.of(call).list_runs(wanted, limit=asked.limit, after=asked.after)
        items = tuple(shapes.run_answer(view, payloads=call.principal.sees_payloads) for view in page.items)
        return json_reply(shapes.RunPage(items=items, next=page.next))

    async def get(self, call: Call) -> Reply:
        return run_reply(await self._find(call), call)

    async def attempts(self, call: Call) -> Reply:
        found = await self._desk.of(call).attempts(await self._find(call))
        payloads = call.principal.sees_payloads
        return json_reply(
            shapes.Attempts(items=tuple(shapes.attempt_answer(each, payloads=payloads) for each in found))
        )

    async def logs(self, call: Call) -> Reply:
        run = await self._find(call)
        place = _place(call.query.after)
        lines = await self._desk.of(call).lines(run, after=place, limit=call.query.limit)
        last = (lines[-1].attempt, lines[-1].number) if lines else place
        ended = run.state in FINAL and len(lines) < call.query.limit
        return json_reply(
            shapes.Lines(items=tuple(map(shapes.line_answer, lines)), next=f"{last[0]}.{last[1]}", ended=ended)
        )

    async def cancel(self, call: Call) -> Reply:
        run = _id(call)
        state = await self._desk.changing(call, str(run), reason=call.body.reason).cancel_run(RunId(run))
        return json_reply(shapes.RunStopped(id=run, state=state))

    async def retry(self, call: Call) -> Reply:
        run = await self._find(call)
        payload = await self._new_payload(call, run.task)
        backend = self._desk.changing(call, str(run.id), reason=call.body.reason)
        if payload is None:
            again = await backend.retry_run(run, key=call.key)
        elif run.state is State.DEAD:
            again = await backend.replay(await backend.find_letter(run.id), payload=payload)
        elif run.state in FINAL:
            again = await backend.trigger(run.job_id, Request(payload=payload, key=call.key).checked())
        else:
            raise Conflict(f"run {run.id} is {run.state}; another payload is for a run that has ended")
        return run_reply(await self._desk.of(call).find_run(again), call, status=201)

    async def list_letters(self, call: Call) -> Reply:
        asked = call.query
        wanted = LetterFilter(
            job=await self._job(call, asked.job), reason=asked.reason, since=asked.since, until=asked.until
        )
        page = await self._desk.of(call).list_letters(wanted, limit=asked.limit, after=asked.after)
        items = tuple(shapes.letter_answer(view, payloads=call.principal.sees_payloads) for view in page.items)
        return json_reply(shapes.LetterPage(items=items, next=page.next))

    async def get_letter(self, call: Call) -> Reply:
        letter = await self._desk.of(call).find_letter(_id(call))
        return json_reply(shapes.letter_answer(letter, payloads=call.principal.sees_payloads))

    async def replay(self, call: Call) -> Reply:
        letter = await self._desk.of(call).find_letter(_id(call))
        task = None
        if call.body.payload is not UNSET:
            task = (await self._desk.of(call).find_job(letter.job_id)).definition.task
        payload = await self._new_payload(call, task)
        backend = self._desk.changing(call, str(letter.run_id), reason=call.body.reason)
        again = await backend.replay(letter, payload=payload)
        return run_reply(await self._desk.of(call).find_run(again), call, status=201)

    async def discard(self, call: Call) -> Reply:
        letter = await self._desk.of(call).find_letter(_id(call))
        backend = self._desk.changing(call, str(letter.run_id), reason=call.body.reason)
        discarded = await backend.discard(letter.run_id, reason=call.body.reason)
        return json_reply(shapes.Discarded(discarded=discarded))

    async def _new_payload(self, call: Call, task: str | None) -> str | None:
        payload = None if call.body.payload is UNSET else written(call.body.payload)
        await self._checks.payload(call.principal, task, payload, call.body.payload, "payload")
        return payload

    async def _find(self, call: Call) -> RunView:
        return await self._desk.of(call).find_run(_id(call))

    async def _job(self, call: Call, name: str | None) -> JobId | None:
        return None if name is None else (await self._desk.of(call).find_job(name)).id


async def ended_within(backend: Direct, run: UUID, call: Call) -> RunView:
    """Return the run: at once, or when it has ended if the caller would rather wait, or when that was long enough."""
    view = await backend.find_run(run)
    if call.wait is None:
        return view
    pause = _FIRST_LOOK
    try:
        async with asyncio.timeout(call.wait.total_seconds()):
            while view.state not in FINAL and not (call.gone is not None and call.gone.is_set()):
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_LOOK)
                view = await backend.find_run(run)
    except TimeoutError:
        return view  # as it was; it goes on
    return view


def run_reply(view: RunView, call: Call, *, status: int = 200) -> Reply:
    headers = {"Preference-Applied": "wait"} if call.wait is not None and call.route.waits else {}
    return json_reply(shapes.run_answer(view, payloads=call.principal.sees_payloads), status=status, headers=headers)


def written(payload: Json) -> str:
    """Write a payload down.

    Raises:
        InvalidRequest: it is too large.
    """
    return check_payload(msgspec.json.encode(payload).decode()) or ""


def _id(call: Call) -> UUID:
    text = call.names["run"]
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f'there is no run "{text[:60]}"') from None


def _place(cursor: str | None) -> tuple[int, int]:
    attempt, _, number = (cursor or "0.0").partition(".")
    if not (attempt + number).isascii() or not attempt.isdecimal() or not number.isdecimal() or len(cursor or "") > 18:
        allowed = "use the one that the lines before gave as next"
        raise InvalidRequest("it is no cursor", field="after", value=(cursor or "")[:40], allowed=allowed)
    return int(attempt), int(number)
