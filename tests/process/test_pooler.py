"""Behind a real pooler in transaction mode, with fewer server connections than services: all works as ever."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from mainspring import embedded
from mainspring.roles import EngineName
from mainspring.store.database import Database, open_database

from .fleet import ENV, change_some, fleet_on, given_ticking, judged, rows, until_decided, until_settled
from .pooler import pooler_before

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 100
CHANGED = 4  # by change_some
CONNECTIONS = 3  # to the server; two nodes have five services each
OTHERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""


@pytest.fixture
def pooler(server: embedded.Server, dsn: str) -> Iterator[str]:
    with pooler_before(server, dsn, connections=CONNECTIONS) as through:
        yield through


@pytest.mark.covers("F87")
@pytest.mark.parametrize("engine", ["peers", "poll"])
async def test_two_nodes_fire_run_and_change_jobs_through_a_pooler(
    engine: EngineName, pooler: str, db: Database
) -> None:
    began = ENV.now()
    async with (
        open_database(pooler, pooled=True) as through,
        fleet_on(pooler, pooled=True, engine=engine, concurrency=20) as fleet,
    ):
        await given_ticking(through, JOBS)
        await asyncio.gather(fleet.start(), fleet.start())

        await until_decided(through, ENV.now() + timedelta(seconds=1))
        await change_some(through)
        await until_decided(through, ENV.now() + timedelta(seconds=1))
        connections = await rows(db, OTHERS)
        ended = ENV.now()
        await until_settled(through, before=ended)
        await fleet.stop()
        report = await judged(through, since=began, until=ended)

    assert report.fired >= 2 * (JOBS - CHANGED) + CHANGED  # a changed job may have missed the second round
    assert report.fired + sum(report.skipped.values()) == report.expected
    ended_as = set(await rows(db, "SELECT state FROM run_history"))
    assert {("succeeded",)} <= ended_as <= {("succeeded",), ("cancelled",)}  # of the job that was deleted
    assert connections == [(CONNECTIONS,)]


async def test_the_dsn_itself_may_say_that_there_is_a_pooler(pooler: str) -> None:
    async with open_database(f"{pooler}&pool_mode=transaction") as db:
        for number in range(2 * CONNECTIONS):
            async with db.transaction() as tx:
                assert await tx.fetchval("SELECT $1::int", number) == number
                assert await tx.fetchval("SHOW idle_in_transaction_session_timeout") == "3s"
