"""A job's definition as it travels: flat, durations as text, a spec that says by its key of which kind it is.

::

    {"name": "nightly", "task": "report", "schedule": [{"cron": "30 2 * * *"}], "timezone": "Europe/London"}

Without a schedule a job runs only when asked for. The target is a task with its payload, or an HTTP request.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from json import dumps
from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct, field, structs, to_builtins

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidRequest, InvalidSchedule
from mainspring.domain.fields import Dialect
from mainspring.domain.firing import Misfires, Overlaps
from mainspring.domain.job import (
    HIGHEST_PRIORITY,
    LONGEST_NAME,
    AfterDone,
    Job,
    Json,
    check_payload,
    job_from_json,
    job_to_json,
    schedule_from_json,
)
from mainspring.domain.requests import METHODS, request_from_json, request_to_json
from mainspring.domain.retry import Backoff, Jitter
from mainspring.domain.schedule import RULES, hashed
from mainspring.domain.settling import OnLoss
from mainspring.domain.timetable import DstGap, DstOverlap
from mainspring.http import HttpCall
from mainspring.rest.reading import refusal, text_of

Instant: TypeAlias = Annotated[datetime, Meta(tz=True)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Duration: TypeAlias = Annotated[
    str,
    Meta(
        min_length=2,
        max_length=60,
        description="Such as 90s, 1h30m or 2d.",
        examples=["1h30m"],
        extra_json_schema={
            "pattern": "^([0-9]{1,4}w)?([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?([0-9]{1,9}ms)?$"
        },
    ),
]
Text: TypeAlias = Annotated[str, Meta(max_length=2_000)]
Short: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Priority: TypeAlias = Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)]
Tags: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=50)]


class Spec(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """One way to name instants: exactly one of cron, every, at and rrule."""

    cron: Annotated[str, Meta(max_length=256, examples=["30 2 * * *"])] | None = None
    dialect: Dialect | None = None  # of cron
    every: Duration | None = None
    anchor: Instant | None = None  # of every: a slot it is counted from
    phase: Duration | None = None  # of every: later by this
    at: Instant | None = None
    rrule: Annotated[str, Meta(max_length=2_000)] | None = None
    start: Instant | None = None  # of rrule


class Dst(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """What becomes of wall times when the clock changes."""

    gap: DstGap = DstGap.DEBIAN
    overlap: DstOverlap = DstOverlap.DEBIAN


class Misfire(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """What becomes of slots that were missed."""

    policy: Misfires = Misfires.ALL
    most: Count = 100
    window: Duration | None = None
    pace: Duration | None = None


class Overlap(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """What to do when the run before is still going."""

    policy: Overlaps = Overlaps.SKIP
    most: Count | None = None


class Retry(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """What a job allows its runs after a failure."""

    kind: Backoff = Backoff.EXPONENTIAL
    attempts: Annotated[int, Meta(ge=1, le=1_000)] = 5
    base: Duration | None = None
    factor: float | None = None
    cap: Duration | None = None
    delays: tuple[str, ...] = ()
    jitter: Jitter | None = None
    max_age: Duration | None = None
    not_retried: tuple[Name, ...] = ()
    backoff: Annotated[str, Meta(max_length=500, examples=["30s..1h"])] | None = None  # in place of kind, base, cap


class HttpTarget(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """The request that a run sends. Secrets are named, never given."""

    url: Annotated[str, Meta(max_length=4_000, examples=["https://api.example.com/ping"])]
    method: Annotated[str, Meta(examples=list(METHODS))] = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    json: Any = UNSET
    body: str | None = None
    secret_headers: dict[str, str] = field(default_factory=dict)
    sign_with: str | tuple[str, ...] | None = None
    redirects: Annotated[int, Meta(ge=0, le=10)] = 0
    success: tuple[int | str, ...] | None = None
    timeout: Duration | None = None


class Definition(Struct, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """What a job runs, when, and by which policies."""

    name: Name
    task: Name | None = None
    payload: Any = None
    http: HttpTarget | None = None
    schedule: Spec | tuple[Spec, ...] = ()
    timezone: Name | None = None
    dst: Dst | None = None
    exclude: tuple[Spec | str, ...] = ()
    start: Instant | None = None
    end: Instant | None = None
    max_fires: Count | None = None
    pool: Name | None = None
    estimated_duration: Duration | None = None
    priority: Priority = 0
    misfire: Misfire | None = None
    overlap: Overlap | None = None
    retry: Retry | None = None
    on_loss: OnLoss = OnLoss.RETRY
    jitter: Duration | None = None
    wait_timeout: Duration | None = None
    run_timeout: Duration | None = None
    deadline: Duration | None = None
    after_done: AfterDone = AfterDone.KEEP
    owner: Short = ""
    tags: Tags = ()
    external_id: Short = ""


class NewJob(Definition, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """A definition, and why it is made."""

    reason: Text = ""


# Every field of a definition, each of which may be left out, or null to have its default again.
Edit: Any = defstruct(
    "Edit",
    [(each.name, each.type | None | UnsetType, UNSET) for each in structs.fields(NewJob)],
    forbid_unknown_fields=True,
    frozen=True,
    namespace={"__doc__": "What to change of a definition: what is left out stays, null is the default again."},
)

_ONE_OF: Final = ("cron", "every", "at", "rrule")
_WHOLE: Final = ("expression", "interval", "RRULE")  # what the domain calls them
_GOES_WITH: Final = {"dialect": "cron", "anchor": "every", "phase": "every", "start": "rrule"}
_DURATIONS: Final = ("estimated_duration", "jitter", "wait_timeout", "run_timeout", "deadline")
_PLAIN: Final = (*("priority", "on_loss", "after_done", "owner", "external_id", "tags", "pool"), *_DURATIONS)
_OF_SCHEDULE: Final = ("timezone", "start", "end", "max_fires")


def job_of(definition: Definition, *, tenant: str, stored: bool = False) -> Job:
    """Return the job that a definition describes. Of one that is ``stored`` the payload may have been left out.

    Raises:
        InvalidRequest: something in it contradicts itself, or is out of bounds.
    """
    document = {name: value for name in _PLAIN if (value := getattr(definition, name)) not in (None, "", ())}
    for name in _DURATIONS:
        if name in document:
            parse_duration(document[name], field=name)
    document |= {"name": definition.name, "tenant": tenant, "schedule": _schedule_document(definition)}
    document |= _target(definition, stored=stored)
    for name in ("misfire", "overlap", "retry"):
        if (policy := getattr(definition, name)) is not None:
            document[name] = {part: value for part, value in to_builtins(policy).items() if value is not None}
    for name in ("window", "pace"):
        if (length := document.get("misfire", {}).get(name)) is not None:
            parse_duration(length, field=f"misfire.{name}")
    try:
        return job_from_json(document)
    except InvalidSchedule as error:
        if error.field == "timezone":
            raise
        raise _placed(error, definition, document["schedule"]) from None


def definition_of(job: Job) -> Definition:
    """Return a job as it travels."""
    document = job_to_json(job)
    schedule = document.pop("schedule")
    document.pop("tenant", None)
    specs = [spec for spec in schedule.pop("specs") if "on_demand" not in spec]
    for name in ("rules", "key"):
        schedule.pop(name, None)
    if job.task == HttpCall.task and isinstance(job.payload, Mapping):
        document |= {"http": document.pop("payload"), "task": None}
    schedule["exclude"] = [_plain_spec(left_out) for left_out in schedule.get("exclude", ())]
    return convert({**document, **schedule, "schedule": [_plain_spec(spec) for spec in specs]}, Definition)


def merged(job: Job, changes: Struct) -> Definition:
    """Return the definition of a job with some fields changed.

    Raises:
        InvalidRequest: the whole is none any more.
    """
    given = {name: value for name in Definition.__struct_fields__ if (value := getattr(changes, name)) is not UNSET}
    document = to_builtins(definition_of(job))
    if given.get("http") is not None:
        document |= {"task": None, "payload": None}
    elif given.get("task") is not None:
        document |= {"http": None}
    for name, value in given.items():
        document.pop(name, None)
        if value is not None:
            document[name] = to_builtins(value)
    try:
        return convert(document, Definition)
    except ValidationError as error:
        raise refusal(error, document, Definition) from None


def _schedule_document(definition: Definition) -> dict[str, Json]:
    specs = (definition.schedule,) if isinstance(definition.schedule, Spec) else definition.schedule
    written = [_spec(spec, f"schedule[{place}]") for place, spec in enumerate(specs)]
    document: dict[str, Json] = {"specs": written or [{"on_demand": True}], "rules": RULES}
    for name in _OF_SCHEDULE:
        if (value := getattr(definition, name)) is not None:
            document[name] = text_of(value)
    if definition.dst is not None:
        document["dst"] = {"gap": definition.dst.gap.value, "overlap": definition.dst.overlap.value}
    document["exclude"] = [
        _day(left_out, f"exclude[{place}]") if isinstance(left_out, str) else _spec(left_out, f"exclude[{place}]")
        for place, left_out in enumerate(definition.exclude)
    ]
    if any("cron" in spec and hashed(spec["cron"]) for spec in written):
        document["key"] = definition.name
    return document


def _placed(error: InvalidSchedule, definition: Definition, document: Mapping[str, Json]) -> InvalidSchedule:
    """Return what is wrong with one of the specs with its place: the domain knows them one by one."""
    alone = {name: document[name] for name in ("timezone", "dst", "rules", "key") if name in document}
    single = isinstance(definition.schedule, Spec)
    specs = [("schedule" if single else f"schedule[{place}]", spec) for place, spec in enumerate(document["specs"])]
    specs += [(f"exclude[{place}]", spec) for place, spec in enumerate(document["exclude"]) if isinstance(spec, dict)]
    for where, spec in specs:
        try:
            schedule_from_json({**alone, "specs": [spec]})
        except InvalidSchedule as found:
            if (found.field, found.value) == (error.field, error.value):
                field, reason = found.field, found.reason
                if field not in spec:  # a part of it, such as the minute
                    reason = reason if field in _WHOLE else f"{field}: {reason}"
                    field = next(name for name in _ONE_OF if name in spec)
                return type(error)(reason, field=f"{where}.{field}", value=error.value, allowed=error.allowed)
    if error.field.partition(".")[0] in Definition.__struct_fields__:
        return error
    return type(error)(error.reason, field="schedule", value=error.value, allowed=error.allowed)


def _spec(spec: Spec, where: str) -> dict[str, Json]:
    given = {name: value for name, value in structs.asdict(spec).items() if value is not None}
    kinds = [name for name in _ONE_OF if name in given]
    if len(kinds) != 1:
        reason = f"it has {' and '.join(kinds) or 'none of them'}"
        raise InvalidRequest(reason, field=where, value=to_builtins(spec), allowed="use one of cron, every, at, rrule")
    for name, kind in _GOES_WITH.items():
        if name in given and kind not in given:
            raise InvalidRequest(f"it goes with {kind}", field=f"{where}.{name}", value=given[name], allowed="leave it")
    if "rrule" in given and "start" not in given:
        raise InvalidRequest("it is missing", field=f"{where}.start", value=None, allowed="an rrule counts from one")
    for name in ("every", "phase"):
        if name in given:
            parse_duration(given[name], field=f"{where}.{name}")
    return {name: text_of(value) for name, value in given.items()}


def _plain_spec(spec: dict[str, Json] | str) -> dict[str, Json] | str:
    if isinstance(spec, str):
        return spec
    return {name: value for name, value in spec.items() if (name, value) != ("dialect", Dialect.UNIX.value)}


def _day(text: str, where: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        allowed = 'use a date, such as 2026-12-25, or a spec, such as {"cron": "* * * * 6"}'
        raise InvalidRequest(f'"{text[:40]}" is no date', field=where, value=text, allowed=allowed) from None


def _target(definition: Definition, *, stored: bool) -> dict[str, Json]:
    if definition.http is None:
        if definition.task is None:
            raise InvalidRequest("there is nothing to run", field="task", value=None, allowed="give task or http")
        payload = definition.payload
        if definition.task == HttpCall.task and not (stored and payload is None):
            payload = request_to_json(request_from_json(payload))
    elif definition.task is not None or definition.payload is not None:
        extra = "task" if definition.task is not None else "payload"
        value = getattr(definition, extra)
        raise InvalidRequest("a job has one target", field=extra, value=value, allowed="give task or http, not both")
    else:
        payload = _request(definition.http)
    check_payload(None if payload is None else dumps(payload))
    return {"task": definition.task or HttpCall.task, **({} if payload is None else {"payload": payload})}


def _request(target: HttpTarget) -> Json:
    given = {name: value for name, value in to_builtins(target).items() if value is not None or name == "json"}
    given.setdefault("method", "POST")
    try:
        return request_to_json(request_from_json(given))
    except InvalidRequest as error:  # it is called http here
        where = error.field.replace("payload", "http", 1)
        raise InvalidRequest(error.reason, field=where, value=error.value, allowed=error.allowed) from None
