"""Jobs: definitions in, definitions out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from uuid import UUID

from mainspring.domain.errors import BrokenInvariant
from mainspring.domain.ids import JobId, shard_of
from mainspring.domain.job import Job, job_from_json, job_to_json, schedule_from_json
from mainspring.domain.schedule import Schedule
from mainspring.store.database import Connection, columns
from mainspring.store.queries import queries

_SQL = queries("jobs")


async def insert_jobs(tx: Connection, jobs: Sequence[tuple[JobId, Job]]) -> None:
    """Write new jobs with their first version and cursor; a job whose schedule has no slot left is finished."""
    now = await tx.fetchval(_SQL["clock"])
    rows = [
        (job_id, job.tenant, job.name, shard_of(job_id), json.dumps(job_to_json(job)), job.schedule.next_after(now))
        for job_id, job in jobs
    ]
    await tx.execute(_SQL["insert_jobs"], *columns(rows, 6), now)


class Definitions:
    """Job versions by id, mostly from memory: a version never changes once written.

    Distinct definitions are few beside the jobs that share them; parsing is done once per text.
    """

    def __init__(self, keep: int = 200_000) -> None:
        self._keep = keep
        self._known: dict[tuple[UUID, int], Job] = {}

    async def of(self, tx: Connection, wanted: Iterable[tuple[UUID, int]]) -> dict[UUID, Job]:
        """Return the definition of each (job, version)."""
        pairs = list(wanted)
        unknown = [pair for pair in pairs if pair not in self._known]
        if unknown:
            if len(self._known) + len(unknown) > self._keep:
                self._known.clear()  # a cold read costs one indexed query; bookkeeping for a better choice costs always
                unknown = pairs
            for row in await tx.fetch(_SQL["definitions"], *columns(unknown, 2)):
                rest = json.loads(row["rest"])
                self._known[row["job_id"], row["version"]] = job_from_json(rest, schedule=_schedule(row["schedule"]))
        try:
            return {job_id: self._known[job_id, version] for job_id, version in pairs}
        except KeyError as missing:
            raise BrokenInvariant(f"there is no definition for {missing.args[0]}") from missing


@lru_cache(maxsize=50_000)
def _schedule(text: str) -> Schedule:
    return schedule_from_json(json.loads(text))


async def put_missing(tx: Connection, jobs: Sequence[tuple[JobId, Job]]) -> int:
    """Write the jobs whose (tenant, name) is not taken; return how many were."""
    names = [(job.tenant, job.name) for _, job in jobs]
    taken = {(row["tenant"], row["name"]) for row in await tx.fetch(_SQL["taken"], *columns(names, 2))}
    missing = [(job_id, job) for job_id, job in jobs if (job.tenant, job.name) not in taken]
    await insert_jobs(tx, missing)
    return len(missing)
