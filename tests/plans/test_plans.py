"""Are the hot statements still indexed, with a table full of jobs and of runs? By the plan, and by rows touched.

Planned both ways: for the values at hand, and for any values, as Postgres does after a few executions.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.store.database import SESSION, open_database
from mainspring.store.migrations import migrate
from mainspring.store.queries import queries

pytestmark = pytest.mark.asyncio(loop_scope="session")

BATCH = 200
_WORKER = "'3b1f6d3e-0c9a-4a0e-9a57-1f6f1c6a2b11'"
HELD = 10_000  # with a million
RUNNING = 500  # at work, and before all others in the order of claims
# A twelfth is overdue; neighbours on disk are not neighbours in time.
CURSORS = """
INSERT INTO job_cursors (job_id, shard, version, state, next_fire_at)
SELECT gen_random_uuid(), n % 1024, 1, CASE WHEN n % 10 = 0 THEN 'paused' ELSE 'active' END,
       clock_timestamp() + n * interval '86400 s' / $1 - interval '2 hours'
  FROM generate_series(1, $1::int) AS n ORDER BY hashint4(n)"""
# A third overlaps, the others have a lane; of every hundred one waits for it.
RUNS = """
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, pool, task,
                  state, held, lane, attempt, token, worker, started_at, expires_at)
SELECT gen_random_uuid(), job_id, 'default', 1, 'schedule', at, at, at, at,
       CASE WHEN n % 20 = 19 THEN 'long' ELSE 'short' END, 'noop',
       CASE WHEN running THEN 'running' WHEN held THEN 'held' ELSE 'queued' END, held,
       CASE WHEN n % 3 > 0 AND NOT held THEN job_id END, running::int,
       CASE WHEN running THEN job_id END, CASE WHEN running THEN job_id END, at,
       CASE WHEN n % 50 = 0 THEN at + interval '1 hour' WHEN n % 50 = 1 THEN at + interval '9 days' END
  FROM (SELECT row_number() OVER () AS n, job_id FROM job_cursors) AS job,
       LATERAL (SELECT clock_timestamp() - interval '1 day' + n * interval '1 ms' AS at,
                       n <= $1 AS running, n > $1 AND n % 100 = 1 AS held) AS made"""


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.Server]:
    with embedded.running(settings={"autovacuum": "off"}) as running:
        yield running


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="session",
    params=[pytest.param(200_000, id="200K"), pytest.param(1_000_000, id="1M", marks=pytest.mark.long)],
)
async def full(server: embedded.Server, request: pytest.FixtureRequest) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a database with this many jobs, and as many runs in motion."""
    name = f"full_{request.param}"
    first = await asyncpg.connect(server.dsn)
    await first.execute(f"CREATE DATABASE {name}")
    await first.close()
    dsn = server.dsn.replace("/postgres?", f"/{name}?")
    async with open_database(dsn) as db:
        await migrate(db)
    connection = await asyncpg.connect(dsn, server_settings=SESSION)
    await connection.execute("SET session_replication_role = replica")  # cursors without their jobs will do
    await connection.execute(CURSORS, request.param)
    await connection.execute(RUNS, RUNNING)
    await connection.execute("SET session_replication_role = origin")
    await connection.execute(f"INSERT INTO nodes VALUES ({_WORKER}, 'worker', '', 1, now(), now(), interval '6 s')")
    await connection.execute("VACUUM ANALYZE job_cursors, runs")
    yield connection
    await connection.close()


@dataclass(frozen=True)
class Hot:
    """A statement, the indexes it must use, and how many rows of the big tables it may touch."""

    query: str
    indexes: set[str]
    most: int
    arguments: str = ""  # a row of them, as SQL
    or_else: frozenset[str] = frozenset()  # what will do as well

    @property
    def sql(self) -> str:
        stem, _, name = self.query.partition(".")
        return queries(stem)[name].rstrip(";")


_DUE = f"SELECT * FROM job_cursors WHERE state = 'active' ORDER BY next_fire_at LIMIT {BATCH}"
_HELD = f"SELECT * FROM runs WHERE held LIMIT {BATCH}"
_RUNNING = f"SELECT * FROM runs WHERE state = 'running' LIMIT {BATCH}"
_PLACE = "timestamptz '2000-01-01', gen_random_uuid()"
_JOBS = "SELECT array_agg(job_id)"
_LEASES = "array_agg(id), array_agg(attempt), array_agg(token)"
_ATTEMPTS = "attempts_other_pkey"  # of those that die: every attempt goes into the dead letter
_DONE = ("cursors_done", "runs_lane", "runs_aside")

