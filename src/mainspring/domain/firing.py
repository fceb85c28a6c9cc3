"""Firing: what becomes of the slots of a job that are due. Pure: the store locks, asks and writes.

Promise (I1). The decisions of a plan answer for every due slot, once, oldest first, without a gap:
``sum(decision.covers)`` is the number of slots from the cursor up to now. The next slot is computed
from the last one decided, never from when a run ends, so nothing drifts.

Work is bounded. Ten days of a per-second job are 864,000 slots; they are counted by arithmetic, a
hundred of them become decisions of their own, and one decision covers the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from mainspring.domain.durations import later
from mainspring.domain.errors import BrokenInvariant
from mainspring.domain.ids import JobId
from mainspring.domain.schedule import Schedule, jitter

_TICK: Final = timedelta(milliseconds=1)  # slots are whole milliseconds
MOST_CAUGHT_UP: Final = 10_000  # runs of one catch-up, whatever a job says: it shares its transaction with others
ON_TIME: Final = timedelta(seconds=5)  # later than this a slot was missed; the guardian alone needs two seconds


class Disposition(StrEnum):
    """What a slot became."""

    FIRED = "fired"
    COALESCED = "coalesced"  # into a newer slot, which fired
    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_MISFIRE = "skipped_misfire"
    SKIPPED_PAUSED = "skipped_paused"
    SKIPPED_EXCLUDED = "skipped_excluded"
    SUPERSEDED = "superseded"  # an edit, pause or delete came first
    EXPIRED = "expired"  # older than the misfire window
    QUARANTINED = "quarantined"


class Misfires(StrEnum):
    """What to do with slots that were missed."""

    ALL = "all"
    LATEST = "latest"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfire:
    policy: Misfires = Misfires.ALL
    most: int = 100  # runs in one catch-up; older slots are coalesced into the newest
    window: timedelta | None = None  # slots older than this are not caught up
    pace: timedelta = timedelta(0)  # between the starts of a catch-up


class Overlaps(StrEnum):
    """What to do when the previous run is still going."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"
    CANCEL_OTHER = "cancel_other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    policy: Overlaps = Overlaps.SKIP
    most: int | None = None  # waiting runs with queue (1: keep only the next), going ones with allow; None: no bound

    @property
    def exclusive(self) -> bool:
        return self.policy is not Overlaps.ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """The runs of a job that are not final, at the moment its row was locked."""

    released: int = 0  # queued, running or waiting for their next attempt
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJob:
    """A locked job whose cursor is due."""

    id: JobId  # matters to jitter alone
    schedule: Schedule
    cursor: datetime
    fired: int  # runs that its schedule has fired so far; counts against max_fires
    misfire: Misfire
    overlap: Overlap
    jitter: timedelta
    going: Going


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one slot, or of a stretch of slots that share one fate."""

    slot: datetime  # the newest one covered
    first: datetime  # the oldest one covered
    covers: int
    disposition: Disposition
    ready_at: datetime | None = None  # when a fired run may start; carries jitter and pace, the slot does not
    held: bool = False  # waits until the run before it is final


@dataclass(frozen=True, slots=True, kw_only=True)
class FirePlan:
    """What a due job turns into. It names no job: jobs alike in all that matters share one plan."""

    decisions: tuple[Decision, ...]  # oldest first; a skip is a decision too, so never empty
    cursor: datetime  # next_fire_at as it was locked: the compare of compare-and-set
    next_fire_at: datetime | None  # None: that was its last slot
    fired: int  # runs in this plan
    cancel_going: bool = False  # overlap cancel_other: those before must stop

    def __post_init__(self) -> None:
        if not self.decisions:  # said here, where it is this job's own trouble
            raise BrokenInvariant(f"nothing was decided about {self.cursor}, which is due")

    @property
    def last_slot(self) -> datetime:
        return self.decisions[-1].slot


@dataclass(frozen=True, slots=True, kw_only=True)
class FireReport:
    """What one call of fire decided."""

    locked: int  # jobs
    runs: int
    skips: int  # slots that did not run
    quarantined: tuple[JobId, ...]
    lag_p50: timedelta | None  # from a job's slot to the decision; None: no job was due
    lag_max: timedelta | None
    last: tuple[datetime, JobId] | None  # the place of the newest job locked
    next_due_in: timedelta | None  # None: nothing is scheduled, or more is due at once


def plan_fire(job: DueJob, *, now: datetime) -> FirePlan:
    """Decide every slot of a job from its cursor up to ``now``, by the clock of the database."""
    due = _Due(job, now)
    candidates, decisions = due.missed()
    fires, overlapping = _overlap(job, candidates)
    if job.schedule.max_fires is not None:
        fires = fires[: max(job.schedule.max_fires - job.fired, 0)]
    decisions += [*_fired(job, fires, now), *overlapping]
    decisions.sort(key=lambda decision: decision.slot)
    exhausted = job.schedule.max_fires is not None and job.fired + len(fires) >= job.schedule.max_fires
    if exhausted and fires:  # what would come after the last fire is not due any more
        decisions = [decision for decision in decisions if decision.slot <= fires[-1]]
    return FirePlan(
        decisions=tuple(decisions),
        cursor=job.cursor,
        next_fire_at=None if exhausted else due.following,
        fired=len(fires),
        cancel_going=bool(fires) and job.overlap.policy is Overlaps.CANCEL_OTHER and job.going.released > 0,
    )


class _Due:
    """The due slots of a job, without listing more of them than can fire."""

    def __init__(self, job: DueJob, now: datetime) -> None:
        self._job = job
        self._now = now
        self._schedule = job.schedule  # without max_fires: slots that do not fire do not count against it
        if job.schedule.max_fires is not None:
            self._schedule = replace(job.schedule, max_fires=None)
        self.newest = job.cursor
        self.following = self._schedule.next_after(job.cursor)
        if self.following is not None and self.following <= now:  # more than one is due
            self.newest = self._schedule.previous_before(now + _TICK) or job.cursor
            self.following = self._schedule.next_after(self.newest)

    def missed(self) -> tuple[list[datetime], list[Decision]]:
        """Apply the misfire policy: return the slots that should run, and decisions for those that should not."""
        misfire, oldest = self._job.misfire, self._job.cursor
        decisions: list[Decision] = []
        if self.newest == oldest and self._now - oldest <= min(misfire.window or ON_TIME, ON_TIME):
            return [oldest], decisions  # one slot, on time: nearly always
        if misfire.window is not None and self._now - oldest > misfire.window:
            opens = self._now - misfire.window
            decisions += self._stretch(oldest, opens, Disposition.EXPIRED)
            oldest = opens
        match misfire.policy:
            case Misfires.ALL:
                wanted = self._newest(oldest, min(misfire.most, MOST_CAUGHT_UP))
            case Misfires.LATEST:
                wanted = self._newest(oldest, 1)
            case Misfires.SKIP:
                wanted = [slot for slot in self._newest(oldest, 1) if self._now - slot <= ON_TIME]
            case _:
                assert_never(misfire.policy)
        passed_over = Disposition.SKIPPED_MISFIRE if misfire.policy is Misfires.SKIP else Disposition.COALESCED
        decisions += self._stretch(oldest, wanted[0] if wanted else self._now + _TICK, passed_over)
        return wanted, decisions

    def _newest(self, oldest: datetime, most: int) -> list[datetime]:
        slots = [self.newest] if self.newest >= oldest else []
        while slots and len(slots) < most:
            earlier = self._schedule.previous_before(slots[-1])
            if earlier is None or earlier < oldest:
                break
            slots.append(earlier)
        return slots[::-1]

    def _stretch(self, start: datetime, end: datetime, disposition: Disposition) -> list[Decision]:
        """Answer for all slots in ``[start, end)`` by one decision."""
        first, last = self._schedule.between(start, end, 1), self._schedule.previous_before(end)
        if not first or last is None:
            return []
        covers = self._schedule.count(start, end)
        return [Decision(slot=last, first=first[0], covers=covers, disposition=disposition)]


def _overlap(job: DueJob, slots: list[datetime]) -> tuple[list[datetime], list[Decision]]:
    """Apply the overlap policy: return what fires, and decisions for what does not.

    The slots of one catch-up do not count as overlapping each other: with an exclusive job the first
    is released and the others are held, so that ``misfire=all`` runs all of them, one after another.
    """
    overlap, going = job.overlap, job.going
    busy = going.released + going.held
    match overlap.policy:
        case Overlaps.SKIP:
            room = 0 if busy else len(slots)
        case Overlaps.QUEUE:
            waiting = going.held + (0 if busy else -1)  # an idle job releases the first at once
            room = len(slots) if overlap.most is None else max(overlap.most - waiting, 0)
        case Overlaps.ALLOW:
            room = len(slots) if overlap.most is None else max(overlap.most - busy, 0)
        case Overlaps.CANCEL_OTHER:
            return slots[-1:], [_one(slot, Disposition.COALESCED) for slot in slots[:-1]]
        case _:
            assert_never(overlap.policy)
    return slots[:room], [_one(slot, Disposition.SKIPPED_OVERLAP) for slot in slots[room:]]


def _fired(job: DueJob, slots: list[datetime], now: datetime) -> list[Decision]:
    busy = job.going.released + job.going.held > 0
    decisions = []
    for place, slot in enumerate(slots):
        ready_at = max(later(slot, jitter(str(job.id), slot, job.jitter)), now if place else slot)
        held = job.overlap.exclusive and (busy or place > 0)
        ready_at = later(ready_at, place * job.misfire.pace) if place else ready_at
        decisions.append(_one(slot, Disposition.FIRED, ready_at=ready_at, held=held))
    return decisions


def _one(slot: datetime, disposition: Disposition, *, ready_at: datetime | None = None, held: bool = False) -> Decision:
    return Decision(slot=slot, first=slot, covers=1, disposition=disposition, ready_at=ready_at, held=held)
