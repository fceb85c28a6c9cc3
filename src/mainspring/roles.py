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
from mainspring.domain.errors import InvalidRequest, UnknownTask
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
from mainspring.sealing import Sealer, own_secret, read_sealer
from mainspring.service import Service, Stop, run_all
from mainspring.store import nodes
from mainspring.store.changes import declare_job
from mainspring.store.claim import ClaimedRun
from mainspring.store.database import Database, open_database
from mainspring.store.fire import fire
from mainspring.store.hints import Ear
from mainspring.store.history import make_partitions
from mainspring.store.jobs import Definitions, put_missing
from mainspring.store.log import Entry
from mainspring.store.migrations import migrate
from mainspring.store.reading import last_success
from mainspring.store.secrets import (
    Rotated,
    SecretView,
    delete_secret,
    list_secrets,
    open_secret,
    put_secret,
    rotate_secrets,
)
from mainspring.tasks.context import LastSuccess
from mainspring.tasks.loading import Registry
from mainspring.telemetry.events import Events, Listening, NodeRegistered
from mainspring.upkeep.guardian import Guardian, Watch
from mainspring.upkeep.heartbeat import Heartbeat
from mainspring.upkeep.partitions import Partitions
from mainspring.upkeep.pulse import Pulse
from mainspring.worker.attempt import Target
from mainspring.worker.pool import PoolConfig, WorkerPool
from mainspring.worker.runner import Runner, open_runner
from mainspring.worker.secrets import (
    EnvironmentSecrets,
    FileSecrets,
    Remembered,
    Secrets,
    SecretsByScheme,
    StoredSecrets,
)
from mainspring.worker.transcript import Transcript
from mainspring.worker.vault import VaultConfig, VaultSecrets

if TYPE_CHECKING:
    from mainspring.worker.targets.http import HttpConfig

