"""Composition root: plain construction, top to bottom. A role is what a process was started as."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Literal, TypeAlias

from mainspring.config import Settings
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
from mainspring.store.changes import declare_job
from mainspring.store.claim import ClaimedRun
from mainspring.store.database import Database, open_database
from mainspring.store.fire import fire
from mainspring.store.hints import Ear
from mainspring.store.history import make_partitions
from mainspring.store.jobs import Definitions, put_missing
from mainspring.store.migrations import migrate
from mainspring.store.reading import last_success
from mainspring.store.slots import Evidence, evidence
from mainspring.tasks.context import LastSuccess
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events, NodeRegistered
from mainspring.upkeep.guardian import Guardian, Watch
from mainspring.upkeep.heartbeat import Heartbeat
from mainspring.upkeep.partitions import Partitions
from mainspring.upkeep.pulse import Pulse
from mainspring.worker.attempt import Target
from mainspring.worker.pool import PoolConfig, WorkerPool
from mainspring.worker.runner import Runner, open_runner
from mainspring.worker.secrets import EnvironmentSecrets, FileSecrets, Secrets, SecretsByScheme
from mainspring.worker.transcript import Transcript

if TYPE_CHECKING:
    from mainspring.worker.targets.http import HttpConfig

EngineName: TypeAlias = Literal["peers", "poll"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the workers of a node may call besides Python tasks."""

    http: HttpConfig | None  # None: no HTTP jobs here
    secrets: Secrets = field(default_factory=SecretsByScheme)  # none, unless an operator releases some
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)  # for the shell target; none: there is none


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
    targets: Targets | None = None  # None: Python tasks only
    pulse: bool = False  # heartbeats from a process of their own, for workers whose tasks may block the loop


def node_settings(settings: Settings, *, scheduler: bool, worker: bool) -> NodeSettings:
    """Return what a process does in these roles, as its operator has set it."""
    grace, cancel_every = settings.worker.grace, settings.worker.cancel_every
    pools = [
        PoolConfig(pool=pool, concurrency=size, grace=grace, cancel_every=cancel_every)
        for pool, size in settings.worker.sizes.items()
    ]
    return NodeSettings(
        engine=settings.scheduler.engine if scheduler else None,
        rhythm=Rhythm(batch=settings.scheduler.batch, look_every=settings.scheduler.look_every),
        pools=pools if worker else (),
        lease_for=settings.cluster.lease_ttl,
        heartbeat_every=settings.cluster.heartbeat_every,
        keep_for=settings.history.keep_for,
        targets=_targets(settings) if worker else None,
        pulse=worker,
    )


def _targets(settings: Settings) -> Targets:
    from mainspring.worker.targets.http import HttpConfig  # noqa: PLC0415 - a client worth 200 ms

    http = settings.http
    config = HttpConfig(
        allow_networks=http.allow_networks,
        deny_networks=http.deny_networks,
        ports=http.ports,
        connect_within=http.connect_timeout,
        answer_within=http.timeout,
        largest_answer=http.largest_response,
    )
    providers: dict[str, Secrets] = {"env": EnvironmentSecrets(settings.secrets.environment, os.environ)}
    if settings.secrets.directory is not None:
        providers["file"] = FileSecrets(settings.secrets.directory)
    return Targets(
        http=config if http.enabled else None, secrets=SecretsByScheme(providers), commands=settings.shell.commands
    )


@asynccontextmanager
async def open_ledger(dsn: str, *, connections: int = 10) -> AsyncIterator[Database]:
    """Connect, and bring the schema and the partitions up to date."""
    async with open_database(dsn, size=connections) as db:
        await migrate(db)
        await make_partitions(db, days=7)
        yield db


async def run_node(
    settings: NodeSettings, stop: Stop, *, db: Database, env: Environment, events: Events, registry: Registry
) -> None:
    """Register as a new node and run its services until the stop."""
    async with AsyncExitStack() as stack:
        timeline = await nodes.timeline(db)
        targets = {} if settings.targets is None else await _open_targets(stack, settings.targets, env)
        last = partial(_last_success, db)
        runner = await open_runner(
            stack,
            registry,
            room=_room(settings),
            env=env,
            timeline=timeline,
            targets=targets,
            find_last_success=last,
        )
        await _run_node(settings, stop, db=db, env=env, events=events, runner=runner)


