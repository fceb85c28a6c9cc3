"""For each test a fleet of node processes on its database, and a gate for their tasks."""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import count

import pytest
import pytest_asyncio

from mainspring.worker.isolation import Children

from .fleet import Fleet, Gate, fleet_on, gate_open
from .keeper import PATIENCE, ZOO, Worker


@pytest_asyncio.fixture(loop_scope="session")
async def gate() -> AsyncIterator[Gate]:
    async with gate_open() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(dsn: str, gate: Gate) -> AsyncIterator[Fleet]:
    async with fleet_on(dsn, gate) as started:
        yield started


_marks = count()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shared() -> AsyncIterator[Worker]:
    async with Children([ZOO], warm=2) as children:
        yield Worker(children)


@pytest_asyncio.fixture(loop_scope="session")
async def worker(shared: Worker) -> AsyncIterator[Worker]:
    """Lend one worker to all tests, each with its own patience; what a task leaves behind, the next would see."""
    async with asyncio.timeout(PATIENCE):
        yield shared


@pytest.fixture
def mark() -> str:
    """How long sleepers sleep: nobody else's sleep that long."""
    return f"3600.{os.getpid():07}{next(_marks):03}"
