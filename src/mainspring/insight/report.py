"""What an audit says: the faults there are, and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from mainspring.domain.ids import JobId
from mainspring.domain.job import JobState, Json, instant_text

_KEPT: Final = 1000  # findings in full; all are counted
_MILLISECOND: Final = timedelta(milliseconds=1)


class Fault(StrEnum):
    """What is wrong with a slot."""

    MISSED = "missed"
    DOUBLED = "doubled"
    PHANTOM = "phantom"
    UNEXPLAINED = "unexplained"  # skipped for a run that was not there
    UNREADABLE = "unreadable"  # the schedule cannot be recomputed, so nothing is proved about this job


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    fault: Fault
    job: JobId
    name: str
    slot: datetime
    last: datetime  # the same, but for a stretch of slots
    count: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """From the slot to the fire; quantiles to three digits."""

    p50: timedelta
    p99: timedelta
    max: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    start: datetime
    end: datetime
    judged_at: datetime  # slots after this are not due yet
    dropped_before: datetime | None  # asked for older slots than these, whose history is gone: ``start`` is later
    jobs: int
    expected: int
    fired: int
    skipped: Mapping[str, int]  # slots by disposition
    pending: int  # due, and still before the job's cursor
    oldest_pending: datetime | None
    quarantined: int  # due, and the job waits for an operator
    late: Lateness
    faults: Mapping[Fault, int]  # slots by fault; each fault is there
    findings: tuple[Finding, ...]  # the first thousand

    @property
    def exit_status(self) -> int:
        return 1 if any(self.faults.values()) else 0

    def to_json(self) -> dict[str, Json]:
        document = {name: _json(value) for name, value in asdict(self).items()}
        return {**document, **document.pop("faults"), "exit_status": self.exit_status}


@dataclass(slots=True)
class Tally:
    """What an audit has seen so far."""

    jobs: int = 0
    expected: int = 0
    fired: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    waiting: Counter[JobState] = field(default_factory=Counter)
    oldest_pending: datetime | None = None
    late: Counter[int] = field(default_factory=Counter)  # milliseconds to three digits: a few thousand keys at most
    latest: timedelta = timedelta(0)
    faults: Counter[Fault] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def find(self, finding: Finding) -> None:
        self.faults[finding.fault] += finding.count
        if len(self.findings) < _KEPT:
            self.findings.append(finding)

    def fire(self, late: timedelta) -> None:
        self.fired += 1
        milliseconds = max(late // _MILLISECOND, 0)
        if milliseconds > 999:
            milliseconds -= milliseconds % 10 ** (len(str(milliseconds)) - 3)
        self.late[milliseconds] += 1
        self.latest = max(self.latest, late)

    def wait(self, state: JobState, first: datetime, count: int) -> None:
        self.waiting[state] += count
        if state is JobState.ACTIVE:
            self.oldest_pending = min(self.oldest_pending or first, first)

    def lateness(self) -> Lateness:
        return Lateness(p50=self._quantile(50), p99=self._quantile(99), max=self.latest)

    def _quantile(self, percent: int) -> timedelta:
        below = 0
        for milliseconds in sorted(self.late):
            below += self.late[milliseconds]
            if below * 100 >= self.fired * percent:
                return milliseconds * _MILLISECOND
        return timedelta(0)


def _json(value: object) -> Json:
    match value:
        case datetime():
            return instant_text(value)
        case timedelta():
            return value.total_seconds()
        case dict():
            return {str(key): _json(held) for key, held in value.items()}
        case list() | tuple():
            return [_json(held) for held in value]
        case UUID():
            return str(value)
        case _:
            return value
