"""A client, and a node that works for it, over a ledger of its own for each test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from mainspring import Client
from mainspring.domain.run import State
from mainspring.environment import SystemEnvironment
from mainspring.roles import NodeSettings, run_node
from mainspring.sdk.handles import Run
from mainspring.service import Stop
from mainspring.store.database import Database
from mainspring.tasks.hooks import Hook, Resource
from mainspring.tasks.loading import Registry
from mainspring.tasks.task import Task
from mainspring.telemetry.events import Events
from mainspring.testing import Recorder
from mainspring.worker.pool import PoolConfig

Working: TypeAlias = Callable[..., AbstractAsyncContextManager[Recorder]]


@pytest_asyncio.fixture(loop_scope="session")
async def client(dsn: str) -> AsyncIterator[Client]:
    async with Client(dsn, author="tests") as opened:
        yield opened


@pytest.fixture
def working(db: Database) -> Working:
    """Run a node that knows some tasks, for the length of a block."""

    @asynccontextmanager
    async def node(
        *tasks: Task[..., Any],
        modules: Sequence[str] = (),
        hooks: Sequence[Hook] = (),
        resources: Sequence[Resource] = (),
        **pool: Any,
    ) -> AsyncIterator[Recorder]:
        env = SystemEnvironment()
        stop, recorder = Stop(env), Recorder()
        config = PoolConfig(cancel_every=timedelta(milliseconds=20), **pool)
        settings = NodeSettings(pools=(config,))
        registry = Registry(tasks, modules=modules)
        registry.hooks += hooks
        registry.resources |= {each.name: each for each in resources}
        service = run_node(settings, stop, db=db, env=env, events=Events(recorder), registry=registry)
        running = asyncio.create_task(service)
        try:
            yield recorder
        finally:
            stop.request()
            await running

    return node


async def until(holds: Callable[[], Awaitable[bool]], within: float = 20) -> None:
    """Wait until the ledger says so."""
    async with asyncio.timeout(within):
        while not await holds():  # noqa: ASYNC110 - it is in another process that it comes true
            await asyncio.sleep(0.02)


async def is_in(run: Run[Any], state: State) -> bool:
    return (await run.status()).state is state
