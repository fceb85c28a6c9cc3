"""Behind a real pooler in transaction mode, with fewer server connections than services: all works as ever."""

import asyncio
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from mainspring import embedded
from mainspring.roles import EngineName
from mainspring.store.database import Database, open_database

from .fleet import ENV, change_some, fleet_on, given_ticking, judged, rows, until_decided, until_settled
from .services import as_owner_of, needed

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 100
CHANGED = 4  # by change_some
CONNECTIONS = 3  # to the server; two nodes have five services each
OTHERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
SETTINGS = """
[databases]
* = host={sockets} port=5432 user=mainspring
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
"""


@pytest.fixture
def pooler(server: embedded.Server, dsn: str) -> Iterator[str]:
    """Start a pooler, and give the way to the test's database that leads through it."""
    program, where = needed("pgbouncer"), urlsplit(dsn)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="mainspring-pooler-") as room:
        settings, log = Path(room, "settings"), Path(room, "log")
        sockets = parse_qs(where.query)["host"][0]
        settings.write_text(SETTINGS.format(sockets=sockets, port=port, connections=CONNECTIONS))
        Path(room).chmod(0o755)
        with log.open("w") as stream:
            process = subprocess.Popen(
                [program, str(settings)], stdout=stream, stderr=stream, **as_owner_of(server.data_dir)
            )
        try:
            until_listening(port, log)
            yield f"postgresql://mainspring@127.0.0.1:{port}{where.path}?sslmode=disable"
        finally:
            process.kill()
            process.wait()


def until_listening(port: int, log: Path) -> None:
    patience = time.monotonic() + 10
    while time.monotonic() < patience:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise AssertionError(f"the pooler does not listen: {log.read_text()}")


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
