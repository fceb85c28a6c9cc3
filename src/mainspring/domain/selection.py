"""What an engine asks ``fire`` to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from mainspring.domain.ids import JobId, NodeId


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease that must still be held: (node, epoch), never the epoch alone."""

    name: str
    node: NodeId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueNow:
    """Whatever is due, oldest first. ``overdue`` narrows it to what should have fired this long ago."""

    limit: int
    overdue: timedelta = timedelta(0)
    fence: Fence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """These jobs, if they are due."""

    jobs: tuple[JobId, ...]
    fence: Fence | None = None


Selection: TypeAlias = DueNow | Named
