"""Backfill: slots of the past that are to run after all, each as a run of its own kind.

The recorded decision about a slot stays as it was. A request that is repeated finds its runs there: their ids
follow from the slot and the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mainspring.domain.durations import LONGEST, check_duration, later
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import JobId, Kind, run_id, slot_text
from mainspring.domain.job import AGEING, Job
from mainspring.store.database import Database
from mainspring.store.jobs import Definitions
from mainspring.store.submit import Planned, free_lane, lock_known, write_runs

MOST_SLOTS: Final = 10_000  # of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Slots from ``start``, up to and without ``end``."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            allowed = "let it end after it starts"
            raise InvalidRequest("the range is empty", field="end", value=self.end.isoformat(), allowed=allowed)


def slots_in(job: Job, wanted: Range) -> list[datetime]:
    """Return the slots that the schedule names in a range.

    Raises:
        InvalidRequest: there are too many for one request.
    """
    slots = job.schedule.between(wanted.start, wanted.end, MOST_SLOTS + 1)
    if len(slots) > MOST_SLOTS:
        reason, allowed = f"it has more than {MOST_SLOTS} slots", f"end it by {slots[-1].isoformat()}"
        raise InvalidRequest(reason, field="end", value=wanted.end.isoformat(), allowed=allowed)
    return slots


async def backfill(
    db: Database,
    definitions: Definitions,
    job: JobId,
    wanted: Range,
    *,
    request: str,
    pace: timedelta = timedelta(0),
) -> int:
    """Write a run for each slot of a range, oldest first, ``pace`` apart; return how many are new.

    Raises:
        NotFound: there is no such job.
        InvalidRequest: the range is in the future, or too long; the pace would put the last of them too far off.
    """
    check_duration(pace, field="pace", least=timedelta(0))
    async with db.transaction() as tx:
        known, now = await lock_known(tx, definitions, job)
        if wanted.end > now:
            allowed = "end it now or before; what is to come will fire by itself"
            reason = "the range ends in the future"
            raise InvalidRequest(reason, field="end", value=wanted.end.isoformat(), allowed=allowed)
        slots = slots_in(known.job, wanted)
        if (last := max(len(slots) - 1, 0) * pace) > LONGEST:
            reason = f"the last of {len(slots)} slots would start in {last.days} days"
            allowed = f"use a pace that is done in {LONGEST.days} days, or a shorter range"
            raise InvalidRequest(reason, field="pace", value=str(pace), allowed=allowed)
        lead = known.job.priority * AGEING
        planned = [
            Planned(
                run_id(job, Kind.BACKFILL, f"{slot_text(slot)}/{request}", at=slot),
                Kind.BACKFILL,
                slot,
                later(now, place * pace),
                lead,
                None,
                None,
            )
            for place, slot in enumerate(slots)
        ]
        written = await write_runs(tx, known, planned, now)
    if known.exclusive:
        await free_lane(db, job)
    return written
