"""``mainspring workers``: the processes that run tasks."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli import render
from mainspring.cli.client import watch_option, with_client
from mainspring.cli.render import Rendered
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.views import NodeView
from mainspring.sdk.client import Client


@click.group()
def workers() -> None:
    """Look at the processes that run tasks. NODE is an id, or how it begins.

    \b
    mainspring workers list
    """


@workers.command("list")
@watch_option
@with_client
async def list_workers(client: Client) -> Rendered:
    """List workers: which pools they work for, and how much they have in hand.

    \b
    mainspring workers list --watch
    """
    found = [node for node in await client.workers.list() if node.pools]

    def row(node: NodeView) -> Sequence[str]:
        in_hand = f"{node.running} of {node.room}"
        return (str(node.id), node.host, str(node.pid), ", ".join(node.pools), in_hand, node.version, *liveness(node))

    def draw() -> None:
        columns = ("node", "host", "pid", "pools", "running", "version", "alive", "heartbeat")
        render.table(columns, [row(node) for node in found], empty="no workers")

    return Rendered(items=render.plain(found), draw=draw)


def liveness(node: NodeView) -> tuple[str, str]:
    """Say whether a node is alive, and when it said so."""
    return "yes" if node.alive else "no", f"{render.length(node.heartbeat_age)} ago"


@workers.command()
@click.argument("node")
@watch_option
@with_client
async def show(client: Client, node: str) -> Rendered:
    """Show a worker, and the tasks it knows.

    \b
    mainspring workers show 0f6a3e8c
    """
    view = chosen(await client.workers.list(), node)

    def draw() -> None:
        alive, heartbeat = liveness(view)
        render.details(
            {
                "node": view.id,
                "role": view.role,
                "host": view.host,
                "pid": view.pid,
                "version": view.version,
                "alive": f"{alive}, heartbeat {heartbeat}",
                "registered": render.when(view.registered_at),
                "pools": ", ".join(view.pools),
                "running": f"{view.running} of {view.room}",
                "tasks": "\n".join(view.tasks),
            }
        )

    return render.one(render.plain(view), draw)


@workers.command()
@click.argument("node")
@with_client
async def quiesce(client: Client, node: str) -> Rendered:
    """Ask a worker to take nothing more; it finishes what it has in hand, and stays.

    \b
    mainspring workers quiesce 0f6a3e8c
    """
    view = chosen(await client.workers.list(), node)
    await client.workers.quiesce(view.id)
    return render.one({"id": str(view.id), "asked": "quiesce"}, lambda: click.echo(f"{view.id} will take nothing more"))


@workers.command()
@click.argument("node")
@with_client
async def stop(client: Client, node: str) -> Rendered:
    """Ask a process to drain and end; it hears of it with its next heartbeat.

    \b
    mainspring workers stop 0f6a3e8c
    """
    view = chosen(await client.workers.list(), node)
    await client.workers.stop(view.id)
    return render.one({"id": str(view.id), "asked": "stop"}, lambda: click.echo(f"{view.id} will drain and end"))


def chosen(nodes: Sequence[NodeView], asked: str) -> NodeView:
    """Return the node of that id, or whose id begins so.

    Raises:
        NotFound: there is none.
        Conflict: there are several.
    """
    found = [node for node in nodes if asked and str(node.id).startswith(asked.lower())]
    if not found:
        raise NotFound(f'there is no node "{asked}"; the dead are remembered for a minute')
    if len(found) > 1:
        raise Conflict(f'"{asked}" begins the ids of {len(found)} nodes; give more of it')
    return found[0]
