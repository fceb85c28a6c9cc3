"""One command for many things: which they are, whether that is meant, how far it is, and how it ended."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import click

from mainspring.cli import render
from mainspring.cli.params import Seconds
from mainspring.cli.printing import NotSent, only_printing
from mainspring.cli.render import Rendered
from mainspring.domain.errors import Conflict, MainspringError, NotFound
from mainspring.domain.job import Json
from mainspring.domain.run import State
from mainspring.domain.views import RunView
from mainspring.sdk.client import Client

_Command = TypeVar("_Command", bound=Callable[..., Any])
_TELL_EVERY: Final = 1.0  # seconds
_SHOWN: Final = 20


class NotInTime(MainspringError):
    """The run has not ended within the time given. It goes on."""

    code = "not_in_time"


def yes_option(command: _Command) -> _Command:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def dry_run_option(command: _Command) -> _Command:
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(command)


def wait_option(command: _Command) -> _Command:
    return click.option(
        "--wait",
        is_flag=False,
        flag_value="3650d",
        type=Seconds(),
        metavar="[SECONDS]",
        help="Wait until the run has ended, at most so long; exit with 1 if it did not succeed.",
    )(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask, if somebody is there to answer.

    Raises:
        click.UsageError: nobody is, and ``--yes`` was not given.
        click.Abort: the answer was no.
    """
    if yes or only_printing():
        return
    if not sys.stdin.isatty():
        tries = any(each.name == "dry_run" for each in click.get_current_context().command.params)
        raise click.UsageError(
            f"{question} Add --yes to do it{', or --dry-run to see what it would do' if tries else ''}."
        )
    click.confirm(question, abort=True, err=True)


def ids_or_filter(ids: Sequence[str], wanted: dict[str, Any]) -> None:
    """Refuse both at once, and neither: nothing at all must not mean everything.

    Raises:
        click.UsageError: with what to add.
    """
    if ids and wanted:
        raise click.UsageError("give ids or a filter, not both")
    if not ids and not wanted:
        raise click.UsageError("say which: give ids, or --where with a filter such as 'since=1h'")


def would(chosen: Sequence[str], what: str) -> Rendered:
    """Say what a dry run has found: some of the ids, and how many there are."""
    lines = [*chosen[:_SHOWN], *(["…"] if len(chosen) > _SHOWN else []), f"{len(chosen)} {what}"]
    items = [{"run_id": name} for name in chosen]
    return Rendered(items=items, draw=partial(click.echo, "\n".join(lines)), key="run_id")


async def do_all(
    ids: Sequence[str], act: Callable[[str], Awaitable[Json]], say: Callable[[Json], str], *, key: str = "run_id"
) -> Rendered:
    """Do something to each; what cannot be done is told, and the rest goes on.

    ``say`` puts what ``act`` returned into words. One alone raises its own error. Of several, the answer's exit status
    is that of the first that failed.
    """
    items: list[Json] = []
    failures: list[MainspringError] = []
    told = time.monotonic()
    for place, name in enumerate(ids):
        try:
            items.append(await act(name))
        except NotSent:
            continue
        except (Conflict, NotFound) as error:
            if len(ids) == 1:
                raise
            failures.append(error)
            click.echo(f"error: {error}", err=True)
        if time.monotonic() - told >= _TELL_EVERY:
            told = time.monotonic()
            click.echo(f"{place + 1} of {len(ids)} done", err=True)

    def draw() -> None:
        for item in items:
            click.echo(say(item))
        if len(ids) != 1:
            click.echo(f"{len(items)} done" + (f", {len(failures)} left out" if failures else ""))

    return Rendered(items=items, draw=draw, key=key, exit_status=failures[0].exit_status if failures else 0)


async def ended(client: Client, run: str, within: timedelta) -> RunView:
    """Wait for a run to end.

    Raises:
        NotInTime: it has not.
    """
    try:
        return await client.runs.handle(run).wait(within)
    except TimeoutError:
        state = (await client.runs.get(run)).state
        raise NotInTime(f"run {run} is {state} after {render.length(within)}; it goes on") from None


async def wait_for_all(client: Client, rendered: Rendered, within: timedelta | None) -> Rendered:
    """Wait for the runs of an answer, if that was asked for, and fail if one of them did not succeed."""
    if within is None:
        return rendered
    views = await asyncio.gather(*(ended(client, item[rendered.key], within) for item in rendered.items))
    for view in views:
        click.echo(f"{view.id} {view.state}", err=True)
    failed = any(view.state is not State.SUCCEEDED for view in views)
    return render.failing(rendered) if failed else rendered
