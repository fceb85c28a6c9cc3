"""What an engine asks ``fire`` to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from uuid import UUID

from mainspring.domain.ids import JobId, NodeId


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease that must still be held: (node, epoch), never the epoch alone."""

    name: str
    node: NodeId
    epoch: int


Place: TypeAlias = tuple[datetime, JobId]  # a job's, in the order of what is due
OLDEST: Final[Place] = (datetime(1, 1, 1, tzinfo=UTC), JobId(UUID(int=0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueNow:
    """Whatever is due, oldest first.

    ``overdue`` narrows it to what should have fired this long ago. ``after`` is a shortcut past whatever has come
    due before that place since; look from the ``OLDEST`` every now and then.
    """

    limit: int
    overdue: timedelta = timedelta(0)
    after: Place = OLDEST
    fence: Fence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """These jobs, if they are due."""

    jobs: tuple[JobId, ...]
    fence: Fence | None = None


Selection: TypeAlias = DueNow | Named