EngineName: TypeAlias = Literal["peers", "poll"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the workers of a node may call besides Python tasks."""

    http: HttpConfig | None  # None: no HTTP jobs here
    secrets: SecretsByScheme = field(default_factory=SecretsByScheme)  # none, unless an operator releases some
    sealer: Sealer | None = None  # opens what tenants have put into the store
    vault: VaultConfig | None = None
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
    api: Settings | None = None  # None: no API here
    any_port: bool = False  # for it, should its own be taken: two of these on one laptop are no mistake
    pulse: bool = False  # heartbeats from a process of their own, for workers whose tasks may block the loop


def node_settings(settings: Settings, *, scheduler: bool, worker: bool, api: bool = False) -> NodeSettings:
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
        api=settings if api else None,
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
        http=config if http.enabled else None,
        secrets=SecretsByScheme(providers),
        sealer=sealer_of(settings) if settings.secrets.seal_with else None,
        vault=_vault(settings),
        commands=settings.shell.commands,
    )


def sealer_of(settings: Settings) -> Sealer:
    """Return what seals and opens the secrets of tenants.

    Raises:
        InvalidRequest: no key is set, or what is named is none.
    """
    named = settings.secrets
    return read_sealer(named.seal_with, named.also_open_with, os.environ)


def _vault(settings: Settings) -> VaultConfig | None:
    named = settings.secrets
    if named.vault_url is None:
        return None
    if named.vault_token is None:
        allowed = "name the token, env:NAME or file:/path, or take secrets.vault_url away"
        raise InvalidRequest("a vault wants one", field="secrets.vault_token", value=None, allowed=allowed)
    token = partial(own_secret, named.vault_token, os.environ, field="secrets.vault_token")
    return VaultConfig(url=named.vault_url, token=token, mount=named.vault_mount, prefix=named.vault_prefix)


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
        wanted = settings.targets
        secrets = SecretsByScheme() if wanted is None else await _open_secrets(stack, wanted, db, env)
        targets = {} if wanted is None else await _open_targets(stack, wanted, secrets, env)
        last = partial(_last_success, db)
        runner = await open_runner(
            stack,
            registry,
            room=_room(settings),
            env=env,
            timeline=timeline,
            targets=targets,
            find_last_success=last,
            secrets=secrets,
        )
        beside: Sequence[Service] = ()
        if settings.api is not None:
            from mainspring.api.build import open_api  # noqa: PLC0415 - a server worth 200 ms

            api = await stack.enter_async_context(
                open_api(settings.api, db=db, env=env, events=events, or_any_port=settings.any_port)
            )
            beside = api.services
            events.emit(Listening(url=api.url, authenticated=not api.open))
        await _run_node(settings, stop, db=db, env=env, events=events, runner=runner, beside=beside)


async def _open_secrets(stack: AsyncExitStack, wanted: Targets, db: Database, env: Environment) -> SecretsByScheme:
    others: dict[str, Secrets] = {}
    if wanted.sealer is not None:
        sealer = wanted.sealer
        stored = StoredSecrets(lambda tenant, name: open_secret(db, tenant, name, sealer))
        others["store"] = Remembered(stored, env)
    if wanted.vault is not None:
        vault = await stack.enter_async_context(VaultSecrets(wanted.vault))
        others["vault"] = Remembered(vault, env)
    return wanted.secrets.also(others)


async def _open_targets(
    stack: AsyncExitStack, wanted: Targets, secrets: Secrets, env: Environment
) -> dict[str, Target]:
    from mainspring.worker.targets.http import HttpTarget  # noqa: PLC0415 - a client worth 200 ms
    from mainspring.worker.targets.shell import ShellTarget  # noqa: PLC0415

    targets: dict[str, Target] = {}
    if wanted.http is not None:
        targets["http"] = await stack.enter_async_context(HttpTarget(wanted.http, secrets, env))
    if wanted.commands:
        targets["shell"] = ShellTarget(wanted.commands, secrets=secrets)
    return targets


async def _last_success(db: Database, run: ClaimedRun) -> LastSuccess | None:
    async with db.connection() as connection:
        found = await last_success(connection, run.job_id, run.slot)
    if found is None:
        return None
    result = None if found["result"] is None else json.loads(found["result"])
    return LastSuccess(run_id=found["id"], at=found["settled_at"], result=result)


async def _run_node(
    settings: NodeSettings,
    stop: Stop,
    *,
    db: Database,
    env: Environment,
    events: Events,
    runner: Runner,
    beside: Sequence[Service],
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
    services: list[Service] = [heartbeat, *pools, *([transcript] if pools else []), *beside]
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


async def audit_of(dsn: str, start: datetime, end: datetime, tenant: str | None) -> AuditReport:
    """Judge the ledger at ``dsn``."""
    async with open_ledger(dsn) as db:
        return await run_audit(db, start=start, end=end, tenant=tenant)


@asynccontextmanager
async def open_secrets(dsn: str, settings: Settings) -> AsyncIterator[Drawer]:
    """Connect to the secrets of tenants at ``dsn``."""
    async with open_database(dsn) as db:
        yield Drawer(db, settings)


class Drawer:
    """The secrets of tenants, for whoever keeps them: a key is needed only where something is sealed.

    What is changed is in the log of the tenant, as it is over HTTP.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings

    async def put(self, tenant: str, name: str, value: str, *, author: str) -> SecretView:
        db = self._db.noting(Entry(action="secrets.put", subject=name, actor=author, tenant=tenant))
        return await put_secret(db, tenant, name, value, sealer_of(self._settings), author=author)

    async def list(self, tenant: str) -> Sequence[SecretView]:
        return await list_secrets(self._db, tenant)

    async def delete(self, tenant: str, name: str, *, author: str) -> int:
        db = self._db.noting(Entry(action="secrets.delete", subject=name, actor=author, tenant=tenant))
        return await delete_secret(db, tenant, name)

    def rotate(self) -> AsyncIterator[Rotated]:
        return rotate_secrets(self._db, sealer_of(self._settings))


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
    parts = {"api": settings.api, "scheduler": settings.engine, "worker": settings.pools}
    return "+".join(role for role, wanted in parts.items() if wanted)
