"""A node dies at any point that has a name, and another takes over: the ledger is as if nobody had died.

The points are read from the store's own source: a new one is died at without anybody having to remember it, and
a check whose story never comes to its point fails.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from importlib import resources
from typing import Final, TypeAlias

from mainspring.domain.asking import Change
from mainspring.domain.firing import Misfire, Overlap, Overlaps
from mainspring.domain.ids import JobId
from mainspring.domain.job import JobState
from mainspring.domain.retry import Backoff, RetryPolicy
from mainspring.environment import SystemEnvironment
from mainspring.store.changes import change_job
from mainspring.tasks.context import Context
from mainspring.testing import Crashed, CrashPoints
from mainspring.testing.checks.base import Check
from mainspring.testing.cluster import Cluster
from mainspring.testing.nodes import Node, idle

_POINT: Final = re.compile(r'\breach\("(\w+\.\w+)"\)')
_FIRED: Final = 9  # three slots of each job
_IN_HAND: Final = 5  # of these a worker gets: one of each exclusive job, and all three of the other
_NEXT: Final = 3  # once these have ended: the second of each exclusive job, and the one that is tried again
_AT_WORK: Final = "SELECT count(*) FROM runs WHERE state = 'running'"


class Work:
    """A task that fails once for one of three hours, and always for another. The first so many runs end together."""

    def __init__(self, together: int = 1) -> None:
        self._missing = together
        self._complete = asyncio.Event()

    async def __call__(self, context: Context) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._complete.set()
        await self._complete.wait()
        match context.payload, context.slot.hour % 3:
            case "fails", 0:
                raise LookupError("never")
            case "fails", 1 if context.attempt == 1:
                raise ValueError("not yet")


def crash_points() -> list[str]:
    """Return every point the store names, in order."""
    files = [file for file in resources.files("mainspring.store").iterdir() if file.name.endswith(".py")]
    return sorted({point for file in files for point in _POINT.findall(file.read_text("utf-8"))})


async def a_crash_in_fire(point: str, cluster: Cluster) -> None:
    jobs = await _given_three_jobs(cluster)

    await _die(cluster, cluster.node(watch=None), point)

    await _another_finishes(cluster, jobs, lost=0)


async def a_crash_in_claim(point: str, cluster: Cluster) -> None:
    jobs = await _given_runs(cluster)

    await _die(cluster, cluster.node(work=Work()), point)

    await _another_finishes(cluster, jobs, lost=_IN_HAND if _committed(point) else 0)


async def a_crash_in_settle(point: str, cluster: Cluster) -> None:
    jobs = await _given_runs(cluster)

    await _die(cluster, cluster.node(work=Work(together=_IN_HAND)), point)

    left = await cluster.value(_AT_WORK)
    if _committed(point):  # it may have claimed the next before it heard that these are settled
        assert left <= _NEXT, f"{left} are at work, though {_IN_HAND} were settled and {_NEXT} come next"
    else:
        assert left == _IN_HAND, f"{left} are at work, where {_IN_HAND} were claimed and none settled"
    await _another_finishes(cluster, jobs, lost=left)


async def a_crash_in_recover(point: str, cluster: Cluster) -> None:
    jobs = await _given_runs(cluster)
    await _die(cluster, cluster.node(engine=idle, watch=None, work=Work()), "claim.committed")

    await _die(cluster, cluster.node(), point)

    await _another_finishes(cluster, jobs, lost=_IN_HAND)


async def a_crash_while_giving_up(point: str, cluster: Cluster) -> None:
    """A guardian dies over runs that nobody started in time."""
    await cluster.given_jobs(_IN_HAND, deadline=timedelta(minutes=1))
    async with cluster.node(watch=None):
        await cluster.seen(lambda seen: seen.fired == _IN_HAND)

    await _die(cluster, cluster.node(), point)

    async with cluster.node(work=Work()):
        await cluster.at_rest()
    await cluster.check()
    given_up = await cluster.value("SELECT count(*) FROM dead_letters WHERE reason = 'expired'")
    assert given_up == _IN_HAND, f"{given_up} were given up, where {_IN_HAND} should have been"


async def a_crash_in_a_change(point: str, cluster: Cluster) -> None:
    jobs, points = await _given_three_jobs(cluster), CrashPoints()
    points.crash_at(point)
    env = SystemEnvironment(variables={}, on_reach=points.reach)

    pausing = asyncio.ensure_future(change_job(cluster.db, env, jobs[0], Change(state=JobState.PAUSED)))
    await asyncio.wait([pausing])

    assert isinstance(pausing.exception(), Crashed), f"it passed {points.reached} and lived on"
    await _another_finishes(cluster, jobs, lost=0)


async def a_crash_that_nobody_thought_of(point: str, _cluster: Cluster) -> None:
    raise AssertionError(f"no story comes to {point}: tell one here, in which a node dies at it")


async def _given_three_jobs(cluster: Cluster) -> list[JobId]:
    """Give a job of each kind with four slots due, one of them too many."""
    jobs = []
    for policy in (Overlaps.SKIP, Overlaps.QUEUE, Overlaps.ALLOW):
        jobs += await cluster.given_jobs(
            down_for=timedelta(hours=4),
            misfire=Misfire(most=3),
            overlap=Overlap(policy=policy),
            retry=RetryPolicy(kind=Backoff.IMMEDIATE, attempts=5, not_retried=("LookupError",)),
            payload="fails" if policy is Overlaps.ALLOW else None,
        )
    return jobs


async def _given_runs(cluster: Cluster) -> list[JobId]:
    """Give the same, all of it fired and none of it begun."""
    jobs = await _given_three_jobs(cluster)
    async with cluster.node(watch=None):
        await cluster.seen(lambda seen: seen.fired == _FIRED)
    return jobs


async def _die(cluster: Cluster, node: Node, point: str) -> None:
    node.env.points.crash_at(point)
    async with node:
        reason = await node.died()
    assert isinstance(reason, Crashed), f"it died for another reason: {reason!r}"
    await cluster.let_lease_run_out(node)


async def _another_finishes(cluster: Cluster, jobs: list[JobId], *, lost: int) -> None:
    async with cluster.node(work=Work()):
        await cluster.at_rest()

    report = await cluster.check()
    assert report.fired == _FIRED, f"{report.fired} fired, where {_FIRED} should have"
    for job in jobs:
        decisions = [what for what, _ in await cluster.decisions(job)]
        assert decisions == ["coalesced", "fired", "fired", "fired"], f"decided otherwise: {decisions}"
    ended = await cluster.rows("SELECT state, count(*) FROM audit_runs GROUP BY state ORDER BY state")
    states = {row["state"]: row["count"] for row in ended}
    assert states == {"dead": 1, "succeeded": _FIRED - 1}, f"ended otherwise: {states}"
    attempts = await cluster.value("SELECT count(*) FROM audit_attempts WHERE outcome = 'lost'")
    assert attempts == lost, f"{attempts} attempts were lost with their worker, where {lost} had begun"


def _committed(point: str) -> bool:
    return point.endswith(".committed")


_Story: TypeAlias = Callable[[str, Cluster], Awaitable[None]]
_STORIES: Final[Mapping[str, tuple[_Story, tuple[str, ...]]]] = {
    "fire": (a_crash_in_fire, ("D02", "D10", "F06", "F07")),
    "claim": (a_crash_in_claim, ("D03", "F56")),
    "settle": (a_crash_in_settle, ("D18", "F56", "F67")),
    "recover": (a_crash_in_recover, ("F56", "F67")),
    "recover.expired": (a_crash_while_giving_up, ("F66",)),
    "change": (a_crash_in_a_change, ()),
}


def _checks() -> Iterator[Check]:
    for point in crash_points():
        verb = point.partition(".")[0]
        story, covers = _STORIES.get(point) or _STORIES.get(verb) or (a_crash_that_nobody_thought_of, ())
        yield Check(f"a crash at {point} loses and doubles nothing", partial(story, point), covers)
        if verb == "settle":
            story, covers = _STORIES["recover"]
            yield Check(f"a crash in recover at {point} loses and doubles nothing", partial(story, point), covers)


CHECKS: Final = tuple(_checks())
