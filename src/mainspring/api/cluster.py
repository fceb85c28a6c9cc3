"""What can be seen and asked of the cluster, over HTTP; and who is asking."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from uuid import UUID

from mainspring.api.app import Handler
from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.domain.access import CLUSTER_SCOPES, SCOPES
from mainspring.domain.errors import NotFound
from mainspring.domain.ids import NodeId
from mainspring.domain.job import check_name
from mainspring.rest import shapes
from mainspring.store import log, nodes, reading
from mainspring.store.database import Database

_DONE = shapes.Health(status="ok")


class Cluster:
    """Handlers of the routes of nodes, pools and principals. Nodes and pools are nobody's: the owner's database."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "cluster.show": self.show,
            "workers.quiesce": self.quiesce,
            "workers.stop": self.stop,
            "pools.list": self.pools,
            "pools.pause": self.pause_pool,
            "pools.resume": self.resume_pool,
            "pools.scaling": self.scaling,
            "me.get": self.me,
            "changes.list": self.changes,
            "cluster.changes": self.changes_of_cluster,
        }

    async def show(self, call: Call) -> Reply:
        del call
        found = await reading.list_nodes(self._desk.db)
        version = metadata.version("mainspring")
        return json_reply(shapes.ClusterAnswer(version=version, nodes=tuple(map(shapes.node_answer, found))))

    async def quiesce(self, call: Call) -> Reply:
        return await self._ask(call, nodes.Wish.QUIESCE)

    async def stop(self, call: Call) -> Reply:
        return await self._ask(call, nodes.Wish.STOP)

    async def _ask(self, call: Call, wish: nodes.Wish) -> Reply:
        try:
            node = NodeId(UUID(call.names["node"]))
        except ValueError:
            raise NotFound(f'there is no node "{call.names["node"][:60]}"') from None
        entry = self._desk.entry(call, str(node), after={"asked": wish.value}, reason=call.body.reason)
        await nodes.ask(self._desk.db.noting(entry), node, wish)
        return json_reply(_DONE)

    async def pools(self, call: Call) -> Reply:
        del call
        return json_reply(shapes.Pools(items=tuple(map(shapes.pool_answer, await reading.list_pools(self._desk.db)))))

    async def pause_pool(self, call: Call) -> Reply:
        pool = _pool(call)
        entry = self._desk.entry(call, pool, after={"paused": True}, reason=call.body.reason)
        db = self._desk.db.noting(entry)
        await nodes.pause_pool(db, pool, author=call.principal.subject, reason=call.body.reason)
        return json_reply(_DONE)

    async def resume_pool(self, call: Call) -> Reply:
        pool = _pool(call)
        entry = self._desk.entry(call, pool, after={"paused": False}, reason=call.body.reason)
        return json_reply(shapes.PoolResumed(resumed=await nodes.resume_pool(self._desk.db.noting(entry), pool)))

    async def scaling(self, call: Call) -> Reply:
        pool = _pool(call)
        found = {each.name: each for each in await reading.list_pools(self._desk.db)}.get(pool)
        if found is None:  # nothing waits, and nobody works: an autoscaler wants a number all the same
            return json_reply(
                shapes.Scaling(pool=pool, ready=0, running=0, room=0, workers=0, oldest_ready_seconds=0.0)
            )
        oldest = found.oldest_ready.total_seconds() if found.oldest_ready is not None else 0.0
        return json_reply(
            shapes.Scaling(
                pool=pool,
                ready=found.ready,
                running=found.running,
                room=found.room,
                workers=found.workers,
                oldest_ready_seconds=oldest,
            )
        )

    async def me(self, call: Call) -> Reply:
        who = call.principal
        scopes = SCOPES[who.role] if who.cluster else SCOPES[who.role] - CLUSTER_SCOPES
        answer = shapes.MeAnswer(
            subject=who.subject,
            tenant=who.tenant,
            role=who.role.value,
            cluster=who.cluster,
            scopes=tuple(sorted(scopes)),
        )
        return json_reply(answer)

    async def changes(self, call: Call) -> Reply:
        return await self._changes(call, self._desk.scoped(call), call.principal.tenant)

    async def changes_of_cluster(self, call: Call) -> Reply:
        return await self._changes(call, self._desk.db, None)

    async def _changes(self, call: Call, db: Database, tenant: str | None) -> Reply:
        asked = call.query
        wanted = log.LogFilter(
            action=asked.action, subject=asked.subject, actor=asked.actor, since=asked.since, until=asked.until
        )
        page = await log.list_changes(db, tenant, wanted, limit=asked.limit, after=asked.after)
        items = tuple(shapes.ChangeAnswer(**shapes.fields_of(each, shapes.ChangeAnswer)) for each in page.items)
        return json_reply(shapes.ChangePage(items=items, next=page.next))


def _pool(call: Call) -> str:
    check_name(call.names["pool"], "pool")
    return call.names["pool"]
