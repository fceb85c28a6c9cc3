"""A node is stopped for longer than its lease, another takes over, and then it wakes up beside its successor."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from mainspring.domain.errors import NodeDeclaredDead
from mainspring.tasks.context import Context
from mainspring.telemetry.events import NodeDeclaredDead as Declared
from mainspring.telemetry.events import Settled, Started
from mainspring.testing.checks.base import Check
from mainspring.testing.cluster import Cluster
from mainspring.testing.nodes import idle

_TABLES: Final = ("job_cursors", "runs", "run_history", "skips", "attempts", "late_results", "dead_letters", "leases")


async def a_stale_node_changes_nothing(point: str, cluster: Cluster) -> None:
    """It stops inside a fire, or when its fire has just been committed; meanwhile more comes due.

    What it has locked, its server lets go of by ending a transaction that idles; a node that was stopped has no
    other way to make room.
    """
    jobs = await cluster.given_jobs(10)
    stale = cluster.node(watch=None)
    stopped = stale.env.stop_at(point)

    async with stale:
        await cluster.wait(stopped)
        stale.stop()
        jobs += await cluster.given_jobs(10)
        await cluster.end_idle_transactions()
        await cluster.let_lease_run_out(stale)
        async with cluster.node():
            await cluster.until("SELECT count(*) = $1 FROM audit_fires", len(jobs))
            before = await _contents(cluster)

            stale.env.go_on()
            await stale.looked(2 if point == "fire.committed" else 1)  # the second with what it believes to hold
            stale.pulse.go_on()
            reason = await stale.died()

            assert isinstance(reason, NodeDeclaredDead), f"it ended for another reason: {reason!r}"
            changed = set(before) ^ set(await _contents(cluster))
            assert not changed, f"it changed the ledger: {changed}"
    report = await cluster.check(at_rest=False)
    assert report.expected == report.fired == len(jobs), f"{report.fired} of {report.expected} slots fired"


async def a_zombie_is_refused(order: tuple[str, str], cluster: Cluster) -> None:
    """A worker stops in the middle of a run, wakes after it was replaced, and finishes."""
    await cluster.given_jobs()
    may_end = {"zombie": asyncio.Event(), "successor": asyncio.Event()}
    zombie = cluster.node(engine=idle, watch=None, work=partial(_work, "zombie", may_end["zombie"]))
    successor = cluster.node(work=partial(_work, "successor", may_end["successor"]))

    async with zombie:
        async with cluster.node(watch=None):
            await zombie.events.until(lambda seen: bool(seen.of(Started)), cluster.seconds)
        zombie.stop()
        await cluster.let_lease_run_out(zombie)
        async with successor:
            await successor.events.until(lambda seen: bool(seen.of(Started)), cluster.seconds)
            for name in order:
                node = zombie if name == "zombie" else successor
                node.env.go_on()
                may_end[name].set()
                await node.events.until(lambda seen: bool(seen.of(Settled)), cluster.seconds)
            await cluster.at_rest()
        zombie.pulse.go_on()
        reason = await zombie.died()
        assert isinstance(reason, NodeDeclaredDead), f"it ended for another reason: {reason!r}"

    refused = await cluster.rows("SELECT attempt, worker, outcome FROM late_results")
    assert refused == [{"attempt": 1, "worker": zombie.id, "outcome": "succeeded"}], f"not recorded as late: {refused}"
    ended = await cluster.rows("SELECT state, attempt, worker, result FROM run_history")
    accepted = {"state": "succeeded", "attempt": 2, "worker": successor.id, "result": '"successor"'}
    assert ended == [accepted], f"another attempt decided: {ended}"
    await cluster.check()


async def a_zombie_that_goes_on_claiming(cluster: Cluster) -> None:
    """A worker stops with nothing in hand, wakes after it was declared dead, and looks for work as ever."""
    zombie = cluster.node(engine=idle, watch=None, work=partial(_work, "zombie", asyncio.Event()))
    stopped = zombie.env.stop_at("claim.committed")
    async with zombie, cluster.node() as scheduler:
        await cluster.wait(stopped)
        zombie.stop()
        await cluster.let_lease_run_out(zombie)
        await scheduler.events.until(lambda seen: bool(seen.of(Declared)), cluster.seconds)
        jobs = await cluster.given_jobs(10)
        await cluster.seen(lambda seen: seen.fired == len(jobs))

        claimed = zombie.env.stop_at("claim.committed")
        zombie.env.go_on()
        await cluster.wait(claimed)
        zombie.go_on()
        reason = await zombie.died()
        assert isinstance(reason, NodeDeclaredDead), f"it ended for another reason: {reason!r}"
        done = asyncio.Event()
        done.set()
        async with cluster.node(engine=idle, watch=None, work=partial(_work, "successor", done)):
            await cluster.at_rest()

    await cluster.check()
    results = await cluster.rows("SELECT state, result, count(*) FROM run_history GROUP BY state, result")
    assert results == [{"state": "succeeded", "result": '"successor"', "count": len(jobs)}], f"otherwise: {results}"


async def _work(name: str, may_end: asyncio.Event, _context: Context) -> str:
    await may_end.wait()
    return name


async def _contents(cluster: Cluster) -> list[str]:
    rows = " UNION ALL ".join(f"SELECT '{table}' || to_jsonb(t)::text AS row FROM {table} AS t" for table in _TABLES)  # noqa: S608
    return [row["row"] for row in await cluster.rows(f"{rows} ORDER BY row")]


CHECKS: Final = (
    *(
        Check(
            f"a node stopped at {point} past its lease changes nothing",
            partial(a_stale_node_changes_nothing, point),
            ("F01",),
        )
        for point in ("fire.locked", "fire.commit", "fire.committed")
    ),
    *(
        Check(f"a zombie's result is refused {when}", partial(a_zombie_is_refused, order), ("D25", "F57"))
        for when, order in (
            ("while its successor works", ("zombie", "successor")),
            ("when its successor is done", ("successor", "zombie")),
        )
    ),
    Check("a zombie that goes on claiming leaves nothing stuck", a_zombie_that_goes_on_claiming, ("F57",)),
)
