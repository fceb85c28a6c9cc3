"""``mainspring runs``: what ran, what runs, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import click

from mainspring.cli import many, render
from mainspring.cli.client import form_asked_for, output_option, watch_option, with_client
from mainspring.cli.filters import RUNS, filter_options
from mainspring.cli.render import JSON, NDJSON, TABLE, Rendered
from mainspring.domain.durations import rough_duration
from mainspring.domain.errors import Conflict
from mainspring.domain.job import Json
from mainspring.domain.run import FINAL, State
from mainspring.domain.views import AttemptView, ErrorView, Line, RunView
from mainspring.sdk.client import Client

MOVING: Final = tuple(state.value for state in State if state not in FINAL)
_ENDED_BADLY: Final = (State.DEAD.value,)


@click.group()
def runs() -> None:
    """Look at runs, follow them, retry and cancel them.

    \b
    mainspring runs list --where 'state=dead since=1h'
    """


def page_options(command: Any) -> Any:
    command = click.option("--after", metavar="CURSOR", help="Go on where the page before ended.")(command)
    return click.option(
        "--limit", "-n", type=click.IntRange(1, 1_000), default=50, show_default=True, help="At most so many."
    )(command)


@runs.command("list")
@filter_options(RUNS)
@page_options
@watch_option
@with_client
async def list_runs(client: Client, *, wanted: dict[str, Any], limit: int, after: str | None) -> Rendered:
    """List runs, newest slot first; since and until go by the slot.

    \b
    mainspring runs list --job nightly --state dead --state cancelled
    mainspring runs list --where 'pool=long state=running' --watch
    """
    return await page_of_runs(client, wanted, limit, after)


async def page_of_runs(client: Client, wanted: dict[str, Any], limit: int, after: str | None) -> Rendered:
    """Return a page of runs, rendered."""
    page = await client.runs.list(**wanted, limit=limit, after=after)

    def draw() -> None:
        columns = ("run", "job", "kind", "slot (UTC)", "state", "attempt", "pool", "took", "when")
        render.table(columns, [_row(view) for view in page.items], empty="no runs")

    return Rendered(items=render.plain(page.items), draw=draw, next=page.next)


def _row(view: RunView) -> Sequence[str]:
    took = view.settled_at - view.started_at if view.settled_at and view.started_at else None
    return (
        str(view.id),
        view.job,
        view.kind.value,
        f"{view.slot:%Y-%m-%d %H:%M:%S}",
        view.state.value,
        str(view.attempt),
        view.pool,
        "" if took is None else rough_duration(took),
        render.ago(view.settled_at or view.started_at or view.ready_at),
    )


@runs.command()
@click.argument("run")
@watch_option
@with_client
async def show(client: Client, run: str) -> Rendered:
    """Show a run: its state, its attempts, its payload, and what came of it.

    \b
    mainspring runs show 019f6a3e-8c00-8b1d-9f5e-0123456789ab
    mainspring runs show 019f6a3e-8c00-8b1d-9f5e-0123456789ab -o json
    """
    view = await client.runs.get(run)
    attempts = await client.runs.handle(run).attempts()
    return render.one({**render.plain(view), "attempts": render.plain(attempts)}, partial(draw_run, view, attempts))


def draw_run(view: RunView, attempts: Sequence[AttemptView] = ()) -> None:
    """Write a run for people."""
    state = f"{view.state}, {view.reason}" if view.reason else view.state.value
    render.details(
        {
            "run": view.id,
            "job": f"{view.job} (version {view.version})",
            "task": view.task,
            "state": state,
            "cancel": "asked for" if view.cancel_requested else "",
            "kind": view.kind.value,
            "slot": render.when(view.slot),
            "fired": render.when(view.fired_at),
            "ready": render.when(view.ready_at),
            "started": render.when(view.started_at),
            "ended": render.when(view.settled_at),
            "pool": view.pool,
            "worker": view.worker,
            "attempt": f"{view.attempt}, {view.failures} failed",
            "payload": render.compact(view.payload) if view.payload is not None else "",
            "result": render.compact(view.result) if view.result is not None else "",
            "error": error_text(view.error),
        }
    )
    if attempts:
        draw_attempts(attempts)


def draw_attempts(attempts: Sequence[AttemptView]) -> None:
    rows = [
        (
            str(attempt.number),
            attempt.outcome,
            render.rfc3339(attempt.started_at),
            rough_duration(attempt.ended_at - attempt.started_at) if attempt.ended_at else "",
            str(attempt.worker or ""),
            f"{attempt.error.type}: {attempt.error.message}" if attempt.error else "",
        )
        for attempt in attempts
    ]
    render.table(("attempt", "outcome", "started", "took", "worker", "error"), rows, empty="")


def error_text(error: ErrorView | None) -> str:
    """Write an error with its traceback."""
    if error is None:
        return ""
    return "\n".join(part for part in (f"{error.type}: {error.message}", error.traceback.rstrip()) if part)


@runs.command()
@click.argument("run")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@with_client
@output_option(TABLE, JSON, NDJSON)
async def tail(client: Client, run: str, *, follow: bool) -> Rendered | None:
    """Show what a run said: its logs, its output and its progress.

    \b
    mainspring runs tail 019f6a3e-8c00-8b1d-9f5e-0123456789ab --follow
    """
    form, kept = form_asked_for(), list[Json]()
    async for line in client.runs.logs(run, follow=follow):
        if form == JSON:
            kept.append(render.plain(line))
        elif form == NDJSON:
            render.line(render.plain(line))
        else:
            _say(line)
    return Rendered(items=kept, draw=lambda: None) if form == JSON else None


def _say(line: Line) -> None:
    level = f" {line.level}" if line.level else ""
    render.styled(f"{line.at:%H:%M:%S} {line.attempt} {line.stream}{level}  {render.printable(line.text)}")


@runs.command()
@click.argument("run", nargs=-1)
@filter_options(RUNS)
@many.dry_run_option
@many.yes_option
@many.wait_option
@with_client
async def retry(
    client: Client, run: tuple[str, ...], *, wanted: dict[str, Any], dry_run: bool, yes: bool, wait: timedelta | None
) -> Rendered:
    """Try runs again: at once if they wait for that, else as new runs with a fresh budget.

    A filter without a state means dead runs.

    \b
    mainspring runs retry 019f6a3e-8c00-8b1d-9f5e-0123456789ab --wait
    mainspring runs retry --where 'job=etl since=1h' --dry-run
    """
    chosen = await _chosen(client, run, wanted, _ENDED_BADLY)
    if dry_run:
        return many.would(chosen, "runs would be retried")
    if not run:
        many.confirm(f"Retry {len(chosen)} runs?", yes=yes)

    async def act(name: str) -> Json:
        return {"run_id": name, "retried_as": str((await client.runs.retry(name)).id)}

    def say(item: Json) -> str:
        return f"{item['run_id']} retried as {item['retried_as']}"

    return await many.wait_for_all(client, await many.do_all(chosen, act, say, key="retried_as"), wait)


@runs.command()
@click.argument("run", nargs=-1)
@filter_options(RUNS)
@many.dry_run_option
@many.yes_option
@with_client
async def cancel(client: Client, run: tuple[str, ...], *, wanted: dict[str, Any], dry_run: bool, yes: bool) -> Rendered:
    """Cancel runs: at once if no worker has them, else by asking their tasks to stop.

    A filter without a state means all that are in motion.

    \b
    mainspring runs cancel 019f6a3e-8c00-8b1d-9f5e-0123456789ab
    mainspring runs cancel --where 'pool=long state=queued' --yes
    """
    chosen = await _chosen(client, run, wanted, MOVING)
    if dry_run:
        return many.would(chosen, "runs would be cancelled")
    if not run:
        many.confirm(f"Cancel {len(chosen)} runs?", yes=yes)

    async def act(name: str) -> Json:
        view = await client.runs.get(name)
        if view.state in FINAL:
            raise Conflict(f"run {name} is {view.state}; only what is in motion can be cancelled")
        return {"run_id": name, "state": (await client.runs.cancel(name)).value}

    def say(item: Json) -> str:
        return f"{item['run_id']} {'is asked to stop' if item['state'] == State.RUNNING else 'cancelled'}"

    return await many.do_all(chosen, act, say)


async def _chosen(client: Client, ids: Sequence[str], wanted: dict[str, Any], states: Sequence[str]) -> list[str]:
    many.ids_or_filter(ids, wanted)
    if ids:
        return list(ids)
    return [str(view.id) async for view in client.runs.each(**{"state": states, **wanted}, limit=500)]
