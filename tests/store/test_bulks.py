"""Bulks: who may take a step of one, and that it is taken together with what is done; and what a filter means."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import Every, RetryPolicy, Schedule
from mainspring.domain.asking import Change, JobFilter, LetterFilter, Request, RunFilter
from mainspring.domain.errors import Conflict, NotFound, Superseded
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.job import Job, JobState
from mainspring.domain.run import State
from mainspring.domain.schedule import OnDemand
from mainspring.domain.settling import ErrorInfo, Failed
from mainspring.domain.views import JobView
from mainspring.sdk.direct import Direct
from mainspring.store.bulks import (
    Bulk,
    NewBulk,
    Step,
    counted_bulk,
    find_bulk,
    finish_bulk,
    forget_bulks,
    list_bulks,
    pass_over,
    release_bulk,
    start_bulk,
    stop_bulk,
    take_bulk,
    touch_bulk,
)
from mainspring.store.hints import Bell
from mainspring.store.log import Entry
from mainspring.store.matching import Filter, Meant, count_matches, matches

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "acme", "bolt"
HOURLY = Schedule(specs=(Every(timedelta(hours=1)),))
ASKED_FOR = Schedule(specs=(OnDemand(),))
FAILED = Failed(error=ErrorInfo(type="shop.Broken", message="no stock", traceback=""))


async def given_bulk(ledger: Ledger, tenant: str = A, **changes: Any) -> Bulk:
    usual = {
        "id": ledger.env.new_id(),
        "action": "jobs.pause",
        "wanted": {"filter": {}},
        "total": 5,
        "author": "me",
        "reason": "",
    }
    return await start_bulk(ledger.db.scoped(tenant), NewBulk(tenant=tenant, **{**usual, **changes}))


async def given_job(ledger: Ledger, name: str = "nightly", schedule: Schedule = HOURLY, **fields: Any) -> JobView:
    return await backend(ledger).put_job(Job(name=name, task="noop", tenant=A, schedule=schedule, **fields), reason="")


def backend(ledger: Ledger) -> Direct:
    return Direct(ledger.db.scoped(A), ledger.env, Bell(ledger.db), tenant=A, author="tests")


async def pause(ledger: Ledger, bulk: Bulk, node: UUID, job: JobView) -> None:
    """Do what a node does to one item."""
    entry = Entry(action="jobs.pause", subject=job.name, actor="me")
    noting = backend(ledger).on_behalf_of("me", Step(bulk.id, node, job.name, entry))
    await noting.change_job(job.id, Change(state=JobState.PAUSED))


async def state_of(ledger: Ledger, job: JobView) -> JobState:
    return (await backend(ledger).find_job(job.id)).state


async def entries(ledger: Ledger) -> int:
    counted: int = await ledger.value("SELECT count(*) FROM changes")
    return counted


async def later(ledger: Ledger) -> None:
    await ledger.execute("UPDATE bulks SET changed_at = changed_at - interval '16 s'")


async def test_a_step_is_taken_together_with_what_is_done_and_its_entry(ledger: Ledger) -> None:
    bulk, node, job = await given_bulk(ledger), uuid4(), await given_job(ledger)
    assert await take_bulk(ledger.db, node) is not None

    await pause(ledger, bulk, node, job)
    with pytest.raises(NotFound):  # there is nothing to change, so no step
        await (
            backend(ledger)
            .on_behalf_of("me", Step(bulk.id, node, "x", Entry(action="a", subject="b", actor="c")))
            .cancel_run(
                uuid4()  # type: ignore[arg-type]
            )
        )

    found = await find_bulk(ledger.db.scoped(A), A, bulk.id)
    assert (found.done, found.cursor, await state_of(ledger, job), await entries(ledger)) == (
        1,
        "nightly",
        JobState.PAUSED,
        1,
    )


async def test_one_that_was_taken_over_does_nothing_more_though_it_does_not_know(ledger: Ledger) -> None:
    bulk, slow, quick, job = await given_bulk(ledger), uuid4(), uuid4(), await given_job(ledger)
    assert (await take_bulk(ledger.db, slow)) is not None
    assert (await take_bulk(ledger.db, quick)) is None  # it was touched a moment ago
    await later(ledger)
    assert (await take_bulk(ledger.db, quick)) is not None

    with pytest.raises(Superseded):
        await pause(ledger, bulk, slow, job)
    assert (await state_of(ledger, job), await entries(ledger)) == (JobState.ACTIVE, 0)
    for late in (
        touch_bulk(ledger.db, bulk, slow),
        pass_over(ledger.db.scoped(A), bulk, slow, "x", None),
        counted_bulk(ledger.db.scoped(A), bulk, slow, 5, more=False),
    ):
        with pytest.raises(Superseded):
            await late
    await finish_bulk(ledger.db.scoped(A), bulk, slow)
    await release_bulk(ledger.db.scoped(A), bulk, slow)
    await pause(ledger, bulk, quick, job)

    found = await find_bulk(ledger.db.scoped(A), A, bulk.id)
    assert (found.state, found.done, await state_of(ledger, job)) == ("going", 1, JobState.PAUSED)


async def test_a_touch_keeps_others_away_and_a_release_lets_them_in(ledger: Ledger) -> None:
    bulk, mine, other = await given_bulk(ledger), uuid4(), uuid4()
    await ledger.execute("INSERT INTO tenants (name) VALUES ('acme')")
    await take_bulk(ledger.db, mine)
    await later(ledger)

    assert await touch_bulk(ledger.db, bulk, mine) == "active"
    assert await take_bulk(ledger.db, other) is None
    assert await take_bulk(ledger.db, mine, but=[bulk.id]) is None
    assert await take_bulk(ledger.db, mine) is not None  # it was interrupted, and goes on
    await release_bulk(ledger.db.scoped(A), bulk, mine)
    assert await take_bulk(ledger.db, other) is not None


async def test_of_many_who_want_it_one_gets_it(ledger: Ledger) -> None:
    await given_bulk(ledger)

    taken = await asyncio.gather(*(take_bulk(ledger.db, uuid4()) for _ in range(8)))

    assert len([bulk for bulk in taken if bulk is not None]) == 1


async def test_nobodys_many_bulks_keep_anothers_from_starting(ledger: Ledger) -> None:
    for _ in range(6):
        await given_bulk(ledger, A)
    last = await given_bulk(ledger, B)
    node, taken = uuid4(), list[Bulk]()

    while (bulk := await take_bulk(ledger.db, node, but=[each.id for each in taken])) is not None:
        taken.append(bulk)

    assert [bulk.tenant for bulk in taken] == [A, B, A, A]
    assert taken[1].id == last.id


async def test_after_a_stop_no_step_is_taken(ledger: Ledger) -> None:
    bulk, node, job = await given_bulk(ledger), uuid4(), await given_job(ledger)
    await take_bulk(ledger.db, node)
    with pytest.raises(NotFound):
        await stop_bulk(ledger.db.scoped(B), B, bulk.id)
    with pytest.raises(NotFound):
        await stop_bulk(ledger.db.scoped(B), A, bulk.id)  # nor by a query that names the wrong one

    assert (await stop_bulk(ledger.db.scoped(A), A, bulk.id)).state == "stopped"
    with pytest.raises(Superseded):
        await pause(ledger, bulk, node, job)
    with pytest.raises(Conflict, match="stopped already"):
        await stop_bulk(ledger.db.scoped(A), A, bulk.id)

    assert (await state_of(ledger, job), await entries(ledger)) == (JobState.ACTIVE, 0)
    assert await take_bulk(ledger.db, node) is None


async def test_what_is_passed_over_is_counted_once_and_twenty_failures_are_kept(ledger: Ledger) -> None:
    bulk, node, db = await given_bulk(ledger), uuid4(), ledger.db.scoped(A)
    await take_bulk(ledger.db, node)

    for place in range(25):
        await pass_over(db, bulk, node, f"f{place:02}", {"id": str(place), "code": "conflict", "detail": ""})
    await pass_over(db, bulk, node, "f24", {"id": "24", "code": "conflict", "detail": ""})
    await pass_over(db, bulk, node, "s", None)
    await finish_bulk(db, bulk, node)

    found = await find_bulk(db, A, bulk.id)
    assert (found.state, found.total, found.done, found.skipped, found.failed) == ("done", 26, 0, 1, 25)
    assert [each["id"] for each in found.detail["failures"]] == [str(place) for place in range(20)]


async def test_they_are_listed_newest_first_and_forgotten_when_they_are_old(ledger: Ledger) -> None:
    db, node = ledger.db.scoped(A), uuid4()
    ids = [(await given_bulk(ledger)).id for _ in range(3)]
    again = await given_bulk(ledger, id=ids[0], reason="another")
    first = await list_bulks(db, A, limit=2, after=None)
    rest = await list_bulks(db, A, limit=2, after=first.next)
    assert ([each.id for each in (*first.items, *rest.items)], rest.next, again.reason) == (ids[::-1], None, "")
    assert (await list_bulks(ledger.db.scoped(B), A, limit=2, after=None)).items == ()

    ended = await take_bulk(ledger.db, node)
    assert ended is not None
    await finish_bulk(db, ended, node)
    await forget_bulks(ledger.db)
    assert await ledger.value("SELECT count(*) FROM bulks") == 3
    await ledger.execute("UPDATE bulks SET ended_at = ended_at - interval '91 days'")
    await forget_bulks(ledger.db)
    assert await ledger.value("SELECT count(*) FROM bulks") == 2


async def all_of(ledger: Ledger, wanted: Filter, tenant: str = A, **more: Any) -> list[str]:
    """Return everything a filter finds, two at a time, having counted it."""
    db, meant, found = ledger.db.scoped(tenant), Meant(tenant, wanted, **more), list[str]()
    after = None
    while piece := await matches(db, meant, after=after, limit=2):
        found += [each.name for each in piece]
        after = piece[-1].place
    assert len(found) == await count_matches(db, meant, most=1000)
    assert await count_matches(db, meant, most=1) == min(len(found), 1)
    return found


async def test_what_a_filter_finds_of_jobs_is_what_was_there(ledger: Ledger) -> None:
    fields: dict[str, dict[str, Any]] = {
        "a1": {"owner": "shop"},
        "a2": {"tags": ("x", "y")},
        "a3": {"schedule": ASKED_FOR},
        "b1": {"owner": "shop", "tags": ("x",)},
    }
    for name, given in fields.items():
        await given_job(ledger, name, **given)
    then = await ledger.value("SELECT clock_timestamp()")
    await given_job(ledger, "a4", owner="shop")

    assert await all_of(ledger, JobFilter()) == ["a1", "a2", "a3", "a4", "b1"]
    assert await all_of(ledger, JobFilter(), until=then) == ["a1", "a2", "a3", "b1"]
    assert await all_of(ledger, JobFilter(), scheduled=True) == ["a1", "a2", "a4", "b1"]
    assert await all_of(ledger, JobFilter(prefix="a", owner="shop")) == ["a1", "a4"]
    assert await all_of(ledger, JobFilter(tags=("x",))) == ["a2", "b1"]
    assert await all_of(ledger, JobFilter(states=(JobState.PAUSED,))) == []
    assert await all_of(ledger, JobFilter(), tenant=B) == []


async def test_what_a_filter_finds_of_runs_and_dead_letters_is_what_was_there(ledger: Ledger) -> None:
    once: dict[str, Any] = {
        "schedule": ASKED_FOR,
        "retry": RetryPolicy(attempts=1),
        "overlap": Overlap(policy=Overlaps.ALLOW),
    }
    ours, job = backend(ledger), await given_job(ledger, **once)
    other = await given_job(ledger, "other", schedule=ASKED_FOR)
    dead = {str(await ours.trigger(job.id, Request())) for _ in range(3)}
    await ledger.settle(await ledger.claim(await ledger.node()), FAILED)
    then = await ledger.value("SELECT clock_timestamp()")
    queued = {str(await ours.trigger(each.id, Request())) for each in (job, other)}

    assert set(await all_of(ledger, RunFilter())) == dead | queued
    assert set(await all_of(ledger, RunFilter(), until=then)) == dead
    assert set(await all_of(ledger, RunFilter(states=(State.QUEUED,)))) == queued
    assert len(await all_of(ledger, RunFilter(job=other.id))) == 1
    assert await all_of(ledger, RunFilter(since=then + timedelta(hours=1))) == []
    assert set(await all_of(ledger, LetterFilter())) == dead
    assert await all_of(ledger, LetterFilter(job=other.id)) == []
    assert await all_of(ledger, LetterFilter(until=then - timedelta(hours=1))) == []
    assert await all_of(ledger, RunFilter(), tenant=B) == await all_of(ledger, LetterFilter(), tenant=B) == []
