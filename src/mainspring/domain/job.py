"""A job's definition: what it runs, when, and by which policies; and its JSON, which is what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias, cast

from mainspring.domain.durations import LONGEST, check_duration, format_duration, later, read_duration
from mainspring.domain.errors import InvalidRequest, NewerRelease
from mainspring.domain.fields import Dialect
from mainspring.domain.firing import Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule import EPOCH, At, Cron, Every, OnDemand, RRule, Schedule, Spec
from mainspring.domain.settling import OnLoss
from mainspring.domain.timetable import Dst, DstGap, DstOverlap

Json: TypeAlias = Any  # what json.loads gives; shapes are checked where it is read

SHORT: Final = "short"  # the pool of what is done within a minute
LONG: Final = "long"
SHORT_FOR: Final = timedelta(minutes=1)
LONGEST_NAME: Final = 200
LONGEST_PAYLOAD: Final = 256_000  # bytes of JSON
HIGHEST_PRIORITY: Final = 100
AGEING: Final = timedelta(seconds=30)  # a step of priority is worth this much waiting
_ZERO: Final = timedelta(0)


_MISFIRE: Final = Misfire()
_OVERLAP: Final = Overlap()
_RETRY: Final = RetryPolicy()


class JobState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"  # no slot is left
    DELETED = "deleted"
    QUARANTINED = "quarantined"  # its plan raised; nothing fires until an operator looks


class AfterDone(StrEnum):
    """What becomes of a job when its last slot is decided and its last run is final."""

    KEEP = "keep"  # finished, and open to an edit that gives it new slots
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a version of a job says."""

    name: str
    task: str
    schedule: Schedule
    tenant: str = "default"
    payload: Json = None
    pool: str = ""  # empty: by the estimated duration, short up to a minute and long above
    estimated_duration: timedelta | None = None
    priority: int = 0  # 0 to 100; each step counts as having waited 30 s longer, so nobody starves
    misfire: Misfire = _MISFIRE
    overlap: Overlap = _OVERLAP
    retry: RetryPolicy = _RETRY
    on_loss: OnLoss = OnLoss.RETRY
    jitter: timedelta = timedelta(0)
    wait_timeout: timedelta | None = None  # ready for this long and not started: given up
    run_timeout: timedelta | None = None
    deadline: timedelta | None = None  # after its slot a run is not worth starting any more
    after_done: AfterDone = AfterDone.KEEP
    owner: str = ""
    tags: tuple[str, ...] = ()
    external_id: str = ""  # what its owner calls it

    def __post_init__(self) -> None:
        if not self.pool:
            object.__setattr__(self, "pool", _pool_for(self.estimated_duration))
        for field in ("name", "task", "pool", "tenant"):
            check_name(getattr(self, field), field)
        for field in ("owner", "external_id"):
            if getattr(self, field):
                check_name(getattr(self, field), field)
        for tag in self.tags:
            check_name(tag, "tags")
        check_priority(self.priority)
        for field in ("wait_timeout", "run_timeout", "deadline", "estimated_duration"):
            check_duration(getattr(self, field), field=field)
        check_duration(self.misfire.window, field="misfire.window")
        for field, length in (("jitter", self.jitter), ("misfire.pace", self.misfire.pace)):
            check_duration(length, field=field, least=_ZERO)

    @property
    def on_demand(self) -> bool:
        """Whether it runs only when somebody asks for it: then it has no slots, and is never finished."""
        return all(isinstance(spec, OnDemand) for spec in self.schedule.specs)

    def state_with(self, next_fire_at: datetime | None) -> JobState:
        """Return the state of a job that is not held back, by its next slot."""
        return JobState.ACTIVE if next_fire_at is not None or self.on_demand else JobState.FINISHED

    @property
    def delete_when_done(self) -> bool:
        return self.after_done is AfterDone.DELETE


