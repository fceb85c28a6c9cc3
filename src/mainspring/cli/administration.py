"""What commands for those who run a cluster ask: its database, or a server that knows their key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from mainspring.cli.client import Where, author_here
from mainspring.sdk.cluster import Administration, open_cluster

if TYPE_CHECKING:
    from mainspring.sdk.remote_cluster import RemoteCluster


@asynccontextmanager
async def cluster_at(where: Where) -> AsyncIterator[Administration]:
    """Open the tenants and keys of a cluster."""
    if where.place.served:
        async with server_at(where) as server:
            yield server
        return
    async with (
        where.client() as client,  # which refuses a database that is not up to date
        open_cluster(where.place.address, tenant=client.tenant, author=author_here()) as cluster,
    ):
        yield cluster


def server_at(where: Where) -> AbstractAsyncContextManager[RemoteCluster]:
    """Open a server."""
    from mainspring.sdk.remote_cluster import open_remote_cluster  # noqa: PLC0415 - an HTTP client comes with it

    place = where.place
    return open_remote_cluster(
        place.address, place.key, tenant=where.tenant, insecure=where.insecure, through=where.through
    )
