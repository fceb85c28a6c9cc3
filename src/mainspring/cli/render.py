"""How answers look: tables for people, JSON for machines. Rich is imported only to draw."""

from __future__ import annotations

import json as stdlib_json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from mainspring.domain.durations import format_duration, rough_duration
from mainspring.domain.job import Job, Json, job_to_json
from mainspring.domain.schedule import Schedule
from mainspring.insight.dst import note
from mainspring.insight.lint import Finding
from mainspring.insight.report import AuditReport

if TYPE_CHECKING:
    from rich.table import Table

TABLE, JSON, NDJSON, ID = "table", "json", "ndjson", "id"
FORMS: Final = (TABLE, JSON, NDJSON, ID)
COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("dead", "quarantined", "error", "no"), "red"),
    **dict.fromkeys(("waiting", "paused", "held", "warning"), "yellow"),
    **dict.fromkeys(("running", "queued"), "cyan"),
    **dict.fromkeys(("succeeded", "active", "yes"), "green"),
}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_NO_LIMIT: Final = 2_000  # columns: piped into a file there is no width to keep to, and no reason to cut anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """An answer in every form it can be asked for."""

    items: Sequence[Json]  # objects
    draw: Callable[[], None]  # the table
    key: str = "id"  # the field that names an item
    many: bool = True  # a list; else one thing
    next: str | None = None  # where the rest of the list begins
    exit_status: int = 0


def one(item: Json, draw: Callable[[], None], *, key: str = "id", exit_status: int = 0) -> Rendered:
    """Render one thing."""
    return Rendered(items=[item], draw=draw, key=key, many=False, exit_status=exit_status)


def failing(rendered: Rendered) -> Rendered:
    """Return the same answer, with a status that says that it is no good one."""
    return replace(rendered, exit_status=rendered.exit_status or 1)


def write(rendered: Rendered, form: str) -> None:
    """Write an answer to standard output."""
    match form:
        case "json":
            json({"items": rendered.items, "next": rendered.next} if rendered.many else rendered.items[0])
        case "ndjson":
            for item in rendered.items:
                line(item)
        case "id":
            for item in rendered.items:
                if (name := item.get(rendered.key)) is not None:
                    click.echo(name)
        case _:
            rendered.draw()
    if rendered.next is not None and form != JSON:
        click.echo(f"there are more: --after {rendered.next}", err=True)


def plain(value: object) -> Json:
    """Return a value as JSON has it: ids and instants as text, durations as people write them."""
    match value:
        case Job():
            return job_to_json(value)
        case datetime():
            return rfc3339(value)
        case timedelta():
            return format_duration(value)
        case UUID():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value


def json(value: object) -> None:
    click.echo(stdlib_json.dumps(value, indent=2, ensure_ascii=False))


def line(value: object) -> None:
    """Write JSON on one line."""
    click.echo(compact(value))


def compact(value: object) -> str:
    return stdlib_json.dumps(value, ensure_ascii=False)


def rfc3339(instant: datetime) -> str:
    """Write an instant as UTC with a Z, with milliseconds only where it has some."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def length(lasting: timedelta) -> str:
    """Write a duration for a glance: its largest unit."""
    seconds = int(abs(lasting).total_seconds())
    return next((f"{seconds // worth} {unit}" for unit, worth in _UNITS if seconds >= worth), "0 s")


def ago(instant: datetime | None) -> str:
    """Write when something was or will be, from now."""
    if instant is None:
        return ""
    since = datetime.now(UTC) - instant
    if abs(since) < timedelta(seconds=1):
        return "now"
    return f"{length(since)} ago" if since > timedelta(0) else f"in {length(since)}"


def when(instant: datetime | None, schedule: Schedule | None = None) -> str:
    """Write an instant in full, by the clock of a schedule's zone, and how far away it is."""
    if instant is None:
        return ""
    if schedule is None or schedule.timezone == "UTC":
        return f"{rfc3339(instant)} ({ago(instant)})"
    local = instant.astimezone(schedule.zone.info)
    return f"{local:%Y-%m-%d %H:%M:%S%z} {schedule.timezone} ({ago(instant)})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Draw rows; words for a state have its colour."""
    from rich import box  # noqa: PLC0415  # drawing is the only use of rich, and it is slow to import
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    if not rows:
        click.echo(empty)
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(printable(cell), style=COLOURS.get(cell, "")) for cell in row))
    _draw(drawn)


