"""Completion: a task settles its own run, in the transaction that holds its effects. Then both are there, or neither.

Promise. The effects of a task that completes its run are there exactly once, for one attempt only.

By what. Settling names run, attempt and lease token, in the task's transaction. A replaced attempt matches no row and
gets ``Superseded``, which rolls its effects back. Two that try at once wait for each other at the run's row.

Failures.
  killed before COMMIT    nothing was done; the run is lost with its worker, and goes to the next attempt
  killed after COMMIT     all was done; there is nothing left to recover
  COMMIT without answer   the task fails as it does with any database; settling finds a run that is done, or is not
"""

from __future__ import annotations

from typing import Any

from mainspring.domain.errors import Superseded
from mainspring.domain.job import Json
from mainspring.domain.settling import Lease
from mainspring.environment import Environment
from mainspring.store.foreign import adapted, at_once
from mainspring.store.settle import complete_in
from mainspring.tasks.arguments import written


class LeaseCompletion:
    """The :class:`~mainspring.tasks.context.Completion` of an attempt in hand."""

    def __init__(self, lease: Lease, env: Environment) -> None:
        self.asked = False
        self._lease = lease
        self._env = env

    async def complete(self, connection: Any, result: Json) -> None:
        text = None if result is None else written(result)
        self.asked = True
        async with adapted(connection) as tx:
            await self._env.reach("complete.begun")
            if not await complete_in(tx, self._lease, text):
                raise Superseded(f"attempt {self._lease.attempt} of run {self._lease.run_id} was replaced by another")
            await self._env.reach("complete.settled")

    def complete_sync(self, connection: Any, result: Json) -> None:
        at_once(self.complete(connection, result))
