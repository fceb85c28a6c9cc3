"""``mainspring jobs``: what is to run, and when. What becomes of a job's slots and runs is in ``job_runs.py``."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click

from mainspring.cli import many, render
from mainspring.cli.client import watch_option, with_client
from mainspring.cli.definition import CLEARED, definition_options, edited_job, new_job
from mainspring.cli.job_runs import COMMANDS
from mainspring.cli.job_table import COLUMNS, by_whom, differences, draw_differences, draw_job, row, written
from mainspring.cli.params import Instant
from mainspring.cli.render import Rendered
from mainspring.cli.runs import page_options
from mainspring.domain.errors import NotFound
from mainspring.domain.job import Job, JobState, job_to_json
from mainspring.domain.views import JobView
from mainspring.insight.wording import explain
from mainspring.sdk.client import Client
from mainspring.sdk.handles import JobHandle

_SLOTS_SHOWN: Final = 5
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_MOST_VERSIONS: Final = 500  # as many as the API gives
_BY_NAME: Final = ("name", "tenant")  # what a view says already


@click.group()
def jobs() -> None:
    """Write, look at and change jobs; JOB is a name or an id.

    \b
    mainspring jobs put nightly --cron '30 2 * * *' --tz Europe/London --task report
    """


for added in COMMANDS:
    jobs.add_command(added)


def reason_option(command: Any) -> Any:
    return click.option("--reason", default="", help="Why; kept beside the change.")(command)


@jobs.command("list")
@click.option(
    "--state", multiple=True, type=click.Choice([state.value for state in JobState]), help="In this state; repeatable."
)
@click.option("--task", help="That run this task.")
@click.option("--prefix", help="Whose names begin so.")
@page_options
@watch_option
@with_client
async def list_jobs(
    client: Client, *, state: tuple[str, ...], task: str | None, prefix: str | None, limit: int, after: str | None
) -> Rendered:
    """List jobs by name.

    \b
    mainspring jobs list --state paused --state quarantined
    mainspring jobs list --prefix etl- -o id
    """
    page = await client.jobs.list(state=state, task=task, prefix=prefix, limit=limit, after=after)
    views = [handle.view for handle in page.items]

    def draw() -> None:
        render.table(COLUMNS, [row(view) for view in views], empty="no jobs")

    return Rendered(items=render.plain(views), draw=draw, next=page.next)


@jobs.command()
@click.argument("job")
@watch_option
@with_client
async def show(client: Client, job: str) -> Rendered:
    """Show a job: what it runs, when, by which policies, and who changed it last.

    \b
    mainspring jobs show nightly
    mainspring jobs show nightly -o json
    """
    return _shown(await client.jobs.get(job))


def _shown(handle: JobHandle, headline: str = "") -> Rendered:
    return render.one(render.plain(handle.view), partial(draw_job, handle.view, headline))


@jobs.command()
@click.argument("name")
@definition_options
@reason_option
@many.dry_run_option
@with_client
async def put(client: Client, name: str, *, reason: str, dry_run: bool, **asked: Any) -> Rendered:
    """Write a job under a name: a new one, or the next version of the one that has it.

    What is not said has its default, also if the job had something else before; `jobs edit` changes only what is said.

    \b
    mainspring jobs put nightly --cron '30 2 * * *' --tz Europe/London --task report --payload '{"day": "today"}'
    mainspring jobs put ping --every 5m --http-url https://example.com/health --dry-run
    """
    job = new_job(name, client.tenant, asked)
    try:
        before = (await client.jobs.get(name)).view
    except NotFound:
        before = None
    if dry_run:
        return _would_be(job, before)
    given = {field.name: getattr(job, field.name) for field in fields(job) if field.name not in (*_BY_NAME, "task")}
    handle = await client.jobs.put(name, None, job.task, reason=reason, **given)
    if before is None:
        return _shown(handle, "written")
    return _shown(handle, "changed" if handle.view.version != before.version else "nothing to change")


@jobs.command()
@click.argument("job")
@definition_options
@click.option("--clear", multiple=True, type=click.Choice(sorted(CLEARED)), help="Take this away; repeatable.")
@click.option("--if-version", type=click.IntRange(1), help="Refuse if somebody else was quicker.")
@reason_option
@many.dry_run_option
@with_client
async def edit(
    client: Client,
    job: str,
    *,
    clear: tuple[str, ...],
    if_version: int | None,
    reason: str,
    dry_run: bool,
    **asked: Any,
) -> Rendered:
    """Change what a job says; what is not said stays as it is. From its answer on, nothing of the old version fires.

    \b
    mainspring jobs edit nightly --cron '0 3 * * *' --reason 'after the backup'
    mainspring jobs edit nightly --timeout 10m --clear deadline --if-version 4 --dry-run
    """
    handle = await client.jobs.get(job)
    changed = edited_job(handle.view.definition, asked, clear)
    if dry_run:
        return _would_be(changed, handle.view)
    if changed == handle.view.definition:
        return _shown(handle, "nothing to change")
    given = {field.name: getattr(changed, field.name) for field in fields(changed)}
    return _shown(await handle.edit(if_version=if_version, reason=reason, **given), "changed")


def _would_be(job: Job, before: JobView | None) -> Rendered:
    slots = job.schedule.between(datetime.now(UTC), _LATEST, _SLOTS_SHOWN)
    changes = differences(before.definition if before else None, job)
    item = {
        "name": job.name,
        "definition": job_to_json(job),
        "upcoming": render.plain(slots),
        "changes": changes if before else [],
        "new": before is None,
    }

    def draw() -> None:
        render.heading(f'"{job.name}" would be {"new" if before is None else "changed"}; nothing was written')
        render.details({"job": job.name, "schedule": explain(job.schedule), "pool": job.pool, **written(job)})
        if before is not None:
            draw_differences(changes)
        render.slots(job.schedule, slots)

    return render.one(item, draw, key="name")


@jobs.command()
@click.argument("job")
@reason_option
@click.option("--until", type=Instant(), help="Go on by itself then.")
@with_client
async def pause(client: Client, job: str, *, reason: str, until: datetime | None) -> Rendered:
    """Fire nothing of a job until it is resumed; what runs already goes on.

    \b
    mainspring jobs pause nightly --reason 'vendor outage' --until 2026-11-16T09:00:00Z
    """
    return _shown(await client.jobs.pause(job, reason=reason, until=until), "paused")


@jobs.command()
@click.argument("job")
@reason_option
@with_client
async def resume(client: Client, job: str, *, reason: str) -> Rendered:
    """Go on with the next slot; what was passed over is not caught up, `jobs backfill` does that.

    \b
    mainspring jobs resume nightly
    """
    return _shown(await client.jobs.resume(job, reason=reason), "resumed")


@jobs.command()
@click.argument("job")
@click.argument("old", type=click.IntRange(1), required=False)
@click.argument("new", type=click.IntRange(1), required=False)
@with_client
async def diff(client: Client, job: str, *, old: int | None, new: int | None) -> Rendered:
    """Say what differs between two versions of a job; without numbers, between the last two.

    \b
    mainspring jobs diff nightly
    mainspring jobs diff nightly 3 7 -o json
    """
    handle = await client.jobs.get(job)
    new = new or handle.view.version
    old = old or max(new - 1, 1)
    versions = {version.number: version for version in await handle.versions(limit=_MOST_VERSIONS)}
    for number in (old, new):
        if number not in versions:
            raise NotFound(f'job "{handle.name}" has no version {number}, but 1 to {handle.view.version}')
    before, after = versions[old], versions[new]
    changes = differences(before.definition, after.definition)
    if before.state is not after.state:
        changes.append({"field": "state", "before": before.state.value, "after": after.state.value})

    def draw() -> None:
        for version in (before, after):
            click.echo(f"version {version.number}, {render.when(version.effective_at)}{by_whom(version)}")
        draw_differences(changes)

    return render.one({"job": handle.name, "old": old, "new": new, "changes": changes}, draw, key="job")


@jobs.command()
@click.argument("job")
@reason_option
@many.dry_run_option
@many.yes_option
@with_client
async def delete(client: Client, job: str, *, reason: str, dry_run: bool, yes: bool) -> Rendered:
    """Delete a job: fire nothing any more, cancel what waits, ask what runs to stop. Its history stays.

    \b
    mainspring jobs delete nightly --dry-run
    mainspring jobs delete nightly --yes
    """
    handle = await client.jobs.get(job)
    if dry_run:
        return _shown(handle, "would be deleted")
    many.confirm(f'Delete the job "{handle.name}"?', yes=yes)
    await handle.delete(reason=reason)
    return _shown(handle, "deleted")
