"""For each test a fleet of node processes on its database, and a gate for their tasks."""

from collections.abc import AsyncIterator

import pytest_asyncio

from .fleet import Fleet, Gate, fleet_on, gate_open


@pytest_asyncio.fixture(loop_scope="session")
async def gate() -> AsyncIterator[Gate]:
    async with gate_open() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(dsn: str, gate: Gate) -> AsyncIterator[Fleet]:
    async with fleet_on(dsn, gate) as started:
        yield started
