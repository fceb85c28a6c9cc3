"""What a client needs of whatever stands behind it: a database, or a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from mainspring.domain.asking import Change, JobFilter, LetterFilter, Request, RunFilter
from mainspring.domain.ids import JobId, NodeId, RunId
from mainspring.domain.job import Job
from mainspring.domain.run import State
from mainspring.domain.views import (
    AttemptView,
    DeadLetter,
    Event,
    JobView,
    Line,
    NodeView,
    Page,
    PoolView,
    RunView,
    SlotView,
    VersionView,
)


class Backend(Protocol):
    """Every operation of the SDK, for one tenant. Errors are those of ``domain/errors.py``."""

    async def submit(self, job: Job, wanted: Sequence[Request]) -> list[RunId]:
        """Ask for runs of a job by its name; the job is made if there is none."""

    async def submit_many(self, job: Job, wanted: Iterable[Request]) -> list[RunId]:
        """The same for very many, in parts that are each written or not."""

    async def trigger(self, job: JobId, wanted: Request) -> RunId: ...

    async def put_job(self, job: Job, *, reason: str) -> JobView: ...

    async def find_job(self, name_or_id: str | UUID) -> JobView: ...

    async def list_jobs(self, wanted: JobFilter, *, limit: int, after: str | None) -> Page[JobView]: ...

    async def change_job(self, job: JobId, change: Change) -> JobView: ...

    async def versions(self, job: JobId, *, limit: int) -> Sequence[VersionView]: ...

    async def backfill(
        self, job: JobId, *, start: datetime, end: datetime, request: str | None, pace: timedelta
    ) -> int: ...

    async def slots(self, job: JobId, *, start: datetime, end: datetime, limit: int) -> Sequence[SlotView]: ...

    async def explain(self, job: JobId, at: datetime) -> Sequence[str]: ...

    async def list_runs(self, wanted: RunFilter, *, limit: int, after: str | None) -> Page[RunView]: ...

    async def find_run(self, run: UUID) -> RunView: ...

    async def attempts(self, run: RunView) -> Sequence[AttemptView]: ...

    async def lines(self, run: RunView, *, after: tuple[int, int], limit: int) -> Sequence[Line]: ...

    async def cancel_run(self, run: RunId) -> State: ...

    async def cancel_runs(self, job: JobId) -> int:
        """Cancel all runs of a job that are in motion; return how many that were."""

    async def retry_run(self, run: RunView) -> RunId: ...

    async def list_letters(self, wanted: LetterFilter, *, limit: int, after: str | None) -> Page[DeadLetter]: ...

    async def find_letter(self, run: UUID) -> DeadLetter: ...

    async def replay(self, letter: DeadLetter, *, payload: str | None) -> RunId: ...

    async def discard(self, run: UUID, *, reason: str) -> bool: ...

    async def nodes(self) -> Sequence[NodeView]: ...

    async def pools(self) -> Sequence[PoolView]: ...

    async def pause_pool(self, pool: str, *, reason: str) -> None: ...

    async def resume_pool(self, pool: str) -> bool: ...

    async def ask_node(self, node: NodeId, wish: str) -> None: ...

    def watch(self, *, job: JobId | None, run: UUID | None) -> AsyncGenerator[Event]:
        """Give what happens from now on, for ever: of one job or run every state, else what ends and what changes."""