async def _open_targets(stack: AsyncExitStack, wanted: Targets, env: Environment) -> dict[str, Target]:
    from mainspring.worker.targets.http import HttpTarget  # noqa: PLC0415 - a client worth 200 ms
    from mainspring.worker.targets.shell import ShellTarget  # noqa: PLC0415

    targets: dict[str, Target] = {}
    if wanted.http is not None:
        targets["http"] = await stack.enter_async_context(HttpTarget(wanted.http, wanted.secrets, env))
    if wanted.commands:
        targets["shell"] = ShellTarget(wanted.commands)
    return targets


async def _last_success(db: Database, run: ClaimedRun) -> LastSuccess | None:
    async with db.connection() as connection:
        found = await last_success(connection, run.job_id, run.slot)
    if found is None:
        return None
    result = None if found["result"] is None else json.loads(found["result"])
    return LastSuccess(run_id=found["id"], at=found["settled_at"], result=result)


async def _run_node(
    settings: NodeSettings, stop: Stop, *, db: Database, env: Environment, events: Events, runner: Runner
) -> None:
    works = nodes.Works(
        pools=[pool.pool for pool in settings.pools],
        tasks=runner.names if settings.pools else (),
        rooms=[pool.concurrency for pool in settings.pools],
        version=metadata.version("mainspring"),
    )
    node = await nodes.register(
        db,
        env,
        role=_role(settings),
        host=socket.gethostname(),
        pid=os.getpid(),
        lease_for=settings.lease_for,
        works=works,
    )
    events.emit(NodeRegistered(node=node, role=_role(settings)))
    pools: list[WorkerPool] = []
    grant = partial(_grant, pools)
    beating = Pulse if settings.pulse else Heartbeat
    rhythm = {"every": settings.heartbeat_every, "lease_for": settings.lease_for}
    heartbeat = beating(db, env, node, events, **rhythm, grant=grant)
    definitions = Definitions(whole=bool(settings.pools))
    transcript = Transcript(db, env)
    pools += [
        WorkerPool(
            pool,
            db=db,
            definitions=definitions,
            env=env,
            node=node,
            runner=runner,
            transcript=transcript,
            events=events,
        )
        for pool in settings.pools
    ]
    services: list[Service] = [heartbeat, *pools, *([transcript] if pools else [])]
    if pools and not db.pooled:
        services.append(Ear(db, lambda pool: _look_at(pools, pool)))
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
    await transcript.flush()
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


async def declare_tasks(db: Database, env: Environment, registry: Registry) -> list[str]:
    """Make a job of every task, by its schedule or for when somebody asks; return their names.

    Raises:
        Conflict: a job of that name runs another task.
    """
    for task in registry:
        await declare_job(db, env, task.job())
    return sorted(registry.names)


async def evidence_of(dsn: str, job: str, instant: datetime) -> Evidence:
    """Read what the ledger at ``dsn`` knows about a job at an instant."""
    async with open_ledger(dsn) as db:
        return await evidence(db, job, instant)


async def audit_of(dsn: str, start: datetime, end: datetime, tenant: str | None) -> AuditReport:
    """Judge the ledger at ``dsn``."""
    async with open_ledger(dsn) as db:
        return await run_audit(db, start=start, end=end, tenant=tenant)


def _grant(pools: Sequence[WorkerPool], wish: nodes.Wish, stop: Stop) -> None:
    """Do what an operator asks of this node."""
    for pool in pools:
        pool.quiesce()
    if wish is nodes.Wish.STOP:
        stop.request()


def _look_at(pools: Sequence[WorkerPool], named: str) -> None:
    for pool in pools:
        if named in ("", pool.pool):
            pool.look()


def _room(settings: NodeSettings) -> int:
    return sum(pool.concurrency for pool in settings.pools)


def _role(settings: NodeSettings) -> str:
    parts = (["scheduler"] if settings.engine else []) + (["worker"] if settings.pools else [])
    return "+".join(parts)
