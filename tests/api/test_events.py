"""Streams of events: to each tenant its own, without a gap, bounded, and no longer than the key is good (F114)."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mainspring.api import events
from mainspring.config import Settings
from mainspring.domain.access import SCOPES, Role, Scope
from mainspring.environment import SystemEnvironment
from mainspring.store import feed
from mainspring.store.database import Database
from mainspring.store.keys import make_key, revoke_key
from mainspring.store.tenants import create_tenant

from .conftest import key_for, serve
from .listening import Listener, connect, listening
from .samples import Maker
from .serving import servers_on

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.covers("F114")]

STREAMS = 1_000
PER_STREAM = 300 << 10  # bytes; generous: it is the order of magnitude that is tested
CHANGES = """
INSERT INTO changes (tenant, actor, action, subject)
SELECT $1, 'tests', 'tests.happen', $2 || n FROM generate_series($3::int, $4::int) AS n
"""


class Ahead(SystemEnvironment):
    """A clock that can be set forward."""

    ahead = timedelta(0)

    def now(self) -> Any:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead.total_seconds()


async def happen(db: Database, tenant: str, first: int, last: int, name: str = "") -> list[str]:
    """Let changes happen, and return their subjects."""
    async with db.transaction() as tx:
        await tx.execute(CHANGES, tenant, name, first, last)
    return [f"{name}{number}" for number in range(first, last + 1)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beat, and ask who is listening, several times a second."""
    monkeypatch.setattr(events, "_BEAT_EVERY", 0.2)


@asynccontextmanager
async def ticking(db: Database, tenant: str) -> AsyncIterator[list[str]]:
    """Let something happen all the time."""
    happened: list[str] = []

    async def tick() -> None:
        while True:
            happened.extend(await happen(db, tenant, len(happened), len(happened), "tick-"))
            await asyncio.sleep(0.01)

    task = asyncio.create_task(tick())
    try:
        yield happened
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def attentive(db: Database, listener: Listener, tenant: str = "default") -> None:
    """Let things happen until one is heard: from then on everything is news to this stream."""
    number = 0
    while not any(each.data.get("subject", "").startswith("probe-") for each in listener.told):
        number += 1
        await happen(db, tenant, number, number, "probe-")
        await asyncio.sleep(0.1)


async def heard(listener: Listener, subjects: list[str]) -> None:
    await listener.until(lambda each: set(subjects) <= set(each.subjects()))


async def test_each_tenant_hears_its_own_and_nothing_else(db: Database, secured: Settings) -> None:
    keys = [await key_for(db, tenant) for tenant in ("shop", "bank")]
    async with serve(db, secured) as ask, AsyncExitStack() as stack:
        shop, bank = [
            await stack.enter_async_context(listening(ask.url, authorization=f"Bearer {key}")) for key in keys
        ]
        await attentive(db, shop, "shop")
        await attentive(db, bank, "bank")
        mine, theirs = await happen(db, "shop", 1, 50, "shop-"), await happen(db, "bank", 1, 50, "bank-")
        await asyncio.gather(heard(shop, mine), heard(bank, theirs))

        assert not [each for each in shop.subjects() if each.startswith("bank-")]
        assert not [each for each in bank.subjects() if each.startswith("shop-")]


async def test_a_stream_needs_a_job_or_run_of_its_tenant(db: Database, secured: Settings) -> None:
    shop, bank = await key_for(db, "shop"), await key_for(db, "bank")
    job = {"name": "nightly", "task": "report", "schedule": [{"cron": "30 2 * * *"}]}
    async with serve(db, secured) as ask:
        made = await ask.with_key(shop)("POST", "/jobs", job)
        run = await ask.with_key(shop)("POST", "/jobs/nightly/trigger", {})
        assert (made.status, run.status) == (201, 201)
        for path in (f"/events?job={made['id']}", "/events?job=nightly", f"/events?run={run['id']}"):
            refused = await ask.with_key(bank)("GET", path)
            assert (refused.status, refused["code"]) == (404, "not_found")
            async with listening(ask.url, f"/api/v1{path}", authorization=f"Bearer {shop}") as mine:
                await mine.until(lambda each: any(one.data.get("id") == run["id"] for one in each.told))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("busy", [True, False])
