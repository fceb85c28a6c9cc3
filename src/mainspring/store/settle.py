"""Settle: outcomes become final states or further attempts; successors are released.

Promise. At most one outcome of a run is accepted (I4), and it is all or nothing: the state, the history
row, the dead letter and the successor's release are one transaction (F67).

By what. Every statement names run, attempt and lease token. The outcome of a replaced attempt matches no
row: it is recorded as late, never applied. Lock order: jobs before runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from mainspring.domain.durations import later
from mainspring.domain.firing import Overlaps
from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import Job, expiry
from mainspring.domain.run import FINAL, State
from mainspring.domain.settling import (
    Completed,
    Discarded,
    Failed,
    JsonText,
    Lease,
    Outcome,
    RunningRun,
    Settlement,
    Snoozed,
    Succeeded,
    plan_settle,
    succeeded,
)
from mainspring.environment import Environment
from mainspring.store.claim import ClaimedRun
from mainspring.store.database import Connection, Database, columns
from mainspring.store.queries import queries

_SQL = queries("settle")
LONGEST_RESULT = 64_000  # bytes of JSON; whoever runs tasks refuses more


_LATE_KINDS = frozenset({Kind.BACKFILL, Kind.REPLAY})


class Ended(NamedTuple):
    """One attempt and how it ended."""

    run: ClaimedRun
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleReport:
    settled: dict[RunId, Settlement]
    late: tuple[RunId, ...]  # replaced attempts: recorded, not applied
    released: int  # held runs that may start now
    completed: int = 0  # runs whose tasks had settled them in transactions of their own


NOTHING = SettleReport(settled={}, late=(), released=0)


async def settle(db: Database, env: Environment, ended: Sequence[Ended], *, record_late: bool = True) -> SettleReport:
    """Record how attempts ended, each once.

    ``record_late`` is off for recover, which only guesses: that another settled first is no late result.

    Raises:
        StoreUnavailable: written or not, nobody knows. Settle again: what was written matches no row, and is late.
    """
    if not ended:
        return NOTHING
    async with db.transaction() as tx:
        joined = [item.run.job_id for item in ended if _may_be_joined(item.run.job)]
        if joined:
            await tx.execute(_SQL["lock_jobs"], joined)
        plans = await _plan(tx, ended, _SQL["lock_running"] if record_late else _SQL["lock_lost"])
        finished, lanes = await _finish(tx, ended, plans)
        await env.reach("settle.finished")
        back = await _put_back(tx, ended, plans)
        await env.reach("settle.put_back")
        released = len(await tx.fetch(_SQL["release_held"], lanes)) if lanes else 0
        accepted = finished | back
        # A task that completed its run by itself is not late: it is why there is nothing left to settle.
        unsettled = [item for item in ended if item.run.id not in accepted]
        late = [item for item in unsettled if not isinstance(item.outcome, Completed)]
        if late and record_late:
            await tx.execute(_SQL["write_late"], *columns([_late_row(item) for item in late], 4))
        await env.reach("settle.commit")
    await env.reach("settle.committed")
    return SettleReport(
        settled={item.run.id: plans[item.run.id] for item in ended if item.run.id in accepted},
        late=tuple(item.run.id for item in late),
        released=released,
        completed=len(unsettled) - len(late),
    )


async def complete_in(tx: Connection, lease: Lease, result: str | None) -> bool:
    """Settle one attempt as succeeded within somebody's transaction; return whether it was still theirs to settle.

    With it their writes are exactly once: they commit together with the result, which only one attempt can give (I4).
    """
    if lease.joined:
        await tx.execute(_SQL["lock_jobs"], [lease.job_id])
    shape = (State.SUCCEEDED.value, None, lease.failures, None, result, Succeeded.word)
    row = (lease.run_id, lease.attempt, lease.token, 1)
    closed = await tx.fetch(_SQL["finish_runs"], *columns([row], 4), *columns([shape], 6))
    lanes = [found["lane"] for found in closed if found["lane"] is not None]
    if lanes:
        await tx.execute(_SQL["release_held"], lanes)
    return bool(closed)


def lease_of(run: ClaimedRun) -> Lease:
    """Return what is needed to settle an attempt from elsewhere."""
    return Lease(run.id, run.job_id, run.attempt, run.token, run.failures, _may_be_joined(run.job))


def _may_be_joined(job: Job) -> bool:
    """A run of such a job may get a held successor while it works, and both must not miss each other."""
    return job.overlap.policy in (Overlaps.QUEUE, Overlaps.CANCEL_OTHER)


async def _plan(tx: Connection, ended: Sequence[Ended], lock: str) -> dict[RunId, Settlement]:
    """Plan each outcome on what the run is now; successes need no look, the token is enough."""
    plans: dict[RunId, Settlement] = {}
    others = {}
    for item in ended:
        if isinstance(item.outcome, Succeeded):
            plans[item.run.id] = succeeded(item.run.failures)
        else:
            others[item.run.id] = item
    if others:
        held = [(item.run.id, item.run.attempt, item.run.token) for item in others.values()]
        for row in await tx.fetch(lock, *columns(held, 3)):
            item = others[RunId(row["id"])]
            run = _running(item.run, row["failures"], cancel_requested=row["cancel_requested"])
            plans[item.run.id] = plan_settle(run, item.outcome, now=row["now"])
    return plans


def _running(run: ClaimedRun, failures: int, *, cancel_requested: bool) -> RunningRun:
    job = run.job
    return RunningRun(
        id=str(run.id),
        attempt=run.attempt,
        failures=failures,
        # Asked for when its time was over already: neither age nor deadline counts from the slot then.
        first_due=run.started_at if run.kind in _LATE_KINDS else run.slot,
        deadline=None if job.deadline is None or run.kind in _LATE_KINDS else later(run.slot, job.deadline),
        retry=job.retry,
        on_loss=job.on_loss,
        cancel_requested=cancel_requested,
    )


async def _finish(
    tx: Connection, ended: Sequence[Ended], plans: dict[RunId, Settlement]
) -> tuple[set[RunId], list[JobId]]:
    rows = []
    shapes: dict[tuple[object, ...], int] = {}  # how an attempt may end, and its place among the ways
    for item in ended:
        plan = plans.get(item.run.id)
        if plan is not None and plan.state in FINAL:
            reason = None if plan.reason is None else plan.reason.value
            told = (_error(item.outcome), _result(item.outcome), plan.attempt_outcome)
            shape = (plan.state.value, reason, plan.failures, *told)
            rows.append((item.run.id, item.run.attempt, item.run.token, shapes.setdefault(shape, len(shapes) + 1)))
    if not rows:
        return set(), []
    closed = await tx.fetch(_SQL["finish_runs"], *columns(rows, 4), *columns(list(shapes), 6))
    return {RunId(row["id"]) for row in closed}, [JobId(row["lane"]) for row in closed if row["lane"] is not None]


async def _put_back(tx: Connection, ended: Sequence[Ended], plans: dict[RunId, Settlement]) -> set[RunId]:
    rows = []
    for item in ended:
        plan = plans.get(item.run.id)
        if plan is not None and plan.state not in FINAL:
            expires_at = plan.next_at and expiry(item.run.job, slot=item.run.slot, ready_at=plan.next_at)
            described = (plan.state.value, plan.failures, plan.next_at, expires_at)
            told = (plan.attempt_outcome, _error(item.outcome))
            rows.append((item.run.id, item.run.attempt, item.run.token, *described, *told))
    if not rows:
        return set()
    return {RunId(row["run_id"]) for row in await tx.fetch(_SQL["put_back"], *columns(rows, 9))}


def _late_row(item: Ended) -> tuple[UUID, int, NodeId, str]:
    return item.run.id, item.run.attempt, item.run.worker, item.outcome.word


def _error(outcome: Outcome) -> str | None:
    match outcome:
        case Failed(error=error):
            return json.dumps({"type": error.type, "message": error.message, "traceback": error.traceback})
        case Discarded(reason=reason) | Snoozed(reason=reason):
            return json.dumps({"type": outcome.word, "message": reason})
        case Succeeded():
            return None
        case Completed():
            message = "the transaction that completed the run was not committed"
            return json.dumps({"type": "completion_not_committed", "message": message})
        case _:
            return json.dumps({"type": outcome.word, "message": ""})


def _result(outcome: Outcome) -> str | None:
    if not isinstance(outcome, Succeeded) or outcome.result is None:
        return None
    return outcome.result if isinstance(outcome.result, JsonText) else json.dumps(outcome.result)
