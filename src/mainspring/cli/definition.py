"""What ``jobs put`` and ``jobs edit`` may say of a job, and the definition that becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

from mainspring import http
from mainspring.cli.params import Duration, Instant, JsonValue
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.fields import Dialect
from mainspring.domain.firing import Misfire, Misfires, Overlap, Overlaps
from mainspring.domain.job import AfterDone, Job, Json
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule import At, Cron, Every, OnDemand, RRule, Schedule, Spec
from mainspring.domain.settling import OnLoss
from mainspring.domain.timetable import Dst, DstGap, DstOverlap

_Command = TypeVar("_Command", bound=Callable[..., Any])
_HTTP: Final = http.HttpCall.task
_NOTHING: Final = timedelta(0)
_SPECS: Final = ("cron", "every", "at", "rrule", "on_demand")

# What an edit can take away again, and what is left then.
CLEARED: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("timeout", "wait-timeout", "deadline", "estimated-duration", "payload"), None),
    "jitter": _NOTHING,
}
_FIELDS: Final[Mapping[str, str]] = {  # option to field of the job, where the value is taken as it is
    "task": "task",
    "pool": "pool",
    "priority": "priority",
    "timeout": "run_timeout",
    "wait_timeout": "wait_timeout",
    "deadline": "deadline",
    "estimated_duration": "estimated_duration",
    "jitter": "jitter",
}


def new_job(name: str, tenant: str, asked: Mapping[str, Any]) -> Job:
    """Return the job that the options describe.

    Raises:
        InvalidRequest: something is missing or out of bounds.
    """
    given = _given(asked)
    if not any(spec in given for spec in _SPECS):
        raise _refuse("schedule", "there is none", "give --cron, --every, --at, --rrule or --on-demand")
    if "task" not in given and "http_url" not in given:
        raise _refuse("task", "there is nothing to run", "give --task or --http-url")
    return Job(name=name, tenant=tenant, schedule=_schedule(given, None, name), **{"task": _HTTP} | _parts(given, None))


def edited_job(job: Job, asked: Mapping[str, Any], clear: tuple[str, ...]) -> Job:
    """Return the job with what the options change.

    Raises:
        InvalidRequest: they change nothing, or something is out of bounds.
    """
    given = _given(asked)
    if not given and not clear:
        raise _refuse("edit", "nothing is to be changed", "give an option for it, such as --timeout 5m")
    cleared = {_FIELDS.get(name.replace("-", "_"), name): CLEARED[name] for name in clear}
    return replace(job, schedule=_schedule(given, job.schedule, job.name), **cleared | _parts(given, job))


def _given(asked: Mapping[str, Any]) -> dict[str, Any]:
    flags = {"on_demand"} if not asked.get("on_demand") else set()
    return {name: value for name, value in asked.items() if value is not None and value != () and name not in flags}


def _schedule(given: Mapping[str, Any], old: Schedule | None, name: str) -> Schedule:
    changes: dict[str, Any] = {}
    if specs := _specs(given):
        changes["specs"] = specs
    for option, field in (("tz", "timezone"), ("start", "start"), ("end", "end"), ("max_fires", "max_fires")):
        if option in given:
            changes[field] = given[option]
    if "exclude" in given:
        changes["exclude"] = tuple(_exclusion(text, given) for text in given["exclude"])
    dst = old.dst if old is not None else Dst()
    if "dst_gap" in given or "dst_overlap" in given:
        gap, overlap = given.get("dst_gap", dst.gap), given.get("dst_overlap", dst.overlap)
        changes["dst"] = Dst(gap=DstGap(gap), overlap=DstOverlap(overlap))
    # The name decides what H stands for; without an H nobody needs it, and schedules that are equal stay equal.
    if any("H" in text.upper().replace("THU", "") for text in given.get("cron", ())):
        changes["key"] = name
    return Schedule(**changes) if old is None else replace(old, **changes)


def _specs(given: Mapping[str, Any]) -> tuple[Spec, ...]:
    dialect = Dialect(given.get("dialect", Dialect.UNIX))
    start = given.get("start") or datetime.now(UTC).replace(microsecond=0)
    specs: list[Spec] = [Cron(text, dialect) for text in given.get("cron", ())]
    specs += [Every(interval) for interval in given.get("every", ())]
    specs += [At(instant) for instant in given.get("at", ())]
    specs += [RRule(text, start) for text in given.get("rrule", ())]
    if "on_demand" in given:
        if specs:
            raise _refuse("on-demand", "it goes with no other schedule", "leave one of them out")
        specs.append(OnDemand())
    return tuple(specs)


def _exclusion(text: str, given: Mapping[str, Any]) -> Spec | date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return Cron(text, Dialect(given.get("dialect", Dialect.UNIX)))


def _parts(given: Mapping[str, Any], old: Job | None) -> dict[str, Any]:
    """Return the fields of the job that the options set, the schedule aside."""
    parts = {field: given[option] for option, field in _FIELDS.items() if option in given}
    if any(option.startswith("http_") for option in given):
        if "task" in given:
            raise _refuse("task", "a job has one target", "give --task or --http-url, not both")
        parts |= {"task": _HTTP, "payload": _request(given, old)}
    elif "payload" in given:
        parts["payload"] = given["payload"]
    if {"retry", "backoff", "retry_max_age", "not_retried"} & set(given):
        parts["retry"] = _retry(given, old.retry if old else RetryPolicy())
    if {"overlap", "overlap_most"} & set(given):
        was = old.overlap if old else Overlap()
        most = given.get("overlap_most", None if "overlap" in given else was.most)
        parts["overlap"] = Overlap(policy=Overlaps(given.get("overlap", was.policy)), most=most)
    if {"misfire", "misfire_most", "misfire_window", "misfire_pace"} & set(given):
        parts["misfire"] = _misfire(given, old.misfire if old else Misfire())
    if "on_loss" in given:
        parts["on_loss"] = OnLoss(given["on_loss"])
    if "after_done" in given:
        parts["after_done"] = AfterDone(given["after_done"])
    return parts


def _request(given: Mapping[str, Any], old: Job | None) -> Json:
    before = dict(old.payload) if old is not None and old.task == _HTTP and isinstance(old.payload, dict) else {}
    wanted: dict[str, Any] = before | {
        name: given[f"http_{name}"]
        for name in ("method", "url", "body", "redirects", "timeout", "sign_with")
        if f"http_{name}" in given
    }
    if "http_success" in given:
        wanted["success"] = [int(word) if word.isdecimal() else word for word in given["http_success"]]
    for option, field in (("http_header", "headers"), ("http_secret_header", "secret_headers")):
        if option in given:
            wanted[field] = dict(_header(text, option) for text in given[option])
    if "payload" in given:
        wanted["json"] = given["payload"]
    if "url" not in wanted:
        raise _refuse("http-url", "there is none", "give --http-url")
    sends = "json" in wanted or "body" in wanted
    method, url = wanted.pop("method", "POST" if sends else "GET"), wanted.pop("url")
    return http.request(method, url, **wanted).payload


def _header(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        allowed = "write NAME=VALUE" if option == "http_header" else "write NAME=env:VARIABLE"
        raise _refuse(option.replace("_", "-"), f'"{name}" has no value', allowed)
    return name.strip(), value.strip()


def _retry(given: Mapping[str, Any], old: RetryPolicy) -> RetryPolicy:
    kept = {
        "attempts": given.get("retry", old.attempts),
        "max_age": given.get("retry_max_age", old.max_age),
        "not_retried": given.get("not_retried", old.not_retried),
    }
    # Another backoff is another policy: what belonged to the old one, its delays for instance, does not go with it.
    return RetryPolicy(**kept, backoff=given["backoff"]) if "backoff" in given else replace(old, **kept)


def _misfire(given: Mapping[str, Any], old: Misfire) -> Misfire:
    names = {"misfire_most": "most", "misfire_window": "window", "misfire_pace": "pace"}
    changes = {field: given[option] for option, field in names.items() if option in given}
    return replace(old, policy=Misfires(given.get("misfire", old.policy)), **changes)


def _refuse(field: str, reason: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(reason, field=field, value="", allowed=allowed)


def _words(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([word.value for word in kind])


_OPTIONS: Final = (
    click.option("--task", help="Run this task, by its name."),
    click.option("--payload", type=JsonValue(), help="JSON for the task, or to be sent; @file reads a file."),
    click.option("--cron", multiple=True, metavar="EXPR", help="By a cron expression; repeatable."),
    click.option("--every", multiple=True, type=Duration(), help="At a fixed interval; repeatable."),
    click.option("--at", multiple=True, type=Instant(), help="Once, at this instant; repeatable."),
    click.option("--rrule", multiple=True, metavar="RULE", help="By an RFC 5545 rule, from --start or now on."),
    click.option("--on-demand", is_flag=True, help="Only when asked for."),
    click.option("--tz", metavar="ZONE", help="IANA time zone of the schedule.  [default: UTC]"),
    click.option("--dialect", type=_words(Dialect), help="Of the cron expressions.  [default: unix]"),
    click.option("--exclude", multiple=True, metavar="EXPR|DATE", help="Leave these slots out; repeatable."),
    click.option("--dst-gap", type=_words(DstGap), help="A time that the clock leaves out."),
    click.option("--dst-overlap", type=_words(DstOverlap), help="A time that the clock shows twice."),
    click.option("--start", type=Instant(), help="No slot before this."),
    click.option("--end", type=Instant(), help="No slot from here on."),
    click.option("--max-fires", type=click.IntRange(1), help="Then it is finished."),
    click.option("--jitter", type=Duration(), help="Spread starts over this long."),
    click.option("--overlap", type=_words(Overlaps), help="When the run before is still going.  [default: skip]"),
    click.option("--overlap-most", type=click.IntRange(1), help="Waiting with queue, going with allow."),
    click.option("--misfire", type=_words(Misfires), help="What becomes of missed slots.  [default: all]"),
    click.option("--misfire-most", type=click.IntRange(1), help="Runs in one catch-up.  [default: 100]"),
    click.option("--misfire-window", type=Duration(), help="Slots older than this are not caught up."),
    click.option("--misfire-pace", type=Duration(), help="Between the starts of a catch-up."),
    click.option("--pool", help="Which workers.  [default: short, or long by the estimate]"),
    click.option("--priority", type=click.IntRange(0, 100), help="Higher starts earlier.  [default: 0]"),
    click.option("--retry", type=click.IntRange(1, 1000), help="Attempts in all.  [default: 5]"),
    click.option("--backoff", metavar="WAITS", help="Such as 30s..1h, 30s, '10s, 1m', immediate, none."),
    click.option("--retry-max-age", type=Duration(), help="No retry later than this after it was due."),
    click.option("--not-retried", multiple=True, metavar="ERROR", help="A type that is given up at once; repeatable."),
    click.option("--timeout", type=Duration(), help="Stop an attempt after this long."),
    click.option("--wait-timeout", type=Duration(), help="Give up a run that waits longer than this to start."),
    click.option("--deadline", type=Duration(), help="Start nothing later than this after the slot."),
    click.option("--estimated-duration", type=Duration(), help="Above 1m it goes to the pool long."),
    click.option("--on-loss", type=_words(OnLoss), help="When a worker dies.  [default: retry]"),
    click.option("--after-done", type=_words(AfterDone), help="When no slot is left.  [default: keep]"),
    click.option("--http-url", metavar="URL", help="Call this URL instead of a task."),
    click.option("--http-method", metavar="METHOD", help="[default: GET, or POST with something to send]"),
    click.option("--http-header", multiple=True, metavar="NAME=VALUE", help="Repeatable; no secrets."),
    click.option("--http-secret-header", multiple=True, metavar="NAME=REF", help="As in Authorization=env:TOKEN."),
    click.option("--http-body", metavar="TEXT", help="Send this text; --payload sends JSON."),
    click.option("--http-success", multiple=True, metavar="STATUS", help="What is good, such as 2xx; repeatable."),
    click.option("--http-timeout", metavar="DURATION", help="For the whole request."),
    click.option("--http-redirects", type=click.IntRange(0, 10), help="Follow so many.  [default: 0]"),
    click.option("--http-sign-with", multiple=True, metavar="REF", help="Sign it with this key, as in env:HOOK_KEY."),
)


def definition_options(command: _Command) -> _Command:
    """Add everything that can be said of a job; the command receives it under the options' names."""
    added: Any = command
    for option in reversed(_OPTIONS):
        added = option(added)
    return added  # type: ignore[no-any-return]  # the same command, with options
