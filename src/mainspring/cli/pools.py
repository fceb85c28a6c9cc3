"""``mainspring pools``: what waits, and who works for it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli import render
from mainspring.cli.client import watch_option, with_client
from mainspring.cli.render import Rendered
from mainspring.domain.errors import Conflict
from mainspring.domain.views import PoolView
from mainspring.sdk.client import Client


@click.group()
def pools() -> None:
    """Look at pools, the queues that workers work for; pause and resume them.

    \b
    mainspring pools list
    """


@pools.command("list")
@watch_option
@with_client
async def list_pools(client: Client) -> Rendered:
    """List the pools that have work or workers.

    \b
    mainspring pools list --watch
    mainspring pools list -o json
    """
    found = await client.workers.pools()

    def row(pool: PoolView) -> Sequence[str]:
        numbers = (pool.workers, pool.room, pool.running, pool.ready, pool.waiting)
        oldest = "" if pool.oldest_ready is None else render.length(pool.oldest_ready)
        paused = "" if pool.paused is None else f"yes{pool.paused and ': '}{pool.paused}"
        return (pool.name, *map(str, numbers), oldest, ", ".join(pool.unknown_tasks), paused)

    def draw() -> None:
        columns = ("pool", "workers", "room", "running", "ready", "waiting", "oldest", "tasks nobody knows", "paused")
        render.table(columns, [row(pool) for pool in found], empty="no pools")

    return Rendered(items=render.plain(found), draw=draw, key="name")


@pools.command()
@click.argument("pool")
@click.option("--reason", default="", help="Why, for whoever wonders.")
@with_client
async def pause(client: Client, pool: str, reason: str) -> Rendered:
    """Let nothing more be claimed from a pool; what is at work goes on, and what comes in waits.

    \b
    mainspring pools pause mail --reason "the provider is down"
    """
    await client.workers.pause_pool(pool, reason=reason)
    return render.one({"name": pool, "paused": True}, lambda: click.echo(f'pool "{pool}" is paused'))


@pools.command()
@click.argument("pool")
@with_client
async def resume(client: Client, pool: str) -> Rendered:
    """Let a paused pool go on.

    \b
    mainspring pools resume mail
    """
    if not await client.workers.resume_pool(pool):
        raise Conflict(f'pool "{pool}" is not paused')
    return render.one({"name": pool, "paused": False}, lambda: click.echo(f'pool "{pool}" goes on'))
