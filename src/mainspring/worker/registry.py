"""Tasks by name. Only what is registered can run: no caller names code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.ids import JobId, RunId
from mainspring.domain.job import Json


@dataclass(slots=True, kw_only=True)  # not frozen, at a third of the cost: there is one for every attempt
class Context:
    """What a run tells its task."""

    run_id: RunId  # also the idempotency key: the same for every attempt
    job_id: JobId
    job: str
    slot: datetime
    attempt: int
    payload: Json


Task: TypeAlias = Callable[[Context], Awaitable[Json]]


class Registry:
    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def add(self, name: str, task: Task) -> None:
        if name in self._tasks:
            raise InvalidRequest(
                f'"{name}" is registered already', field="task", value=name, allowed="use another name"
            )
        self._tasks[name] = task

    def get(self, name: str) -> Task:
        return self._tasks[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks))
