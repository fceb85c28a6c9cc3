"""Doing bulk actions: each process that serves the API takes some, and goes through their items at their pace.

Promise. Every item is dealt with once, by the same operations and under the same author as if it had been asked for by
itself. A process that dies leaves its bulks to another, from the item on where it was (``store/bulks.py``).

Failures.
  an item fails            it is counted, the first are kept with their code, and the rest goes on
  the database is away     the bulk is left where it is, and taken again when it is back
  the process stops        its bulks are given back: another goes on within a second
  the process dies         another takes them when their rows have not been touched for a while
  the tenant is suspended  what it began itself ends there; what the operator began for it goes on
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from mainspring.api.checks import check_request
from mainspring.api.desk import Desk
from mainspring.api.tenancy import Tenancy
from mainspring.domain.asking import Change, Request
from mainspring.domain.errors import MainspringError, NotFound, Superseded, Unavailable
from mainspring.domain.ids import RunId
from mainspring.domain.job import JobState, Json
from mainspring.domain.run import State
from mainspring.domain.tenants import TenantState
from mainspring.domain.views import JobView
from mainspring.environment import Environment
from mainspring.rest.bulk import RULES, Action, filter_of, where_of
from mainspring.rest.problems import problem_of
from mainspring.sdk.direct import Direct
from mainspring.service import Stop, first_of
from mainspring.store import bulks
from mainspring.store.bulks import Bulk, Step
from mainspring.store.database import Database
from mainspring.store.log import Entry
from mainspring.store.matching import Meant, count_matches, matches

COUNTED_UP_TO: Final = 100_000
_logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_LOOK_EVERY: Final = timedelta(seconds=1)
_TOUCH_EVERY: Final = 0.5  # in seconds: also how soon a stop is seen between two items
_PIECE: Final = 200
_CATCH_UP: Final = 0.05  # in seconds: a sleep is not exact; what it took too long may be made up for, and no more

_STATES: Final = {
    Action.JOBS_PAUSE: JobState.PAUSED,
    Action.JOBS_RESUME: JobState.ACTIVE,
    Action.JOBS_DELETE: JobState.DELETED,
}


class Bulks:
    """Takes bulk actions and does them, of all tenants."""

    name = "Bulks"

    def __init__(self, desk: Desk, tenancy: Tenancy) -> None:
        self._desk = desk
        self._tenancy = tenancy
        self._node = desk.env.new_id()
        self._going: set[UUID] = set()
        self._more = asyncio.Event()

    def look(self) -> None:
        """Say that there is one to take."""
        self._more.set()

    async def run(self, stop: Stop) -> None:
        await bulks.forget_bulks(self._desk.db)
        async with asyncio.TaskGroup() as group:
            while not stop.requested:
                self._more.clear()
                while len(self._going) < _AT_ONCE:
                    bulk = await bulks.take_bulk(self._desk.db, self._node, but=self._going)
                    if bulk is None:
                        break
                    self._going.add(bulk.id)
                    group.create_task(self._keep(bulk, stop))
                await first_of(stop.wait(_LOOK_EVERY), self._more.wait())

    async def _keep(self, bulk: Bulk, stop: Stop) -> None:
        """Do a bulk as far as it goes. Whatever is wrong with it concerns no other."""
        try:
            await self._work(bulk, stop)
        except Superseded:
            pass  # stopped, or another's
        except Unavailable as error:
            _logger.warning("bulk %s is interrupted: %s", bulk.id, error)  # it is still ours, and taken again
        except Exception:
            _logger.exception("bulk %s failed", bulk.id)
            with suppress(Unavailable):
                await bulks.finish_bulk(self._desk.db, bulk, self._node, why_not="the server failed; see its log")
        finally:
            self._going.discard(bulk.id)

    async def _work(self, bulk: Bulk, stop: Stop) -> None:
        db = self._desk.db.scoped(bulk.tenant)
        if bulk.state == "counting":
            total = await count_matches(db, meant_by(bulk), most=COUNTED_UP_TO + 1)
            more = total > COUNTED_UP_TO
            bulk = await bulks.counted_bulk(db, bulk, self._node, min(total, COUNTED_UP_TO), more=more)
        quotas = await self._tenancy.quotas(bulk.tenant)
        pace = _Pace(self._desk.env, min(int(bulk.wanted["per_second"]), quotas.requests_per_second))
        touched = 0.0
        async for item in _items(db, bulk):
            if await pace.wait(stop):
                return await bulks.release_bulk(db, bulk, self._node)
            if self._desk.env.monotonic() - touched >= _TOUCH_EVERY:
                touched = self._desk.env.monotonic()
                state = await bulks.touch_bulk(self._desk.db, bulk, self._node)
                if state != TenantState.ACTIVE and not bulk.wanted.get("cluster"):
                    why = "the tenant is closed"
                    return await bulks.finish_bulk(db, bulk, self._node, why_not=why)
            await self._deal_with(db, bulk, item)
        return await bulks.finish_bulk(db, bulk, self._node)

    async def _deal_with(self, db: Database, bulk: Bulk, item: _Item) -> None:
        failure: dict[str, Json] | None = None
        try:
            if await _Doing(self._desk.for_tenant(bulk.tenant), bulk, self._node, item).do():
                return
        except (Superseded, Unavailable):
            raise
        except MainspringError as error:
            if not (isinstance(error, NotFound) and item.found):  # it was there when it was looked for
                failure = _failure(item, error, bulk)
        except Exception as error:
            _logger.exception("bulk %s failed at %s", bulk.id, item.name)
            failure = _failure(item, MainspringError(str(error)), bulk)
        await bulks.pass_over(db, bulk, self._node, item.place, failure)


class _Item(NamedTuple):
    id: UUID | None  # None: it is known by its name
    name: str
    place: str
    found: bool  # by a filter; not given by the one who asks

    @property
    def key(self) -> str | UUID:
        return self.name if self.id is None else self.id

    @property
    def run(self) -> UUID:
        return UUID(self.name) if self.id is None else self.id


class _Doing(NamedTuple):
    """What is done to one item."""

    backend: Direct
    bulk: Bulk
    node: UUID
    item: _Item

    async def do(self) -> bool:
        """Do it; return whether there was anything to do."""
        action = Action(self.bulk.action)
        match action:
            case Action.JOBS_PAUSE | Action.JOBS_RESUME | Action.JOBS_DELETE:
                return await self._set(_STATES[action])
            case Action.JOBS_TRIGGER:
                return await self._trigger()
            case Action.RUNS_CANCEL:
                await self._changing(str(self.item.run)).cancel_run(RunId(self.item.run))
                return True
            case Action.RUNS_RETRY:
                return await self._retry()
            case Action.LETTERS_REPLAY:
                return await self._replay(self.item.run)
            case Action.LETTERS_DISCARD:
                letter = await self.backend.find_letter(self.item.run)
                if letter.closed_at is not None:
                    return False
                return await self._changing(str(letter.run_id)).discard(letter.run_id, reason=self.bulk.reason)

    async def _set(self, state: JobState) -> bool:
        job = await self.backend.find_job(self.item.key)
        if job.state is state or self._changed(job):
            return False
        until = self.bulk.wanted.get("until")
        after = {"state": state.value, **({} if until is None else {"until": until})}
        changing = self._changing(job.name, before={"state": job.state.value, "version": job.version}, after=after)
        resume_at = None if until is None else datetime.fromisoformat(until)
        change = Change(state=state, reason=self.bulk.reason, resume_at=resume_at, only_from=job.state)
        await changing.change_job(job.id, change)
        return True

    async def _trigger(self) -> bool:
        job = await self.backend.find_job(self.item.key)
        if self._changed(job):
            return False
        self._check_payload(job)
        key = f"bulk/{self.bulk.id}/{job.id}"
        wanted = Request(key=key, payload=self.bulk.wanted.get("payload")).checked()
        await self._changing(job.name, after={"key": key}).trigger(job.id, wanted)
        return True

    async def _retry(self) -> bool:
        run = await self.backend.find_run(self.item.run)
        if run.state is State.DEAD:
            return await self._replay(run.id)
        if self.item.found and run.state not in RULES[Action.RUNS_RETRY].possible:
            return False
        await self._changing(str(run.id)).retry_run(run)
        return True

    async def _replay(self, run: UUID) -> bool:
        letter = await self.backend.find_letter(run)
        if letter.replayed_as is not None:
            return False
        if "payload" in self.bulk.wanted:
            self._check_payload(await self.backend.find_job(letter.job_id))
        changing = self._changing(str(letter.run_id))
        await changing.replay(letter, payload=self.bulk.wanted.get("payload"))
        return changing.noted  # else somebody else was quicker

    def _check_payload(self, job: JobView) -> None:
        if (payload := self.bulk.wanted.get("payload")) is not None:
            may_write = bool(self.bulk.wanted.get("writes"))
            check_request(job.definition.task, json.loads(payload), may_write=may_write)

    def _changed(self, job: JobView) -> bool:
        """Whether this is not any more what the filter has found."""
        possible = RULES[Action(self.bulk.action)].possible
        return self.item.found and (job.id != self.item.id or job.state not in possible)

    def _changing(self, subject: str, *, before: Json = None, after: Json = None) -> Direct:
        bulk = self.bulk
        entry = Entry(
            action=bulk.action,
            subject=subject,
            before=before,
            after=after,
            reason=bulk.reason,
            actor=bulk.author,
            request=f"bulk/{bulk.id}",
        )
        return self.backend.on_behalf_of(bulk.author, Step(bulk.id, self.node, self.item.place, entry))


class _Pace:
    """Lets so many pass in a second."""

    def __init__(self, env: Environment, per_second: int) -> None:
        self._env = env
        self._between = 1 / per_second
        self._next = env.monotonic()

    async def wait(self, stop: Stop) -> bool:
        """Wait for the turn of the next one; return whether it is time to stop."""
        early = self._next - self._env.monotonic()
        if early > 0:
            await stop.wait(timedelta(seconds=early))
        self._next = max(self._next + self._between, self._env.monotonic() - _CATCH_UP)
        return stop.requested


def meant_by(bulk: Bulk) -> Meant:
    """Return what a bulk with a filter is about: what was there when it was started."""
    wanted = filter_of(where_of(bulk.action, bulk.wanted["filter"]))
    return Meant(bulk.tenant, wanted, bulk.started_at, scheduled=bulk.action == Action.JOBS_PAUSE)


async def _items(db: Database, bulk: Bulk) -> AsyncIterator[_Item]:
    """Yield what is left to deal with, from the cursor on."""
    place = bulk.cursor
    if "ids" in bulk.wanted:
        begin = int(place or 0)
        for number, text in enumerate(bulk.wanted["ids"][begin:], begin + 1):
            yield _Item(None, text, str(number), found=False)
        return
    meant = meant_by(bulk)
    while piece := await matches(db, meant, after=place, limit=_PIECE):
        for each in piece:
            yield _Item(each.id, each.name, each.place, found=True)
        place = piece[-1].place


def _failure(item: _Item, error: MainspringError, bulk: Bulk) -> dict[str, Json]:
    problem = problem_of(error, request=f"bulk/{bulk.id}")
    return {"id": item.name, "code": problem.code, "detail": problem.detail}
