"""What can be done with jobs, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import UNSET

from mainspring.api.app import Handler
from mainspring.api.checks import Checks
from mainspring.api.desk import Desk
from mainspring.api.making import Making
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.api.runs import ended_within, run_reply, written
from mainspring.api.seeing import hidden, in_words, seen
from mainspring.api.together import Together
from mainspring.domain.asking import Change, JobFilter, Request, RunFilter
from mainspring.domain.durations import LAST_INSTANT, later, parse_duration
from mainspring.domain.errors import InvalidRequest, MainspringError, NotFound
from mainspring.domain.job import Job, JobState, Json, job_to_json
from mainspring.domain.views import JobStatusView, JobView
from mainspring.insight.dst import note
from mainspring.rest import shapes
from mainspring.rest.definitions import job_of, merged
from mainspring.sdk.direct import Direct
from mainspring.store import reading
from mainspring.store.backfill import Range, slots_in

_READS_APART: Final = 0.002  # seconds, from the beginning of one read of many statuses to the next


class Jobs:
    """Handlers of the routes of jobs."""

    def __init__(self, desk: Desk, checks: Checks, making: Making) -> None:
        self._desk = desk
        self._checks = checks
        self._making = making
        self._statuses = Together(self._read_statuses, apart=_READS_APART)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "jobs.create": self.create,
            "jobs.create_many": self.create_many,
            "jobs.list": self.list,
            "jobs.get": self.get,
            "jobs.put": self.put,
            "jobs.edit": self.edit,
            "jobs.delete": self.delete,
            "jobs.status": self.status,
            "jobs.set_status": self.set_status,
            "jobs.pause": self.pause,
            "jobs.resume": self.resume,
            "jobs.trigger": self.trigger,
            "jobs.cancel": self.cancel,
            "jobs.backfill": self.backfill,
            "jobs.runs": self.runs,
            "jobs.slots": self.slots,
            "jobs.upcoming": self.upcoming,
            "jobs.explain": self.explain,
            "jobs.versions": self.versions,
        }

    async def create(self, call: Call) -> Reply:
        job = job_of(call.body, tenant=call.principal.tenant)
        refused = await self._refused(call, [job])
        return refused or await self._making.one(call, job, call.body.reason)

    async def create_many(self, call: Call) -> Reply:
        jobs = []
        for place, definition in enumerate(call.body.jobs):
            try:
                jobs.append(job_of(definition, tenant=call.principal.tenant))
            except InvalidRequest as error:
                where = f"jobs[{place}].{error.field}"
                raise type(error)(error.reason, field=where, value=error.value, allowed=error.allowed) from None
        refused = await self._refused(call, jobs, batch=True)
        return refused or await self._making.many(call, jobs, call.body.reason)

    async def _refused(self, call: Call, jobs: Sequence[Job], *, batch: bool = False) -> Reply | None:
        """Refuse new jobs, unless this very request made them before: then return what it was answered."""
        try:
            await self._checks.new_jobs(call.principal, jobs, batch=batch)
        except InvalidRequest:
            answered = await self._making.answered(call)
            if answered is None:
                raise
            return answered
        return None

    async def list(self, call: Call) -> Reply:
        asked = call.query
        wanted = JobFilter(states=asked.state, task=asked.task, prefix=asked.prefix, owner=asked.owner, tags=asked.tag)
        page = await self._desk.of(call).list_jobs(wanted, limit=asked.limit, after=asked.after)
        items = tuple(shapes.job_answer(seen(view, call), in_words(view.definition.schedule)) for view in page.items)
        return json_reply(shapes.JobPage(items=items, next=page.next))

    async def get(self, call: Call) -> Reply:
        view = await self._find(call)
        answer = shapes.job_answer(seen(view, call), in_words(view.definition.schedule))
        return json_reply(answer, headers={"ETag": f'"{view.version}"'})

    async def status(self, call: Call) -> Reply:
        view = await self._statuses.ask(call.principal.tenant, call.names["job"])
        return json_reply(shapes.job_status(view), headers={"ETag": f'"{view.version}"'})

    async def _read_statuses(self, tenant: str, names: Sequence[str]) -> Sequence[JobStatusView | MainspringError]:
        found = await reading.statuses(self._desk.db, tenant, set(names))
        return [found.get(name) or _no_job(name) for name in names]

    async def put(self, call: Call) -> Reply:
        job = job_of(call.body, tenant=call.principal.tenant)
        old = await self._found(call)
        if old is None and (job.name != call.names["job"] or "if-match" in call.headers):
            if job.name == call.names["job"] or reading.as_id(call.names["job"]) is not None:
                raise _no_job(call.names["job"])
            allowed = f'use "{call.names["job"][:80]}", as in the path'
            raise InvalidRequest("it is not the one in the path", field="name", value=job.name, allowed=allowed)
        await self._checks.new_jobs(call.principal, [job], more=0 if old is not None else 1)
        before = None if old is None else _logged(old)
        backend = self._changing(call, job.name, before=before, after=_logged_as(job), reason=call.body.reason)
        if old is None:
            view = await backend.put_job(job, reason=call.body.reason)
        else:
            change = Change(definition=job, if_version=call.if_version, reason=call.body.reason)
            view = (
                old if old.definition == job and call.if_version is None else await backend.change_job(old.id, change)
            )
        return _changed(view, call, status=200 if old is not None else 201)

    async def edit(self, call: Call) -> Reply:
        old = await self._find(call)
        job = job_of(merged(old.definition, call.body), tenant=call.principal.tenant)
        await self._checks.new_jobs(call.principal, [job], more=0)
        reason = "" if call.body.reason in (UNSET, None) else call.body.reason
        # What is not named stays as it is, and "it is" may have changed since we looked: so the version is held fast.
        version = old.version if call.if_version is None else call.if_version
        change = Change(definition=job, if_version=version, reason=reason)
        backend = self._changing(call, old.name, before=_logged(old), after=_logged_as(job), reason=reason)
        return _changed(await backend.change_job(old.id, change), call)

    async def delete(self, call: Call) -> Reply:
        return await self._set(call, JobState.DELETED, call.query.reason)

    async def set_status(self, call: Call) -> Reply:
        return await self._set(call, JobState(call.body.state), call.body.reason, call.body.until)

    async def pause(self, call: Call) -> Reply:
        return await self._set(call, JobState.PAUSED, call.body.reason, call.body.until)

    async def resume(self, call: Call) -> Reply:
        return await self._set(call, JobState.ACTIVE, call.body.reason)

    async def _set(self, call: Call, state: JobState, reason: str, until: datetime | None = None) -> Reply:
        if until is not None and state is not JobState.PAUSED:
            raise InvalidRequest("it goes with a pause", field="until", value=str(until), allowed="leave it out")
        old = await self._find(call)
        if old.state is JobState.DELETED:
            raise _no_job(call.names["job"])
        after = {"state": state.value, **({} if until is None else {"until": until.isoformat()})}
        backend = self._changing(
            call, old.name, before={"state": old.state.value, "version": old.version}, after=after, reason=reason
        )
        change = Change(state=state, reason=reason, resume_at=until, if_version=call.if_version)
        return _changed(await backend.change_job(old.id, change), call)

    async def trigger(self, call: Call) -> Reply:
        job = await self._find(call)
        payload = None if call.body.payload is UNSET else written(call.body.payload)
        await self._checks.payload(call.principal, job.definition.task, payload, call.body.payload, "payload")
        asked = Request(payload=payload, key=call.body.key or call.key, priority=call.body.priority).checked()
        backend = self._changing(call, job.name, after={"key": asked.key}, reason=call.body.reason)
        run_id = await backend.trigger(job.id, asked)
        view = await ended_within(self._desk.of(call), run_id, call)
        return run_reply(view, call, status=201)

    async def cancel(self, call: Call) -> Reply:
        job = await self._find(call)
        cancelled = await self._changing(call, job.name, reason=call.body.reason).cancel_runs(job.id)
        return json_reply(shapes.Cancelled(runs=cancelled))

    async def backfill(self, call: Call) -> Reply:
        job, asked = await self._find(call), call.body
        wanted = Range(start=asked.start, end=asked.end)
        slots = slots_in(job.definition, wanted)
        first, last = (slots[0], slots[-1]) if slots else (None, None)
        pace = timedelta(0) if asked.pace is None else parse_duration(asked.pace, field="pace")
        runs = len(slots)
        if not asked.dry_run:
            after: Json = {"start": asked.start.isoformat(), "end": asked.end.isoformat(), "slots": len(slots)}
            backend = self._changing(call, job.name, after=after, reason=asked.reason)
            runs = await backend.backfill(
                job.id, start=asked.start, end=asked.end, request=asked.key or call.key, pace=pace
            )
        return json_reply(shapes.Backfilled(dry_run=asked.dry_run, slots=len(slots), runs=runs, first=first, last=last))

    async def runs(self, call: Call) -> Reply:
        job, asked = await self._find(call), call.query
        wanted = RunFilter(
            job=job.id, states=asked.state, pool=asked.pool, kind=asked.kind, since=asked.since, until=asked.until
        )
        page = await self._desk.of(call).list_runs(wanted, limit=asked.limit, after=asked.after)
        items = tuple(shapes.run_answer(view, payloads=call.principal.sees_payloads) for view in page.items)
        return json_reply(shapes.RunPage(items=items, next=page.next))

    async def slots(self, call: Call) -> Reply:
        job, asked = await self._find(call), call.query
        found = await self._desk.of(call).slots(job.id, start=asked.start, end=asked.end, limit=asked.limit)
        return json_reply(shapes.Slots(items=tuple(map(shapes.slot_answer, found))))

    async def upcoming(self, call: Call) -> Reply:
        job = await self._find(call)
        schedule, zone = job.definition.schedule, ZoneInfo(job.definition.schedule.timezone)
        start = job.next_fire_at or self._desk.env.now()
        if call.query.after is not None:
            start = later(call.query.after, timedelta(milliseconds=1))
        items = tuple(
            shapes.UpcomingSlot(at=at, local=at.astimezone(zone).isoformat(), note=note(schedule, at))
            for at in schedule.between(start, LAST_INSTANT, call.query.limit, fired=job.fired)
        )
        return json_reply(shapes.Upcoming(timezone=schedule.timezone, items=items))

    async def explain(self, call: Call) -> Reply:
        job = await self._find(call)
        sentences = await self._desk.of(call).explain(job.id, call.query.at)
        return json_reply(shapes.Explained(job=job.name, at=call.query.at, sentences=tuple(sentences)))

    async def versions(self, call: Call) -> Reply:
        job = await self._find(call)
        found = await self._desk.of(call).versions(job.id, limit=call.query.limit)
        if not call.principal.sees_payloads:
            found = [replace(each, definition=hidden(each.definition)) for each in found]
        return json_reply(shapes.Versions(items=tuple(map(shapes.version_answer, found))))

    async def _find(self, call: Call) -> JobView:
        return await self._desk.of(call).find_job(call.names["job"])

    async def _found(self, call: Call) -> JobView | None:
        try:
            view = await self._find(call)
        except NotFound:
            return None
        return None if view.state is JobState.DELETED else view

    def _changing(
        self, call: Call, subject: str, *, before: Json = None, after: Json = None, reason: str = ""
    ) -> Direct:
        return self._desk.changing(call, subject, before=before, after=after, reason=reason)


def _changed(view: JobView, call: Call, *, status: int = 200) -> Reply:
    answer = shapes.job_changed(seen(view, call), in_words(view.definition.schedule))
    return json_reply(answer, status=status, headers={"ETag": f'"{view.version}"'})


def _logged(view: JobView) -> Json:
    return {"version": view.version, "state": view.state.value, **_logged_as(view.definition)}


def _logged_as(job: Job) -> dict[str, Json]:
    return {"definition": job_to_json(job)}


def _no_job(name: str) -> NotFound:
    return NotFound(f'there is no job "{name[:80]}"')
