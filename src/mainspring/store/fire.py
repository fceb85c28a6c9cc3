"""Fire: due jobs become one ledger row per due slot, a run or a recorded skip, and the cursor moves on.

Promise. Every due slot of a selected job is decided once (I1, I2), by the database clock (I3).

By what. The job's row lock serialises all decisions about it; the cursor is compared and set under it;
the run's deterministic id is the second line. One transaction: a crash before COMMIT leaves nothing, one
after it everything. A COMMIT whose answer was lost is repeated by whoever looks next, and changes nothing.

Failures.
  two engines at once    SKIP LOCKED shares the rows; the loser's cursor compare finds nothing
  one job's plan raises  that job is quarantined, the batch goes on. Likewise if its definition cannot be read,
                         or the rows of its runs cannot be made: all that is computed for one job is computed apart
  the fence is gone      LeaseLost: nothing is written
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from mainspring.domain.errors import BrokenInvariant, LeaseLost, Unavailable
from mainspring.domain.firing import Decision, Disposition, DueJob, FirePlan, FireReport, Going, plan_fire
from mainspring.domain.ids import JobId, RunId, scheduled_run_ids
from mainspring.domain.job import AGEING, Job, expiry
from mainspring.domain.selection import DueNow, Fence, Selection
from mainspring.environment import Environment
from mainspring.store.database import Connection, Database, columns
from mainspring.store.jobs import Definitions
from mainspring.store.queries import queries
from mainspring.store.runs import stop_runs_of

_SQL = queries("fire")
_LEASE = queries("nodes")["hold_fence"]
_IDLE = Going()
_NOT_THEIRS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, Unavailable)


@dataclass(slots=True)
class _Alike:
    """Locked jobs that share one plan: alike in all but name and payload, due at the same slot, equally busy.

    In a herd that is nearly all of them: what they share is planned once, and sent to the database once.
    """

    job: Job
    version: int
    due: DueJob
    ids: list[JobId] = field(default_factory=list)


class _Rows(NamedTuple):
    """What one slot that fires becomes, in all jobs that are alike."""

    ids: list[RunId]
    shape: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Planned:
    group: _Alike
    plan: FirePlan
    runs: tuple[_Rows, ...]
    skips: tuple[tuple[Any, ...], ...]  # the shapes of the others


async def fire(db: Database, definitions: Definitions, env: Environment, selection: Selection) -> FireReport:
    """Decide every due slot of the jobs in ``selection``, once.

    The only way a slot becomes a run. Engines choose where to look and when; none is trusted to be right.

    Raises:
        LeaseLost: the fence found no row; stop.
        StoreUnavailable: written or not, nobody knows. Look again; firing twice is a no-op.
    """
    async with db.transaction() as tx:  # separate statements: parts of one big CTE cannot see each other's rows
        await _hold_fence(tx, selection.fence)
        rows = await _lock(tx, selection)
        await env.reach("fire.locked")
        planned, broken = await _plan(tx, definitions, rows)
        runs = await _write(tx, env, planned, rows)
        if broken:
            await tx.execute(_SQL["quarantine"], list(broken))
        next_due_in = None if _more(selection, rows) else await tx.fetchval(_SQL["next_due_in"])
        await env.reach("fire.commit")
    await env.reach("fire.committed")
    return FireReport(
        locked=len(rows),
        runs=runs,
        skips=sum(decision.covers * len(item.group.ids) for item in planned for decision in item.plan.decisions) - runs,
        quarantined=broken,
        lag_p50=_lag(rows, len(rows) // 2),
        lag_max=_lag(rows, 0),
        last=(rows[-1]["next_fire_at"], JobId(rows[-1]["job_id"])) if rows else None,
        next_due_in=next_due_in,
    )


async def _hold_fence(tx: Connection, fence: Fence | None) -> None:
    if fence is not None and await tx.fetchval(_LEASE, fence.name, fence.node, fence.epoch) is None:
        raise LeaseLost(f"{fence.name} is no longer held under epoch {fence.epoch}")


async def _lock(tx: Connection, selection: Selection) -> list[asyncpg.Record]:
    if isinstance(selection, DueNow):
        return await tx.fetch(_SQL["lock_due_now"], selection.limit, selection.overdue, *selection.after)
    return await tx.fetch(_SQL["lock_named"], list(selection.jobs))


def _more(selection: Selection, rows: Sequence[asyncpg.Record]) -> bool:
    return isinstance(selection, DueNow) and len(rows) == selection.limit


def _lag(rows: Sequence[asyncpg.Record], place: int) -> timedelta | None:
    """Return how late a job was; rows come oldest first."""
    return rows[place]["locked_at"] - rows[place]["next_fire_at"] if rows else None


async def _plan(
    tx: Connection, definitions: Definitions, rows: Sequence[asyncpg.Record]
) -> tuple[list[_Planned], tuple[JobId, ...]]:
    """Plan what is alike together and the rest apart: a job that raises must not stop the others (F15)."""
    if not rows:
        return [], ()
    jobs, unreadable = await _read(tx, definitions, rows)
    if unreadable:
        rows = [row for row in rows if row["job_id"] in jobs]
    planned, broken = _plans(rows, jobs, await _going(tx, [row["job_id"] for row in rows]))
    stopping = {job_id for item in planned if item.plan.cancel_going for job_id in item.group.ids}
    if stopping:  # overlap = cancel_other: stop what is before, then plan on what is still running
        await stop_runs_of(tx, stopping)
        going = await _going(tx, stopping)
        again, broken_now = _plans([row for row in rows if row["job_id"] in stopping], jobs, going)
        planned = [item for item in planned if not item.plan.cancel_going] + again
        broken += broken_now
    return planned, (*unreadable, *broken)


async def _read(
    tx: Connection, definitions: Definitions, rows: Sequence[asyncpg.Record]
) -> tuple[dict[UUID, Job], list[JobId]]:
    """Return what the jobs say, and which of them cannot be read: those are sought one by one, which is rare."""
    pairs = [(row["job_id"], row["version"]) for row in rows]
    try:
        return await definitions.shared(tx, pairs), []
    except _NOT_THEIRS:
        raise
    except Exception:  # noqa: BLE001 - a zone that is gone: one of them, not all
        jobs: dict[UUID, Job] = {}
    unreadable = []
    for pair in pairs:
        try:
            jobs |= await definitions.shared(tx, [pair])
        except _NOT_THEIRS:
            raise
        except Exception:  # noqa: BLE001
            unreadable.append(JobId(pair[0]))
    return jobs, unreadable


async def _going(tx: Connection, jobs: Collection[UUID]) -> dict[UUID, Going]:
    return {
        row["job_id"]: Going(released=row["released"], held=row["held"])
        for row in await tx.fetch(_SQL["going"], list(jobs))
    }


def _plans(
    rows: Sequence[asyncpg.Record], jobs: Mapping[UUID, Job], going: Mapping[UUID, Going]
) -> tuple[list[_Planned], list[JobId]]:
    groups: dict[tuple[object, ...], _Alike] = {}
    if not rows:
        return [], []
    now: datetime = rows[0]["locked_at"]
    for job_id, version, cursor, fired, _ in rows:
        job, busy = jobs[job_id], going.get(job_id, _IDLE)
        counted = fired if job.schedule.max_fires is not None else None
        key = (id(job), version, cursor, busy, counted, job_id if job.jitter else None)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Alike(job, version, _due(job_id, job, cursor, fired, busy))
        group.ids.append(job_id)
    planned: list[_Planned] = []
    broken: list[JobId] = []
    for group in groups.values():
        try:
            planned.append(_rows(group, plan_fire(group.due, now=now), now))
        except Exception:  # noqa: BLE001 - whatever it is, it is theirs, and the others are due
            broken += group.ids
    return planned, broken


def _rows(group: _Alike, plan: FirePlan, now: datetime) -> _Planned:
    """Make the rows of a plan while it is still known whose they are."""
    fired = [decision for decision in plan.decisions if decision.disposition is Disposition.FIRED]
    runs = (_Rows(scheduled_run_ids(group.ids, one.slot), _run(group, one, now)) for one in fired)
    skips = (
        (one.slot, one.first, one.covers, one.disposition.value, group.version)
        for one in plan.decisions
        if one.disposition is not Disposition.FIRED
    )
    return _Planned(group, plan, tuple(runs), tuple(skips))


def _due(job_id: UUID, job: Job, cursor: datetime, fired: int, going: Going) -> DueJob:
    return DueJob(
        id=JobId(job_id),
        schedule=job.schedule,
        cursor=cursor,
        fired=fired,
        misfire=job.misfire,
        overlap=job.overlap,
        jitter=job.jitter,
        going=going,
    )


async def _write(tx: Connection, env: Environment, planned: Sequence[_Planned], rows: Sequence[asyncpg.Record]) -> int:
    """Write runs, skips and cursors; return how many runs are new."""
    if not planned:
        return 0
    now: datetime = rows[0]["locked_at"]
    runs, skips, cursors = _tables(planned)
    written = 0
    if runs.ids:
        written = _affected(await tx.execute(_SQL["write_runs"], now, runs.ids, *runs.columns(10)))
    await env.reach("fire.runs_written")
    if skips.jobs:
        await tx.execute(_SQL["write_skips"], now, *skips.columns(5))
        await env.reach("fire.skips_written")
    moved = _affected(await tx.execute(_SQL["move_cursors"], *cursors.columns(4)))
    if moved != len(cursors.jobs):
        raise BrokenInvariant(f"{moved} of {len(cursors.jobs)} cursors under our own locks")
    return written


@dataclass(slots=True)
class _Table:
    """Rows to write: a job and a place each, where the place says which of a few shapes the rest of the row has.

    Arrays cost by the element, most of all those of timestamps; so what many rows share is sent once.
    """

    ids: list[UUID] = field(default_factory=list)
    jobs: list[JobId] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    shapes: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, jobs: Sequence[JobId], shape: tuple[Any, ...]) -> None:
        self.shapes.append(shape)
        self.jobs += jobs
        self.places += [len(self.shapes)] * len(jobs)

    def columns(self, width: int) -> list[list[Any]]:
        return [self.jobs, self.places, *columns(self.shapes, width)]


def _tables(planned: Sequence[_Planned]) -> tuple[_Table, _Table, _Table]:
    runs, skips, cursors = _Table(), _Table(), _Table()
    for item in planned:
        group, plan = item.group, item.plan
        for ids, shape in item.runs:
            runs.ids += ids
            runs.add(group.ids, shape)
        for shape in item.skips:
            skips.add(group.ids, shape)
        cursors.add(group.ids, (plan.cursor, plan.next_fire_at, plan.last_slot, plan.fired))
    return runs, skips, cursors


def _run(group: _Alike, decision: Decision, now: datetime) -> tuple[Any, ...]:
    job, ready_at = group.job, decision.ready_at
    assert ready_at is not None, "of a slot that fired"
    lane = job.overlap.exclusive and not decision.held
    rank = max(ready_at, now) - job.priority * AGEING  # what fires late goes behind what is there: claims go one way
    times = (decision.slot, ready_at, rank, expiry(job, slot=decision.slot, ready_at=ready_at))
    return (job.tenant, group.version, *times, job.pool, job.task, decision.held, lane)


def _affected(status: str) -> int:
    return int(status.rpartition(" ")[2])
