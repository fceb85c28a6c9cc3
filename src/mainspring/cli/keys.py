"""``mainspring keys``: what programs show to the server to be let in. For whoever runs the cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import click

from mainspring.cli import render
from mainspring.cli.administration import cluster_at
from mainspring.cli.client import asking, watch_option
from mainspring.cli.params import Duration
from mainspring.cli.render import Rendered
from mainspring.domain.access import Role
from mainspring.domain.job import Json
from mainspring.domain.keys import KeyView
from mainspring.sdk.cluster import Administration

_with_keys = asking(cluster_at, tenant="Whose keys.  [default: default, or that of your own key]")


@click.group()
def keys() -> None:
    """Make, list and revoke API keys. A server wants the key of an admin for that.

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
@_with_keys
async def create(
    cluster: Administration, name: str, role: str, *, whole_cluster: bool, expires_in: timedelta | None
) -> Rendered:
    """Make a key for a tenant, and print it: this once. Only its hash is kept.

    \b
    mainspring keys create ci --tenant acme --role editor --expires-in 90d
    MAINSPRING_KEY=$(mainspring keys create ci -o json | jq -r .key)
    """
    expires_at = None if expires_in is None else datetime.now(UTC) + expires_in
    text, made = await cluster.make_key(name=name, role=role, expires_at=expires_at, whole_cluster=whole_cluster)

    def draw() -> None:
        click.echo(text)
        render.styled("keep it: it is not shown again", err=True, fg="yellow")

    return render.one({"key": text, **_plain(made)}, draw)


@keys.command("list")
@click.option("--all", "every", is_flag=True, help="Of every tenant, and of the whole cluster.")
@click.option("--revoked", is_flag=True, help="Those that were revoked, too.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many.")
@click.option("--after", metavar="ID", help="Where the last page ended.")
@watch_option
@_with_keys
async def list_keys(cluster: Administration, *, every: bool, revoked: bool, limit: int, after: str | None) -> Rendered:
    """List the keys of a tenant, oldest first: how they begin, what they may do, and when they were last used.

    \b
    mainspring keys list --tenant acme
    mainspring keys list --all --revoked -o json
    """
    page = await cluster.list_keys(limit=limit, after=after, revoked=revoked, every=every)

    def draw() -> None:
        columns = ("id", "begins", "name", "tenant", "role", "made", "by", "last used", "state")
        render.table(columns, [_row(key) for key in page.items], empty="no keys")

    return Rendered(items=list(map(_plain, page.items)), draw=draw, next=page.next)


@keys.command()
@click.argument("key_id", metavar="ID", type=click.UUID)
@click.option("--reason", default="", help="Why, for the log of changes.")
@_with_keys
async def revoke(cluster: Administration, key_id: UUID, reason: str) -> Rendered:
    """Let nobody in with a key any more. Servers hear of it within seconds.

    \b
    mainspring keys revoke 01a1e3a7-9a25-7182-b74a-38ecf881ce2b --reason "it was in a log"
    """
    key = await cluster.revoke_key(key_id, reason=reason)
    return render.one(_plain(key), lambda: click.echo(f'key "{key.name}" is revoked'))


def _plain(key: KeyView) -> Json:
    """Return a key as the API has it: whether it is good, not why."""
    known = render.plain(key)
    del known["expired"], known["tenant_state"]
    return {**known, "good": key.good}


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
