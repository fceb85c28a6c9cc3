"""``mainspring tenants``: whose jobs they are, and how much each may have. For whoever runs the cluster."""

from __future__ import annotations

from dataclasses import asdict

import click

from mainspring.cli import many, render
from mainspring.cli.administration import cluster_at
from mainspring.cli.client import asking, watch_option
from mainspring.cli.render import Rendered
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json
from mainspring.domain.tenants import Tenant, TenantState, check_tenant
from mainspring.sdk.cluster import Administration

_QUOTA = click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="NAME=VALUE",
    help="jobs, shortest_interval, requests_per_second, burst, batch or payload_bytes; may be given several times.",
)
_with_cluster = asking(cluster_at, tenant=None)  # a tenant belongs to nobody else
_REASON = click.option("--reason", default="", help="Why, for the log of changes.")


@click.group()
def tenants() -> None:
    """Make, look at and change tenants. A server wants a key of the whole cluster for that.

    \b
    mainspring tenants list
    """


@tenants.command("list")
@click.option("--deleted", is_flag=True, help="Those that were deleted, too.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many.")
@click.option("--after", metavar="NAME", help="Where the last page ended.")
@watch_option
@_with_cluster
async def list_tenants(cluster: Administration, *, deleted: bool, limit: int, after: str | None) -> Rendered:
    """List tenants by name.

    \b
    mainspring tenants list
    mainspring tenants list --deleted -o json
    """
    page = await cluster.list_tenants(limit=limit, after=after, deleted=deleted)

    def draw() -> None:
        rows = [(each.name, each.state.value, render.ago(each.created_at), each.note) for each in page.items]
        render.table(("tenant", "state", "made", "note"), rows, empty="no tenants")

    return Rendered(items=render.plain(page.items), draw=draw, key="name", next=page.next)


@tenants.command()
@click.argument("name")
@watch_option
@_with_cluster
async def show(cluster: Administration, name: str) -> Rendered:
    """Show a tenant, and how much it may have.

    \b
    mainspring tenants show acme
    """
    return _shown(await cluster.find_tenant(name))


@tenants.command()
@click.argument("name")
@_QUOTA
@click.option("--note", default="", help="What people should know about it.")
@_with_cluster
async def create(cluster: Administration, name: str, quotas: tuple[str, ...], note: str) -> Rendered:
    """Make a tenant.

    \b
    mainspring tenants create acme
    mainspring tenants create acme --quota jobs=500 --quota shortest_interval=1m --note "on trial"
    """
    check_tenant(name)  # in words that are the same wherever it goes
    return _shown(await cluster.create_tenant(name, quotas=_read(quotas), note=note))


@tenants.command()
@click.argument("name")
@_QUOTA
@click.option("--note", help="What people should know about it.")
@_REASON
@_with_cluster
async def edit(cluster: Administration, name: str, quotas: tuple[str, ...], note: str | None, reason: str) -> Rendered:
    """Change what is named, and leave the rest. Servers go by new quotas within seconds.

    \b
    mainspring tenants edit acme --quota jobs=5000 --reason "they grow"
    """
    return _shown(await cluster.edit_tenant(name, quotas=_read(quotas), note=note, reason=reason))


@tenants.command()
@click.argument("name")
@_REASON
@_with_cluster
async def suspend(cluster: Administration, name: str, reason: str) -> Rendered:
    """Let a tenant look, and change nothing. Its jobs go on.

    \b
    mainspring tenants suspend acme --reason "unpaid"
    """
    return await _set(cluster, name, TenantState.SUSPENDED, reason)


@tenants.command()
@click.argument("name")
@_REASON
@_with_cluster
async def resume(cluster: Administration, name: str, reason: str) -> Rendered:
    """Let a suspended tenant go on.

    \b
    mainspring tenants resume acme
    """
    return await _set(cluster, name, TenantState.ACTIVE, reason)


@tenants.command()
@click.argument("name")
@_REASON
@many.yes_option
@_with_cluster
async def delete(cluster: Administration, name: str, reason: str, *, yes: bool) -> Rendered:
    """Delete a tenant that has no jobs left. Its keys are good for nothing then, and its name is not given again.

    \b
    mainspring tenants delete acme --yes
    """
    many.confirm(f'Delete the tenant "{name}" for good?', yes=yes)
    return await _set(cluster, name, TenantState.DELETED, reason)


async def _set(cluster: Administration, name: str, state: TenantState, reason: str) -> Rendered:
    tenant = await cluster.set_state(name, state, reason=reason)
    return render.one(render.plain(tenant), lambda: click.echo(f'tenant "{name}" is {tenant.state}'), key="name")


def _shown(tenant: Tenant) -> Rendered:
    def draw() -> None:
        render.details(
            {
                "tenant": tenant.name,
                "state": tenant.state.value,
                "made": render.when(tenant.created_at),
                "changed": render.when(tenant.changed_at),
                "note": tenant.note,
                **{name: render.plain(value) for name, value in asdict(tenant.quotas).items()},
            }
        )

    return render.one(render.plain(tenant), draw, key="name")


def _read(quotas: tuple[str, ...]) -> Json:
    read: dict[str, Json] = {}
    for quota in quotas:
        name, given, value = quota.partition("=")
        if not given:
            allowed = "write it as jobs=500"
            raise InvalidRequest(f'"{quota[:40]}" has no value', field="quota", value=quota, allowed=allowed)
        read[name] = int(value) if value.isascii() and value.isdecimal() else value
    return read
