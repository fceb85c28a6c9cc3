"""Attempts as a worker would hand them to a target, and where they tell."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from mainspring.domain.ids import JobId, Kind, NodeId, RunId
from mainspring.domain.job import Job, Json
from mainspring.domain.schedule import OnDemand, Schedule
from mainspring.domain.settling import Discarded, Failed, Outcome, Succeeded
from mainspring.store.claim import ClaimedRun
from mainspring.worker.attempt import Attempt

RUN = RunId(UUID(int=0x52))
JOB = JobId(UUID(int=0x10B))
SLOT = datetime(2027, 3, 14, 7, 30, tzinfo=UTC)


@dataclass
class Told:
    """Keeps what an attempt tells."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def line(self, text: str, *, stream: str, level: str = "", at: datetime | None = None) -> None:
        assert level in ("", "info")
        assert at is None
        self.lines.append((stream, text))

    def progress(self, done: float, note: str) -> None:
        raise AssertionError((done, note))

    def of(self, stream: str) -> list[str]:
        return [text for name, text in self.lines if name == stream]


def attempt(payload: Json, *, number: int = 1, output: Told | None = None) -> Attempt:
    run = ClaimedRun(
        id=RUN,
        job_id=JOB,
        name="ping",
        payload=payload,
        job=Job(name="ping", task="http", schedule=Schedule(specs=(OnDemand(),))),
        version=1,
        kind=Kind.SCHEDULE,
        slot=SLOT,
        rank=SLOT,
        attempt=number,
        failures=0,
        token=UUID(int=1),
        worker=NodeId(UUID(int=2)),
        started_at=SLOT,
    )
    return Attempt(run=run, fence=f"1.{number}", output=output or Told())


def result(outcome: Outcome) -> Json:
    assert isinstance(outcome, Succeeded), outcome
    return outcome.result


def error(outcome: Outcome) -> tuple[str, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error.type, outcome.error.message


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Discarded), outcome
    return outcome.reason