HOT = [
    Hot("fire.lock_due_now", {"cursors_due"}, BATCH, f"SELECT {BATCH}, interval '0', {_PLACE}"),
    Hot(
        "fire.lock_named",
        {"job_cursors_pkey"},
        BATCH,
        f"{_JOBS} FROM ({_DUE}) AS due",
        or_else=frozenset({"cursors_due"}),  # has the ids too: it depends on how much is overdue
    ),
    Hot("fire.next_due_in", {"cursors_due"}, 1),
    Hot("fire.going", {"runs_lane", "runs_aside"}, 2 * BATCH, f"{_JOBS} FROM ({_DUE}) AS due"),
    Hot(
        "fire.move_cursors",
        {"job_cursors_pkey"},
        2 * BATCH,
        "SELECT array_agg(job_id), array_agg(place::int), array_agg(next_fire_at), "
        "array_agg(next_fire_at + interval '1 day'), array_agg(next_fire_at), array_agg(1) "
        f"FROM (SELECT *, row_number() OVER () AS place FROM ({_DUE}) AS due) AS due",
    ),
    Hot("runs.of_jobs", {"runs_lane", "runs_aside"}, 2 * BATCH, f"{_JOBS} FROM ({_DUE}) AS due"),
    Hot("runs.cancels_asked", {"runs_cancel"}, 0, "SELECT gen_random_uuid()"),
    Hot("recover.expire", {"runs_expiry", "runs_pkey", _ATTEMPTS}, 2 * BATCH + RUNNING, f"SELECT {BATCH}"),
    Hot("recover.stranded", {"runs_held", "runs_lane"}, 2 * HELD, f"SELECT {BATCH}"),
    Hot("recover.done", {"cursors_done"}, 0, f"SELECT {BATCH}", or_else=frozenset({*_DONE})),
    Hot(
        "claim.claim",
        {"runs_claim", "nodes_pkey", "paused_pools_pkey"},
        2 * BATCH + RUNNING,
        f"SELECT 'short', {BATCH}, {_WORKER}::uuid, ARRAY['noop', 'other'], gen_random_uuid(), {_PLACE}",
    ),
    Hot("changes.to_resume", {"cursors_resume"}, 0, f"SELECT {BATCH}"),
    Hot("settle.lock_running", {"runs_pkey"}, BATCH, f"SELECT {_LEASES} FROM ({_RUNNING}) AS run"),
    Hot(
        "settle.finish_runs",
        {"runs_pkey", _ATTEMPTS},
        BATCH,
        f"SELECT {_LEASES}, array_agg(1), ARRAY['succeeded'], ARRAY[NULL], ARRAY[0], ARRAY[NULL], ARRAY[NULL], "
        "ARRAY['succeeded'] "
        f"FROM ({_RUNNING}) AS run",
    ),
    Hot(
        "settle.put_back",
        {"runs_pkey"},
        3 * BATCH,
        f"SELECT {_LEASES}, array_agg('queued'::text), array_agg(0), array_agg(ready_at), array_agg(expires_at), "
        "array_agg('lost'::text), array_agg(NULL::text) "
        f"FROM ({_RUNNING}) AS run",
    ),
    Hot("settle.lock_jobs", {"job_cursors_pkey"}, BATCH, f"{_JOBS} FROM ({_DUE}) AS due"),
    Hot("settle.release_held", {"runs_held", "runs_lane", "runs_pkey"}, 4 * BATCH, f"{_JOBS} FROM ({_HELD}) AS run"),
]


async def explain(connection: asyncpg.Connection, hot: Hot, mode: str) -> list[dict[str, Any]]:
    """Run a statement on arguments taken from the table, undo it, and return the nodes of its plan."""
    arguments = list(await connection.fetchrow(hot.arguments)) if hot.arguments else []
    given = ", ".join(_literal(argument) for argument in arguments)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        await connection.execute(f"PREPARE hot AS {hot.sql}")
        execute = f"EXECUTE hot({given})" if given else "EXECUTE hot"
        (explained,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {execute}"))
        await connection.execute("DEALLOCATE hot")
    finally:
        await transaction.rollback()
    return list(_nodes(explained["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from _nodes(below)


def _literal(value: object) -> str:
    if isinstance(value, list):
        return "'{" + ",".join("NULL" if item is None else f'"{item}"' for item in value) + "}'"
    return f"'{value}'"


def _touched(node: dict[str, Any]) -> float:
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(read * node["Actual Loops"])


@pytest.mark.covers("F96")
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("hot", HOT, ids=lambda hot: hot.query)
async def test_a_hot_statement_uses_its_index_and_touches_only_what_it_needs(
    full: asyncpg.Connection, hot: Hot, mode: str
) -> None:
    nodes = await explain(full, hot, mode)

    scans = [node for node in nodes if "Scan" in node["Node Type"] and "Actual Loops" in node]
    on_tables = [node for node in scans if node.get("Relation Name") in ("job_cursors", "runs")]
    assert [node["Relation Name"] for node in on_tables if node["Node Type"] == "Seq Scan"] == []
    assert {node["Index Name"] for node in nodes if "Index Name" in node} in (hot.indexes, hot.or_else)
    assert sum(_touched(node) for node in on_tables) <= hot.most