def check_name(value: object, field: str) -> None:
    """Refuse what cannot be the name of anything.

    Raises:
        InvalidRequest: it is empty, too long, or not made of characters that can be seen.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME or not value.isprintable():
        shown = f"{value!r}" if len(f"{value!r}") <= LONGEST_NAME else f"{str(value)[:40]!r}…"
        allowed = f"use 1 to {LONGEST_NAME} characters"
        raise InvalidRequest(f"{shown} is no name", field=field, value=value, allowed=allowed)


def check_priority(value: object) -> None:
    """Refuse a priority that is out of bounds."""
    if type(value) is not int or not 0 <= value <= HIGHEST_PRIORITY:
        allowed = f"use a whole number from 0 to {HIGHEST_PRIORITY}"
        raise InvalidRequest(f"{value!r} is out of range", field="priority", value=value, allowed=allowed)


def check_payload(text: str | None) -> str | None:
    """Return a payload as JSON text.

    Raises:
        InvalidRequest: it is too large for every worker to read.
    """
    if text is not None and len(text) > LONGEST_PAYLOAD // 4 and len(text.encode()) > LONGEST_PAYLOAD:
        reason = f"it has {len(text.encode())} bytes as JSON, {LONGEST_PAYLOAD} are allowed"
        allowed = "store it elsewhere and pass where it is"
        raise InvalidRequest(reason, field="payload", value=text[:100], allowed=allowed)
    return text


def _pool_for(estimated: timedelta | None) -> str:
    return LONG if estimated is not None and estimated > SHORT_FOR else SHORT


def expiry(job: Job, *, slot: datetime, ready_at: datetime) -> datetime | None:
    """Return from when on an attempt that is ready at ``ready_at`` may not start any more."""
    limits = []
    if job.deadline is not None:
        limits.append(later(slot, job.deadline))
    if job.wait_timeout is not None:
        limits.append(later(ready_at, job.wait_timeout))
    return min(limits, default=None)


def job_to_json(job: Job) -> dict[str, Json]:
    """Write a definition; what has its default is left out."""
    written = {name: _WRITE[name](value) for name, value in _changed(job)}
    if job.pool == _pool_for(job.estimated_duration):
        del written["pool"]
    return written


def job_from_json(document: Mapping[str, Json], *, schedule: Schedule | None = None) -> Job:
    """Read what :func:`job_to_json` wrote; ``schedule`` spares reading one that is known already.

    Raises:
        NewerRelease: it has fields that nobody here knows. While nodes are upgraded one after the other that is no
            fault of the job, which the new ones fire.
    """
    try:
        given = {name: _READ[name](value) for name, value in document.items()}
    except KeyError:
        unknown = sorted(document.keys() - _READ.keys())
        if not unknown:
            raise
        raise NewerRelease(f'a definition has a field "{unknown[0][:40]}" of a later release; upgrade') from None
    return Job(**given) if schedule is None else Job(**given, schedule=schedule)


def schedule_to_json(schedule: Schedule) -> dict[str, Json]:
    written: dict[str, Json] = {"specs": [_spec_to_json(spec) for spec in schedule.specs], "rules": schedule.rules}
    if schedule.timezone != "UTC":
        written["timezone"] = schedule.timezone
    if schedule.dst != Dst():
        written["dst"] = {"gap": schedule.dst.gap.value, "overlap": schedule.dst.overlap.value}
    if schedule.exclude:
        written["exclude"] = [
            left_out.isoformat() if isinstance(left_out, date) else _spec_to_json(left_out)
            for left_out in schedule.exclude
        ]
    for name in ("start", "end"):
        if (instant := getattr(schedule, name)) is not None:
            written[name] = instant_text(instant)
    for name in ("max_fires", "key"):
        if (value := getattr(schedule, name)) is not None:
            written[name] = value
    return written


def schedule_from_json(document: Mapping[str, Json]) -> Schedule:
    dst = document.get("dst", {})
    return Schedule(
        specs=tuple(_spec_from_json(spec) for spec in document["specs"]),
        timezone=document.get("timezone", "UTC"),
        dst=Dst(gap=DstGap(dst.get("gap", "debian")), overlap=DstOverlap(dst.get("overlap", "debian"))),
        exclude=tuple(
            date.fromisoformat(left_out) if isinstance(left_out, str) else _spec_from_json(left_out)
            for left_out in document.get("exclude", ())
        ),
        start=_instant(document.get("start")),
        end=_instant(document.get("end")),
        max_fires=document.get("max_fires"),
        key=document.get("key"),
        rules=document["rules"],
    )


def instant_text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _spec_to_json(spec: Spec) -> dict[str, Json]:
    match spec:
        case Cron(expression, dialect):
            return {"cron": expression, "dialect": dialect.value}
        case Every(interval, anchor, phase):
            written: dict[str, Json] = {"every": format_duration(interval)}
            if anchor != EPOCH:
                written["anchor"] = instant_text(anchor)
            if phase:
                written["phase"] = format_duration(phase)
            return written
        case At(instant):
            return {"at": instant_text(instant)}
        case RRule(rule, start):
            return {"rrule": rule, "start": instant_text(start)}
        case OnDemand():
            return {"on_demand": True}


def _spec_from_json(document: Mapping[str, Json]) -> Spec:
    match document:
        case {"cron": expression, **rest}:
            return Cron(expression, Dialect(rest.get("dialect", "unix")))
        case {"every": interval, **rest}:
            anchor = _instant(rest.get("anchor")) or EPOCH
            phase = read_duration(rest["phase"], field="phase") if "phase" in rest else _ZERO
            return Every(read_duration(interval, field="every"), anchor, phase)
        case {"at": instant}:
            return At(datetime.fromisoformat(instant))
        case {"rrule": rule, "start": start}:
            return RRule(rule, datetime.fromisoformat(start))
        case {"on_demand": True}:
            return OnDemand()
        case _:
            allowed = "use cron, every, at, rrule or on_demand"
            raise InvalidRequest(f"{document!r} is not a spec", field="schedule.specs", value=document, allowed=allowed)


def _changed(value: Any) -> list[tuple[str, Any]]:
    return [
        (name, held)
        for name, default in _defaults(value.__class__)
        if (held := getattr(value, name)) is not default and (default is MISSING or held != default)
    ]


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


def _duration(text: str) -> timedelta:
    """Read a duration. What was stored while longer ones were allowed is the longest: its job goes on."""
    return min(read_duration(text, field="duration"), LONGEST)


def _same(value: Any) -> Any:
    return value


def _misfire_to_json(misfire: Misfire) -> dict[str, Json]:
    return {name: format_duration(held) if isinstance(held, timedelta) else held for name, held in _changed(misfire)}


def _misfire_from_json(document: Mapping[str, Json]) -> Misfire:
    given = dict(document)
    for name in ("window", "pace"):
        if name in given:
            given[name] = _duration(given[name])
    return Misfire(**{**given, "policy": Misfires(given.get("policy", Misfires.ALL))})


def _overlap_to_json(overlap: Overlap) -> dict[str, Json]:
    return dict(_changed(overlap))


def _overlap_from_json(document: Mapping[str, Json]) -> Overlap:
    return Overlap(policy=Overlaps(document.get("policy", Overlaps.SKIP)), most=document.get("most"))


_DURATIONS: Final = ("jitter", "wait_timeout", "run_timeout", "deadline", "estimated_duration")
_AS_IT_IS: Final = ("name", "task", "tenant", "payload", "pool", "priority", "owner", "external_id")
_WRITE: Final[Mapping[str, Callable[[Any], Json]]] = {
    **dict.fromkeys(_AS_IT_IS, _same),
    **dict.fromkeys(_DURATIONS, cast("Callable[[Any], Json]", format_duration)),
    "tags": list,
    "schedule": schedule_to_json,
    "misfire": _misfire_to_json,
    "overlap": _overlap_to_json,
    "retry": RetryPolicy.to_json,
    "on_loss": str,
    "after_done": str,
}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(_AS_IT_IS, _same),
    **dict.fromkeys(_DURATIONS, cast("Callable[[Any], Any]", _duration)),
    "tags": tuple,
    "schedule": schedule_from_json,
    "misfire": _misfire_from_json,
    "overlap": _overlap_from_json,
    "retry": RetryPolicy.from_json,
    "on_loss": OnLoss,
    "after_done": AfterDone,
}
