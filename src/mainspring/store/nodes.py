"""Nodes and leases: who is alive, and who leads.

Promise. A node declared dead stays dead, and a lease changes hands only from a dead node or by release.
Both are hints for liveness: fires and results stay right whoever believes what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from mainspring.domain.errors import NodeDeclaredDead, NotFound
from mainspring.domain.ids import NodeId
from mainspring.domain.selection import Fence
from mainspring.environment import Environment
from mainspring.store.database import Database
from mainspring.store.queries import queries

_SQL = queries("nodes")
LEASE_FOR = timedelta(seconds=6)
HEARTBEAT_EVERY = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Works:
    """What a node does for which pools, for people who look for a worker."""

    pools: Sequence[str] = ()
    tasks: Sequence[str] = ()
    rooms: Sequence[int] = ()  # runs at once, of each pool
    version: str = ""


async def register(
    db: Database,
    env: Environment,
    *,
    role: str,
    host: str,
    pid: int,
    lease_for: timedelta = LEASE_FOR,
    works: Works = Works(),  # noqa: B008 - frozen
) -> NodeId:
    """Enter a process under a new random id: never its host name or pid, which others may share (F05)."""
    node = NodeId(env.token())
    told = (works.version, list(works.pools), list(works.tasks), list(works.rooms))
    async with db.transaction() as tx:
        await tx.execute(_SQL["register"], node, role, host, pid, lease_for, *told)
    return node


async def timeline(db: Database) -> int:
    """Return on which timeline the database is."""
    async with db.connection() as connection:
        return int(await connection.fetchval(_SQL["timeline"]))


class Wish(StrEnum):
    """What an operator asks of a node."""

    QUIESCE = "quiesce"  # take nothing more; finish what is in hand, and stay
    STOP = "stop"  # drain, and end


async def heartbeat(db: Database, node: NodeId) -> Wish | None:
    """Say "still alive", and hear what an operator asks.

    Raises:
        NodeDeclaredDead: too late; the process must come back under a new id.
    """
    async with db.transaction() as tx:
        found = await tx.fetchrow(_SQL["heartbeat"], node)
    if found is None:
        raise NodeDeclaredDead(f"node {node} was declared dead by a peer")
    return None if found["asked"] is None else Wish(found["asked"])


async def ask(db: Database, node: NodeId, wish: Wish) -> None:
    """Ask something of a node, which hears of it with its next heartbeat.

    Raises:
        NotFound: there is no such node, or it is dead.
    """
    async with db.transaction() as tx:
        if await tx.fetchval(_SQL["ask"], node, wish.value) is None:
            raise NotFound(f"there is no living node {node}")


async def pause_pool(db: Database, pool: str, *, author: str, reason: str) -> None:
    """Let nothing be claimed from a pool; what is at work goes on. Twice is once."""
    async with db.transaction() as tx:
        await tx.execute(_SQL["pause_pool"], pool, author, reason)


async def resume_pool(db: Database, pool: str) -> bool:
    """Let a pool go on; return whether it was paused."""
    async with db.transaction() as tx:
        paused = await tx.fetchval(_SQL["resume_pool"], pool) is not None
        if not paused:
            db.nothing_done()
    return paused


async def retire(db: Database, node: NodeId) -> None:
    """Leave politely: whatever this node still holds may be taken at once."""
    async with db.transaction() as tx:
        await tx.execute(_SQL["retire"], node)


async def declare_dead(db: Database, by: NodeId) -> Sequence[NodeId]:
    """Declare dead whoever let its lease run out, and return who that is."""
    async with db.transaction() as tx:
        return [NodeId(row["id"]) for row in await tx.fetch(_SQL["declare_dead"], by)]


async def take_lease(db: Database, name: str, node: NodeId) -> Fence | None:
    """Take a lease that nobody alive holds, or confirm our own; None: a living node has it.

    Locked first, judged in the next statement: in one outer join READ COMMITTED could rob a live owner (F120).
    """
    async with db.transaction() as tx:
        epoch = await tx.fetchval(_SQL["create_lease"], name, node)
        if epoch is None:
            held = await tx.fetchrow(_SQL["lock_lease"], name)
            assert held is not None, "created above, or by whoever made us wait"
            if held["node"] == node:
                epoch = held["epoch"]
            elif await tx.fetchval(_SQL["dead"], held["node"]):
                epoch = await tx.fetchval(_SQL["pass_lease"], name, node)
    return None if epoch is None else Fence(name, node, epoch)
