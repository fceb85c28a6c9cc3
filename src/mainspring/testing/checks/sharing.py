"""Any number of nodes, of one kind or of all kinds at once: each slot once, by the database's clock, oldest first."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Final

from mainspring.domain.asking import Change
from mainspring.domain.firing import Misfire, Overlap, Overlaps
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job, JobState
from mainspring.domain.schedule import At, Every, Schedule
from mainspring.engines.base import Rhythm
from mainspring.store.changes import change_job
from mainspring.tasks.context import Context
from mainspring.telemetry.events import Fired
from mainspring.testing.checks.base import Check
from mainspring.testing.cluster import Cluster
from mainspring.testing.nodes import BUILT_IN, FIRES_TOO, Node

_SMALL: Final = Rhythm(batch=20)  # so that nodes meet, and have to come back for more
_HOUR: Final = timedelta(hours=1)
_DAYS: Final = timedelta(days=10)
_EVERY_SECOND: Final = Schedule(specs=(Every(timedelta(seconds=1)),))


class Tally:
    """A task that counts how often each job was worked on."""

    def __init__(self) -> None:
        self.runs: Counter[JobId] = Counter()

    async def __call__(self, context: Context) -> None:
        self.runs[context.job_id] += 1


async def nodes_fire_each_job_once(number: int, cluster: Cluster) -> None:
    jobs, tally = await cluster.given_jobs(1_000), Tally()
    running = [cluster.node(work=tally, watch=None) for _ in range(number)]

    await _run_to_the_end(cluster, running)

    await _assert_once_each(cluster, jobs, tally)
    assert cluster.events.fired == len(jobs), f"the nodes tell of {cluster.events.fired} fires"


async def all_engines_at_once(cluster: Cluster) -> None:
    """A mistake in a deployment: this engine, every other, and guardians that do not wait until a job is overdue."""
    jobs, tally = await cluster.given_jobs(500), Tally()
    engines = (cluster.engine, cluster.engine, *BUILT_IN.values())
    running = [cluster.node(engine=engine, work=tally, watch=FIRES_TOO, rhythm=_SMALL) for engine in engines]

    await _run_to_the_end(cluster, running)

    await _assert_once_each(cluster, jobs, tally)


async def engines_that_find_nothing(cluster: Cluster) -> None:
    """The engines live, lead and own; only they never come back from a look. The guardians are enough."""
    jobs, tally = await cluster.given_jobs(100), Tally()
    running = [cluster.node(work=tally, watch=FIRES_TOO, hangs=True) for _ in range(3)]

    await _run_to_the_end(cluster, running)

    await _assert_once_each(cluster, jobs, tally)
    assert cluster.events.fired == 0, "an engine fired, so that the guardians were not alone"


async def ten_days_of_downtime(cluster: Cluster) -> None:
    """864,000 slots are one look: a hundred runs, and one row that answers for the rest."""
    now = await cluster.value("SELECT date_trunc('second', clock_timestamp())")
    schedule = Schedule(specs=_EVERY_SECOND.specs, start=now - _DAYS, end=now)
    due = schedule.count(now - 2 * _DAYS, now + _DAYS)
    (job,) = await cluster.given_jobs(schedule=schedule, down_for=2 * _DAYS)

    async with cluster.node(work=Tally(), watch=None) as node:
        await cluster.at_rest()

    report, most = await cluster.check(), Misfire().most
    assert report.expected == due >= 864_000, f"{report.expected} slots were expected, where {due} were due"
    decided = {"fired": report.fired, **report.skipped}
    assert decided == {"fired": most, "coalesced": due - most}, f"decided otherwise: {decided}"
    rows = len(await cluster.decisions(job))
    assert rows == most + 1, f"{rows} rows were written"
    assert len(node.events.of(Fired)) == 1, "it took more than one look to decide them"


async def a_small_batch_takes_the_oldest_first(cluster: Cluster) -> None:
    """More is due than fits: the batches go from the oldest to the newest, and nobody waits for ever."""
    ages = [hours * _HOUR for hours in (7, 2, 9, 4, 1, 8, 3, 6, 5)]
    for age in ages:
        await cluster.given_jobs(10, down_for=2 * age, schedule=await _once(cluster, -age))

    async with cluster.node(watch=None, rhythm=Rhythm(batch=7)):
        await cluster.seen(lambda seen: seen.fired == 10 * len(ages))

    decided = await cluster.rows("SELECT scheduled_at FROM audit_fires ORDER BY fired_at, scheduled_at")
    slots = [row["scheduled_at"] for row in decided]
    assert slots == sorted(slots), "a newer slot was decided in an earlier batch than an older one"
    await cluster.check(at_rest=False)


async def clocks_an_hour_off(cluster: Cluster) -> None:
    """One node is an hour ahead, one behind, one right: each alone and all together, they fire what is due."""
    clocks = (_HOUR, timedelta(0), -_HOUR)
    early = await cluster.given_jobs(20, schedule=await _once(cluster, _HOUR / 2))
    jobs, tally = [], Tally()

    for together in (*[(clock,) for clock in clocks], clocks):
        jobs += await cluster.given_jobs(50)
        running = [cluster.node(work=tally, rhythm=_SMALL, watch=FIRES_TOO, clock_off=clock) for clock in together]
        await _run_to_the_end(cluster, running)

    await _assert_once_each(cluster, jobs, tally)
    assert not any([await cluster.decisions(job) for job in early]), "fired before its time"


async def a_change_is_seen_without_a_hint(cluster: Cluster) -> None:
    """Nobody tells the engine of a new job, an earlier slot or a pause; it looks again within a second, of itself."""
    (edited,) = await cluster.given_jobs(schedule=await _once(cluster, timedelta(days=300)))
    ticking = Job(name="ticking", task="work", schedule=_EVERY_SECOND, overlap=Overlap(policy=Overlaps.ALLOW))

    async with cluster.node(watch=None) as node:
        await node.looked(2)  # it has seen that nothing is due for months
        (new,) = await cluster.given_jobs()
        await cluster.until("SELECT EXISTS (SELECT FROM audit_fires WHERE job_id = $1)", new)
        await change_job(cluster.db, cluster.env, edited, Change(definition=ticking))
        await cluster.until("SELECT EXISTS (SELECT FROM audit_fires WHERE job_id = $1)", edited)
        paused = await change_job(cluster.db, cluster.env, edited, Change(state=JobState.PAUSED))
        await cluster.until("SELECT clock_timestamp() > $1::timestamptz + interval '1 second'", paused.effective_at)
        await node.looked(2)  # a slot has passed that would have fired
        longest = max(node.env.sleeps)

    after = [at for _, at in await cluster.decisions(edited) if at > paused.effective_at]
    assert not after, f"decided at {after}, though paused since {paused.effective_at}"
    assert longest <= 1, f"it slept for {longest} s, and a change would have waited as long"
    await cluster.check(at_rest=False)


async def _run_to_the_end(cluster: Cluster, running: list[Node]) -> None:
    async with AsyncExitStack() as stack:
        for node in running:
            await stack.enter_async_context(node)
        await cluster.at_rest()


async def _assert_once_each(cluster: Cluster, jobs: list[JobId], tally: Tally) -> None:
    report = await cluster.check()
    assert report.expected == report.fired == len(jobs), f"{report.fired} of {report.expected} slots fired"
    wrong = {job: times for job, times in tally.runs.items() if times != 1}
    assert not wrong, f"worked on more than once: {wrong}"
    assert set(tally.runs) == set(jobs), f"worked on {len(tally.runs)} of {len(jobs)} jobs"


async def _once(cluster: Cluster, after: timedelta) -> Schedule:
    now = await cluster.value("SELECT date_trunc('second', clock_timestamp())")
    return Schedule(specs=(At(now + after),))


CHECKS: Final = (
    *(
        Check(f"{who} a thousand due jobs once each", partial(nodes_fire_each_job_once, number), ("D16",))
        for number, who in ((1, "one node fires"), (2, "two nodes fire"), (5, "five nodes fire"))
    ),
    Check("all engines and the guardian at once fire each job once", all_engines_at_once, ("F09",)),
    Check("the guardians are enough if no engine finds anything", engines_that_find_nothing, ("F11",)),
    Check("ten days of a per-second job are bounded work, and accounted for", ten_days_of_downtime, ("F10", "F28")),
    Check("a small batch takes the oldest first", a_small_batch_takes_the_oldest_first, ("D23", "F16")),
    Check("clocks an hour off fire nothing early and nothing twice", clocks_an_hour_off, ("F19",)),
    Check("a change is seen within a second without a hint", a_change_is_seen_without_a_hint, ("D09", "F33")),
)
