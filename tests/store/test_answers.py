"""Idempotency keys: of all requests with one key at most one has its effect, and all get the same answer."""

import asyncio
from collections.abc import Awaitable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from mainspring.domain.errors import InProgress, KeyReused
from mainspring.store.answers import Answer, Begun, Remembered, begin, find, finish, forget, remember
from mainspring.store.database import Database
from mainspring.store.history import drop_partitions

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "acme", "bolt"
CREATED = Answer(201, b'{"id": 1}', {"Location": "/jobs/1"})


async def begun(db: Database, key: str = "k", fingerprint: bytes = b"f", tenant: str = A) -> Begun | Answer:
    async with db.scoped(tenant).transaction() as tx:
        return await begin(tx, tenant, key, fingerprint)


async def ours(db: Database, key: str = "k") -> Begun:
    found = await begun(db, key)
    assert isinstance(found, Begun)
    return found


async def finished(db: Database, mine: Begun, answer: Answer = CREATED) -> None:
    async with db.scoped(mine.tenant).transaction() as tx:
        await finish(tx, mine, answer)


async def test_the_second_request_gets_the_answer_of_the_first(db: Database) -> None:
    await finished(db, await ours(db))

    assert await begun(db) == CREATED
    assert isinstance(await begun(db, "another"), Begun)


async def test_a_key_with_another_request_is_refused(db: Database) -> None:
    mine = await ours(db)
    with pytest.raises(KeyReused, match="came before, with another request") as refused:
        await begun(db, fingerprint=b"other")
    await finished(db, mine)

    with pytest.raises(KeyReused):
        await begun(db, fingerprint=b"other")

    assert (refused.value.code, refused.value.field) == ("idempotency_key_reused", "Idempotency-Key")


@pytest.mark.covers("F98")
async def test_the_keys_of_tenants_have_nothing_to_do_with_each_other(db: Database) -> None:
    await finished(db, await ours(db))

    assert isinstance(await begun(db, fingerprint=b"other", tenant=B), Begun)
    async with db.scoped(B).connection() as connection:
        assert await find(connection, A, "k", b"f") is None


async def test_while_one_is_at_work_the_others_are_told(db: Database) -> None:
    mine = await ours(db)

    with pytest.raises(InProgress) as refused:
        await begun(db)
    await finished(db, mine)

    assert refused.value.code == "request_in_progress"
    assert await begun(db) == CREATED


async def test_what_was_given_up_is_taken_over_and_whoever_gave_it_up_is_too_late(ledger: Ledger) -> None:
    first = await ours(ledger.db)
    await ledger.execute("UPDATE answers SET started_at = started_at - interval '59 s'")
    with pytest.raises(InProgress):
        await begun(ledger.db)
    await ledger.execute("UPDATE answers SET started_at = started_at - interval '2 s'")
    first = Begun(first.tenant, first.key, first.started_at - timedelta(seconds=61))

    second = await ours(ledger.db)
    with pytest.raises(InProgress):  # nor does a third one get it
        await begun(ledger.db)
    with pytest.raises(InProgress):
        await finished(ledger.db, first, Answer(500, b""))
    await finished(ledger.db, second)

    assert await begun(ledger.db) == CREATED


async def test_a_request_without_effect_gives_its_key_back(db: Database) -> None:
    mine = await ours(db)
    async with db.scoped(A).transaction() as tx:
        await forget(tx, mine)

    again = await ours(db)
    await finished(db, again)
    async with db.scoped(A).transaction() as tx:
        await forget(tx, again)  # which has an answer by now

    assert await begun(db) == CREATED


async def test_of_many_at_once_one_begins(db: Database) -> None:
    found = await asyncio.gather(*(begun(db) for _ in range(20)), return_exceptions=True)

    assert sum(isinstance(each, Begun) for each in found) == 1
    assert sum(isinstance(each, InProgress) for each in found) == 19


