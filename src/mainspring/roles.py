"""Composition root: plain construction, top to bottom. A role is what a process was started as."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

from mainspring.domain.errors import UnknownTask
from mainspring.domain.firing import FireReport
from mainspring.domain.ids import JobId
from mainspring.domain.job import Job
from mainspring.domain.selection import Selection
from mainspring.engines.base import Rhythm
from mainspring.engines.peers import Peers
from mainspring.engines.poll import Poll
from mainspring.environment import Environment
from mainspring.insight.audit import run_audit
from mainspring.insight.report import AuditReport
from mainspring.service import Service, Stop, run_all
from mainspring.store import nodes
from mainspring.store.database import Database, open_database
from mainspring.store.fire import fire
from mainspring.store.history import make_partitions
from mainspring.store.jobs import Definitions, put_missing
from mainspring.store.migrations import migrate
from mainspring.store.slots import Evidence, evidence
from mainspring.telemetry.events import Events, NodeRegistered
from mainspring.upkeep.guardian import Guardian, Watch
from mainspring.upkeep.heartbeat import Heartbeat
from mainspring.upkeep.partitions import Partitions
from mainspring.worker.pool import PoolConfig, WorkerPool
from mainspring.worker.registry import Registry

EngineName: TypeAlias = Literal["peers", "poll"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What one process does; several may do the same over one database."""

    engine: EngineName | None = "peers"  # None: no scheduler here
    pools: Sequence[PoolConfig] = (PoolConfig(),)
    rhythm: Rhythm = field(default_factory=Rhythm)
    watch: Watch = field(default_factory=Watch)
    lease_for: timedelta = nodes.LEASE_FOR
    heartbeat_every: timedelta = nodes.HEARTBEAT_EVERY
    keep_for: timedelta = timedelta(days=30)  # history; dead letters stay until somebody closes them


@asynccontextmanager
async def open_ledger(dsn: str) -> AsyncIterator[Database]:
    """Connect, and bring the schema and the partitions up to date."""
    async with open_database(dsn) as db:
        await migrate(db)
        await make_partitions(db, days=7)
        yield db


async def run_node(
    settings: NodeSettings, stop: Stop, *, db: Database, env: Environment, events: Events, registry: Registry
) -> None:
    """Register as a new node and run its services until the stop."""
    node = await nodes.register(
        db, env, role=_role(settings), host=socket.gethostname(), pid=os.getpid(), lease_for=settings.lease_for
    )
    events.emit(NodeRegistered(node=node, role=_role(settings)))
    heartbeat = Heartbeat(db, env, node, events, every=settings.heartbeat_every, lease_for=settings.lease_for)
    definitions = Definitions(whole=bool(settings.pools))
    pools = [
        WorkerPool(pool, db=db, definitions=definitions, env=env, node=node, registry=registry, events=events)
        for pool in settings.pools
    ]
    services: list[Service] = [heartbeat, *pools]
    if settings.engine is not None:

        async def fires(selection: Selection) -> FireReport:
            report = await fire(db, definitions, env, selection)
            if report.runs:
                for pool in pools:
                    pool.look()
            return report

        engines: dict[EngineName, Service] = {
            "peers": Peers(settings.rhythm, fires, events),
            "poll": Poll(
                settings.rhythm, fires, partial(nodes.take_lease, db, "leader", node), heartbeat.trusted, events
            ),
        }
        services += [engines[settings.engine], Partitions(db, keep_for=settings.keep_for)]
        services.append(
            Guardian(settings.watch, db=db, definitions=definitions, env=env, node=node, fire=fires, events=events)
        )
    await run_all(stop, *services, environment=env, events=events)
    await nodes.retire(db, node)


async def put_jobs(db: Database, env: Environment, jobs: Sequence[Job], *, tasks: Collection[str] | None = None) -> int:
    """Write those jobs whose names are not taken; return how many are new. None is written if one is refused.

    Raises:
        UnknownTask: a job names none of ``tasks``, which are all there are; None: nobody here knows.
    """
    for job in jobs:
        if tasks is not None and job.task not in tasks:
            allowed = f"register it, or use one of {', '.join(sorted(tasks))}" if tasks else "register it"
            reason = f'job "{job.name}" names "{job.task}", which is not registered'
            raise UnknownTask(reason, field="task", value=job.task, allowed=allowed)
    async with db.transaction() as tx:
        return await put_missing(tx, [(JobId(env.new_id()), job) for job in jobs])


async def evidence_of(dsn: str, job: str, instant: datetime) -> Evidence:
    """Read what the ledger at ``dsn`` knows about a job at an instant."""
    async with open_ledger(dsn) as db:
        return await evidence(db, job, instant)


async def audit_of(dsn: str, start: datetime, end: datetime, tenant: str | None) -> AuditReport:
    """Judge the ledger at ``dsn``."""
    async with open_ledger(dsn) as db:
        return await run_audit(db, start=start, end=end, tenant=tenant)


def _role(settings: NodeSettings) -> str:
    parts = (["scheduler"] if settings.engine else []) + (["worker"] if settings.pools else [])
    return "+".join(parts)
