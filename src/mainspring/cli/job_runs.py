"""``mainspring jobs trigger``, ``backfill`` and the rest that is about the slots and runs of one job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import click

from mainspring.cli import many, render
from mainspring.cli.client import watch_option, with_client
from mainspring.cli.params import Duration, JsonValue, Moment
from mainspring.cli.render import Rendered
from mainspring.cli.runs import MOVING, draw_run, page_of_runs, page_options
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json
from mainspring.domain.run import State
from mainspring.domain.views import SlotView
from mainspring.sdk.client import Client

_DAY: Final = timedelta(days=1)


@click.command()
@click.argument("job")
@click.option("--payload", type=JsonValue(), help="Use this instead of the job's; @file reads a file.")
@click.option("--key", help="The same key twice makes one run.")
@click.option("--priority", type=click.IntRange(0, 100), help="Use this instead of the job's.")
@many.wait_option
@with_client
async def trigger(
    client: Client, job: str, *, payload: Json, key: str | None, priority: int | None, wait: timedelta | None
) -> Rendered:
    """Run a job now, besides its schedule.

    \b
    mainspring jobs trigger nightly --payload '{"day": "2026-11-15"}' --key 2026-11-15
    mainspring jobs trigger nightly --wait 60
    """
    run = await client.jobs.trigger(job, payload=payload, key=key, priority=priority)
    if wait is None:
        view = await run.status()
        return render.one(render.plain(view), partial(draw_run, view))
    view = await many.ended(client, str(run.id), wait)
    attempts = await run.attempts()
    failed = view.state is not State.SUCCEEDED
    return render.one(render.plain(view), partial(draw_run, view, attempts), exit_status=int(failed))


@click.command()
@click.argument("job")
@click.option("--from", "start", type=Moment(), required=True, help="The first instant, or that long ago.")
@click.option("--to", "end", type=Moment(), help="The first instant no longer included.  [default: now]")
@click.option("--pace", type=Duration(), default=None, help="Between two starts.  [default: all at once]")
@click.option("--key", help="The same key twice makes each run once.")
@many.dry_run_option
@many.yes_option
@with_client
async def backfill(
    client: Client,
    job: str,
    *,
    start: datetime,
    end: datetime | None,
    pace: timedelta | None,
    key: str | None,
    dry_run: bool,
    yes: bool,
) -> Rendered:
    """Run the slots of a range of the past, oldest first, whatever was decided about them then.

    \b
    mainspring jobs backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run
    mainspring jobs backfill nightly --from 7d --pace 1m --yes
    """
    handle = await client.jobs.get(job)
    end = end or datetime.now(UTC)
    if start >= end:
        raise InvalidRequest("the range is empty", field="to", value=end, allowed="let it end after it starts")
    schedule = handle.view.definition.schedule
    count = schedule.count(start, end)
    first, last = schedule.between(start, end, 1), schedule.previous_before(end)
    item = {"job": handle.name, "slots": count, "first": None, "last": None, "written": 0}
    if count and first and last:
        item |= {"first": render.rfc3339(first[0]), "last": render.rfc3339(last)}
    span = f"{count} slots, from {item['first']} to {item['last']}" if count else "no slot"
    if dry_run:
        return render.one(item, partial(click.echo, f"{span}; nothing was written"), key="job")
    many.confirm(f'Run {span}, of "{handle.name}"?', yes=yes)
    item["written"] = await handle.backfill(start, end, pace=pace or timedelta(0), key=key) if count else 0
    return render.one(item, partial(click.echo, f"{item['written']} runs written: {span}"), key="job")


@click.command()
@click.argument("job")
@click.option("--count", "-n", type=click.IntRange(1, 10_000), default=5, show_default=True, help="So many.")
@with_client
async def upcoming(client: Client, job: str, *, count: int) -> Rendered:
    """List the next slots of a job, by its own clock and in UTC.

    \b
    mainspring jobs upcoming nightly -n 10
    """
    handle = await client.jobs.get(job)
    slots = handle.upcoming(count)

    def draw() -> None:
        render.heading(handle.explain())
        if not slots:
            click.echo(f"the job is {handle.view.state}")
        render.slots(handle.view.definition.schedule, slots)

    return Rendered(items=[{"slot": render.rfc3339(slot)} for slot in slots], draw=draw, key="slot")


@click.command("slots")
@click.argument("job")
@click.option("--from", "start", type=Moment(), help="The first instant, or that long ago.  [default: a day ago]")
@click.option("--to", "end", type=Moment(), help="The first instant no longer included.  [default: now]")
@click.option("--limit", "-n", type=click.IntRange(1, 100_000), default=100, show_default=True, help="At most so many.")
@watch_option
@with_client
async def list_slots(client: Client, job: str, *, start: datetime | None, end: datetime | None, limit: int) -> Rendered:
    """List what became of a job's slots, newest first: fired, or skipped for a reason.

    \b
    mainspring jobs slots nightly --from 7d
    """
    handle = await client.jobs.get(job)
    end = end or datetime.now(UTC)
    found = await handle.slots(start or end - _DAY, end, limit=limit)

    def row(slot: SlotView) -> tuple[str, ...]:
        covers = "" if slot.covers == 1 else f"{slot.covers} slots from {render.rfc3339(slot.first_slot)}"
        at = render.when(slot.slot, handle.view.definition.schedule)
        return at, slot.disposition, str(slot.run_id or ""), covers

    def draw() -> None:
        render.table(("slot", "what became of it", "run", "covers"), [row(slot) for slot in found], empty="no slots")

    return Rendered(items=render.plain(found), draw=draw, key="slot")


@click.command("runs")
@click.argument("job")
@click.option(
    "--state", multiple=True, type=click.Choice([state.value for state in State]), help="In this state; repeatable."
)
@page_options
@watch_option
@with_client
async def list_runs(client: Client, job: str, *, state: tuple[str, ...], limit: int, after: str | None) -> Rendered:
    """List the runs of a job, newest slot first.

    \b
    mainspring jobs runs nightly --state dead
    """
    return await page_of_runs(client, {"job": job, "state": state}, limit, after)


@click.command()
@click.argument("job")
@many.dry_run_option
@many.yes_option
@with_client
async def cancel(client: Client, job: str, *, dry_run: bool, yes: bool) -> Rendered:
    """Cancel all runs of a job that are in motion; the job itself goes on firing.

    \b
    mainspring jobs cancel nightly --dry-run
    mainspring jobs cancel nightly --yes
    """
    handle = await client.jobs.get(job)
    found = [view async for view in client.runs.each(job=handle.id, state=MOVING, limit=500)]
    item: dict[str, Any] = {"job": handle.name, "runs": len(found), "cancelled": 0}
    if dry_run:
        return render.one(item, partial(click.echo, f"{len(found)} runs would be cancelled"), key="job")
    many.confirm(f'Cancel {len(found)} runs of "{handle.name}"?', yes=yes)
    item["cancelled"] = await client.jobs.cancel(handle.id)
    return render.one(item, partial(click.echo, f"{item['cancelled']} runs cancelled, or asked to stop"), key="job")


COMMANDS: Final = (trigger, backfill, upcoming, list_slots, list_runs, cancel)
