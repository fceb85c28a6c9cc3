"""Runs from outside: cancel one, or all of some jobs."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from mainspring.domain.errors import NotFound
from mainspring.domain.ids import NodeId, RunId
from mainspring.domain.run import State
from mainspring.store.database import Connection, Database
from mainspring.store.queries import queries

_SQL = queries("runs")


async def cancel_run(db: Database, run_id: RunId, *, tenant: str | None = None) -> State:
    """Cancel a run: at once if no worker has it, else as a request; return the state it is in now.

    Raises:
        NotFound: it is not in motion, or never was, or not for this tenant.
    """
    async with db.transaction() as tx:
        if tenant is not None and await tx.fetchval(_SQL["cancel_in"], tenant, run_id) is None:
            raise NotFound(f"run {run_id} is not in motion")
        cancelled = await tx.fetch(_SQL["cancel_unclaimed"], [run_id])
        if cancelled:
            await tx.execute(queries("settle")["release_held"], [row["lane"] for row in cancelled if row["lane"]])
            return State.CANCELLED
        if await tx.fetchval(_SQL["request_cancel"], [run_id]) is None:
            raise NotFound(f"run {run_id} is not in motion")
        return State.RUNNING


async def stop_runs_of(tx: Connection, jobs: Collection[UUID]) -> None:
    """Cancel what these jobs have in motion, under their row locks: nobody can add to it.

    What no worker has is cancelled at once; what is running is asked to stop, and keeps its lane until it has.
    """
    runs = [row["id"] for row in await tx.fetch(_SQL["of_jobs"], list(jobs))]
    if runs:
        await tx.execute(_SQL["cancel_unclaimed"], runs)
        await tx.execute(_SQL["request_cancel"], runs)


async def cancels_asked(db: Database, worker: NodeId) -> list[RunId]:
    """Return which runs of a worker it is asked to stop."""
    async with db.connection() as connection:
        return [RunId(row["id"]) for row in await connection.fetch(_SQL["cancels_asked"], worker)]


async def retry_now(db: Database, run_id: RunId) -> bool:
    """Let a run that waits for its next attempt have it at once; return whether it was waiting."""
    async with db.transaction() as tx:
        waited = await tx.fetchval(_SQL["retry_now"], run_id) is not None
        if not waited:
            db.nothing_done()
    return waited
