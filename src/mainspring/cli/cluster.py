"""``mainspring cluster``: every process, and who leads."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli import render
from mainspring.cli.client import dsn_in_use, watch_option, with_client
from mainspring.cli.render import Rendered
from mainspring.cli.workers import liveness
from mainspring.domain.views import NodeView
from mainspring.insight.doctor import leases_at
from mainspring.sdk.client import Client


@click.group()
def cluster() -> None:
    """Look at the processes that make up a cluster.

    \b
    mainspring cluster show
    """


@cluster.command()
@watch_option
@with_client
async def show(client: Client) -> Rendered:
    """Show every process: its role, its id, where it runs, and the leases it holds.

    Leases have holders with the engine poll only; all nodes are equal with peers. A server does not tell of them.

    \b
    mainspring cluster show
    mainspring cluster show -o json
    """
    nodes = await client.workers.list()
    dsn = dsn_in_use()
    held = [] if dsn is None else await leases_at(dsn)
    items = [
        {**render.plain(node), "shards": [], "leases": [lease.name for lease in held if lease.node == node.id]}
        for node in nodes
    ]
    leases = {str(lease.node): f"{lease.name}, epoch {lease.epoch}" for lease in held}

    def row(node: NodeView) -> Sequence[str]:
        age = render.ago(node.registered_at)
        return (node.role, str(node.id), node.host, str(node.pid), age, *liveness(node), leases.get(str(node.id), ""))

    def draw() -> None:
        columns = ("role", "node", "host", "pid", "started", "alive", "heartbeat", "lease")
        render.table(columns, [row(node) for node in nodes], empty="no process is running")

    return Rendered(items=items, draw=draw)
