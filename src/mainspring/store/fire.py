"""Fire: due jobs become one ledger row per due slot, a run or a recorded skip, and the cursor moves on.

Promise. Every due slot of a selected job is decided once (I1, I2), by the database clock (I3).

By what. The job's row lock serialises all decisions about it; the cursor is compared and set under it;
the run's deterministic id is the second line. One transaction: a crash before COMMIT leaves nothing, one
after it everything. A COMMIT whose answer was lost is repeated by whoever looks next, and changes nothing.

Failures.
  two engines at once    SKIP LOCKED shares the rows; the loser's cursor compare finds nothing
  one job's plan raises  that job is quarantined, the batch goes on
  the fence is gone      LeaseLost: nothing is written
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from mainspring.domain.errors import BrokenInvariant, LeaseLost
from mainspring.domain.firing import Disposition, DueJob, FirePlan, FireReport, Going, plan_fire
from mainspring.domain.ids import JobId, scheduled_run_id
from mainspring.domain.job import AGEING, Job
from mainspring.domain.selection import DueNow, Fence, Selection
from mainspring.environment import Environment
from mainspring.store.database import Connection, Database, columns
from mainspring.store.jobs import Definitions
from mainspring.store.queries import queries

_SQL = queries("fire")
_LEASE = queries("nodes")["hold_fence"]
_IDLE = Going()


@dataclass(frozen=True, slots=True)
class _Planned:
    id: JobId
    version: int
    job: Job
    plan: FirePlan


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
        skips=sum(decision.covers for item in planned for decision in item.plan.decisions) - runs,
        quarantined=broken,
        late=tuple(row["locked_at"] - row["next_fire_at"] for row in rows),
        next_due_in=next_due_in,
    )


async def _hold_fence(tx: Connection, fence: Fence | None) -> None:
    if fence is not None and await tx.fetchval(_LEASE, fence.name, fence.node, fence.epoch) is None:
        raise LeaseLost(f"{fence.name} is no longer held under epoch {fence.epoch}")


async def _lock(tx: Connection, selection: Selection) -> list[asyncpg.Record]:
    if isinstance(selection, DueNow):
        return await tx.fetch(_SQL["lock_due_now"], selection.limit, selection.overdue)
    return await tx.fetch(_SQL["lock_named"], list(selection.jobs))


def _more(selection: Selection, rows: Sequence[asyncpg.Record]) -> bool:
    return isinstance(selection, DueNow) and len(rows) == selection.limit


async def _plan(
    tx: Connection, definitions: Definitions, rows: Sequence[asyncpg.Record]
) -> tuple[list[_Planned], tuple[JobId, ...]]:
    """Plan each job by itself: one that raises must not stop the others (F15).

    Jobs with the same schedule, cursor and policies have the same plan; in a herd that is nearly all of them.
    """
    if not rows:
        return [], ()
    jobs = await definitions.of(tx, [(row["job_id"], row["version"]) for row in rows])
    going = {
        row["job_id"]: Going(released=row["released"], held=row["held"])
        for row in await tx.fetch(_SQL["going"], [row["job_id"] for row in rows])
    }
    planned: list[_Planned] = []
    broken: list[JobId] = []
    shared: dict[tuple[object, ...], FirePlan] = {}
    for row in rows:
        job_id = JobId(row["job_id"])
        due = _due(row, jobs[job_id], going.get(job_id, _IDLE))
        alike = _alike(due)
        try:
            plan = shared.get(alike) or plan_fire(due, now=row["locked_at"])
        except Exception:  # noqa: BLE001 - whatever it is, it is this job's, and the others are due
            broken.append(job_id)
        else:
            if not due.jitter:
                shared[alike] = plan
            planned.append(_Planned(job_id, row["version"], jobs[job_id], plan))
    return planned, tuple(broken)


def _alike(due: DueJob) -> tuple[object, ...]:
    """Return what a plan depends on. Definitions share schedule objects, so the object stands for its value."""
    jittered = due.id if due.jitter else None
    fired = 0 if due.schedule.max_fires is None else due.fired
    return id(due.schedule), due.cursor, fired, due.misfire, due.overlap, due.going, jittered


def _due(row: asyncpg.Record, job: Job, going: Going) -> DueJob:
    return DueJob(
        id=JobId(row["job_id"]),
        schedule=job.schedule,
        cursor=row["next_fire_at"],
        fired=row["fired"],
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
    runs, skips, cursors, cancelled = _rows(planned)
    written = await tx.fetch(_SQL["write_runs"], now, *columns(runs, 11)) if runs else []
    await env.reach("fire.runs_written")
    if skips:
        await tx.execute(_SQL["write_skips"], now, *columns(skips, 6))
        await env.reach("fire.skips_written")
    if cancelled:
        await tx.execute(_SQL["request_cancel"], cancelled)
    moved = await tx.execute(_SQL["move_cursors"], *columns(cursors, 5))
    if moved != f"UPDATE {len(cursors)}":
        raise BrokenInvariant(f"{moved} of {len(cursors)} cursors under our own locks")
    return len(written)


def _rows(planned: Sequence[_Planned]) -> tuple[list[Any], list[Any], list[Any], list[JobId]]:
    runs, skips, cursors, cancelled = [], [], [], []
    for item in planned:
        job, plan = item.job, item.plan
        ageing = job.priority * AGEING
        for decision in plan.decisions:
            if decision.disposition is Disposition.FIRED and decision.ready_at is not None:
                lane = item.id if job.overlap.exclusive and not decision.held else None
                rank = decision.ready_at - ageing
                identity = scheduled_run_id(item.id, decision.slot)
                placed = (decision.slot, decision.ready_at, rank, job.pool, job.task, decision.held, lane)
                runs.append((identity, item.id, job.tenant, item.version, *placed))
            else:
                stretch = (decision.slot, decision.first, decision.covers, decision.disposition.value)
                skips.append((item.id, *stretch, item.version))
        cursors.append((item.id, plan.cursor, plan.next_fire_at, plan.last_slot, plan.fired))
        if plan.cancel_going:
            cancelled.append(item.id)
    return runs, skips, cursors, cancelled
