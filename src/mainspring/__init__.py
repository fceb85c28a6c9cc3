"""Mainspring: a distributed job scheduler.

>>> from datetime import UTC, datetime
>>> from mainspring import Cron, Schedule
>>> nightly = Schedule(specs=(Cron("30 2 * * *"),), timezone="America/New_York")
>>> nightly.next_after(datetime(2027, 3, 14, tzinfo=UTC)).isoformat()  # 02:30 is missing that night
'2027-03-14T07:00:00+00:00'
"""

from typing import TYPE_CHECKING, Any

from mainspring import http
from mainspring.domain.errors import (
    InvalidRequest,
    InvalidSchedule,
    MainspringError,
    NotFound,
    RunCancelled,
    RunFailed,
    UnknownZone,
)
from mainspring.domain.fields import Dialect
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule import At, Cron, Every, OnDemand, RRule, Schedule, jitter, parse_spec
from mainspring.domain.signals import Discard, Retry, Snooze
from mainspring.domain.timetable import Dst, DstGap, DstOverlap
from mainspring.insight.lint import Finding, lint
from mainspring.insight.wording import explain
from mainspring.tasks.context import Context
from mainspring.tasks.hooks import on_end, on_start, resource
from mainspring.tasks.task import task
from mainspring.tasks.timing import at, cron, every

if TYPE_CHECKING:
    from mainspring.sdk.client import Client

__all__ = [
    "At",
    "Client",
    "Context",
    "Cron",
    "Dialect",
    "Discard",
    "Dst",
    "DstGap",
    "DstOverlap",
    "Every",
    "Finding",
    "InvalidRequest",
    "InvalidSchedule",
    "MainspringError",
    "NotFound",
    "OnDemand",
    "RRule",
    "Retry",
    "RetryPolicy",
    "RunCancelled",
    "RunFailed",
    "Schedule",
    "Snooze",
    "UnknownZone",
    "at",
    "cron",
    "every",
    "explain",
    "http",
    "jitter",
    "lint",
    "on_end",
    "on_start",
    "parse_spec",
    "resource",
    "task",
]


def __getattr__(name: str) -> Any:
    """Find the client when it is asked for: it brings the driver along, which task modules and schedules do without."""
    if name == "Client":
        from mainspring.sdk.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
