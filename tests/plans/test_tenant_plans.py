"""What a tenant asks for most is still found by index when row security looks over its shoulder, among many tenants."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.store.database import SESSION, TENANT_ROLE, open_database
from mainspring.store.migrations import migrate
from mainspring.store.queries import queries

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 100_000
BIG = ("jobs", "job_versions", "job_cursors", "runs", "run_history", "run_history_other", "attempts_other", "changes")
PAGE = 50
LARGE, SMALL = "large", "t7"  # half of all jobs, and one of a thousand
_ID = "md5(n::text || '{}')::uuid"
_TENANT = "CASE WHEN n % 2 = 0 THEN 'large' ELSE 't' || n % 1000 END"
_AT = "timestamptz '2026-11-01 00:00:00Z' + n * interval '1 s'"
FILL = f"""
INSERT INTO jobs (id, tenant, name, shard, version)
SELECT {_ID.format("job")}, {_TENANT}, 'job-' || n, 0, 1 FROM generate_series(1, {JOBS}) AS n;
INSERT INTO job_versions (job_id, version, state, definition, effective_at)
SELECT {_ID.format("job")}, 1, 'active', '{{"task": "noop"}}', now() FROM generate_series(1, {JOBS}) AS n;
INSERT INTO job_cursors (job_id, shard, version, state, next_fire_at)
SELECT {_ID.format("job")}, 0, 1, 'active', now() FROM generate_series(1, {JOBS}) AS n;
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, pool, task, state)
SELECT {_ID.format("run")}, {_ID.format("job")}, {_TENANT}, 1, 'manual', {_AT}, now(), now(), now(),
       'short', 'noop', 'queued'
  FROM generate_series(1, {JOBS}) AS n;
INSERT INTO run_history (id, slot, job_id, tenant, version, kind, pool, state, attempt, failures, fired_at, settled_at)
SELECT {_ID.format("old")}, {_AT}, {_ID.format("job")}, {_TENANT}, 1, 'manual', 'short', 'succeeded', 1, 0, now(), now()
  FROM generate_series(1, {JOBS}) AS n;
