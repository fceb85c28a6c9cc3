"""Mainspring: a distributed job scheduler.

>>> from datetime import UTC, datetime
>>> from mainspring import Cron, Schedule
>>> nightly = Schedule(specs=(Cron("30 2 * * *"),), timezone="America/New_York")
>>> nightly.next_after(datetime(2027, 3, 14, tzinfo=UTC)).isoformat()  # 02:30 is missing that night
'2027-03-14T07:00:00+00:00'
"""

from mainspring.domain.errors import InvalidRequest, InvalidSchedule, MainspringError, UnknownZone
from mainspring.domain.fields import Dialect
from mainspring.domain.schedule import At, Cron, Every, RRule, Schedule, jitter, parse_spec
from mainspring.domain.timetable import Dst, DstGap, DstOverlap
from mainspring.insight.lint import Finding, lint
from mainspring.insight.wording import explain

__all__ = [
    "At",
    "Cron",
    "Dialect",
    "Dst",
    "DstGap",
    "DstOverlap",
    "Every",
    "Finding",
    "InvalidRequest",
    "InvalidSchedule",
    "MainspringError",
    "RRule",
    "Schedule",
    "UnknownZone",
    "explain",
    "jitter",
    "lint",
    "parse_spec",
]
