"""Explain: for any job and instant, what happened and why, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from mainspring.domain.durations import rough_duration
from mainspring.domain.firing import Disposition
from mainspring.domain.job import JobState
from mainspring.insight.dst import note
from mainspring.insight.wording import explain as in_words
from mainspring.store.slots import Attempted, Decided, Evidence, Version

_WHY = {
    Disposition.COALESCED: "it was missed, and the misfire policy folds missed slots into a newer one, which fired",
    Disposition.SKIPPED_OVERLAP: "the run before it was still going, and the overlap policy skips",
    Disposition.SKIPPED_MISFIRE: "it was missed, and the misfire policy skips missed slots",
    Disposition.SKIPPED_PAUSED: "the job was paused",
    Disposition.SKIPPED_EXCLUDED: "it was excluded",
    Disposition.SUPERSEDED: "the job was changed before it could fire",
    Disposition.EXPIRED: "it was missed for longer than the misfire window allows",
    Disposition.QUARANTINED: "the job's plan could not be worked out",
}


def explain_slot(known: Evidence, instant: datetime) -> list[str]:
    """Say what became of the slot of a job at an instant, one sentence to a line."""
    return list(_sentences(known, instant))


def _sentences(known: Evidence, instant: datetime) -> Iterator[str]:
    if known.version is None:
        yield f"{known.name} did not exist yet at {_text(instant)}."
        return
    yield from _version(known.version)
    if known.decided is not None:
        yield from _decision(known, known.decided, instant)
        return
    if known.version.state is not JobState.ACTIVE:
        yield f"It was {known.version.state}, so nothing was due."
        return
    yield from _undecided(known, known.version, instant)


def _version(version: Version) -> Iterator[str]:
    reason = f" ({version.reason})" if version.reason else ""
    yield f"Version {version.number} was in force since {_text(version.effective_at)}{reason}: {version.state}."
    yield in_words(version.job.schedule)


def _decision(known: Evidence, decided: Decided, instant: datetime) -> Iterator[str]:
    if known.version is not None and (remark := note(known.version.job.schedule, instant)):
        yield f"The slot stands {remark}."
    if decided.run_id is None:
        why = _WHY.get(Disposition(decided.disposition), "no reason is on record")
        stretch = f", with {decided.covers} slots from {_text(decided.first_slot)} on" if decided.covers > 1 else ""
        yield f"It was {decided.disposition} at {_text(decided.at)}{stretch}: {why}."
        return
    late = rough_duration(decided.at - decided.slot)
    yield f"It fired at {_text(decided.at)}, {late} after its slot."
    yield f"Its run {decided.run_id} is {known.run_state}."
    yield from (_attempt(attempt, decided.slot) for attempt in known.attempts)


def _attempt(attempt: Attempted, slot: datetime) -> str:
    began = f"Attempt {attempt.number} began {rough_duration(attempt.started_at - slot)} after the slot"
    if attempt.ended_at is None:
        return f"{began} and is at work."
    return f"{began}, took {rough_duration(attempt.ended_at - attempt.started_at)}: {attempt.outcome}."


def _undecided(known: Evidence, version: Version, instant: datetime) -> Iterator[str]:
    schedule = version.job.schedule
    if not schedule.between(instant, instant + timedelta(milliseconds=1), 1):
        nearby = [slot for slot in (schedule.previous_before(instant), schedule.next_after(instant)) if slot]
        yield f"{_text(instant)} is no slot of it; the nearest are {' and '.join(map(_text, nearby)) or 'none'}."
    elif instant > known.now:
        yield f"It is due in {rough_duration(instant - known.now)}."
    elif known.next_fire_at is not None and known.next_fire_at <= instant:
        yield f"It is due since {rough_duration(known.now - instant)} and not decided yet: is a scheduler running?"
    else:
        yield "It has no decision, though the job has moved on: that is a missed slot. Run `mainspring audit`."


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")
