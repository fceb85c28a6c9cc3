"""A server over a ledger of its own for each test, and somebody who asks it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

import aiohttp
import pytest
import pytest_asyncio

from mainspring import embedded
from mainspring.api.build import Api, open_api
from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.environment import Environment, SystemEnvironment
from mainspring.service import Stop, run_all
from mainspring.store.database import Database, open_database
from mainspring.store.keys import make_key
from mainspring.store.tenants import create_tenant
from mainspring.telemetry.events import Events
from tests.postgres import copied

_MODULES = count()
Serving: TypeAlias = Callable[..., AbstractAsyncContextManager["Asker"]]


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: Any

    def __getitem__(self, name: str) -> Any:
        return self.body[name]


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends requests, as somebody."""

    session: aiohttp.ClientSession
    url: str
    api: Api
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, method: str, path: str, json: Any = None, **more: Any) -> Answered:
        headers = {**self.headers, **more.pop("headers", {})}
        where = path if path.startswith(("/healthz", "/readyz", "/metrics", "/docs", "/api/")) else f"/api/v1{path}"
        given = {"json": json} if json is not None else {}
        async with self.session.request(method, f"{self.url}{where}", headers=headers, **given, **more) as answer:
            typed = answer.content_type.endswith("json")
            return Answered(
                answer.status, answer.headers, await (answer.json(content_type=None) if typed else answer.text())
            )

    def given(self, **headers: str) -> "Asker":
        return replace(
            self, headers={**self.headers, **{name.replace("_", "-"): text for name, text in headers.items()}}
        )

    def with_key(self, key: str) -> "Asker":
        return self.given(Authorization=f"Bearer {key}")


@asynccontextmanager
async def serve(db: Database, settings: Settings | None = None, env: Environment | None = None) -> AsyncIterator[Asker]:
    """Run a server for the length of a block."""
    env = env or SystemEnvironment()
    settings = settings or Settings()
    settings = replace(settings, api=replace(settings.api, port=0))
    events, stop = Events(lambda _: None), Stop(env)
    async with open_api(settings, db=db, env=env, events=events) as api:
        running = asyncio.create_task(run_all(stop, *api.services, environment=env, events=events))
        async with aiohttp.ClientSession() as session:
            try:
                yield Asker(session, api.url, api)
            finally:
                stop.request()
                await running


@pytest_asyncio.fixture(loop_scope="session")
async def ask(db: Database) -> AsyncIterator[Asker]:
    """Ask a server that wants no key, as one on loopback does."""
    async with serve(db) as asker:
        yield asker


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_dsn(server: embedded.Server, template: str) -> AsyncIterator[str]:
    """Lend one database to all tests of a module: for those that look, and for what takes long to set up."""
    async with copied(server, template, f"module_{next(_MODULES)}") as fresh:
        yield fresh


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_db(shared_dsn: str) -> AsyncIterator[Database]:
    async with open_database(shared_dsn) as database:
        yield database


@pytest.fixture
def secured() -> Settings:
    """Settings that want a key of everybody."""
    return replace(Settings(), auth=replace(Settings().auth, required=True))


async def key_for(db: Database, tenant: str | None, role: Role = Role.ADMIN) -> str:
    """Make a tenant, unless it is there, and a key for it."""
    if tenant is not None:
        async with db.transaction() as tx:
            there = await tx.fetchval("SELECT 1 FROM tenants WHERE name = $1", tenant)
        if not there:
            await create_tenant(db, tenant)
    text, _ = await make_key(
        db, SystemEnvironment(), tenant=tenant, name=f"{role} of {tenant}", role=role.value, created_by="tests"
    )
    return text