async def test_a_stream_ends_when_its_key_is_revoked(
    db: Database, secured: Settings, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    monkeypatch.setattr(events, "_LOOK_EVERY", 0.01)  # busy: it hears something between any two beats
    await create_tenant(db, "shop")
    env = Ahead()
    text, key = await make_key(db, env, tenant="shop", name="ci", role=Role.OPERATOR.value, created_by="tests")
    async with serve(db, secured, env) as ask, AsyncExitStack() as stack:
        listener = await stack.enter_async_context(listening(ask.url, authorization=f"Bearer {text}"))
        if busy:
            happened = await stack.enter_async_context(ticking(db, "shop"))
            await listener.until(lambda each: len(each.told) > 5)
            assert happened
        await revoke_key(db, key.id)
        env.ahead = timedelta(seconds=11)  # a key is known for ten

        assert await listener.ends(within=5) == events.NOT_ALLOWED


async def test_a_stream_ends_when_its_key_expires(db: Database, secured: Settings) -> None:
    await create_tenant(db, "shop")
    env = SystemEnvironment()
    expires_at = env.now() + timedelta(seconds=2)
    text, _ = await make_key(
        db, env, tenant="shop", name="ci", role=Role.OPERATOR.value, created_by="tests", expires_at=expires_at
    )
    async with serve(db, secured) as ask, listening(ask.url, authorization=f"Bearer {text}") as listener:
        assert await listener.ends(within=8) == events.NOT_ALLOWED  # not at the next beat, ten seconds on
        assert env.now() >= expires_at


async def test_no_more_streams_than_there_may_be(db: Database) -> None:
    few = replace(Settings(), api=replace(Settings().api, most_streams=3))
    async with serve(db, few) as ask, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(listening(ask.url))
        refused = await ask("GET", "/events")
        assert (refused.status, refused["code"]) == (503, "too_many_streams")
        assert int(refused.headers["Retry-After"]) > 0
        assert (await ask("GET", "/me")).status == 200
        await stack.aclose()
        async with asyncio.timeout(10):  # those that have left make room
            while (await ask("HEAD", "/events")).status != 200:
                pass


async def test_a_burst_does_not_lose_those_who_read(db: Database) -> None:
    async with serve(db) as ask, listening(ask.url) as listener:
        await attentive(db, listener)
        burst = await happen(db, "default", 1, 6_000)
        await heard(listener, burst)
        assert len(listener.subjects()) == len(set(listener.subjects()))  # nobody else joined, and nothing failed


async def test_a_batch_of_one_instant_comes_whole(db: Database) -> None:
    """More than a page of the feed holds, all with the same time."""
    async with serve(db) as ask, listening(ask.url) as listener:
        await attentive(db, listener)
        async with db.transaction() as tx:
            await tx.execute(
                "INSERT INTO changes (tenant, actor, action, subject, at)"
                " SELECT 'default', 'tests', 'x', n::text, transaction_timestamp() FROM generate_series(1, 5000) AS n"
            )
        await heard(listener, [str(number) for number in range(1, 5_001)])


async def test_what_was_stamped_long_before_its_commit_is_told(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The horizon waits for it, however much has been told that is newer. A stretch of time alone does not."""
    monkeypatch.setattr(feed, "BEHIND", timedelta(0))
    async with serve(db) as ask, listening(ask.url) as listener:
        await attentive(db, listener)
        async with db.transaction() as tx:
            await tx.execute(CHANGES, "default", "early-", 1, 1)
            for number in range(3):  # looks, each of which goes beyond it
                await heard(listener, await happen(db, "default", number, number, "late-"))
            assert "early-1" not in listener.subjects()
        await heard(listener, ["early-1"])


async def test_who_reads_too_slowly_is_let_go_and_told_so(db: Database) -> None:
    async with serve(db) as ask, listening(ask.url) as quick_one:
        slow = await connect(ask.url)  # and nobody reads
        await attentive(db, quick_one)
        for lot in range(10):
            told = await happen(db, "default", lot * 2_000, lot * 2_000 + 1_999, "x" * 300)
            await heard(quick_one, told)

        reading = asyncio.create_task(slow.listen())
        assert await slow.ends() == events.TOO_SLOW
        assert 0 < len(slow.told) < 20_000
        await reading
        slow.writer.close()


async def test_a_stop_ends_streams_with_a_word(db: Database) -> None:
    async with AsyncExitStack() as stack:
        async with serve(db) as ask:
            listener = await stack.enter_async_context(listening(ask.url))
            await listener.until(lambda each: each.beats > 0)
        assert await listener.ends(within=5) == events.STOPPING


async def test_what_is_written_while_a_stream_resumes_is_not_lost(db: Database) -> None:
    """A change that is stamped before the stream looks for the first time, and committed after."""
    async with serve(db) as ask, AsyncExitStack() as held:
        async with listening(ask.url) as first:
            await attentive(db, first)
            last = first.told[-1]
        tx = await held.enter_async_context(db.transaction())
        await tx.execute(CHANGES, "default", "late-", 1, 1)
        async with listening(ask.url, last_event_id=last.id) as again:
            await heard(again, [last.data["subject"]])  # so it has looked for what it missed, and its channel before it
            await held.aclose()
            await heard(again, ["late-1"])


async def test_what_is_written_before_its_channel_looks_is_not_lost(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was over when the channel looked for the first time, and not yet there had the stream looked before."""
    looking, let_look, look = asyncio.Event(), asyncio.Event(), events.Streams._look

    async def held_look(self: events.Streams, *given: Any) -> Any:
        looking.set()
        await let_look.wait()
        return await look(self, *given)

    async with serve(db) as ask:
        async with listening(ask.url) as first:
            await attentive(db, first)
            last = first.told[-1]
        monkeypatch.setattr(events.Streams, "_look", held_look)
        async with listening(ask.url, last_event_id=last.id) as again:
            await looking.wait()
            written = await happen(db, "default", 1, 1, "between-")
            let_look.set()
            await heard(again, written)


async def test_who_was_welcomed_misses_nothing(db: Database) -> None:
    """Neither what happens next, nor what happens while it is cut off before it has heard of anything."""
    async with serve(db) as ask:
        for number in range(5):
            before = await happen(db, "default", number, number, "before-")
            async with listening(ask.url) as listener:
                await listener.until(lambda each: each.beats > 0)
                await heard(listener, await happen(db, "default", number, number, "next-"))
            assert not set(before) & set(listener.subjects())

        async with listening(ask.url) as listener:
            await listener.until(lambda each: each.welcome != "")
        missed = await happen(db, "default", 1, 1, "missed-")
        async with listening(ask.url, last_event_id=listener.welcome) as again:
            await heard(again, missed)


@pytest.mark.usefixtures("quick")
async def test_a_stream_of_one_run_begins_with_its_state_also_when_it_has_ended(db: Database) -> None:
    async with serve(db) as ask:
        run = await Maker(ask, db, "default").dead()
        async with listening(ask.url, f"/api/v1/events?run={run}") as listener:
            await listener.until(lambda each: bool(each.told))
            await happen(db, "default", 1, 1)
            await listener.until(lambda each: each.beats > 1)  # and nothing else: of a run its states alone

        assert [(each.kind, each.data["id"], each.data["state"]) for each in listener.told] == [("run", run, "dead")]


@pytest.mark.covers("F118")
async def test_who_may_not_read_the_log_does_not_hear_of_changes_either(db: Database, secured: Settings) -> None:
    keys = {role: await key_for(db, "shop", role) for role in Role}
    async with serve(db, secured) as ask, AsyncExitStack() as stack:
        listeners = {
            role: await stack.enter_async_context(listening(ask.url, authorization=f"Bearer {key}"))
            for role, key in keys.items()
        }
        for listener in listeners.values():
            await listener.until(lambda each: each.beats > 0)
        run = await Maker(ask.with_key(await key_for(db, None)), db, "shop").dead()  # makes a job, submits, and dies
        for listener in listeners.values():
            await listener.until(lambda each: any(one.data["id"] == run for one in each.told))

        assert {role for role, each in listeners.items() if each.subjects()} == {
            role for role in Role if Scope.CHANGES_READ in SCOPES[role]
        }


async def test_one_tenant_does_not_take_all_the_streams(db: Database, secured: Settings) -> None:
    shop, bank = await key_for(db, "shop"), await key_for(db, "bank")
    settings = replace(secured, api=replace(secured.api, most_streams=4))
    async with serve(db, settings) as ask, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(listening(ask.url, authorization=f"Bearer {shop}"))
        refused = await ask.with_key(shop)("GET", "/events")
        other = await stack.enter_async_context(listening(ask.url, authorization=f"Bearer {bank}"))

        assert (refused.status, refused["code"]) == (503, "too_many_streams")
        assert other.status == 200


async def test_a_stream_goes_on_where_it_was_after_a_restart(db: Database, dsn: str) -> None:
    """Also over more than the feed reads at once, and with everything in between."""
    async with servers_on(dsn) as servers, ticking(db, "default") as ticks:
        served = await servers.start()
        async with listening(served.url) as before:
            await before.until(lambda each: len(each.told) > 10)
            first, last = ticks.index(before.subjects()[0]), before.told[-1].id
            heard_before = set(before.subjects())
            await served.kill()
        missed = await happen(db, "default", 1, 5_000, "missed-")
        again = await servers.start()
        async with listening(again.url, last_event_id=last) as after:
            await heard(after, missed)
            await after.until(lambda each: set(ticks[first:-20]) <= heard_before | set(each.subjects()))
            so_far = len(ticks)
            await after.until(lambda each: set(ticks[first:so_far]) <= heard_before | set(each.subjects()))


async def test_a_thousand_streams_hear_their_own_within_bounded_memory(db: Database, dsn: str) -> None:
    room_for_descriptors(4 * STREAMS)
    tenants = ("shop", "bank")
    keys = [await key_for(db, tenant) for tenant in tenants]
    async with servers_on(dsn) as servers, AsyncExitStack() as stack:
        served = await servers.start(auth__required="true", api__most_streams=str(STREAMS))
        async with listening(served.url, authorization=f"Bearer {keys[0]}") as warm:
            await attentive(db, warm, "shop")
        before = served.resident
        listeners = [
            await stack.enter_async_context(listening(served.url, authorization=f"Bearer {keys[number % 2]}"))
            for number in range(STREAMS)
        ]
        assert {each.status for each in listeners} == {200}
        refused = await served.ask("GET", "/events", authorization=f"Bearer {keys[0]}")
        assert (refused.status, refused["code"]) == (503, "too_many_streams")
        for number, tenant in enumerate(tenants):
            await attentive(db, listeners[number], tenant)

        told = [await happen(db, tenant, 1, 100, f"{tenant}-") for tenant in tenants]
        await asyncio.gather(*(heard(each, told[number % 2]) for number, each in enumerate(listeners)))
        for number, each in enumerate(listeners):
            others = [subject for subject in each.subjects() if not subject.startswith((tenants[number % 2], "probe-"))]
            assert not others
        assert (served.resident - before) / STREAMS < PER_STREAM
        me = await served.ask("GET", "/me", authorization=f"Bearer {keys[0]}")
        assert me.status == 200


def room_for_descriptors(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