def details(pairs: Mapping[str, object]) -> None:
    """Write what is known about one thing, a line for each; what is empty is left out."""
    shown = {name: printable(str(value)) for name, value in pairs.items() if value not in (None, "", (), [])}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        first, *more = value.splitlines() or [""]
        styled(f"{name:<{width}}  {first}", fg=COLOURS.get(first) if name == "state" else None)
        for further in more:
            click.echo(f"{'':<{width}}  {further}")


def printable(text: str) -> str:
    """Leave out what would move the cursor of a terminal: payloads and messages are anybody's."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def styled(text: str, *, err: bool = False, **style: Any) -> None:
    """Write a line in colour, unless NO_COLOR is set or nobody looks."""
    click.secho(text, err=err, **({} if os.environ.get("NO_COLOR") else style))


def _draw(drawn: Table) -> None:
    from rich.console import Console  # noqa: PLC0415  # as above

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=_NO_LIMIT, soft_wrap=True, highlight=False)
    console.print(drawn)


def heading(text: str) -> None:
    styled(text, bold=True)


def slots(schedule: Schedule, instants: Sequence[datetime]) -> None:
    from rich import box  # noqa: PLC0415  # as above
    from rich.table import Table  # noqa: PLC0415

    if not instants:
        click.echo("no slot from there on")
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    notes = [note(schedule, instant) or "" for instant in instants]
    for column in (f"local time ({schedule.timezone})", "UTC", "offset", *(["note"] if any(notes) else [])):
        drawn.add_column(column, no_wrap=column != "note")
    for instant, remark in zip(instants, notes, strict=True):
        local = instant.astimezone(schedule.zone.info)
        cells = (f"{local:%a %Y-%m-%d %H:%M:%S}", f"{instant:%Y-%m-%d %H:%M:%S}", f"{local:%z}")
        drawn.add_row(*cells, *([remark] if any(notes) else []))
    _draw(drawn)


def audit(report: AuditReport) -> None:
    """Write an audit for people: the verdict last, where the eye ends up."""
    skipped = ", ".join(f"{count} {disposition}" for disposition, count in sorted(report.skipped.items()))
    click.echo(f"{report.jobs} jobs, {rfc3339(report.start)} to {rfc3339(min(report.end, report.judged_at))}")
    if report.dropped_before is not None:
        click.echo("older slots than these were dropped by retention, and are not judged")
    click.echo(f"{report.expected} slots expected, {report.fired} fired{', ' + skipped if skipped else ''}")
    if report.pending:
        oldest = f" since {rfc3339(report.oldest_pending)}" if report.oldest_pending else ""
        click.echo(f"{report.pending} due and not decided yet{oldest}: is a scheduler running?")
    if report.quarantined:
        click.echo(f"{report.quarantined} due in quarantined jobs")
    if report.fired:
        p50, p99, most = (rough_duration(length) for length in (report.late.p50, report.late.p99, report.late.max))
        click.echo(f"fires after their slot: p50 {p50}, p99 {p99}, max {most}")
    for finding in report.findings[:20]:
        stretch = f" and {finding.count - 1} more" if finding.count > 1 else ""
        styled(f"{finding.fault}: {finding.name} at {rfc3339(finding.slot)}{stretch}: {finding.why}", fg="red")
    named = ", ".join(f"{count} {fault}" for fault, count in report.faults.items())
    styled(named, fg="red" if report.exit_status else "green", bold=True)


def findings(found: Sequence[Finding]) -> None:
    if not found:
        click.echo("nothing to report")
    for finding in found:
        click.echo(f"{click.style(finding.name, fg='yellow', bold=True)}: {finding.reason}")
        if finding.dates:
            dates = ", ".join(rfc3339(at) for at in finding.dates)
            click.echo(f"    next: {dates}")
