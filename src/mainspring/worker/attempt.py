"""One attempt in the hands of a worker, as its target sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mainspring.domain.settling import Outcome
from mainspring.store.claim import ClaimedRun
from mainspring.tasks.context import LastSuccess, Output


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What a target may know, and where it tells."""

    run: ClaimedRun
    fence: str  # "<timeline>.<attempt>": rises with every attempt, also over a fail-over of the database
    output: Output
    last_success: LastSuccess | None = None  # of its job, for tasks that ask for it
    hidden: tuple[str, ...] = ()  # secrets that its payload has in it: nothing that it leaves behind may show them


class Target(Protocol):
    """What an attempt calls: a function here, in a thread or in a child process, a URL, a command."""

    async def run(self, attempt: Attempt) -> Outcome:
        """Do the work and say how it ended. Raises nothing but cancellation.

        Cancelled, because its time is up, somebody asked, or the worker must go: stop whatever was started, with all it
        started in turn, and only then let the cancellation out. The caller knows why, and says so.
        """
