"""What an engine is handed, and how long it sleeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from mainspring.domain.firing import FireReport
from mainspring.domain.selection import OLDEST, DueNow, Fence, Selection
from mainspring.telemetry.events import Events, Fired, JobQuarantined

Fire: TypeAlias = Callable[[Selection], Awaitable[FireReport]]

_SHORTCUTS: Final = 20
_NOT_EARLY: Final = timedelta(milliseconds=0.5)  # clocks that count in milliseconds wake up just before it is due
_BREATH: Final = timedelta(milliseconds=5)  # what is due but locked belongs to another node at this moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How much at once, and how long until an edit is seen that no hint told of."""

    batch: int = 500
    look_every: timedelta = timedelta(milliseconds=500)


class Look:
    """Where to look next: on from the last full batch, and from the oldest again every now and then.

    In a herd of a hundred thousand the oldest end of the due index is full of cursors that have just moved on; going
    through them for every batch would cost more than firing.
    """

    def __init__(self, rhythm: Rhythm) -> None:
        self._batch = rhythm.batch
        self._after = OLDEST
        self._shortcuts = 0

    def selection(self, fence: Fence | None = None) -> DueNow:
        return DueNow(limit=self._batch, after=self._after, fence=fence)

    def saw(self, report: FireReport) -> None:
        full = report.last is not None and report.locked >= self._batch
        if full and report.last is not None and self._shortcuts < _SHORTCUTS:
            self._after, self._shortcuts = report.last, self._shortcuts + 1
        else:
            self._after, self._shortcuts = OLDEST, 0


def pause(report: FireReport, rhythm: Rhythm) -> timedelta:
    """Return how long to sleep: not at all after a full batch, else until the next slot or the next look."""
    if report.locked >= rhythm.batch:
        return timedelta(0)
    if report.next_due_in is None:
        return rhythm.look_every
    if report.next_due_in <= timedelta(0):
        return _BREATH if not report.locked else timedelta(0)
    return min(report.next_due_in + _NOT_EARLY, rhythm.look_every)


def tell(events: Events, engine: str, report: FireReport) -> None:
    """Say what a batch decided, if it decided anything."""
    for job in report.quarantined:
        events.emit(JobQuarantined(job=job, error="its plan raised; see `explain`"))
    if report.lag_p50 is not None and report.lag_max is not None:
        events.emit(
            Fired(
                engine=engine,
                jobs=report.locked,
                runs=report.runs,
                skips=report.skips,
                lag_p50=report.lag_p50,
                lag_max=report.lag_max,
            )
        )
