"""Edits, pauses, deletes and cancels meet a fire or a claim: either side wins, and the ledger says which.

Each is steered to both outcomes, by stopping one side with the lock in its hands, and then left to chance many times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from mainspring.domain.asking import Change
from mainspring.domain.errors import NotFound, StoreUnavailable
from mainspring.domain.ids import JobId, RunId, scheduled_run_id
from mainspring.domain.job import Job, JobState
from mainspring.domain.run import State
from mainspring.domain.schedule import Cron, Schedule
from mainspring.engines.base import Rhythm
from mainspring.environment import Environment, SystemEnvironment
from mainspring.store.changes import Changed, change_job
from mainspring.store.runs import cancel_run
from mainspring.testing.checks.base import Check
from mainspring.testing.checks.sharing import Tally
from mainspring.testing.cluster import Cluster
from mainspring.testing.nodes import idle

_AT_ONCE: Final = 5
_ROUNDS: Final = 10
_STEP: Final = 0.004  # seconds, by which a change comes later in each round: some before the fire, some after
_RESTLESS: Final = Rhythm(batch=2, look_every=timedelta(milliseconds=1))  # so that looks and changes meet
_YEARLY: Final = Schedule(specs=(Cron("0 0 1 1 *"),))
_ChangeAll: TypeAlias = Callable[[Sequence[JobId], Environment], Coroutine[Any, Any, None]]


def _pause(_job: JobId) -> Change:
    return Change(state=JobState.PAUSED)


def _delete(_job: JobId) -> Change:
    return Change(state=JobState.DELETED)


def _edit(job: JobId) -> Change:
    return Change(definition=Job(name=f"edited-{job}", task="work", schedule=_YEARLY))


async def a_change_and_a_fire_are_one_after_the_other(change: Callable[[JobId], Change], cluster: Cluster) -> None:
    changed: dict[JobId, Changed] = {}
    tally = Tally()

    async def change_all(jobs: Sequence[JobId], env: Environment) -> None:
        answers = await asyncio.gather(
            *(change_job(cluster.db, env, job, change(job)) for job in jobs), return_exceptions=True
        )
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Changed):
                changed[job] = answer
            elif not isinstance(answer, StoreUnavailable):
                raise answer

    async def fire_first() -> bool:
        jobs = await _stop_a_fire(cluster, change_all)
        return all(job in changed and not changed[job].superseded for job in jobs)

    async def change_first() -> bool:
        jobs = await _hold_changes(cluster, change_all)
        return all(job in changed and changed[job].superseded for job in jobs)

    await _steered(fire_first)
    await _steered(change_first)
    async with cluster.node(watch=None, work=tally, rhythm=_RESTLESS):
        for late in range(_ROUNDS):
            jobs = await cluster.given_jobs(_AT_ONCE)
            await cluster.env.sleep(late * _STEP)
            await change_all(jobs, cluster.env)
        await cluster.at_rest()

    await cluster.check()
    for job, answer in changed.items():
        decisions = await cluster.decisions(job)
        assert [what for what, _ in decisions] == ["superseded" if answer.superseded else "fired"], str(decisions)
        assert decisions[0][1] <= answer.effective_at, "decided by the old version after the new one was in force"
        assert not (answer.superseded and tally.runs[job]), "superseded, and it ran"


async def _stop_a_fire(cluster: Cluster, change_all: _ChangeAll) -> list[JobId]:
    """Stop a fire with the locks in its hands: the changes wait for it."""
    jobs, node = await cluster.given_jobs(_AT_ONCE), cluster.node(watch=None)
    locked = node.env.stop_at("fire.locked")
    async with node:
        await cluster.wait(locked)
        changing = asyncio.create_task(change_all(jobs, cluster.env))
        await cluster.blocked(changing, len(jobs))
        node.go_on()
        await changing
    return jobs


async def _hold_changes(cluster: Cluster, change_all: _ChangeAll) -> list[JobId]:
    """Stop the changes with the locks in their hands: a fire passes them over, and does not wait."""
    jobs, held, may_go_on = await cluster.given_jobs(_AT_ONCE), asyncio.Event(), asyncio.Event()
    reached: list[str] = []

    async def hold(point: str) -> None:
        reached.append(point)
        if reached.count("change.locked") == len(jobs):
            held.set()
        await may_go_on.wait()

    changing = asyncio.create_task(change_all(jobs, SystemEnvironment(variables={}, on_reach=hold)))
    await cluster.wait(held)
    async with cluster.node(watch=None) as node:
        await node.looked(2)
        may_go_on.set()
        await changing
        await node.looked(2)
    return jobs


async def a_cancel_and_a_claim_are_one_after_the_other(cluster: Cluster) -> None:
    answers: dict[RunId, State | None] = {}
    tally = Tally()

    async def cancel_first() -> bool:
        jobs = await cluster.given_jobs(_AT_ONCE)
        async with cluster.node(watch=None):
            cancelled = await _cancel(cluster, jobs)
        answers.update(cancelled)
        return set(cancelled.values()) == {State.CANCELLED}

    async def claim_first() -> bool:
        asked = await _stop_a_claim(cluster, tally)
        answers.update(asked)
        return set(asked.values()) == {State.RUNNING}

    await _steered(cancel_first)
    await _steered(claim_first)
    async with cluster.node(watch=None, work=tally, rhythm=_RESTLESS):
        for late in range(_ROUNDS):
            jobs = await cluster.given_jobs(_AT_ONCE)
            await cluster.env.sleep(late * _STEP)
            answers |= await _cancel(cluster, jobs)
        await cluster.at_rest()

    await cluster.check()
    for row in await cluster.rows("SELECT id, job_id, state, attempt FROM run_history"):
        answer, worked = answers[row["id"]], tally.runs[row["job_id"]]
        if answer is State.CANCELLED:
            assert (row["state"], row["attempt"], worked) == ("cancelled", 0, 0), "it was cancelled, and it ran"
        else:
            assert worked == 1, f"it was claimed, and ran {worked} times"
            assert row["state"] == "succeeded" or answer is State.RUNNING, "cancelled without having been asked to"


async def _stop_a_claim(cluster: Cluster, tally: Tally) -> dict[RunId, State | None]:
    """Stop a claim with the runs in its hands: the cancels wait for it."""
    jobs, worker = await cluster.given_jobs(_AT_ONCE), cluster.node(engine=idle, watch=None, work=tally)
    async with cluster.node(watch=None):
        await cluster.until("SELECT count(*) = $1 FROM runs", len(jobs))
    claimed = worker.env.stop_at("claim.commit")
    async with worker:
        await cluster.wait(claimed)
        cancelling = asyncio.create_task(_cancel(cluster, jobs))
        await cluster.blocked(cancelling, len(jobs))
        worker.go_on()
        answers = await cancelling
        await cluster.at_rest()
    return answers


async def _steered(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Try until it comes out as steered: on a slow machine the server may end what idles in a transaction."""
    for _ in range(5):
        if await attempt():
            return
    raise AssertionError(f"{attempt.__name__} was never seen: one side did not wait for the other")


