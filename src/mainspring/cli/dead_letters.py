"""``mainspring dead-letters``: runs that came to nothing, and what to do about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from mainspring.cli import many, render
from mainspring.cli.client import watch_option, with_client
from mainspring.cli.filters import LETTERS, filter_options
from mainspring.cli.params import JsonValue
from mainspring.cli.render import Rendered
from mainspring.cli.runs import draw_attempts, error_text, page_options
from mainspring.domain.errors import Conflict
from mainspring.domain.job import Json
from mainspring.domain.views import DeadLetter
from mainspring.sdk.client import Client


@click.group()
def dead_letters() -> None:
    """Look at runs that came to nothing, run them again, or close them. RUN is the id of the run that died.

    \b
    mainspring dead-letters replay --where 'job=etl since=1h' --dry-run
    """


@dead_letters.command("list")
@filter_options(LETTERS)
@page_options
@watch_option
@with_client
async def list_letters(client: Client, *, wanted: dict[str, Any], limit: int, after: str | None) -> Rendered:
    """List the open dead letters, newest first; since and until go by when they died.

    \b
    mainspring dead-letters list --reason exhausted
    mainspring dead-letters list --where 'job=etl since=1d' -o id
    """
    page = await client.dead_letters.list(**wanted, limit=limit, after=after)

    def draw() -> None:
        columns = ("run", "job", "slot (UTC)", "reason", "attempts", "error", "died")
        render.table(columns, [_row(letter) for letter in page.items], empty="no dead letters")

    return Rendered(items=render.plain(page.items), draw=draw, key="run_id", next=page.next)


def _row(letter: DeadLetter) -> Sequence[str]:
    error = letter.error
    return (
        str(letter.run_id),
        letter.job,
        f"{letter.slot:%Y-%m-%d %H:%M:%S}",
        letter.reason.value,
        str(len(letter.attempts)),
        f"{error.type}: {error.message}"[:80] if error else "",
        render.ago(letter.died_at),
    )


@dead_letters.command()
@click.argument("run")
@watch_option
@with_client
async def show(client: Client, run: str) -> Rendered:
    """Show a dead letter: why it died, with what payload, and every attempt.

    \b
    mainspring dead-letters show 019f6a3e-8c00-8b1d-9f5e-0123456789ab
    """
    letter = await client.dead_letters.get(run)

    def draw() -> None:
        render.details(
            {
                "run": letter.run_id,
                "job": f"{letter.job} (version {letter.version})",
                "kind": letter.kind.value,
                "slot": render.when(letter.slot),
                "died": f"{render.when(letter.died_at)}, {letter.reason}",
                "closed": f"{render.when(letter.closed_at)}, {letter.closed_as}" if letter.closed_at else "",
                "replayed as": letter.replayed_as,
                "payload": render.compact(letter.payload) if letter.payload is not None else "",
                "error": error_text(letter.error),
            }
        )
        if letter.attempts:
            draw_attempts(letter.attempts)

    return render.one(render.plain(letter), draw, key="run_id")


@dead_letters.command()
@click.argument("run", nargs=-1)
@filter_options(LETTERS)
@click.option("--payload", type=JsonValue(), help="Use this instead of the recorded one; for one RUN. @file reads.")
@many.dry_run_option
@many.yes_option
@many.wait_option
@with_client
async def replay(
    client: Client,
    run: tuple[str, ...],
    *,
    wanted: dict[str, Any],
    payload: Json,
    dry_run: bool,
    yes: bool,
    wait: timedelta | None,
) -> Rendered:
    """Run dead letters again: new runs, with a fresh retry budget. Twice is once.

    \b
    mainspring dead-letters replay 019f6a3e-8c00-8b1d-9f5e-0123456789ab --payload '{"day": "2026-11-15"}'
    mainspring dead-letters replay --where 'job=etl reason=exhausted' --yes
    """
    if payload is not None and len(run) != 1:
        raise click.UsageError("--payload goes with one RUN; others may need another")
    chosen = await _chosen(client, run, wanted)
    if dry_run:
        return _would(chosen, "replayed")
    if not run:
        many.confirm(f"Replay {len(chosen)} dead letters?", yes=yes)

    async def act(name: str) -> Json:
        return {"run_id": name, "replayed_as": str((await client.dead_letters.replay(name, payload=payload)).id)}

    def say(item: Json) -> str:
        return f"{item['run_id']} replayed as {item['replayed_as']}"

    return await many.wait_for_all(client, await many.do_all(chosen, act, say, key="replayed_as"), wait)


@dead_letters.command()
@click.argument("run", nargs=-1)
@filter_options(LETTERS)
@click.option("--because", default="", metavar="TEXT", help="Why; kept beside it.")
@many.dry_run_option
@many.yes_option
@with_client
async def discard(
    client: Client, run: tuple[str, ...], *, wanted: dict[str, Any], because: str, dry_run: bool, yes: bool
) -> Rendered:
    """Close dead letters for good: they are not replayed, nor listed, any more.

    \b
    mainspring dead-letters discard 019f6a3e-8c00-8b1d-9f5e-0123456789ab --because 'customer is gone'
    mainspring dead-letters discard --where 'job=etl until=30d' --dry-run
    """
    chosen = await _chosen(client, run, wanted)
    if dry_run:
        return _would(chosen, "discarded")
    if not run:
        many.confirm(f"Discard {len(chosen)} dead letters for good?", yes=yes)

    async def act(name: str) -> Json:
        if not await client.dead_letters.discard(name, reason=because):
            closed = (await client.dead_letters.get(name)).closed_as
            raise Conflict(f"the dead letter of run {name} was {closed} already")
        return {"run_id": name, "closed_as": "discarded"}

    def say(item: Json) -> str:
        return f"{item['run_id']} discarded"

    return await many.do_all(chosen, act, say)


async def _chosen(client: Client, ids: Sequence[str], wanted: dict[str, Any]) -> list[str]:
    many.ids_or_filter(ids, wanted)
    if ids:
        return list(ids)
    return [str(letter.run_id) async for letter in client.dead_letters.each(**wanted, limit=500)]


def _would(chosen: Sequence[str], what: str) -> Rendered:
    return many.would(chosen, f"dead letters would be {what}")
