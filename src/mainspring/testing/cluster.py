"""A cluster in one process: nodes that share a database and nothing else.

Time is real, because the database's is. No check waits for it to pass: jobs are written as if long ago, and a
lease is let run out in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from mainspring.domain.ids import JobId
from mainspring.domain.job import Job
from mainspring.domain.schedule import Every, Schedule
from mainspring.environment import SystemEnvironment
from mainspring.insight.report import AuditReport
from mainspring.store.database import Database, open_database
from mainspring.store.jobs import insert_jobs
from mainspring.store.migrations import migrate
from mainspring.testing import Recorder
from mainspring.testing.invariants import check_ledger
from mainspring.testing.nodes import BuildEngine, Node, Parts

PATIENCE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_BLOCKED: Final = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"""
_AT_REST: Final = """
SELECT NOT EXISTS (SELECT FROM runs)
   AND NOT EXISTS (SELECT FROM job_cursors WHERE state = 'active' AND next_fire_at <= clock_timestamp())"""


class Cluster:
    """A fresh ledger, the engine that is exercised, and the nodes a check puts on it."""

    def __init__(self, dsn: str, db: Database, engine: BuildEngine, patience: timedelta) -> None:
        self.db = db  # for the check's own questions
        self.env = SystemEnvironment(variables={})
        self.engine = engine
        self.events = Recorder()  # of all nodes
        self.patience = patience
        self.seconds = patience.total_seconds()
        self._dsn = dsn

    def node(self, **parts: Any) -> Node:
        """Make a node that is not running yet: of the engine that is exercised, unless its parts say otherwise."""
        given = Parts(**{"engine": self.engine, **parts})
        return Node(self._dsn, given, everyone=self.events, patience=self.patience)

    async def given_jobs(self, number: int = 1, *, down_for: timedelta = _HOUR, **changes: Any) -> list[JobId]:
        """Write jobs as if this long ago, and as if no node had run since.

        By default they are due every hour, the last time half an hour ago: no slot comes due while a check runs.
        """
        now = await self.value("SELECT clock_timestamp()")
        hourly = Schedule(specs=(Every(_HOUR, now.replace(microsecond=0) - _HOUR / 2),))
        job = replace(Job(name="job", task="work", schedule=hourly), **changes)
        ids = [JobId(self.env.new_id()) for _ in range(number)]
        async with self.db.transaction() as tx:
            await insert_jobs(tx, [(job_id, replace(job, name=f"{job.name}-{job_id}")) for job_id in ids])
            await tx.execute(
                "UPDATE job_versions SET effective_at = $2, state = 'active' WHERE job_id = ANY($1)",
                ids,
                now - down_for,
            )
            await tx.execute(
                "UPDATE job_cursors SET next_fire_at = $2, state = 'active' WHERE job_id = ANY($1)",
                ids,
                job.schedule.next_after(now - down_for),
            )
        return ids

    async def let_lease_run_out(self, node: Node) -> None:
        """Make a node look as if its last heartbeat had been long ago, which it was not."""
        await self.execute(
            "UPDATE nodes SET heartbeat_at = heartbeat_at - interval '1 hour', lease_for = '1 ms' WHERE id = $1",
            node.id,
        )

    async def end_idle_transactions(self) -> None:
        """End what a stopped process has open, as a server does that was told how long it may idle."""
        await self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
        )

    async def seen(self, predicate: Callable[[Recorder], bool]) -> None:
        """Wait until the events of all nodes satisfy ``predicate``."""
        await self.events.until(predicate, self.seconds)

    async def at_rest(self) -> None:
        """Wait until nothing is due and nothing in motion."""
        await self.until(_AT_REST)

    async def wait(self, happened: asyncio.Event) -> None:
        """Wait for what must happen, such as a node's coming to a point."""
        try:
            async with asyncio.timeout(self.seconds):
                await happened.wait()
        except TimeoutError:
            raise AssertionError("it never happened") from None

    async def blocked(self, work: asyncio.Future[Any], statements: int) -> None:
        """Wait until so many statements wait for a lock that another holds, or until ``work`` is done without."""
        try:
            async with asyncio.timeout(self.seconds):
                while not work.done() and await self.value(_BLOCKED) < statements:
                    pass  # the query itself gives way
        except TimeoutError:
            raise AssertionError(f"{statements} statements were never blocked") from None

    async def until(self, question: str, *arguments: Any) -> None:
        """Wait until the database answers with true.

        Raises:
            AssertionError: it does not, within the cluster's patience.
        """
        try:
            async with asyncio.timeout(self.seconds), self.db.connection() as connection:
                while not await connection.fetchval(question, *arguments):
                    await connection.execute("SELECT pg_sleep(0.01)")
        except TimeoutError:
            raise AssertionError(f"never true: {question}") from None

    async def check(self, *, at_rest: bool = True) -> AuditReport:
        """Assert that nothing is lost, doubled or stuck: :func:`~mainspring.testing.invariants.check_ledger`."""
        return await check_ledger(self.db, at_rest=at_rest)

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.db.connection() as connection:
            return [dict(row) for row in await connection.fetch(query, *arguments)]

    async def value(self, query: str, *arguments: Any) -> Any:
        async with self.db.connection() as connection:
            return await connection.fetchval(query, *arguments)

    async def execute(self, statement: str, *arguments: Any) -> None:
        async with self.db.transaction() as tx:
            await tx.execute(statement, *arguments)

    async def decisions(self, job: JobId) -> list[tuple[str, datetime]]:
        """Return what became of a job's slots, and when that was decided, oldest slot first."""
        query = "SELECT disposition, fired_at FROM audit_fires WHERE job_id = $1 ORDER BY scheduled_at"
        return [(row["disposition"], row["fired_at"]) for row in await self.rows(query, job)]


@asynccontextmanager
async def open_cluster(dsn: str, engine: BuildEngine, *, patience: timedelta = PATIENCE) -> AsyncIterator[Cluster]:
    """Open a cluster without nodes on an empty database, whose schema is made if it is not there yet."""
    async with open_database(dsn) as db:
        await migrate(db)
        yield Cluster(dsn, db, engine, patience)


@asynccontextmanager
async def fresh_database(server: str) -> AsyncIterator[str]:
    """Make an empty database on the server of this DSN, and drop it afterwards."""
    async with open_database(server, size=1) as db:
        name = f"mainspring_{SystemEnvironment(variables={}).new_id().hex}"
        async with db.connection() as connection:
            await connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            async with db.connection() as connection:
                await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
