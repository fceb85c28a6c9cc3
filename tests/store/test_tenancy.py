"""The wall between tenants: what the role of one sees and changes in every table, and that it ends with a transaction.

The role can be left by SQL that says so: `RESET ROLE`. That is no way through the wall, because no request brings SQL
along, and none of ours says it (:func:`test_no_sql_of_ours_leaves_the_role`).
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from mainspring.domain.errors import BrokenInvariant, InvalidRequest, MainspringError, WrongDatabase
from mainspring.store.database import TENANT_ROLE, Connection, Database, open_database

from .ledger import Ledger

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B = "acme", "bolt"
STORE = Path(__file__).parents[2] / "src" / "mainspring" / "store"

# Every table is one or the other. A new one fails the test until somebody has decided, and written its policy.
OF_TENANTS = {
    "answers",
    "attempts",
    "bulks",
    "changes",
    "dead_letters",
    "job_cursors",
    "job_versions",
    "jobs",
    "late_results",
    "run_history",
    "run_lines",
    "runs",
    "secrets",
    "skips",
    "submissions",
}
# With what the role of tenants may do to it.
OF_THE_CLUSTER: dict[str, set[str]] = {
    "api_keys": set(),
    "leases": set(),
    "mainspring_migrations": set(),
    "nodes": {"SELECT"},
    "paused_pools": {"SELECT"},
    "retention": {"SELECT"},
    "tenants": set(),
}
_VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
# A row of each table, for the tenant $1 and its job $2 and run $3.
ROWS = """
INSERT INTO jobs (id, tenant, name, shard, version) VALUES ($2, $1, 'nightly', 0, 1);
INSERT INTO job_versions (job_id, version, state, definition, effective_at) VALUES ($2, 1, 'active', '{}', now());
INSERT INTO job_cursors (job_id, shard, version, state, next_fire_at) VALUES ($2, 0, 1, 'active', now());
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, pool, task, state)
VALUES ($3, $2, $1, 1, 'manual', $4, now(), now(), now(), 'short', 'noop', 'queued');
INSERT INTO run_history (id, slot, job_id, tenant, version, kind, pool, state, attempt, failures, fired_at, settled_at)
VALUES ($5, $4, $2, $1, 1, 'manual', 'short', 'succeeded', 1, 0, now(), now());
INSERT INTO skips VALUES ($2, $4, $4, 1, 'skipped_overlap', 1, now());
INSERT INTO attempts VALUES ($3, $4, 1, NULL, now(), now(), 'failed', NULL);
INSERT INTO attempts VALUES ($5, $4, 1, NULL, now(), now(), 'failed', NULL);
INSERT INTO run_lines VALUES ($3, $4, 1, 1, now(), 'log', '', 'hello');
INSERT INTO run_lines VALUES ($5, $4, 1, 1, now(), 'log', '', 'hello');
INSERT INTO late_results VALUES ($3, 1, $2, 'succeeded');
INSERT INTO late_results VALUES ($5, 1, $2, 'succeeded');
INSERT INTO dead_letters (run_id, job_id, tenant, slot, reason, died_at) VALUES ($5, $2, $1, $4, 'exhausted', now());
INSERT INTO submissions VALUES ($2, 'key', $3, now());
INSERT INTO changes (tenant, actor, action, subject) VALUES ($1, 'me', 'job.pause', 'job/nightly');
INSERT INTO answers (tenant, key, fingerprint, started_at) VALUES ($1, 'key', '', now());
INSERT INTO bulks (id, tenant, action) VALUES ($2, $1, 'runs.cancel');
INSERT INTO secrets (tenant, name, version, key_id, nonce, sealed) VALUES ($1, 'password', 1, 'k', 'twelve bytes', '');
"""
DAY = "timestamptz '2026-11-01 00:00:00Z'"
IDS = {A: (UUID(int=10), UUID(int=11), UUID(int=12)), B: (UUID(int=20), UUID(int=21), UUID(int=22))}


def rows_of(tenant: str) -> str:
    """Return the statements that give a tenant a row in every table, its values written out."""
    job, run, ended = IDS[tenant]
    given = {"$1": f"'{tenant}'", "$2": f"'{job}'", "$3": f"'{run}'", "$4": DAY, "$5": f"'{ended}'"}
    return re.sub(r"\$\d", lambda found: given[found[0]], ROWS)


@pytest_asyncio.fixture(loop_scope="session")
async def both(db: Database) -> Database:
    """A database in which two tenants have rows in every table."""
    async with db.transaction() as tx:
        for tenant in (A, B):
            await tx.execute(rows_of(tenant))
    return db


@pytest_asyncio.fixture(loop_scope="session")
async def open_wide(both: Database) -> Database:
    """The same, where the role may do everything to every table: what is refused now is refused by the policies."""
    async with both.transaction() as tx:
        for table in OF_TENANTS:
            await tx.execute(f"GRANT ALL ON {table} TO {TENANT_ROLE}")
    return both


@asynccontextmanager
async def no_tenant(db: Database) -> AsyncIterator[Connection]:
    async with db.transaction() as tx:
        await tx.execute(f"SET LOCAL ROLE {TENANT_ROLE}")
        yield tx


async def visible(db: Database, table: str) -> list[str]:
    """Return every row of a table that can be seen."""
    async with db.connection() as connection:
        return [row["text"] for row in await connection.fetch(f"SELECT t::text AS text FROM {table} AS t ORDER BY 1")]


def own(table_rows: list[str], tenant: str) -> list[str]:
    marks = (tenant, *map(str, IDS[tenant]))
    return [row for row in table_rows if any(mark in row for mark in marks)]


async def test_somebody_has_decided_about_every_table(db: Database) -> None:
    async with db.connection() as connection:
        tables = await connection.fetch(
            "SELECT relname, relrowsecurity FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "AND relkind IN ('r', 'p', 'f', 'm') AND NOT relispartition"
        )
        policies = await connection.fetch("SELECT tablename, roles::text[], cmd, permissive FROM pg_policies")
        columns = await connection.fetch(
            "SELECT attrelid::regclass::text AS relname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "WHERE attname IN ('tenant', 'job_id', 'run_id') AND relkind IN ('r', 'p') AND NOT relispartition"
        )

    assert {row["relname"] for row in tables} == OF_TENANTS | set(OF_THE_CLUSTER)
    assert {row["relname"] for row in tables if row["relrowsecurity"]} >= OF_TENANTS
    assert {row["tablename"]: (row["roles"], row["cmd"]) for row in policies} == dict.fromkeys(
        OF_TENANTS, ([TENANT_ROLE], "ALL")
    )
    assert {row["relname"] for row in columns} - {"api_keys"} <= OF_TENANTS  # keys: the role may not even look at them


async def test_the_role_has_no_power_of_its_own(db: Database) -> None:
    async with db.connection() as connection:
        role = await connection.fetchrow("SELECT * FROM pg_roles WHERE rolname = $1", TENANT_ROLE)
        held = await connection.fetch(
            "SELECT relname, relispartition, relkind, verb FROM pg_class, unnest($2::text[]) AS verb "
            "WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'S') AND CASE "
            "WHEN relkind = 'S' THEN has_sequence_privilege($1, oid, 'USAGE') AND verb = 'SELECT' "
            "ELSE has_table_privilege($1, oid, verb) OR verb = ANY('{SELECT,INSERT,UPDATE,REFERENCES}') "
            "AND has_any_column_privilege($1, oid, CASE WHEN verb = ANY('{SELECT,INSERT,UPDATE,REFERENCES}') "
            "THEN verb ELSE 'SELECT' END) END",
            TENANT_ROLE,
            list(_VERBS),
        )

    assert role is not None
    powers = ("rolsuper", "rolbypassrls", "rolcanlogin", "rolcreaterole", "rolcreatedb", "rolreplication")
    assert [power for power in powers if role[power]] == []
    by_table: dict[str, set[str]] = {}
    for row in held:
        by_table.setdefault(row["relname"], set()).add(row["verb"])
    assert [row["relname"] for row in held if row["relispartition"]] == []
    assert {name: by_table.get(name, set()) for name in OF_THE_CLUSTER} == OF_THE_CLUSTER
    assert not any({"TRUNCATE", "REFERENCES", "TRIGGER"} & verbs for verbs in by_table.values())
    assert by_table["changes"] == {"SELECT", "INSERT"}
    assert all(by_table[name] == {"SELECT"} for name in ("attempts", "run_lines"))
    assert "late_results" not in by_table


@pytest.mark.covers("F98")
@pytest.mark.parametrize("table", sorted(OF_TENANTS))
async def test_a_tenant_sees_its_own_rows_and_no_others(open_wide: Database, table: str) -> None:
    everything = await visible(open_wide, table)
    assert own(everything, A), "there is something to be seen"
    assert own(everything, B), "there is something to be hidden"

    assert await visible(open_wide.scoped(A), table) == own(everything, A)
    assert await visible(open_wide.scoped(B), table) == own(everything, B)


@pytest.mark.parametrize("table", sorted(OF_TENANTS))
async def test_without_a_tenant_there_are_no_rows(open_wide: Database, table: str) -> None:
    async with open_wide.scoped(A).transaction() as tx:
        backend = await tx.fetchval("SELECT pg_backend_pid()")
    async with no_tenant(open_wide) as tx:  # where there was one before, and where there never was
        assert await tx.fetch(f"SELECT * FROM {table}") == []
        assert await tx.fetchval("SELECT pg_backend_pid()") == backend
        assert await tx.fetchval("SELECT current_setting('mainspring.tenant', true)") == ""
    async with open_database(open_wide.dsn) as fresh, no_tenant(fresh) as tx:
        assert await tx.fetch(f"SELECT * FROM {table}") == []
        assert await tx.fetchval("SELECT current_setting('mainspring.tenant', true)") is None


@pytest.mark.covers("F98")
@pytest.mark.parametrize("table", sorted(OF_TENANTS - {"changes"}))  # which nobody changes
async def test_a_tenant_changes_and_deletes_its_own_rows_and_no_others(open_wide: Database, table: str) -> None:
    before = await visible(open_wide, table)
    async with open_wide.transaction() as tx:
        await tx.execute("ALTER TABLE job_versions DROP CONSTRAINT job_versions_job_id_fkey")
        await tx.execute("ALTER TABLE job_cursors DROP CONSTRAINT job_cursors_job_id_fkey")
        column = await tx.fetchval(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND attname <> 'slot' "
            "ORDER BY attnum LIMIT 1",
            table,
        )

    async with open_wide.scoped(B).transaction() as tx:
        changed = await tx.execute(f"UPDATE {table} SET {column} = {column}")
        deleted = await tx.execute(f"DELETE FROM {table}")

    number = len(own(before, B))
    assert (changed, deleted) == (f"UPDATE {number}", f"DELETE {number}")
    assert await visible(open_wide, table) == own(before, A)


@pytest.mark.covers("F98")
@pytest.mark.parametrize("table", sorted(OF_TENANTS))
async def test_a_tenant_cannot_write_a_row_of_another(open_wide: Database, table: str) -> None:
    async with open_wide.connection() as connection:
        rows = await connection.fetch(f"SELECT to_json(t)::text AS row FROM {table} AS t")
    theirs = [row["row"] for row in rows if own([row["row"]], A)]
    async with open_wide.transaction() as tx:
        await tx.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        await tx.execute("SET LOCAL session_replication_role = replica")  # nothing but the policies is in the way
        await tx.execute(f"DELETE FROM {table}")

    for row in theirs:
        with pytest.raises(BrokenInvariant, match="violates row-level security"):
            async with open_wide.scoped(B).transaction() as tx:
                await tx.execute(f"INSERT INTO {table} SELECT * FROM json_populate_record(NULL::{table}, $1)", row)
    assert await visible(open_wide, table) == []


@pytest.mark.covers("F98")
async def test_a_row_cannot_be_handed_to_another(open_wide: Database) -> None:
    for table in ("jobs", "runs", "run_history", "dead_letters", "answers", "bulks", "secrets"):
        before = await visible(open_wide, table)
        with pytest.raises(BrokenInvariant, match="violates row-level security"):
            async with open_wide.scoped(B).transaction() as tx:
                await tx.execute(f"UPDATE {table} SET tenant = $1", A)
        assert await visible(open_wide, table) == before


@pytest.mark.covers("F98")
async def test_a_run_cannot_take_the_lane_of_another_tenants_job(open_wide: Database) -> None:
    theirs = IDS[A][0]

    with pytest.raises(BrokenInvariant, match="violates row-level security"):
        async with open_wide.scoped(B).transaction() as tx:
            await tx.execute("UPDATE runs SET job_id = $1, lane = $1", theirs)


async def test_partitions_and_the_clusters_own_tables_are_out_of_reach(both: Database) -> None:
    async with both.transaction() as tx:
        await tx.execute("SELECT make_day_partitions(current_date, 1)")
        partitions = await tx.fetch("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
    hidden = [*(row["relname"] for row in partitions), "api_keys", "tenants", "leases", "mainspring_migrations"]
    assert len(hidden) >= 4 + 8

    for table in hidden:
        with pytest.raises(BrokenInvariant, match="permission denied"):
            async with both.scoped(A).connection() as connection:
                await connection.fetch(f"SELECT * FROM {table}")
    for statement in (
        "INSERT INTO nodes SELECT * FROM nodes",
        "DELETE FROM paused_pools",
        "UPDATE retention SET dropped_before = now()",
        "UPDATE jobs SET tenant = tenant",
        "UPDATE runs SET job_id = job_id",
        "DELETE FROM changes",
        "CREATE TABLE mine (id integer)",
        "CREATE ROLE mine",
    ):
        with pytest.raises(BrokenInvariant, match="permission denied"):
            async with both.scoped(A).transaction() as tx:
                await tx.execute(statement)


async def test_no_sql_of_ours_leaves_the_role() -> None:
    leaving = re.compile(r"\b(RESET|DISCARD|AUTHORIZATION|set_config|SET\s+(LOCAL\s+)?ROLE|mainspring\.tenant)\b")
    # Where the role is made, where it is taken, and a function that takes and leaves it by itself.
    allowed = {"0004_tenants.expand.sql", "database.py", "0008_statuses.expand.sql"}

    files = [path for path in STORE.rglob("*") if path.suffix in (".sql", ".py")]
    assert {path.name for path in files if leaving.search(path.read_text("utf-8"))} <= allowed
    assert len(files) > 40


STATUSES = "SELECT id FROM job_statuses($1, $2, $3)"
WHO = "SELECT current_user, coalesce(current_setting('mainspring.tenant', true), '')"


@pytest.mark.covers("F98", "F99")
async def test_statuses_are_read_as_the_role_of_their_tenant_which_is_left_again(both: Database) -> None:
    everybody = [ids[0] for ids in IDS.values()]
    async with both.transaction() as tx:
        before = await tx.fetchrow(WHO)
        for tenant in (A, B):
            assert [row["id"] for row in await tx.fetch(STATUSES, tenant, everybody, [])] == [IDS[tenant][0]]
            assert [row["id"] for row in await tx.fetch(STATUSES, tenant, [], ["nightly"])] == [IDS[tenant][0]]
            assert await tx.fetchrow(WHO) == before

    with pytest.raises(BrokenInvariant, match="job_statuses"):  # no statement of a tenant's own may name another to it
        async with both.scoped(A).transaction() as tx:
            await tx.fetch(STATUSES, B, everybody, [])
    async with both.transaction() as tx:
        await tx.execute(f"REVOKE SELECT ON job_cursors FROM {TENANT_ROLE}")
    with pytest.raises(WrongDatabase, match="job_cursors"):  # which the owner could read
        async with both.transaction() as tx:
            await tx.fetch(STATUSES, A, everybody, [])


HOSTILE = [
    "o'neill",
    "'; DROP TABLE jobs; --",
    "\\'; DROP TABLE jobs; --",
    "\\",
    "\\\\'",
    "''",
    "$$ $1 %s {}",
    '"quoted"',
    "a', false); RESET ROLE; SELECT set_config('x', 'y",
    "bücher-店-🙂",
    "ʼ＇",
]


@pytest.mark.covers("F106")
@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_only_a_name(db: Database, name: str, conforming: str) -> None:
    async with db.transaction() as tx:
        where = await tx.fetchval("SELECT current_database()")
        await tx.execute(f"ALTER DATABASE {where} SET standard_conforming_strings = {conforming}")
        await tx.execute(
            "INSERT INTO jobs (id, tenant, name, shard, version) VALUES ($1, $2, 'nightly', 0, 1)", UUID(int=1), name
        )

    async with open_database(db.dsn) as fresh, fresh.scoped(name).connection() as connection:
        assert await connection.fetchval("SHOW standard_conforming_strings") == conforming
        assert await connection.fetchval("SELECT current_tenant()") == name
        assert await connection.fetchval("SELECT current_user") == TENANT_ROLE
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 1
    async with (
        db.scoped(name.replace("'", "")).connection() if name.strip("'") else db.scoped("x").connection() as other
    ):
        assert await other.fetchval("SELECT count(*) FROM jobs") == int("'" not in name)


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\ud800", "\u202ea"])
async def test_what_cannot_be_a_name_is_refused_before_anything_is_sent(db: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no tenant can be called that"):
        db.scoped(name)


async def test_a_scoped_database_has_no_way_out(db: Database) -> None:
    scoped = db.scoped(A)

    assert scoped.dsn == ""
    assert scoped.scoped(A).tenant == A
    with pytest.raises(BrokenInvariant, match=f'for tenant "{A}" was asked to work for "{B}"'):
        scoped.scoped(B)
    with pytest.raises(BrokenInvariant, match="a connection to keep"):
        async with scoped.own_connection():
            pass


@pytest.mark.parametrize("pooled", [False, True])
async def test_the_scope_costs_no_round_trip_more_than_a_transaction(dsn: str, *, pooled: bool) -> None:
    sent: list[str] = []
    async with open_database(dsn, size=1, pooled=pooled) as db:
        async with db.connection() as connection:
            connection.add_query_logger(lambda query: sent.append(query.query))  # type: ignore[attr-defined]
        for lent in (db.scoped(A).transaction, db.scoped(A).connection, db.scoped(A).statement):
            sent.clear()
            async with lent() as tx:
                await tx.fetchval("SELECT 1")
            assert [query.split()[0].rstrip(";") for query in sent] == ["BEGIN", "SELECT", "COMMIT"]
            assert f"SET LOCAL ROLE {TENANT_ROLE}" in sent[0]


async def test_what_a_tenant_reads_is_planned_for_its_own_values(db: Database) -> None:
    for lent, mode in ((db.scoped(A).connection, "force_custom_plan"), (db.scoped(A).statement, "auto")):
        async with lent() as tx:
            assert await tx.fetchval("SHOW plan_cache_mode") == mode
    async with db.connection() as connection:
        assert await connection.fetchval("SHOW plan_cache_mode") == "auto"


async def test_a_user_whom_the_wall_would_keep_out_is_told_so(both: Database, dsn: str) -> None:
    async with both.transaction() as tx:
        where = await tx.fetchval("SELECT current_database()")
        await tx.execute(f"CREATE ROLE guest_{where} LOGIN")
    try:
        with pytest.raises(WrongDatabase, match="kept from the rows of every tenant by row security"):
            async with open_database(dsn.replace("mainspring@", f"guest_{where}@")):
                pass
    finally:
        async with both.transaction() as tx:
            await tx.execute(f"DROP ROLE guest_{where}")


class Deliberate(Exception):
    """A block that fails on purpose."""


@dataclass
class Alternating:
    """Tenants that take turns on few connections, some of which fail, are cancelled, or are cut off."""

    db: Database
    chance: random.Random
    crossings: list[str]
    written: set[str]

    async def one(self, number: int) -> None:
        """Write a row, look around, and end well or not; whatever is seen of others is a crossing."""
        tenant = self.chance.choice((A, B, "o'neill"))
        key, ending = f"{tenant}/{number}", self.chance.choice(("good", "good", "raise", "sql", "timeout"))
        lent = self.chance.choice(("transaction", "statement", "connection"))
        async with getattr(self.db.scoped(tenant), lent)() as tx:
            await tx.execute(
                "INSERT INTO answers (tenant, key, fingerprint, started_at) VALUES (current_tenant(), $1, '', now())",
                key,
            )
            for row in await tx.fetch("SELECT tenant, key FROM answers"):
                if row["tenant"] != tenant or not row["key"].startswith(f"{tenant}/"):
                    self.crossings.append(f"{tenant} saw {row}")
            match ending:
                case "raise":
                    raise Deliberate
                case "sql":
                    await tx.execute("SELECT 1 / 0")
                case "timeout":
                    await tx.execute("SET LOCAL statement_timeout = '1ms'")
                    await tx.execute("SELECT pg_sleep(10)")
        self.written.add(key)

    async def owner(self) -> None:
        """Look at the connection as whoever comes next does: it is the owner's, and nobody's tenant."""
        async with self.db.connection() as connection:
            left = await connection.fetchrow(
                "SELECT current_user <> session_user AS role, coalesce(current_setting('mainspring.tenant', true), '') "
                "AS tenant, current_setting('statement_timeout') AS timeout"
            )
            if left is None or left["role"] or left["tenant"] or left["timeout"] != "0":
                self.crossings.append(f"left behind: {left}")

    async def cancelled(self, number: int) -> None:
        """Do one, and cancel it after some steps: before, within or after any of its statements."""
        task = asyncio.create_task(self.one(number))
        for _ in range(self.chance.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def all(self, number: int) -> None:
        async def quietly(step: Any) -> None:
            with suppress(Deliberate, MainspringError, asyncpg.PostgresError):
                await step

        steps = [(self.one, self.cancelled)[n % 3 == 0](n) for n in range(number)]
        await asyncio.gather(
            *(quietly(step) for pair in zip(steps, (self.owner() for _ in steps), strict=True) for step in pair)
        )


@pytest.mark.covers("F98", "F99")
@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "as through a pooler"])
@pytest.mark.parametrize("size", [1, 3])
async def test_nothing_of_a_tenant_stays_on_a_connection(dsn: str, size: int, *, pooled: bool) -> None:
    crossings: list[str] = []
    written: set[str] = set()

    async with open_database(dsn, size=size, pooled=pooled) as db:
        await Alternating(db, random.Random(size), crossings, written).all(300)

    reader = await asyncpg.connect(dsn)  # by itself: nothing of ours but the driver
    try:
        rows = await reader.fetch("SELECT tenant, key FROM answers")
    finally:
        await reader.close()
    assert crossings == []
    assert [row for row in rows if not row["key"].startswith(f"{row['tenant']}/")] == []
    assert written <= {row["key"] for row in rows}, "what was acknowledged is there"
    assert len({key.split("/")[0] for key in written}) == 3
    assert len(written) > 50


@pytest.mark.covers("F99")
async def test_a_connection_that_is_given_back_in_the_middle_is_clean(dsn: str) -> None:
    async with open_database(dsn, size=1) as db:
        entered = asyncio.Event()

        async def at_work() -> None:
            async with db.scoped(A).transaction() as tx:
                entered.set()
                await tx.execute("SELECT pg_sleep(60)")

        task = asyncio.create_task(at_work())
        await entered.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        async with db.connection() as connection:
            assert await connection.fetchval("SELECT current_user = session_user AND current_tenant() IS NULL")


async def test_a_view_shows_what_whoever_looks_may_see(both: Database) -> None:
    for view in ("audit_fires", "audit_runs", "audit_attempts"):
        async with both.scoped(A).connection() as connection:
            found = [
                json.loads(row["row"])
                for row in await connection.fetch(f"SELECT to_json(v)::text AS row FROM {view} AS v")
            ]
        assert found
        assert {UUID(row["job_id"]) for row in found if "job_id" in row} <= {IDS[A][0]}
        assert {UUID(row["run_id"]) for row in found if row["run_id"]} <= set(IDS[A])


async def test_fires_claims_and_settles_go_on_for_everybody(ledger: Ledger) -> None:
    for tenant in (A, B):
        await ledger.given_jobs(3, tenant=tenant)

    report = await ledger.fire()
    claimed = await ledger.claim(await ledger.node())
    settled = await ledger.settle(claimed)

    assert (report.runs, len(claimed), len(settled.settled)) == (6, 6, 6)
    assert len(await visible(ledger.db.scoped(A), "run_history")) == 3
