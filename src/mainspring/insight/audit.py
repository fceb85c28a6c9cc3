"""The audit: every slot that each job version should have had, recomputed and held against the ledger.

Promise. What it counts as missed, doubled or phantom is a broken invariant (I1, I2, I3), with the job, the slot
and the reason; what it does not name was decided once, by the version in force, for an instant which that version
names. Slots nobody has come to yet are pending, not missed. It proves decisions, not what a run did outside.

By what. It shares the time engine with firing, and nothing else. The ledger is read at one moment and judged job by
job; long stretches are counted by arithmetic, so that work and memory follow the rows and not the slots.

Whoever writes the ledger keeps to this: a version is in force for slots after its ``effective_at``, up to and
including that of the next; a change decides what is due by then, under the version it ends, not later than it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Final, NamedTuple

from mainspring.domain.errors import BrokenInvariant, MainspringError
from mainspring.domain.ids import scheduled_run_id
from mainspring.domain.job import JobState, instant_text
from mainspring.domain.schedule import Schedule
from mainspring.insight.report import AuditReport, Fault, Finding, Tally
from mainspring.store.audit import Decided, JobRecord, Version, snapshot
from mainspring.store.database import Database

_TICK: Final = timedelta(microseconds=1)  # what the database resolves: (a, b] is [a + tick, b + tick)
_STATEMENT: Final = timedelta(minutes=1)  # a fire is stamped when its statement begins, and may find a later run going
_COMMIT: Final = timedelta(seconds=10)  # a run is stamped settled before others can see that it is: until the commit
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)
_FOREVER: Final = datetime(9999, 12, 31, tzinfo=UTC)


async def run_audit(db: Database, *, start: datetime, end: datetime, tenant: str | None = None) -> AuditReport:
    """Judge the slots in ``[start, end)`` of every job, or of one tenant's; what retention has dropped is left out.

    Raises:
        StoreUnavailable: nothing was judged; ask again.
    """
    async with snapshot(db, start=start, end=end, tenant=tenant) as ledger:
        judgement = _Judgement(_Window(ledger.start, max(end, ledger.start), ledger.judged_at))
        async for job in ledger.jobs():
            judgement.take(job)
        return replace(judgement.report(), dropped_before=ledger.start if ledger.start > start else None)


def audit(jobs: Iterable[JobRecord], *, start: datetime, end: datetime, judged_at: datetime) -> AuditReport:
    """Judge the slots in ``[start, end)`` by these records, as the ledger stood at ``judged_at``."""
    judgement = _Judgement(_Window(start, end, judged_at))
    for job in jobs:
        judgement.take(job)
    return judgement.report()


class _Window(NamedTuple):
    start: datetime
    end: datetime
    judged_at: datetime


class _Judgement:
    """Takes records in order; what follows under the same id belongs to the same job."""

    def __init__(self, window: _Window) -> None:
        self._window = window
        self._tally = Tally()
        self._open: _JobAudit | None = None

    def take(self, job: JobRecord) -> None:
        if self._open is None or self._open.job.id != job.id:
            self._close()
            self._open = _JobAudit(job, self._window, self._tally)
        self._open.take(job.decisions)

    def report(self) -> AuditReport:
        self._close()
        tally = self._tally
        return AuditReport(
            start=self._window.start,
            end=self._window.end,
            judged_at=self._window.judged_at,
            dropped_before=None,
            jobs=tally.jobs,
            expected=tally.expected,
            fired=tally.fired,
            skipped=dict(sorted(tally.skipped.items())),
            pending=tally.waiting[JobState.ACTIVE],
            oldest_pending=tally.oldest_pending,
            quarantined=tally.waiting[JobState.QUARANTINED],
            late=tally.lateness(),
            faults={fault: tally.faults[fault] for fault in Fault},
            findings=tuple(tally.findings),
        )

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Force:
    """A version, in force for ``[since, until)``; of these slots it expects those in ``[low, high)``."""

    since: datetime = _NEVER
    until: datetime = _FOREVER
    version: Version | None = None  # None: before the first one
    successor: Version | None = None
    schedule: Schedule | None = None  # None: it names no slot
    low: datetime = _FOREVER
    high: datetime = _NEVER
    due: datetime = _NEVER  # ``high``, were there no window
    ran_out: bool = False  # max_fires ended it, at a fire that cannot be told from here

    def first_from(self, instant: datetime) -> datetime | None:
        if self.low >= self.high or self.version is None or self.version.state is not JobState.ACTIVE:
            return None
        if self.schedule is None:
            raise BrokenInvariant(f"the schedule of version {self.version.number} cannot be read")
        slot = self.schedule.next_after(max(instant, self.low) - _TICK)
        return slot if slot is not None and slot < self.high else None

    def names(self, slot: datetime) -> bool:
        return self.schedule is not None and self.schedule.next_after(slot - _TICK) == slot

    def count(self, start: datetime, end: datetime) -> int:
        """Return how many slots of ``[start, end)`` it names, in the window or not."""
        start, end = max(start, self.since), min(end, self.until)
        return 0 if self.schedule is None or start >= end else self.schedule.count(start, end)


class _JobAudit:
    """One job: its decisions, in order of their first slot, against the slots it should have had.

    ``_next`` is the oldest slot expected and not yet answered for, ``_answered`` the newest one answered for.
    """

    def __init__(self, job: JobRecord, window: _Window, tally: Tally) -> None:
        self.job = job
        self._window, self._tally = window, tally
        self._forces = list(_forces(job, window))
        self._force = self._forces.pop(0)
        self._next: datetime | None = None
        self._answered = self._busy_from = self._busy_until = _NEVER
        self._unreadable = False
        tally.jobs += bool(job.versions)

    def take(self, decisions: Sequence[Decided]) -> None:
        try:
            for decided in () if self._unreadable else decisions:
                self._take(decided)
        except MainspringError as error:
            self._give_up(error)

    def close(self) -> None:
        try:
            while self._forces and not self._unreadable:
                self._leave()
            if self._next is not None and not self._unreadable:
                self._pass_over(_FOREVER)
        except MainspringError as error:
            self._give_up(error)

    def _take(self, decided: Decided) -> None:
        while decided.first >= self._force.until:
            self._leave()
        if self._next is not None and self._next < decided.first:
            self._pass_over(decided.first)
        fine = self._check_once(decided)
        if decided.first != decided.slot or decided.covers != 1:
            fine = self._check_stretch(decided) and fine
        else:
            self._count(decided, 1)
            fine = fine and self._check_slot(decided)  # of two for one slot, saying so is enough
        if fine and decided.disposition == "skipped_overlap" and not self._busy(decided.decided_at):
            why = "skipped_overlap, and no run of the job was in motion"
            self._find(Fault.UNEXPLAINED, decided.first, decided.slot, decided.covers, why)
        self._answer(decided.slot)

    def _check_once(self, decided: Decided) -> bool:
        if decided.first > self._answered:
            return True
        last = min(decided.slot, self._answered)
        count = max(self._named(decided.first, last), 1)
        self._find(Fault.DOUBLED, decided.first, last, count, f"{decided.disposition}, and decided already")
        return False

    def _check_slot(self, decided: Decided) -> bool:
        if (why := self._wrong(decided)) is not None:
            self._find(Fault.PHANTOM, decided.slot, decided.slot, 1, why)
        return why is None

    def _check_stretch(self, decided: Decided) -> bool:
        first, last, covers = decided.first, decided.slot, decided.covers
        inside = first >= self._window.start and last < self._window.end
        end = min(last + _TICK, self._window.end)
        self._count(decided, covers if inside else self._named(max(first, self._window.start), end - _TICK))
        if (why := self._wrong(decided)) is not None:
            self._find(Fault.PHANTOM, first, last, covers, why)
            return False
        if (named := self._named(first, last)) != covers:
            why = f"{decided.disposition} answers for {covers} slots, where there are {named}"
            fault = Fault.MISSED if covers < named else Fault.PHANTOM
            self._find(fault, first, last, abs(named - covers), why)
        return named == covers

    def _count(self, decided: Decided, slots: int) -> None:
        if decided.disposition != "fired":
            self._tally.skipped[decided.disposition] += slots
            return
        self._tally.fire(decided.decided_at - decided.slot)
        if decided.decided_at > self._busy_until:
            self._busy_from = decided.decided_at
        self._busy_until = max(self._busy_until, decided.settled_at or _FOREVER)

    def _wrong(self, decided: Decided) -> str | None:
        """Say why this decision should not be there."""
        force, slot = self._force, decided.slot
        version = force.version
        if version is None:
            return "no version was in force" if self.job.versions else "there is no such job"
        if version.state is not JobState.ACTIVE:
            return f"version {version.number} was in force, which is {version.state}"
        plain = decided.first == slot == self._next  # nearly always
        if not plain and not (force.names(decided.first) and force.names(slot)):
            return f"version {version.number} does not name it"
        if decided.version != version.number:
            return f"decided under version {decided.version}, when version {version.number} was in force"
        if slot >= force.until:
            return f"reaches beyond version {version.number}"
        if decided.decided_at < slot or slot > self._window.judged_at:
            return f"decided at {instant_text(decided.decided_at)}, before its time"
        if slot >= force.due:
            return "after the last fire that max_fires allows"
        return self._wrong_run(decided) if decided.disposition == "fired" else None

    def _wrong_run(self, decided: Decided) -> str | None:
        after = self._force.successor
        if after is not None and decided.decided_at > after.effective_at:
            fired = instant_text(decided.decided_at)
            return f"fired at {fired}, after version {after.number} ({after.state}) took effect"
        if decided.run_id != scheduled_run_id(self.job.id, decided.slot):
            return f"the run {decided.run_id} has another id than job and slot give"
        return None

    def _busy(self, at: datetime) -> bool:
        """Say whether a run was in motion: one that fired for an earlier slot, or another that the reader found."""
        begun, ended = at + _STATEMENT, at - _COMMIT
        return (self._busy_from <= begun and ended <= self._busy_until) or (
            any(fired <= begun and (settled is None or ended <= settled) for fired, settled in self.job.other_runs)
        )

    def _named(self, first: datetime, last: datetime) -> int:
        return sum(force.count(first, last + _TICK) for force in (self._force, *self._forces))

    def _answer(self, upto: datetime) -> None:
        """Take every slot up to and including this one as answered for."""
        self._answered = max(self._answered, upto)
        while True:
            force = self._force
            if self._next is not None and self._next <= upto and force.schedule is not None:
                single = self._next == upto
                self._tally.expected += 1 if single else force.count(self._next, min(upto + _TICK, force.high))
                slot = force.schedule.next_after(self._next) if single else force.first_from(upto + _TICK)
                self._next = slot if slot is not None and slot < force.high else None
            if upto < force.until:
                return
            self._leave()

    def _leave(self) -> None:
        """Go on to the next version."""
        if self._next is not None and not self._force.ran_out:
            self._pass_over(self._force.high)
        self._force = self._forces.pop(0)
        self._next = self._force.first_from(_NEVER)

    def _pass_over(self, upto: datetime) -> None:
        """Say what became of the slots from the next one up to here, which nobody decided."""
        force, first = self._force, self._next
        assert first is not None
        assert force.schedule is not None
        upto = min(upto, force.high)
        count = force.count(first, upto)
        self._tally.expected += count
        waits = min(max(self._waits_from(), first), upto)
        if (waiting := force.count(waits, upto)) and self.job.cursor is not None:
            self._tally.wait(self.job.cursor.state, force.first_from(waits) or first, waiting)
        if count > waiting:
            last = force.schedule.previous_before(waits) or first
            after = force.successor
            why = (
                "the cursor has passed it" if after is None else f"version {after.number} took effect, and did not say"
            )
            self._find(Fault.MISSED, first, last, count - waiting, why)
        self._next = force.first_from(upto)

    def _waits_from(self) -> datetime:
        """Return the first instant that is still to be decided; a change leaves nothing before it undecided."""
        cursor = self.job.cursor
        if self._force.successor is not None or cursor is None or cursor.next_fire_at is None:
            return _FOREVER
        return cursor.next_fire_at if cursor.state in (JobState.ACTIVE, JobState.QUARANTINED) else _FOREVER

    def _find(self, fault: Fault, first: datetime, last: datetime, count: int, why: str) -> None:
        job = self.job
        self._tally.find(Finding(fault=fault, job=job.id, name=job.name, slot=first, last=last, count=count, why=why))

    def _give_up(self, error: MainspringError) -> None:
        self._unreadable = True
        slot = self._next or self._window.start
        if self.job.cursor is not None and self.job.cursor.state is JobState.QUARANTINED:
            self._tally.wait(JobState.QUARANTINED, slot, 1)  # the reason why it is
        else:
            self._find(Fault.UNREADABLE, slot, slot, 1, str(error))


def _forces(job: JobRecord, window: _Window) -> Iterator[_Force]:
    """Yield what was in force when, without a gap, from before the first version on."""
    versions = job.versions
    yield _Force(until=versions[0].effective_at + _TICK if versions else _FOREVER)
    for version, after in zip_longest(versions, versions[1:]):
        since, until = version.effective_at + _TICK, after.effective_at + _TICK if after else _FOREVER
        schedule = version.schedule if version.state is JobState.ACTIVE else None
        due, ran_out = min(until, window.judged_at + _TICK), False
        if schedule is not None and schedule.max_fires is not None:
            if job.cursor is not None and job.cursor.fired >= schedule.max_fires:
                ran_out = any(later.number > version.number and later.state is JobState.ACTIVE for later in versions)
                due = due if ran_out else min(due, (job.cursor.last_slot or _NEVER) + _TICK)
            schedule = replace(schedule, max_fires=None)  # slots that do not fire do not count against it
        yield _Force(
            since=since,
            until=until,
            version=version,
            successor=after,
            schedule=schedule,
            low=max(since, window.start),
            high=min(due, window.end),
            due=due,
            ran_out=ran_out,
        )