INSERT INTO attempts
SELECT {_ID.format("old")}, {_AT}, 1, NULL, now(), now(), 'failed', NULL FROM generate_series(1, {JOBS}) AS n;
INSERT INTO changes (tenant, actor, action, subject, at)
SELECT {_TENANT}, 'ann', 'job.pause', '', {_AT} FROM generate_series(1, {JOBS}) AS n;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.Server]:
    with embedded.running(settings={"autovacuum": "off"}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def full(server: embedded.Server) -> AsyncIterator[asyncpg.Connection]:
    async with open_database(server.dsn) as db:
        await migrate(db)
    connection = await asyncpg.connect(server.dsn, server_settings=SESSION)
    await connection.execute("SET session_replication_role = replica")  # the rows fit together, and need not be checked
    await connection.execute(FILL)
    await connection.execute("SET session_replication_role = origin")
    await connection.execute("VACUUM ANALYZE")
    yield connection
    await connection.close()


@dataclass(frozen=True)
class Hot:
    """A statement, the indexes that find its rows, and how many of the big tables it may touch."""

    query: str
    arguments: str
    indexes: set[str]
    most: int

    @property
    def sql(self) -> str:
        stem, _, name = self.query.partition(".")
        return queries(stem)[name].rstrip(";")


_LATEST = "timestamptz '9999-01-01', 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid"
_SPAN = "timestamptz '0001-01-01', timestamptz '9999-01-01'"
_JOB = "(SELECT id FROM jobs WHERE tenant = $1 LIMIT 1)"
_RUN = "(SELECT id FROM runs WHERE tenant = $1 LIMIT 1)"
_OLD = "(SELECT id FROM run_history WHERE tenant = $1 LIMIT 1)"
_SLOT = "(SELECT slot FROM run_history WHERE tenant = $1 LIMIT 1)"
_RUNS = f"SELECT $1, {_LATEST}, {PAGE}, NULL, NULL, NULL, {_SPAN}"
_NAMED = {"jobs_name", "jobs_pkey", "job_cursors_pkey", "job_versions_pkey"}
_WHOLE = _NAMED - {"jobs_name"}

HOT = [
    Hot("reading.job_by_id", f"SELECT $1, {_JOB}", _WHOLE, 10),
    Hot("reading.job_by_name", "SELECT $1, (SELECT name FROM jobs WHERE tenant = $1 LIMIT 1)", _NAMED, 10),
    Hot("reading.jobs", f"SELECT $1, '', {PAGE}, NULL, NULL, NULL, NULL, NULL", _NAMED, 10 * PAGE),
    Hot("reading.run", f"SELECT $1, {_RUN}", {"runs_pkey"}, 12),
    Hot("reading.run", f"SELECT $1, {_OLD}", {"run_history_other_pkey"}, 12),
    Hot(
        "reading.runs_of_job", f"{_RUNS}, {_JOB}", {"runs_aside", "runs_lane", "run_history_other_job_id_slot_idx"}, 20
    ),
    Hot("reading.attempts", f"SELECT {_OLD}, {_SLOT}", {"attempts_other_pkey", "runs_pkey"}, 6),
    Hot("submit.lock_shared", f"SELECT {_JOB}", {"job_cursors_pkey", "jobs_pkey"}, 4),
    Hot(
        "submit.submit_one",
        f"SELECT {_JOB}, 1, $1, 'noop', NULL, gen_random_uuid(), NULL, NULL, interval '0', 'short', NULL",
        {"job_cursors_pkey", "jobs_pkey"},
        4,
    ),
    Hot("changes.lock_job", f"SELECT {_JOB}", {"job_cursors_pkey", "jobs_pkey"}, 4),
    Hot("changes.definition", f"SELECT {_JOB}, 1", {"job_versions_pkey", "jobs_pkey"}, 4),
    Hot("runs.cancel_unclaimed", f"SELECT ARRAY[{_RUN}]", {"runs_pkey"}, 4),
    Hot(
        "log.list", f"SELECT $1, {_LATEST}, {PAGE}, NULL, NULL, NULL, {_SPAN}", set(), 3 * PAGE
    ),  # by tenant or by time: as large as it is
]


async def explain(connection: asyncpg.Connection, hot: Hot, tenant: str, mode: str) -> list[dict[str, Any]]:
    """Run a statement as a tenant on what it has, undo it, and return the nodes of its plan."""
    arguments = await connection.fetchrow(f"{hot.arguments} FROM (SELECT $1::text) AS tenant", tenant)
    assert arguments is not None
    given = ", ".join(_literal(argument) for argument in arguments)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL ROLE {TENANT_ROLE}; SET LOCAL plan_cache_mode = {mode}")
        await connection.execute("SELECT set_config('mainspring.tenant', $1, true)", tenant)
        await connection.execute(f"PREPARE hot AS {hot.sql}")
        (explained,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot({given})"))
        await connection.execute("DEALLOCATE hot")
    finally:
        await transaction.rollback()
    return list(_nodes(explained["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from _nodes(below)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join(f'"{item}"' for item in value) + "}'"
    return f"'{value}'"


def _touched(node: dict[str, Any]) -> float:
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(read * node["Actual Loops"])


CUSTOM, GENERIC = "force_custom_plan", "force_generic_plan"
# A page of jobs planned for any values goes through all that a tenant has: so reading asks for a new plan each time.
CASES = [(hot, mode) for hot in HOT for mode in (CUSTOM, GENERIC) if (hot.query, mode) != ("reading.jobs", GENERIC)]


@pytest.mark.covers("F96")
@pytest.mark.parametrize("tenant", [LARGE, SMALL])
@pytest.mark.parametrize(("hot", "mode"), CASES, ids=[f"{hot.query}-{mode}" for hot, mode in CASES])
async def test_a_tenants_statement_uses_its_index_and_touches_only_what_it_needs(
    full: asyncpg.Connection, hot: Hot, tenant: str, mode: str
) -> None:
    nodes = await explain(full, hot, tenant, mode)

    on_tables = [node for node in nodes if node.get("Relation Name") in BIG and node.get("Actual Loops")]
    assert [node["Relation Name"] for node in on_tables if node["Node Type"] == "Seq Scan"] == []
    assert hot.indexes <= {node["Index Name"] for node in nodes if "Index Name" in node}
    assert sum(_touched(node) for node in on_tables if "Scan" in node["Node Type"]) <= hot.most
