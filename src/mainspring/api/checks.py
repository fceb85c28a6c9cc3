"""What a tenant may write: how many jobs, how often they fire, which tasks, how large, and no secret in the open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final

import msgspec

from mainspring.api.keeping import Kept
from mainspring.api.tenancy import Tenancy
from mainspring.domain.access import Principal, Scope
from mainspring.domain.durations import LAST_INSTANT, format_duration
from mainspring.domain.errors import Forbidden, InvalidRequest, UnknownTask
from mainspring.domain.inline import check_inline
from mainspring.domain.job import Job, Json
from mainspring.domain.requests import request_from_json
from mainspring.domain.schedule import Schedule
from mainspring.domain.tenants import Quotas
from mainspring.environment import Environment
from mainspring.http import HttpCall
from mainspring.store import reading, tenants
from mainspring.store.database import Database

_SECOND: Final = timedelta(seconds=1)
_LOOKED_AT: Final = 400  # slots, to find the two that are closest
_KEPT_FOR: Final = 2.0  # seconds
_COUNTED_FOR: Final = 10.0
_MOST_JOBS: Final = 1_000_000_000  # to count beyond would say no more
_FROM: Final = datetime(2026, 1, 1, tzinfo=UTC)


class OverQuota(InvalidRequest):
    """The tenant has as much of it as it may."""

    code = "over_quota"


class Checks:
    """Refuses what a tenant may not write."""

    def __init__(self, db: Database, tenancy: Tenancy, env: Environment) -> None:
        self._db = db
        self._tenancy = tenancy
        self._env = env
        self._tasks = Kept(self._read_tasks, env, lasts=_KEPT_FOR)
        self._counts: dict[str, _Count] = {}

    async def new_jobs(
        self, principal: Principal, jobs: Sequence[Job], *, more: int | None = None, batch: bool = False
    ) -> None:
        """Refuse definitions that this tenant may not have; ``more`` of them are new, all unless told.

        In a batch a field is named with the place of its job, also if there is one job only.

        Raises:
            InvalidRequest: there is one.
        """
        quotas = await self._tenancy.quotas(principal.tenant)
        self._batch(quotas, len(jobs), "jobs")
        known = await self._tasks.get()
        for place, job in enumerate(jobs):
            try:
                _check(job, quotas, known)
            except InvalidRequest as error:
                if not batch:
                    raise
                raise _at(error, place) from None
        await self._room(principal.tenant, quotas, len(jobs) if more is None else more)

    async def batch(self, principal: Principal, number: int, field: str) -> None:
        self._batch(await self._tenancy.quotas(principal.tenant), number, field)

    async def payload(self, principal: Principal, task: str | None, text: str | None, value: Json, field: str) -> None:
        """Refuse a payload for runs of a task, in place of their job's; None: of any.

        Raises:
            InlineSecret: a secret stands in it in the open; it is named by its path.
            OverQuota: it is larger than this tenant may have it.
            Forbidden: the task is an HTTP request, which the payload says whole, and not for them to write.
        """
        if text is None:
            return
        check_inline(value, field)
        quotas = await self._tenancy.quotas(principal.tenant)
        _check_size(text.encode(), quotas, field)
        if task is not None:
            check_request(task, value, may_write=principal.may(Scope.JOBS_WRITE), field=field)

    def _batch(self, quotas: Quotas, number: int, field: str) -> None:
        if number > quotas.batch:
            allowed = f"send at most {quotas.batch} in one request"
            raise OverQuota(f"there are {number}", field=field, value=number, allowed=allowed)

    async def _room(self, tenant: str, quotas: Quotas, more: int) -> None:
        if more == 0 or quotas.jobs >= _MOST_JOBS:
            return
        counted = self._counts.get(tenant)
        if counted is None:
            counted = self._counts[tenant] = _Count(self._db, self._env, tenant)
        count = await counted.get()
        if count + more > quotas.jobs:
            count = await counted.again()
        if count + more > quotas.jobs:
            allowed = "delete some, or ask the operator for more"
            reason = f'tenant "{tenant}" has {count} of {quotas.jobs} jobs'
            raise OverQuota(reason, field="jobs", value=more, allowed=allowed)
        counted.made += more

    async def _read_tasks(self) -> frozenset[str] | None:
        """Return the tasks that some worker knows; None: there is no worker that could say."""
        workers = [node for node in await reading.list_nodes(self._db, dead_for=timedelta(0)) if node.tasks]
        return frozenset(task for node in workers for task in node.tasks) if workers else None


class _Count:
    """How many jobs a tenant has, and how many it was let make since they were counted."""

    def __init__(self, db: Database, env: Environment, tenant: str) -> None:
        self.made = 0
        self._db = db
        self._tenant = tenant
        self._counted = Kept(self._read, env, lasts=_COUNTED_FOR)

    async def get(self) -> int:
        return await self._counted.get() + self.made

    async def again(self) -> int:
        return await self._counted.again() + self.made

    async def _read(self) -> int:
        self.made = 0
        async with self._db.connection() as connection:
            return await tenants.jobs_of(connection, self._tenant, most=_MOST_JOBS)


def check_request(task: str, payload: Json, *, may_write: bool, field: str = "payload") -> None:
    """Refuse another request for a run of an HTTP job, unless it is one, and by somebody who could write such a job.

    Else whoever may only trigger it could send the tenant's secrets wherever they like.

    Raises:
        Forbidden: they may not.
        InvalidRequest: it is no request.
    """
    if task != HttpCall.task:
        return
    if not may_write:
        raise Forbidden(f"the payload of an HTTP job is the request that it sends; that takes {Scope.JOBS_WRITE}")
    try:
        request_from_json(payload)
    except InvalidRequest as error:
        where = f"{field}{error.field.removeprefix('payload')}"
        raise InvalidRequest(error.reason, field=where, value=error.value, allowed=error.allowed) from None


def _check_size(payload: bytes, quotas: Quotas, field: str) -> None:
    if len(payload) > quotas.payload_bytes:
        allowed = f"use up to {quotas.payload_bytes} bytes, or store it elsewhere and pass where it is"
        raise OverQuota(f"it has {len(payload)} bytes as JSON", field=field, value="", allowed=allowed)


def _check(job: Job, quotas: Quotas, known: frozenset[str] | None) -> None:
    if known is not None and job.task not in known and job.task != HttpCall.task:
        allowed = f"use one of {', '.join(sorted(known)[:20])}" if known else "start a worker that knows it"
        raise UnknownTask(f'no worker knows the task "{job.task}"', field="task", value=job.task, allowed=allowed)
    if job.payload is not None:
        check_inline(job.payload, "http" if job.task == HttpCall.task else "payload")  # as a definition calls it
        _check_size(msgspec.json.encode(job.payload), quotas, "payload")
    if quotas.shortest_interval > _SECOND and not job.on_demand:
        closest = _closest(job.schedule)
        if closest is not None and closest < quotas.shortest_interval:
            least = format_duration(quotas.shortest_interval)
            reason = f"two of its slots are {format_duration(closest)} apart"
            raise OverQuota(reason, field="schedule", value=format_duration(closest), allowed=f"use {least} or more")


@lru_cache(maxsize=10_000)
def _closest(schedule: Schedule) -> timedelta | None:
    """Return how close together two slots of a schedule are, of the first few hundred."""
    slots = schedule.between(max(_FROM, schedule.start or _FROM), LAST_INSTANT, _LOOKED_AT)
    return min((later - earlier for earlier, later in pairwise(slots)), default=None)


def _at(error: InvalidRequest, place: int) -> InvalidRequest:
    made = type(error).__new__(type(error))
    InvalidRequest.__init__(
        made, error.reason, field=f"jobs[{place}].{error.field}", value=error.value, allowed=error.allowed
    )
    return made
