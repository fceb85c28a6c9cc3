"""How a job looks to people: as a row, in full, and beside another version of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mainspring.cli import render
from mainspring.domain.durations import format_duration
from mainspring.domain.job import Job, Json, job_to_json
from mainspring.domain.schedule import At, Cron, Every, OnDemand, RRule, Schedule
from mainspring.domain.views import JobView, VersionView
from mainspring.insight.wording import explain

COLUMNS = ("name", "state", "schedule", "next", "last slot", "task", "pool")
_SHOWN_ELSEWHERE = ("name", "tenant", "schedule", "pool")


def row(view: JobView) -> Sequence[str]:
    job = view.definition
    until = f"until {render.rfc3339(view.resume_at)}" if view.resume_at else ""
    return (
        view.name,
        view.state.value,
        schedule_text(job.schedule),
        until or render.ago(view.next_fire_at),
        render.ago(view.last_slot),
        job.task,
        job.pool,
    )


def schedule_text(schedule: Schedule) -> str:
    """Write a schedule as short as it was given."""
    zone = f" {schedule.timezone}" if schedule.timezone != "UTC" else ""
    return ", ".join(_spec_text(spec) for spec in schedule.specs) + zone


def _spec_text(spec: Cron | Every | At | RRule | OnDemand) -> str:
    match spec:
        case Cron():
            return spec.expression
        case Every():
            return f"every {format_duration(spec.interval)}"
        case At():
            return f"at {render.rfc3339(spec.instant)}"
        case RRule():
            return spec.rule
        case OnDemand():
            return "on demand"


def draw_job(view: JobView, headline: str = "") -> None:
    if headline:
        render.heading(headline)
    job = view.definition
    render.details(
        {
            "job": view.name,
            "id": view.id,
            "state": view.state.value,
            "resumes": render.when(view.resume_at),
            "schedule": explain(job.schedule),
            "next": render.when(view.next_fire_at, job.schedule),
            "last slot": render.when(view.last_slot, job.schedule),
            "fired": view.fired,
            "pool": job.pool,
            **written(job),
            "version": f"{view.version}, {render.when(view.changed_at)}{by_whom(view)}",
        }
    )


def by_whom(view: JobView | VersionView) -> str:
    return (f" by {view.author}" if view.author else "") + (f": {view.reason}" if view.reason else "")


def written(job: Job) -> dict[str, str]:
    """Return what a definition says beyond its name and schedule, for people."""
    said = {name: value for name, value in job_to_json(job).items() if name not in _SHOWN_ELSEWHERE}
    return {
        name.replace("_", " "): value if isinstance(value, str) else render.compact(value)
        for name, value in said.items()
    }


def differences(before: Job | None, after: Job) -> list[Json]:
    """Return the fields that differ, as JSON has them; parts of a field by their dotted names."""
    old, new = ({} if job is None else dict(_flat(job_to_json(job))) for job in (before, after))
    return [
        {"field": name, "before": old.get(name), "after": new.get(name)}
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _flat(document: Mapping[str, Json], within: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in document.items():
        if isinstance(value, dict) and value and not within and name != "payload":
            yield from _flat(value, f"{name}.")
        else:
            yield f"{within}{name}", value


def draw_differences(changes: Sequence[Mapping[str, Json]]) -> None:
    rows = [(change["field"], *(render.compact(change[side]) for side in ("before", "after"))) for change in changes]
    render.table(("field", "before", "after"), rows, empty="no difference")
