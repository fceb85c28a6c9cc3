"""``mainspring keys``: what programs show to the server to be let in. For whoever runs the cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import click

from mainspring.cli import render
from mainspring.cli.client import author_here, dsn_in_use, watch_option, with_client
from mainspring.cli.params import Duration
from mainspring.cli.render import Rendered
from mainspring.domain.access import Role
from mainspring.domain.keys import KeyView
from mainspring.sdk.client import Client
from mainspring.sdk.cluster import open_cluster


@click.group()
def keys() -> None:
    """Make, list and revoke API keys. Needs the database itself, not a server.

    \b
    mainspring keys create ci --tenant acme --role editor
    """


@keys.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default="viewer",
    show_default=True,
    help="What it may do.",
)
@click.option("--cluster", "whole_cluster", is_flag=True, help="For the whole cluster, not for one tenant.")
@click.option("--expires-in", type=Duration(), help="How long it is good, such as 90d.  [default: for ever]")
@with_client
async def create(
    client: Client, name: str, role: str, *, whole_cluster: bool, expires_in: timedelta | None
) -> Rendered:
    """Make a key for a tenant, and print it: this once. Only its hash is kept.

    \b
    mainspring keys create ci --tenant acme --role editor --expires-in 90d
    MAINSPRING_KEY=$(mainspring keys create ci -o json | jq -r .key)
    """
    tenant = None if whole_cluster else client.tenant
    expires_at = None if expires_in is None else datetime.now(UTC) + expires_in
    async with open_cluster(dsn_in_use(), author=author_here()) as cluster:
        text, made = await cluster.make_key(tenant=tenant, name=name, role=role, expires_at=expires_at)

    def draw() -> None:
        click.echo(text)
        render.styled("keep it: it is not shown again", err=True, fg="yellow")

    return render.one({"key": text, **render.plain(made)}, draw)


@keys.command("list")
@click.option("--all", "every", is_flag=True, help="Of every tenant, and of the whole cluster.")
@click.option("--revoked", is_flag=True, help="Those that were revoked, too.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many.")
@click.option("--after", metavar="ID", help="Where the last page ended.")
@watch_option
@with_client
async def list_keys(client: Client, *, every: bool, revoked: bool, limit: int, after: str | None) -> Rendered:
    """List the keys of a tenant, oldest first: how they begin, what they may do, and when they were last used.

    \b
    mainspring keys list --tenant acme
    mainspring keys list --all --revoked -o json
    """
    tenant = None if every else client.tenant
    async with open_cluster(dsn_in_use(), author=author_here()) as cluster:
        page = await cluster.list_keys(tenant=tenant, limit=limit, after=after, revoked=revoked)

    def draw() -> None:
        columns = ("id", "begins", "name", "tenant", "role", "made", "by", "last used", "state")
        render.table(columns, [_row(key) for key in page.items], empty="no keys")

    return Rendered(items=render.plain(page.items), draw=draw, next=page.next)


@keys.command()
@click.argument("key_id", metavar="ID", type=click.UUID)
@click.option("--reason", default="", help="Why, for the log of changes.")
@with_client
async def revoke(client: Client, key_id: UUID, reason: str) -> Rendered:
    """Let nobody in with a key any more. Servers hear of it within seconds.

    \b
    mainspring keys revoke 01a1e3a7-9a25-7182-b74a-38ecf881ce2b --reason "it was in a log"
    """
    del client
    async with open_cluster(dsn_in_use(), author=author_here()) as cluster:
        key = await cluster.revoke_key(key_id, reason=reason)
    return render.one(render.plain(key), lambda: click.echo(f'key "{key.name}" is revoked'))


def _row(key: KeyView) -> tuple[str, ...]:
    state = "revoked" if key.revoked else "expired" if key.expired else "good" if key.good else "without a tenant"
    used = render.ago(key.last_used_at) or "never"
    whose = key.tenant or "(the cluster)"
    return (
        str(key.id),
        f"ms_{key.prefix}…",
        key.name,
        whose,
        key.role,
        render.ago(key.created_at),
        key.created_by,
        used,
        state,
    )
