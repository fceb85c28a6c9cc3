"""Secrets of tenants in the database: versions, what may be listed, rows that were moved, keys that change."""

import asyncio

import pytest

from mainspring import Schedule
from mainspring.domain.asking import Change
from mainspring.domain.errors import BrokenInvariant, InvalidRequest, NotFound
from mainspring.domain.job import Job
from mainspring.domain.schedule import OnDemand
from mainspring.environment import SystemEnvironment
from mainspring.sealing import CannotOpen, Sealer
from mainspring.store import secrets as store
from mainspring.store.changes import change_job, put_job
from mainspring.store.database import Database
from mainspring.store.secrets import (
    KEPT_VERSIONS,
    LONGEST_VALUE,
    delete_secret,
    list_secrets,
    open_secret,
    put_secret,
    rotate_secrets,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

OLD, NEW = Sealer(b"o" * 32), Sealer(b"n" * 32, [b"o" * 32])
VALUE = "hunter2-canary"


async def rows(db: Database, statement: str, *values: object) -> list[tuple[object, ...]]:
    async with db.connection() as connection:
        return [tuple(row) for row in await connection.fetch(statement, *values)]


async def change(db: Database, statement: str, *values: object) -> None:
    async with db.transaction() as tx:
        await tx.execute(statement, *values)


async def test_every_put_is_a_version_and_the_newest_counts(db: Database) -> None:
    first = await put_secret(db, "acme", "smtp", "one", OLD, author="ann")
    second = await put_secret(db, "acme", "smtp", "two", OLD, author="bob")

    assert (first.version, second.version) == (1, 2)
    assert await open_secret(db, "acme", "smtp", OLD) == "two"
    (listed,) = await list_secrets(db, "acme")
    assert listed == second
    assert (listed.name, listed.key_id, listed.author) == ("smtp", OLD.key_id, "bob")


@pytest.mark.covers("F103")
async def test_the_database_and_the_list_have_no_value_in_them(db: Database) -> None:
    await put_secret(db, "acme", "smtp", VALUE, OLD)

    (kept,) = await rows(db, "SELECT secrets::text, encode(sealed, 'escape'), nonce FROM secrets")
    shown = repr(await list_secrets(db, "acme")) + repr(kept)

    assert VALUE not in shown
    assert VALUE.encode().hex() not in shown


async def test_puts_at_once_get_versions_of_their_own(db: Database) -> None:
    made = await asyncio.gather(*(put_secret(db, "acme", "smtp", f"value {n}", OLD) for n in range(8)))

    assert sorted(each.version for each in made) == [*range(1, 9)]
    newest = max(made, key=lambda each: each.version)
    assert await open_secret(db, "acme", "smtp", OLD) == f"value {made.index(newest)}"


async def test_old_versions_are_forgotten(db: Database) -> None:
    for number in range(KEPT_VERSIONS + 3):
        await put_secret(db, "acme", "smtp", f"value {number}", OLD)

    kept = await rows(db, "SELECT version FROM secrets ORDER BY version")

    assert kept == [(version,) for version in range(4, KEPT_VERSIONS + 4)]


@pytest.mark.covers("F98", "F103")
async def test_a_secret_is_its_own_tenants(db: Database) -> None:
    await put_secret(db, "acme", "smtp", VALUE, OLD)
    await put_secret(db, "evil", "other", "x", OLD)

    with pytest.raises(NotFound, match='there is no secret "smtp"'):
        await open_secret(db, "evil", "smtp", OLD)
    with pytest.raises(NotFound):
        await delete_secret(db, "evil", "smtp")
    assert [each.name for each in await list_secrets(db, "evil")] == ["other"]
    assert await open_secret(db, "acme", "smtp", OLD) == VALUE


@pytest.mark.covers("F98", "F103")
@pytest.mark.parametrize("moved", ["tenant = 'evil'", "name = 'mine'", "version = 7"])
async def test_a_row_that_was_moved_does_not_open(db: Database, moved: str) -> None:
    await put_secret(db, "acme", "smtp", VALUE, OLD)
    await change(db, f"UPDATE secrets SET {moved}")
    ((tenant, name),) = await rows(db, "SELECT tenant, name FROM secrets")

    with pytest.raises(CannotOpen) as refused:
        await open_secret(db, str(tenant), str(name), OLD)

    assert VALUE not in str(refused.value)


@pytest.mark.covers("F98")
async def test_whoever_works_for_a_tenant_sees_its_rows_and_nothing_that_is_sealed(db: Database) -> None:
    acme, evil = db.scoped("acme"), db.scoped("evil")
    await put_secret(acme, "acme", "smtp", VALUE, OLD)

    assert [each.name for each in await list_secrets(acme, "acme")] == ["smtp"]
    assert await list_secrets(evil, "acme") == []  # the query names acme: the wall holds although it does
    with pytest.raises(NotFound):
        await delete_secret(evil, "acme", "smtp")
    with pytest.raises(BrokenInvariant, match="row-level security"):
        await put_secret(evil, "acme", "smtp", "mine", OLD)
    with pytest.raises(BrokenInvariant, match="permission denied"):
        await open_secret(acme, "acme", "smtp", OLD)
    assert await open_secret(db, "acme", "smtp", OLD) == VALUE
    assert await delete_secret(acme, "acme", "smtp") == 1


async def test_a_deleted_secret_is_gone_with_all_its_versions(db: Database) -> None:
    await put_secret(db, "acme", "smtp", "one", OLD)
    await put_secret(db, "acme", "smtp", "two", OLD)

    assert await delete_secret(db, "acme", "smtp") == 2

    assert await rows(db, "SELECT 1 FROM secrets") == []
    with pytest.raises(NotFound):
        await delete_secret(db, "acme", "smtp")


@pytest.mark.parametrize("name", ["", "a b", "-a", "../a", "a" * 201, "ä", "a\n", "a%2e"])
async def test_a_name_that_cannot_be_is_refused(db: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no name of a secret"):
        await put_secret(db, "acme", name, VALUE, OLD)


@pytest.mark.parametrize("value", ["", "a\0b", "ü" * LONGEST_VALUE])
async def test_a_value_that_cannot_be_kept_is_refused_and_not_repeated(db: Database, value: str) -> None:
    with pytest.raises(InvalidRequest, match="the value cannot be kept") as refused:
        await put_secret(db, "acme", "smtp", value, OLD)

    assert not value or value not in str(refused.value) + repr(vars(refused.value))


async def test_rotating_seals_everything_anew_in_batches(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "AT_ONCE", 3)
    for tenant in ("acme", "beta"):
        for number in range(5):
            await put_secret(db, tenant, f"s{number}", f"{tenant} {number}", OLD)

    steps = [(step.done, step.failed, step.total) async for step in rotate_secrets(db, NEW)]

    assert steps == [(3, 0, 10), (6, 0, 10), (9, 0, 10), (10, 0, 10)]
    only_new = Sealer(b"n" * 32)
    assert await open_secret(db, "beta", "s4", only_new) == "beta 4"
    assert await rows(db, "SELECT DISTINCT key_id FROM secrets") == [(only_new.key_id,)]
    assert [step async for step in rotate_secrets(db, NEW)] == []


async def test_rotating_can_be_stopped_and_goes_on(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "AT_ONCE", 2)
    for number in range(5):
        await put_secret(db, "acme", f"s{number}", str(number), OLD)

    rotating = rotate_secrets(db, NEW)
    await anext(rotating)
    await rotating.aclose()  # type: ignore[attr-defined]

    assert [step.total async for step in rotate_secrets(db, NEW)] == [3, 3]
    assert [await open_secret(db, "acme", f"s{n}", Sealer(b"n" * 32)) for n in range(5)] == [*"01234"]


async def test_what_does_not_open_is_counted_and_left_as_it_is(db: Database) -> None:
    await put_secret(db, "acme", "lost", "x", Sealer(b"?" * 32))
    await put_secret(db, "acme", "smtp", VALUE, OLD)

    steps = [(step.done, step.failed, step.total) async for step in rotate_secrets(db, NEW)]

    assert steps == [(1, 1, 2)]
    assert await open_secret(db, "acme", "lost", Sealer(b"?" * 32)) == "x"


@pytest.mark.covers("F98")
async def test_a_job_cannot_move_to_a_tenant_whose_secrets_it_wants(db: Database) -> None:
    env = SystemEnvironment()
    job = Job(name="mail", task="noop", schedule=Schedule(specs=(OnDemand(),)), tenant="evil")
    job_id = await put_job(db, env, job)
    moved = Job(name="mail", task="noop", schedule=job.schedule, tenant="acme")

    with pytest.raises(InvalidRequest, match="a job stays with its tenant"):
        await change_job(db, env, job_id, Change(definition=moved))
