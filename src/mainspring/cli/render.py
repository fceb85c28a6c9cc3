"""How answers look: tables for people, JSON for machines. Rich is imported only to draw."""

from __future__ import annotations

import json as stdlib_json
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from mainspring.domain.durations import rough_duration
from mainspring.domain.schedule import Schedule
from mainspring.insight.dst import note
from mainspring.insight.lint import Finding
from mainspring.insight.report import AuditReport


def json(value: object) -> None:
    click.echo(stdlib_json.dumps(value, indent=2, ensure_ascii=False))


def rfc3339(instant: datetime) -> str:
    """Write an instant as UTC with a Z, with milliseconds only where it has some."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def heading(text: str) -> None:
    click.secho(text, bold=True)


def slots(schedule: Schedule, instants: Sequence[datetime]) -> None:
    from rich import box  # noqa: PLC0415  # drawing is the only use of rich, and it is slow to import
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    if not instants:
        click.echo("no slot from there on")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    notes = [note(schedule, instant) or "" for instant in instants]
    for column in (f"local time ({schedule.timezone})", "UTC", "offset", *(["note"] if any(notes) else [])):
        table.add_column(column, no_wrap=column != "note")
    for instant, remark in zip(instants, notes, strict=True):
        local = instant.astimezone(schedule.zone.info)
        cells = (f"{local:%a %Y-%m-%d %H:%M:%S}", f"{instant:%Y-%m-%d %H:%M:%S}", f"{local:%z}")
        table.add_row(*cells, *([remark] if any(notes) else []))
    # Piped into a file there is no width to keep to, and no reason to cut anything.
    console = Console()
    Console(width=None if console.is_terminal else 160, soft_wrap=not console.is_terminal).print(table)


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
        click.secho(f"{finding.fault}: {finding.name} at {rfc3339(finding.slot)}{stretch}: {finding.why}", fg="red")
    named = ", ".join(f"{count} {fault}" for fault, count in report.faults.items())
    click.secho(named, fg="red" if report.exit_status else "green", bold=True)


def findings(found: Sequence[Finding]) -> None:
    if not found:
        click.echo("nothing to report")
    for finding in found:
        click.echo(f"{click.style(finding.name, fg='yellow', bold=True)}: {finding.reason}")
        if finding.dates:
            dates = ", ".join(rfc3339(at) for at in finding.dates)
            click.echo(f"    next: {dates}")
