"""``mainspring pools``: what waits, and who works for it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli import render
from mainspring.cli.client import watch_option, with_client
from mainspring.cli.render import Rendered
from mainspring.domain.views import PoolView
from mainspring.sdk.client import Client


@click.group()
def pools() -> None:
    """Look at pools: the queues that workers work for.

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
        return (pool.name, *map(str, numbers), oldest, ", ".join(pool.unknown_tasks))

    def draw() -> None:
        columns = ("pool", "workers", "room", "running", "ready", "waiting", "oldest", "tasks nobody knows")
        render.table(columns, [row(pool) for pool in found], empty="no pools")

    return Rendered(items=render.plain(found), draw=draw, key="name")