async def test_whoever_took_over_at_once_is_one(ledger: Ledger) -> None:
    await ours(ledger.db)
    await ledger.execute("UPDATE answers SET started_at = started_at - interval '61 s'")

    found = await asyncio.gather(*(begun(ledger.db) for _ in range(20)), return_exceptions=True)

    assert sum(isinstance(each, Begun) for each in found) == 1


async def waits_for(ledger: Ledger, waiting: Awaitable[Any], *, others: int = 0) -> asyncio.Task[Any]:
    """Start something, and return when it waits for the lock of another, as so many others do."""
    task = asyncio.ensure_future(waiting)
    assert isinstance(task, asyncio.Task)
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while await ledger.value(blocked) <= others:
        assert not task.done()
    return task


@pytest.mark.parametrize("commits", [True, False])
async def test_who_comes_while_the_first_is_written_waits_and_then_knows(ledger: Ledger, *, commits: bool) -> None:
    scoped = ledger.db.scoped(A)

    waiting: list[asyncio.Task[Any]] = []

    async def first() -> None:
        async with scoped.transaction() as tx:
            mine = await begin(tx, A, "k", b"f")
            assert isinstance(mine, Begun)
            await finish(tx, mine, CREATED)
            waiting.append(await waits_for(ledger, begun(ledger.db)))
            if not commits:
                raise ZeroDivisionError

    with nullcontext() if commits else pytest.raises(ZeroDivisionError):
        await first()

    second = await waiting[0]
    assert second == CREATED if commits else isinstance(second, Begun)


def batch(*keys: str, fingerprint: bytes = b"f") -> list[Remembered]:
    return [Remembered(A, key, fingerprint, 201, key.encode()) for key in keys]


async def remembered(db: Database, *keys: str) -> set[tuple[str, str]]:
    async with db.scoped(A).transaction() as tx:
        return await remember(tx, batch(*keys))


async def test_a_batch_is_remembered_with_its_effect(db: Database) -> None:
    assert await remembered(db, "a", "b") == set()

    assert await remembered(db, "b", "c") == {(A, "b")}

    async with db.scoped(A).connection() as connection:
        assert await find(connection, A, "c", b"f") == Answer(201, b"c", {})
        assert await find(connection, A, "d", b"f") is None
        with pytest.raises(KeyReused):
            await find(connection, A, "a", b"other")
    assert await remembered(db) == set()


async def test_an_effect_that_is_undone_takes_its_answers_along(db: Database) -> None:
    async def undone() -> None:
        async with db.scoped(A).transaction() as tx:
            await remember(tx, batch("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await undone()

    assert await remembered(db, "a") == set()


async def test_two_batches_with_keys_in_common_never_wait_in_a_circle(ledger: Ledger) -> None:
    async def one_between() -> list[asyncio.Task[Any]]:
        """Hold a key in the middle of both, until both wait; what is not sorted has taken one of its ends by then."""
        async with ledger.db.scoped(A).transaction() as tx:
            await remember(tx, batch("m"))
            first = await waits_for(ledger, remembered(ledger.db, "a", "m", "z"))
            return [first, await waits_for(ledger, remembered(ledger.db, "z", "m", "a"), others=1)]

    there = await asyncio.gather(*await one_between())

    assert sorted(map(len, there)) == [1, 3]


async def test_a_batch_finds_what_one_request_has_begun(db: Database) -> None:
    await ours(db, "a")

    assert await remembered(db, "a", "b") == {(A, "a")}
    async with db.scoped(A).connection() as connection:
        with pytest.raises(InProgress):
            await find(connection, A, "a", b"f")


async def test_answers_are_kept_for_two_days(ledger: Ledger) -> None:
    for key in ("young", "old"):
        await finished(ledger.db, await ours(ledger.db, key))
    await ledger.execute("UPDATE answers SET started_at = now() - interval '49 h' WHERE key = 'old'")
    await ledger.execute("UPDATE answers SET started_at = now() - interval '47 h' WHERE key = 'young'")

    await drop_partitions(ledger.db, keep_for=timedelta(days=30))

    assert [row["key"] for row in await ledger.rows("SELECT key FROM answers")] == ["young"]