async def _cancel(cluster: Cluster, jobs: Sequence[JobId]) -> dict[RunId, State | None]:
    """Cancel the run of each job as soon as it is in motion; None: it was final before that."""
    slots = await cluster.rows(
        "SELECT job_id, coalesce(last_slot, next_fire_at) AS slot FROM job_cursors WHERE job_id = ANY($1)", jobs
    )
    runs = [scheduled_run_id(row["job_id"], row["slot"]) for row in slots]
    return dict(zip(runs, await asyncio.gather(*(_cancel_one(cluster, run) for run in runs)), strict=True))


async def _cancel_one(cluster: Cluster, run: RunId) -> State | None:
    while True:
        try:
            return await cancel_run(cluster.db, run)
        except NotFound:
            if await cluster.value("SELECT EXISTS (SELECT FROM run_history WHERE id = $1)", run):
                return None


CHECKS: Final = (
    *(
        Check(
            f"{name} and a fire are one after the other",
            partial(a_change_and_a_fire_are_one_after_the_other, change),
            ids,
        )
        for name, change, ids in (
            ("a pause", _pause, ("F30",)),
            ("an edit", _edit, ("F31",)),
            ("a delete", _delete, ("F32",)),
        )
    ),
    Check("a cancel and a claim are one after the other", a_cancel_and_a_claim_are_one_after_the_other, ("F34", "F35")),
)
