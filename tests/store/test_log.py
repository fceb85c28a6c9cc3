"""The log of changes: written with the change or not at all, and never rewritten."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.domain.asking import Change, Request
from mainspring.domain.errors import BrokenInvariant, NotFound
from mainspring.domain.job import Job, JobState
from mainspring.sdk.direct import Direct
from mainspring.store.changes import change_job
from mainspring.store.database import Database
from mainspring.store.hints import Bell
from mainspring.store.history import drop_partitions
from mainspring.store.log import Entry, LogFilter, list_changes

from .ledger import EVERY_SECOND, Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAUSE = Entry(
    action="job.pause",
    subject="job/nightly",
    before={"state": "active"},
    after={"state": "paused"},
    reason="vendor outage",
    actor="ann",
    request="req-1",
)


async def logged(db: Database, tenant: str | None = "acme", **wanted: Any) -> list[tuple[str | None, str, str]]:
    page = await list_changes(db, tenant, LogFilter(**wanted), limit=100, after=None)
    return [(change.tenant, change.actor, change.action) for change in page.items]


async def test_a_change_and_its_entry_are_one(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(tenant="acme")
    scoped = ledger.db.scoped("acme")

    await change_job(scoped.noting(PAUSE), ledger.env, job, Change(state=JobState.PAUSED))

    (entry,) = (await list_changes(scoped, "acme", LogFilter(), limit=10, after=None)).items
    assert (entry.tenant, entry.actor, entry.action, entry.subject) == ("acme", "ann", "job.pause", "job/nightly")
    assert (entry.before, entry.after) == ({"state": "active"}, {"state": "paused"})
    assert (entry.reason, entry.request) == ("vendor outage", "req-1")
    written = "SELECT count(*) FROM changes JOIN job_cursors ON changes.xmin = job_cursors.xmin"
    assert await ledger.value(written) == 1, "in the same transaction"


async def test_a_change_that_fails_leaves_no_entry(ledger: Ledger) -> None:
    noting = ledger.db.scoped("acme").noting(PAUSE)

    with pytest.raises(NotFound):
        await change_job(noting, ledger.env, (await ledger.given_jobs())[0], Change(state=JobState.PAUSED))
    for error in (ZeroDivisionError(), asyncio.CancelledError()):
        with suppress(ZeroDivisionError, asyncio.CancelledError):
            async with noting.transaction() as tx:
                await tx.execute("INSERT INTO answers VALUES ('acme', 'k', '', NULL, NULL, '{}', now())")
                raise error

    assert await ledger.rows("SELECT * FROM changes") == []
    assert await ledger.rows("SELECT * FROM answers") == []


async def test_an_entry_that_cannot_be_written_undoes_the_change(ledger: Ledger) -> None:
    (job,) = await ledger.given_jobs(tenant="acme")
    await ledger.execute("REVOKE INSERT ON changes FROM mainspring_tenant")
    await ledger.execute("REVOKE INSERT (tenant) ON changes FROM mainspring_tenant")

    with pytest.raises(BrokenInvariant, match="permission denied"):
        await change_job(ledger.db.scoped("acme").noting(PAUSE), ledger.env, job, Change(state=JobState.PAUSED))

    assert await ledger.value("SELECT state FROM job_cursors") == "active"


async def test_what_takes_several_transactions_is_noted_once(ledger: Ledger) -> None:
    scoped = ledger.db.scoped("acme")
    ours = Direct(scoped.noting(PAUSE), ledger.env, Bell(ledger.db), tenant="acme", author="ann")
    job = Job(name="nightly", task="noop", tenant="acme", schedule=EVERY_SECOND)  # with a lane: submit, then free it

    await ours.submit(job, [Request(), Request()])

    assert await logged(scoped) == [("acme", "ann", "job.pause")]


async def test_reading_is_not_noted(ledger: Ledger) -> None:
    for db in (ledger.db, ledger.db.scoped("acme")):
        async with db.noting(PAUSE).connection() as connection:
            await connection.fetchval("SELECT 1")
        async with db.noting(PAUSE).statement() as statement:
            await statement.fetchval("SELECT 1")

    assert await logged(ledger.db) == [("acme", "ann", "job.pause")], "a statement may be a change"
    assert await logged(ledger.db, None) == [(None, "ann", "job.pause")]


async def test_the_clusters_own_changes_are_no_tenants(ledger: Ledger) -> None:
    for entry in (PAUSE, Entry(action="tenant.suspend", subject="tenant/acme", actor="op", tenant="acme")):
        async with ledger.db.noting(entry).transaction() as tx:
            await tx.fetchval("SELECT 1")

    assert await logged(ledger.db.scoped("acme")) == [("acme", "op", "tenant.suspend")]
    assert await logged(ledger.db.scoped("acme"), None) == []
    assert await logged(ledger.db, None) == [(None, "ann", "job.pause")]


@pytest.mark.covers("F98")
async def test_a_tenant_writes_and_reads_its_own_log_only(ledger: Ledger) -> None:
    ours, theirs = ledger.db.scoped("acme"), ledger.db.scoped("bolt")
    async with ours.noting(PAUSE).transaction() as tx:
        await tx.fetchval("SELECT 1")

    async with theirs.noting(Entry(action="x", subject="y", actor="z", tenant="acme")).transaction() as tx:
        await tx.fetchval("SELECT 1")  # whatever the entry says, it is of the tenant that writes it

    assert await logged(ours) == [("acme", "ann", "job.pause")]
    assert await logged(theirs, "acme") == []
    assert await logged(theirs, "bolt") == [("bolt", "z", "x")]
    with pytest.raises(BrokenInvariant):  # nor can its time be chosen
        async with ours.transaction() as tx:
            await tx.execute(
                "INSERT INTO changes (tenant, actor, action, subject, at) VALUES ('acme', '', '', '', now())"
            )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE changes SET actor = 'somebody else'",
        "UPDATE changes SET at = now() - interval '500 days'",
        "DELETE FROM changes",
        "TRUNCATE changes",
    ],
)
async def test_nobody_rewrites_the_log_not_even_its_owner(ledger: Ledger, statement: str) -> None:
    async with ledger.db.scoped("acme").noting(PAUSE).transaction() as tx:
        await tx.fetchval("SELECT 1")

    with pytest.raises(asyncpg.CheckViolationError, match="only appended to"):
        await ledger.execute(statement)
    with pytest.raises(BrokenInvariant, match="permission denied"):
        async with ledger.db.scoped("acme").transaction() as tx:
            await tx.execute(statement)

    assert await logged(ledger.db) == [("acme", "ann", "job.pause")]


async def test_retention_keeps_the_log_for_four_hundred_days(ledger: Ledger) -> None:
    await ledger.execute(
        "INSERT INTO changes (tenant, actor, action, subject, at) "
        "SELECT 'acme', 'ann', days::text, '', now() - days * interval '1 day' "
        "FROM unnest('{0,399,401,900}'::int[]) AS days"
    )

    await drop_partitions(ledger.db, keep_for=timedelta(days=1))

    assert [action for _, _, action in await logged(ledger.db)] == ["0", "399"]


async def test_the_log_is_read_a_page_at_a_time_newest_first(ledger: Ledger) -> None:
    scoped = ledger.db.scoped("acme")
    async with scoped.transaction() as tx:
        for n in range(7):
            await Entry(action=f"a{n}", subject=f"job/{n % 2}", actor="ann").write(tx, "acme")
    pages, after = [], None
    while True:
        page = await list_changes(scoped, "acme", LogFilter(), limit=3, after=after)
        pages.append([change.action for change in page.items])
        after = page.next
        if after is None:
            break

    assert pages == [["a6", "a5", "a4"], ["a3", "a2", "a1"], ["a0"]]
    assert [action for *_, action in await logged(scoped, subject="job/1")] == ["a5", "a3", "a1"]
    assert [action for *_, action in await logged(scoped, action="a4", actor="ann")] == ["a4"]
    assert await logged(scoped, actor="bob") == []
    assert await ledger.value("SELECT bool_and(left(id::text, 8) = left(time_ordered_id()::text, 8)) FROM changes")
