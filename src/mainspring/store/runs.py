"""Runs from outside: cancel one, or all of a job."""

from __future__ import annotations

from mainspring.domain.errors import NotFound
from mainspring.domain.ids import JobId, RunId
from mainspring.domain.run import State
from mainspring.store.database import Connection, Database
from mainspring.store.queries import queries

_SQL = queries("runs")


async def cancel_run(db: Database, run_id: RunId) -> State:
    """Cancel a run: at once if no worker has it, else as a request; return the state it is in now.

    Raises:
        NotFound: it is not in motion, or never was.
    """
    async with db.transaction() as tx:
        cancelled = await tx.fetch(_SQL["cancel_unclaimed"], [run_id])
        if cancelled:
            await tx.execute(queries("settle")["release_held"], [row["lane"] for row in cancelled if row["lane"]])
            return State.CANCELLED
        if await tx.fetchval(_SQL["request_cancel"], [run_id]) is None:
            raise NotFound(f"run {run_id} is not in motion")
        return State.RUNNING


async def cancel_runs_of(tx: Connection, job_id: JobId) -> None:
    """Cancel what a deleted job has in motion, under its row lock: nobody can add to it."""
    runs = [row["id"] for row in await tx.fetch(_SQL["of_job"], job_id)]
    await tx.execute(_SQL["cancel_unclaimed"], runs)
    await tx.execute(_SQL["request_cancel"], runs)
