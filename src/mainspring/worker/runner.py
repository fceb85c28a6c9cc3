"""One attempt: call the task, within its time, and say how it ended. Never raises but when cancelled."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable
from datetime import timedelta
from typing import Final

from mainspring.domain.job import Json
from mainspring.domain.settling import ErrorInfo, Failed, Outcome, Succeeded, TimedOut
from mainspring.store.claim import ClaimedRun
from mainspring.worker.registry import Context, Task

_DONE: Final = Succeeded()


async def run_attempt(task: Task, run: ClaimedRun) -> Outcome:
    """Run one attempt to its end."""
    context = Context(
        run_id=run.id,
        job_id=run.job_id,
        job=run.name,
        slot=run.slot,
        attempt=run.attempt,
        payload=run.payload,
    )
    try:
        if run.job.run_timeout is None:
            result = await task(context)
            return _DONE if result is None else Succeeded(result)
        return await _within(run.job.run_timeout, task(context))
    except Exception as error:  # noqa: BLE001 - whatever user code raises is an outcome
        return _failed(error)


async def _within(limit: timedelta, work: Awaitable[Json]) -> Outcome:
    timeout = asyncio.timeout(limit.total_seconds())
    try:
        async with timeout:
            return Succeeded(await work)
    except TimeoutError:
        if timeout.expired():
            return TimedOut()
        raise


def _failed(error: Exception) -> Failed:
    return Failed(
        error=ErrorInfo(
            type=_name(type(error)),
            message=str(error),
            bases=tuple(_name(base) for base in type(error).__mro__[1:] if base not in (object, BaseException)),
            traceback="".join(traceback.format_exception(error)),
        )
    )


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
