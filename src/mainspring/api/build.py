"""Everything the API consists of, put together from the settings."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from mainspring.api.admin import Audits, Secrets, Tenants
from mainspring.api.answering import Answering
from mainspring.api.app import App, AppConfig
from mainspring.api.auth import Authenticator, authentication_required, check_exposure
from mainspring.api.bulk import BulkActions
from mainspring.api.bulking import Bulks
from mainspring.api.checks import Checks
from mainspring.api.cluster import Cluster
from mainspring.api.desk import Desk
from mainspring.api.events import Streams
from mainspring.api.jobs import Jobs
from mainspring.api.jose import keys_of_settings
from mainspring.api.jwks import key_set
from mainspring.api.keys import Keys
from mainspring.api.limits import Limiter, MemoryLimiter, redis_limiter
from mainspring.api.making import Making
from mainspring.api.metrics import Metrics
from mainspring.api.pages import pages
from mainspring.api.runs import Runs
from mainspring.api.server import Server, ServerConfig, bound
from mainspring.api.tenancy import Gatekeeper, Tenancy
from mainspring.api.tokens import FixedKeys, KeySource, Tokens, token_rules
from mainspring.config import Settings
from mainspring.environment import Environment
from mainspring.sealing import Sealer, read_sealer
from mainspring.service import Service
from mainspring.store.database import Database
from mainspring.store.hints import Bell
from mainspring.telemetry.events import Events


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What a process in the role ``api`` runs."""

    url: str
    app: App
    services: Sequence[Service]
    open: bool  # without authentication, and so on loopback only


@asynccontextmanager
async def open_api(
    settings: Settings, *, db: Database, env: Environment, events: Events, or_any_port: bool = False
) -> AsyncIterator[Api]:
    """Listen, and put together what answers; ``or_any_port``, should the one of the settings be taken.

    Raises:
        InvalidRequest: the address is taken, or would be open to everybody.
    """
    check_exposure(settings.api.host, settings.auth)
    required = authentication_required(settings.api.host, settings.auth)
    server = ServerConfig(
        or_any_port=or_any_port, host=settings.api.host, port=settings.api.port, drain=settings.api.drain
    )
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(bound(server))
        bell = await stack.enter_async_context(Bell(db))
        tenancy = Tenancy(db, env)
        services: list[Service] = [tenancy]
        tokens = None
        if settings.auth.takes_tokens:
            sources: list[KeySource] = [FixedKeys(keys_of_settings(settings.auth, os.environ))]
            if (published := key_set(settings.auth, environment=env, events=events)) is not None:
                services.append(published)
                sources.append(published)
            tokens = Tokens(token_rules(settings.auth), *sources, environment=env)
        authenticator = Authenticator(required=required, tokens=tokens, keys=tenancy, tenants=tenancy, environment=env)
        gate = Gatekeeper(authenticator, tenancy, await _limiter(stack, settings, env, events), env)
        desk, metrics = Desk(db, env, bell), Metrics(db)
        checks = Checks(db, tenancy, env)
        streams = Streams(desk, gate, most=settings.api.most_streams)
        bulks = Bulks(desk, tenancy)
        services.append(bulks)
        parts = (
            Jobs(desk, checks, Making(desk)),
            Runs(desk, checks),
            BulkActions(desk, checks, bulks),
            Cluster(desk),
            Tenants(desk),
            Keys(desk),
            Secrets(desk, lambda: _sealer(settings)),
            Audits(desk),
            streams,
        )
        app = App(
            AppConfig(
                largest_body=settings.api.largest_body,
                deepest_json=settings.api.deepest_json,
                request_timeout=settings.api.request_timeout,
            ),
            gate=gate,
            handlers={name: handler for part in parts for name, handler in part.handlers.items()},
            pages=pages(db, metrics, docs=settings.api.docs),
            answering=Answering(desk),
            env=env,
            observe=metrics.observe,
            ending=streams.ending,
        )
        services.append(Server(app, listening, server, streams.ending))
        yield Api(url=_url(listening), app=app, services=services, open=not required)


async def _limiter(stack: AsyncExitStack, settings: Settings, env: Environment, events: Events) -> Limiter:
    if settings.redis.url is None:
        return MemoryLimiter(env)
    return await stack.enter_async_context(redis_limiter(settings.redis.url.value, environment=env, events=events))


def _sealer(settings: Settings) -> Sealer:
    named = settings.secrets
    return read_sealer(named.seal_with, named.also_open_with, os.environ)


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
