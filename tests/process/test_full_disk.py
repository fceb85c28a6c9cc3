"""A database without space: it is said in words, nothing is half done, and all goes on when there is room again."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.domain.errors import StoreUnavailable
from mainspring.domain.job import Job
from mainspring.roles import open_ledger, put_jobs
from mainspring.store.database import open_database
from tests.postgres import named

from .fleet import (
    ENV,
    EVERY_SECOND,
    SRC,
    fleet_on,
    given_ticking,
    judged,
    rows,
    until,
    until_decided,
    until_settled,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

DATABASE, CLUSTER = "32m", "128m"  # when they are new they take a third of that
IN_WORDS = "the database is out of disk space"


class Disk:
    """A small disk that can be filled, to the last byte or nearly."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self, leaving: int = 0) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            while shutil.disk_usage(self.root).free > leaving:
                ballast.write(bytes(4096))

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def disk_of(size: str) -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(prefix="mainspring-disk-") as where:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "mainspring-test", where]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted, run this test as root: {done.stderr.strip()}")
        try:
            yield Disk(Path(where))
        finally:
            subprocess.run(["umount", "--lazy", where], check=True)


@pytest_asyncio.fixture(loop_scope="session")
async def small(server: embedded.Server, template: str) -> AsyncIterator[tuple[Disk, str]]:
    """A disk with a database on it. The server's log is elsewhere: without that no server lives."""
    with disk_of(DATABASE) as disk:
        space = disk.root / "space"
        space.mkdir()
        os.chown(space, server.data_dir.stat().st_uid, -1)
        connection = await asyncpg.connect(server.dsn)
        try:
            await connection.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
            await connection.execute(f"CREATE DATABASE small TEMPLATE {template} TABLESPACE small")
            yield disk, named(server.dsn, "small")
        finally:
            disk.clear()
            await connection.execute("DROP DATABASE IF EXISTS small WITH (FORCE)")
            await connection.execute("DROP TABLESPACE IF EXISTS small")
            await connection.close()


def mainspring(*arguments: str) -> subprocess.CompletedProcess[str]:
    command, environ = [sys.executable, "-m", "mainspring", *arguments], {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=60)


@pytest.mark.covers("F92")
async def test_writing_jobs_on_a_full_disk_is_refused_as_a_whole_and_works_when_there_is_room(
    small: tuple[Disk, str],
) -> None:
    disk, dsn = small
    jobs = [Job(name=f"job-{n}", task="noop", schedule=EVERY_SECOND, payload="x" * 1000) for n in range(1000)]
    async with open_database(dsn) as db:
        disk.fill()
        told = mainspring("dev", "--dsn", dsn, "--for", "1s")
        disk.clear()
        disk.fill(leaving=2**19)  # half of them would find room
        with pytest.raises(StoreUnavailable, match=IN_WORDS):
            await put_jobs(db, ENV, jobs)
        kept = await rows(db, "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM job_versions)")
        disk.clear()
        written = await put_jobs(db, ENV, jobs)

    assert told.returncode == 6
    assert told.stderr.startswith(f"error: {IN_WORDS}")
    assert "make room" in told.stderr
    assert "Traceback" not in told.stderr
    assert kept == [(0,)]
    assert written == len(jobs)


@pytest.mark.covers("F92")
async def test_a_node_whose_database_is_full_waits_and_goes_on_by_itself(small: tuple[Disk, str]) -> None:
    began, (disk, dsn) = ENV.now(), small
    async with open_database(dsn) as db, fleet_on(dsn, engine="peers", concurrency=50) as fleet:
        await given_ticking(db, 200, payload="x" * 100)
        await fleet.start()
        await until_decided(db, ENV.now())

        disk.fill()
        await until(db, "SELECT bool_or(next_fire_at < clock_timestamp() - interval '2 seconds') FROM job_cursors")
        disk.clear()
        back = ENV.now()
        await until_decided(db, back)
        await until_settled(db, before=back)
        await fleet.stop()

        report = await judged(db, since=began, until=back)
        assert report.fired == report.expected >= 400
        assert await rows(db, "SELECT DISTINCT outcome FROM audit_attempts") == [("succeeded",)]


@pytest.mark.covers("F92")
async def test_a_server_that_ended_for_lack_of_space_is_waited_for() -> None:
    with disk_of(CLUSTER) as disk:
        began, server = ENV.now(), embedded.start(disk.root / "data", durable=False)
        try:
            async with open_ledger(server.dsn) as db, fleet_on(server.dsn, engine="peers", concurrency=50) as fleet:
                await given_ticking(db, 200)
                await fleet.start()
                await until_decided(db, ENV.now())

                disk.fill()
                with pytest.raises((asyncpg.PostgresError, OSError)):
                    await write_until_it_fails(server.dsn)
                assert await asyncio.to_thread(server.wait, timedelta(seconds=20))
                told = mainspring("audit", "--dsn", server.dsn)
                with pytest.raises(embedded.EmbeddedUnavailable, match="only 0 MB are free"):
                    embedded.start(server.data_dir, durable=False)
                disk.clear()
                server = embedded.start(server.data_dir, durable=False)
                back = ENV.now()
                await until_decided(db, back)
                await until_settled(db, before=back)
                await fleet.stop(quietly=False)

                assert (told.returncode, told.stderr.count("\n")) == (6, 1)
                assert "the database cannot be reached" in told.stderr
                report = await judged(db, since=began, until=back)
                assert report.fired == report.expected >= 200
        finally:
            server.stop()


async def write_until_it_fails(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            await connection.execute("SELECT pg_switch_wal(); CHECKPOINT")
    finally:
        await connection.close(timeout=1)
