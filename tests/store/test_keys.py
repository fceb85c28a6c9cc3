"""API keys and tenants in the store: shown once, kept as a hash, good until revoked, expired or without a tenant."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from uuid import uuid4

import pytest

from mainspring.domain.errors import Conflict, InvalidRequest, NotFound
from mainspring.domain.keys import KeyView
from mainspring.domain.tenants import Quotas, TenantState
from mainspring.environment import SystemEnvironment
from mainspring.store.database import Database
from mainspring.store.keys import find_key, list_keys, make_key, revoke_key, touch_keys
from mainspring.store.tenants import (
    change_tenant,
    create_tenant,
    delete_tenant,
    find_tenant,
    list_tenants,
)

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENV = SystemEnvironment()


async def given_key(db: Database, *, tenant: str | None = None, **changes: object) -> tuple[str, KeyView]:
    asked = {"name": "ci", "role": "editor", "created_by": "tests", "expires_at": None, **changes}
    return await make_key(db, ENV, tenant=tenant, **asked)  # type: ignore[arg-type]


async def found(db: Database, text: str) -> KeyView:
    key = await find_key(db, text)
    assert key is not None
    return key


async def test_a_key_is_found_by_its_text_and_its_text_is_kept_nowhere(db: Database, ledger: Ledger) -> None:
    text, made = await given_key(db)

    assert await find_key(db, text) == made
    assert (text[:3], len(text), text[3:11]) == ("ms_", 46, made.prefix)
    assert (made.tenant, made.name, made.role, made.created_by, made.good) == (None, "ci", "editor", "tests", True)
    (row,) = await ledger.rows("SELECT * FROM api_keys")
    assert row["hash"] == sha256(text.encode()).digest()
    assert text[3:] not in repr(row)
    assert not any(text[3:20] in repr(value) for value in row.values())


@pytest.mark.parametrize("change", ["last", "prefix", "case", "shorter", "longer", "none", "hash"])
async def test_what_is_nearly_a_key_is_none(db: Database, change: str) -> None:
    text, made = await given_key(db)
    wrong = {
        "last": text[:-1] + ("A" if text[-1] != "A" else "B"),
        "prefix": text.removeprefix("ms_"),
        "case": text.upper(),
        "shorter": text[:-1],
        "longer": text + "A" * 500,
        "none": "",
        "hash": f"ms_{sha256(text.encode()).hexdigest()}",
    }

    assert await find_key(db, wrong[change]) is None
    assert await find_key(db, f"ms_{made.prefix}") is None
    assert await find_key(db, "ms_\ud800\0") is None


async def test_no_two_keys_are_alike(db: Database) -> None:
    made = await asyncio.gather(*(given_key(db) for _ in range(50)))

    assert len({text for text, _ in made}) == len({key.id for _, key in made}) == 50


@pytest.mark.covers("F101")
async def test_a_revoked_key_is_not_good_and_the_first_time_counts(db: Database) -> None:
    text, made = await given_key(db)

    revoked = await revoke_key(db, made.id)
    again = await revoke_key(db, made.id)

    assert revoked.revoked_at is not None
    assert again == revoked == await find_key(db, text)
    assert not again.good
    with pytest.raises(NotFound, match="there is no key"):
        await revoke_key(db, uuid4())


async def test_a_tenant_cannot_revoke_the_key_of_another(db: Database) -> None:
    text, made = await given_key(db, tenant="default")

    with pytest.raises(NotFound):
        await revoke_key(db, made.id, tenant="bolt")

    assert (await found(db, text)).good
    assert not (await revoke_key(db, made.id, tenant="default")).good


@pytest.mark.covers("F101")
async def test_an_expired_key_is_not_good_by_the_databases_clock(db: Database, ledger: Ledger) -> None:
    now = await ledger.value("SELECT clock_timestamp()")
    late, _ = await given_key(db, expires_at=now)
    soon, _ = await given_key(db, expires_at=now + timedelta(hours=1))

    assert not (await found(db, late)).good
    assert (await found(db, soon)).good


@pytest.mark.covers("F101")
async def test_no_key_of_a_deleted_tenant_is_good(db: Database) -> None:
    await create_tenant(db, "acme")
    text, made = await given_key(db, tenant="acme")
    assert made.good

    suspended = await change_tenant(db, "acme", state=TenantState.SUSPENDED)
    assert (await found(db, text)).tenant_state is suspended.state
    await delete_tenant(db, "acme")

    assert not (await found(db, text)).good
    orphan, _ = await given_key(db, tenant="nobody")
    assert not (await found(db, orphan)).good


async def test_use_is_noted_at_most_once_a_minute(db: Database, ledger: Ledger) -> None:
    text, made = await given_key(db)
    _, idle = await given_key(db)

    assert await touch_keys(db, [made.id, uuid4()]) == 1
    first = (await found(db, text)).last_used_at
    assert await touch_keys(db, [made.id]) == 0
    assert (await found(db, text)).last_used_at == first
    await ledger.execute("UPDATE api_keys SET last_used_at = last_used_at - interval '61 s'")
    assert await touch_keys(db, [made.id]) == 1
    assert await touch_keys(db, []) == 0

    assert idle.last_used_at is None


async def test_keys_are_touched_by_many_at_once(db: Database) -> None:
    ids = [(await given_key(db))[1].id for _ in range(20)]

    touched = await asyncio.gather(*(touch_keys(db, sorted(ids, reverse=n % 2 == 0)) for n in range(8)))

    assert sum(touched) == 20


async def test_keys_are_listed_a_page_at_a_time(db: Database) -> None:
    ours = [(await given_key(db, tenant="default", name=f"key-{n}"))[1].id for n in range(3)]
    cluster = (await given_key(db))[1].id
    await revoke_key(db, ours[1])

    first = await list_keys(db, limit=2)
    second = await list_keys(db, limit=2, after=first.next)

    assert {key.id for key in (*first.items, *second.items)} == {ours[0], ours[2], cluster}
    assert second.next is None
    assert {key.id for key in (await list_keys(db, tenant="default", limit=9, revoked=True)).items} == set(ours)
    with pytest.raises(InvalidRequest, match="is no cursor"):
        await list_keys(db, limit=2, after="x")


async def test_a_key_has_a_name(db: Database) -> None:
    with pytest.raises(InvalidRequest, match="name"):
        await given_key(db, name="")


async def test_a_tenant_is_made_changed_and_deleted(db: Database) -> None:
    made = await create_tenant(db, "acme", quotas=Quotas(jobs=10), note="trial")

    assert await find_tenant(db, "acme") == made
    assert (made.state, made.quotas, made.note) == (TenantState.ACTIVE, Quotas(jobs=10), "trial")
    changed = await change_tenant(db, "acme", quotas=Quotas(burst=5))
    assert (changed.quotas, changed.note, changed.state) == (Quotas(burst=5), "trial", TenantState.ACTIVE)
    assert changed.changed_at > made.changed_at
    assert (await change_tenant(db, "acme", state=TenantState.SUSPENDED, note="")).note == ""
    assert (await delete_tenant(db, "acme")).state is TenantState.DELETED
    assert (await find_tenant(db, "acme")).state is TenantState.DELETED


async def test_what_was_deleted_stays_deleted_and_its_name_is_not_given_to_another(db: Database) -> None:
    await create_tenant(db, "acme")
    await delete_tenant(db, "acme")

    with pytest.raises(Conflict, match="which is final"):
        await change_tenant(db, "acme", state=TenantState.ACTIVE)
    with pytest.raises(Conflict, match="already, or was"):
        await create_tenant(db, "acme")
    with pytest.raises(NotFound, match='there is no tenant "nobody"'):
        await change_tenant(db, "nobody")


async def test_whoever_changes_a_tenant_as_another_does_overwrites_nothing(db: Database) -> None:
    seen = await create_tenant(db, "acme", quotas=Quotas(jobs=10))
    await change_tenant(db, "acme", quotas=replace(seen.quotas, burst=5), since=seen)

    with pytest.raises(Conflict, match="another has changed"):
        await change_tenant(db, "acme", quotas=replace(seen.quotas, jobs=20), since=seen)

    assert (await find_tenant(db, "acme")).quotas == Quotas(jobs=10, burst=5)


async def test_the_tenant_of_those_who_name_none_is_not_deleted(db: Database) -> None:
    with pytest.raises(Conflict, match="it stays"):
        await delete_tenant(db, "default")

    assert (await find_tenant(db, "default")).state is TenantState.ACTIVE


async def test_a_tenant_with_jobs_is_not_deleted(db: Database, ledger: Ledger) -> None:
    await create_tenant(db, "acme")
    jobs = await ledger.given_jobs(3, tenant="acme")

    with pytest.raises(Conflict, match='tenant "acme" has 3 jobs left'):
        await delete_tenant(db, "acme")
    await ledger.execute("UPDATE jobs SET deleted_at = now() WHERE id = ANY($1)", jobs[1:])
    with pytest.raises(Conflict, match="has 1 job left"):
        await delete_tenant(db, "acme")
    await ledger.execute("UPDATE jobs SET deleted_at = now()")

    assert (await delete_tenant(db, "acme")).state is TenantState.DELETED


async def test_tenants_are_listed_by_name_a_page_at_a_time(db: Database) -> None:
    for name in ("c", "a", "b"):
        await create_tenant(db, name)
    await delete_tenant(db, "b")

    first = await list_tenants(db, limit=2)
    second = await list_tenants(db, limit=2, after=first.next)

    assert [tenant.name for tenant in (*first.items, *second.items)] == ["a", "c", "default"]
    assert [tenant.name for tenant in (await list_tenants(db, limit=9, deleted=True)).items] == [
        "a",
        "b",
        "c",
        "default",
    ]


async def test_two_who_make_the_same_tenant(db: Database) -> None:
    made = await asyncio.gather(*(create_tenant(db, "acme") for _ in range(5)), return_exceptions=True)

    assert sum(not isinstance(each, Conflict) for each in made) == 1
