"""The other versions of Postgres that are here: migrate, all four verbs, changes, audit, and the same indexes."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import embedded
from mainspring.roles import open_ledger
from mainspring.store import nodes
from mainspring.store.database import Database
from mainspring.store.queries import queries
from mainspring.store.recover import recover_lost
from tests.store.ledger import Ledger

from .fleet import ENV, change_some, fleet_on, given_ticking, judged, rows, until, until_decided, until_settled
from .services import missing

JOBS = 500
# So much that reading all of it would be dear: of the jobs few are due, of the runs few are of the pool.
MANY = """
SET LOCAL session_replication_role = replica;  -- cursors without their jobs will do
INSERT INTO job_cursors (job_id, shard, version, state, next_fire_at)
SELECT gen_random_uuid(), 0, 1, 'active', clock_timestamp() + n * interval '1 minute'
  FROM generate_series(1, 20000) AS n;
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, pool, task, state)
SELECT gen_random_uuid(), gen_random_uuid(), 'default', 1, 'schedule', at, at, at, at, 'pool-' || n % 20, 'noop',
       'queued'
  FROM generate_series(1, 20000) AS n, LATERAL (SELECT clock_timestamp() - n * interval '1 second' AS at) AS fired;
ANALYZE job_cursors, runs
"""


def others() -> dict[str, Path]:
    """Return the binaries of each version but the embedded one, as far as the server's user may execute them.

    There are Debian's, and an older version that comes with the embedded one.
    """
    ours, account = embedded.find(), embedded._account(Path("/nonexistent"))
    found = {}
    for place in (*embedded.DISTRIBUTION.glob("[1-9][0-9]/bin"), ours.bin.parents[1] / "pginstall" / "bin"):
        if embedded._may_enter(account, place / "postgres"):
            said = embedded._run(None, place / "postgres", "--version").stdout
            found[re.findall(r"\d+", said)[0]] = place
    return {version: place for version, place in sorted(found.items()) if not ours.version.startswith(version)}


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[embedded.Server]:
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(request.param))
    with embedded.running() as running:
        yield running


def test_there_is_another_version_to_test_on() -> None:
    if not others():
        missing("postgresql")


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("server", others().values(), ids=others().keys(), indirect=True)
async def test_all_works_on_another_version(server: embedded.Server) -> None:
    async with open_ledger(server.dsn) as db:
        await runs_and_changes_jobs(server.dsn, db)
        await recovers_what_a_worker_left(db)
        async with db.transaction() as tx:
            await tx.execute(MANY)
        assert "cursors_due" in await indexes(db, "fire", "lock_due_now")
        assert "runs_claim" in await indexes(db, "claim", "claim")


async def runs_and_changes_jobs(dsn: str, db: Database) -> None:
    began = ENV.now()
    await given_ticking(db, JOBS)
    async with fleet_on(dsn, engine="peers", concurrency=100) as fleet:
        await fleet.start()
        await until_decided(db, ENV.now() + timedelta(seconds=1))
        await change_some(db)
        await until_decided(db, ENV.now() + timedelta(seconds=1))
        ended = ENV.now()
        await until_settled(db, before=ended)
        await fleet.stop()
    report = await judged(db, since=began, until=ended)
    assert report.fired >= JOBS
    assert {("succeeded",)} <= set(await rows(db, "SELECT state FROM run_history")) <= {("succeeded",), ("cancelled",)}


async def recovers_what_a_worker_left(db: Database) -> None:
    ledger = Ledger(db, ENV)
    lost, heir = await ledger.node(), await ledger.node()
    await until(db, "SELECT bool_or(next_fire_at <= clock_timestamp()) FROM job_cursors")
    await ledger.fire()
    taken = await ledger.claim(lost)
    await nodes.retire(db, lost)
    await recover_lost(db, ledger.definitions, ENV)
    again = await ledger.claim(heir)
    report = await ledger.settle(again)
    assert {run.id for run in taken} == {run.id for run in again} == set(report.settled)
    assert {run.attempt for run in again} == {2}
    await ledger.check()


async def indexes(db: Database, stem: str, name: str) -> set[str]:
    """Return the indexes in the plan of a statement that is made for any values, and reads no table through."""
    async with db.transaction() as tx:
        await tx.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        await tx.execute(f"PREPARE hot AS {queries(stem)[name]}")
        count = await tx.fetchval("SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'hot'")
        plan = await tx.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot({', '.join(['NULL'] * count)})")
        await tx.execute("DEALLOCATE hot")
    assert "Seq Scan" not in plan
    return set(re.findall(r'"Index Name": "(\w+)"', plan))
