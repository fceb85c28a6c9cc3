"""The contract suite for trigger engines: one body, every engine.

An engine is one file. To know that it keeps what the others keep, hand its builder over, with a server that may be
filled with databases::

    from functools import partial
    from mainspring import embedded
    from mainspring.testing.engines import Seat, exercise_engine, fresh_database


    def sundial(seat: Seat) -> Service:
        return Sundial(seat.rhythm, seat.fire, seat.events)


    with embedded.running() as server:
        asyncio.run(exercise_engine(sundial, partial(fresh_database, server.dsn)))

or one check a test, with pytest::

    @pytest.mark.parametrize("check", ENGINE_CHECKS, ids=str)
    async def test_a_sundial_keeps_the_contract(check: Check, dsn: str) -> None:
        async with open_cluster(dsn, sundial) as cluster:
            await check.run(cluster)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final

from mainspring.testing.checks import changing, crashing, sharing, stopping
from mainspring.testing.checks.base import Check
from mainspring.testing.cluster import PATIENCE, Cluster, fresh_database, open_cluster
from mainspring.testing.nodes import BUILT_IN, BuildEngine, Seat

__all__ = [
    "BUILT_IN",
    "ENGINE_CHECKS",
    "BuildEngine",
    "Check",
    "Cluster",
    "Seat",
    "exercise_engine",
    "fresh_database",
    "open_cluster",
]

ENGINE_CHECKS: Final[tuple[Check, ...]] = (*sharing.CHECKS, *crashing.CHECKS, *stopping.CHECKS, *changing.CHECKS)


async def exercise_engine(
    engine: BuildEngine | str,
    new_database: Callable[[], AbstractAsyncContextManager[str]],
    *,
    checks: Iterable[Check] = ENGINE_CHECKS,
    patience: timedelta = PATIENCE,
) -> None:
    """Run the checks on an engine, or on a built-in one by its name, each on an empty database of its own.

    Raises:
        AssertionError: the engine breaks a promise; the note names it.
    """
    build = BUILT_IN[engine] if isinstance(engine, str) else engine
    for check in checks:
        try:
            async with new_database() as dsn, open_cluster(dsn, build, patience=patience) as cluster:
                await check.run(cluster)
        except Exception as error:
            error.add_note(f"check: {check.name}")
            raise
