"""What runs in a child process: one request after the other, each answered with how the task did.

Promise. Every request that is read is answered, unless the process dies; and when the answer is sent, whatever
the task wrote is in the pipes, and whatever it started has ended.

Stopping. SIGTERM raises ``TaskStopped`` in the task, or cancels it if it is async, so that it can clean up; never
in our own code. Without a task the process just ends.

Not promised. What a task changes in its process, such as modules or the environment, the next one in the same
child sees; that is what ``isolated`` is for. Its working directory, its processes and its threads are not passed on:
a process with threads left over serves nobody else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from mainspring.domain.errors import InvalidRequest, UnknownTask
from mainspring.domain.ids import JobId, Kind, RunId
from mainspring.domain.job import Json, schedule_from_json
from mainspring.domain.schedule import Schedule
from mainspring.domain.settling import Completed, Discarded, Lease, Outcome
from mainspring.tasks.context import Completion, Context, LastSuccess
from mainspring.tasks.loading import Registry
from mainspring.tasks.task import Task
from mainspring.worker import wire
from mainspring.worker.descendants import (
    adopt_orphans,
    die_with_parent,
    end_descendants,
    flush_c_streams,
    offer_to_the_kernel,
)
from mainspring.worker.limits import impose, lift_memory, limited
from mainspring.worker.masking import Mask, MaskedCompletion
from mainspring.worker.outcomes import bound_call, outcome_of, returned
from mainspring.worker.posting import Post, Stopping

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def live(line: socket.socket, registry: Registry, *, template: int, home: str) -> None:
    """Settle in, then answer requests until there are no more, or one has left the process unfit for another.

    Every page touched before the task is a page copied, so what can be known before the fork is given.
    """
    os.setsid()
    die_with_parent(template, signal.SIGKILL)
    adopt_orphans()
    offer_to_the_kernel()
    stopping = Stopping()
    post = Post(line, stopping)
    logging.getLogger().addHandler(post.handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    while (request := post.receive()) is not None:
        outcome, again = _answer(request, registry, post, stopping)
        again = _tidied(home) and again and not stopping.asked
        post.send(wire.Kind.ENDED, wire.ended(outcome, resident=_resident() if again else 0, reusable=again))
        if not again:
            return


def _answer(request: wire.Request, registry: Registry, post: Post, stopping: Stopping) -> tuple[Outcome, bool]:
    """Return how the task did, and whether the process is fit for another, as far as limits and wishes go."""
    if request.task not in registry:
        return outcome_of(_unknown(request.task, registry)), not request.only
    task = registry.get(request.task)
    outcome = _attempted(task, request, post, stopping)
    stopping.disarm()
    if os.getpid() != post.pid:  # a fork of the task, which has come back from it as we have
        _flush()
        os._exit(0)
    return outcome, not (request.only or limited(task.declared))


def _attempted(task: Task[..., Any], request: wire.Request, post: Post, stopping: Stopping) -> Outcome:
    memory, context = task.declared.memory, None
    try:
        try:
            payload = msgspec.json.decode(request.payload)
            context = _context(request, payload, post)
            call = bound_call(task, payload, context)
        except InvalidRequest as error:
            return Discarded(str(error))
        impose(task.declared)
        stopping.arm()  # from here on TaskStopped may be raised, once, anywhere in this block
        is_async = inspect.iscoroutinefunction(task.function)
        outcome = returned(asyncio.run(stopping.cancelling(call)) if is_async else call())
        return Completed() if _completed(context) else outcome
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is an outcome
        stopping.disarm()
        if _completed(context):
            return Completed()
        if memory is not None:
            lift_memory()
        return outcome_of(error, memory=memory)


def _completed(context: Context | None) -> bool:
    return context is not None and context.completion is not None and context.completion.asked


class _Completion:
    """Brings store and driver into the process when a task completes its run, and not before."""

    def __init__(self, request: wire.Request, lease: wire.LeaseSent) -> None:
        self.asked = False
        run, job = RunId(request.run_id), JobId(request.job_id)
        self._lease = Lease(run, job, request.attempt, lease.token, lease.failures, lease.joined)

    async def complete(self, connection: Any, result: Json) -> None:
        self.asked = True
        await self._loaded().complete(connection, result)

    def complete_sync(self, connection: Any, result: Json) -> None:
        self.asked = True
        self._loaded().complete_sync(connection, result)

    def _loaded(self) -> Completion:
        from mainspring.environment import SystemEnvironment  # noqa: PLC0415 - see above
        from mainspring.worker.completion import LeaseCompletion  # noqa: PLC0415

        return LeaseCompletion(self._lease, SystemEnvironment())


def _context(request: wire.Request, payload: Json, post: Post) -> Context:
    last = request.last_success
    return Context(
        run_id=RunId(request.run_id),
        job_id=JobId(request.job_id),
        job=request.job,
        slot=request.slot,
        attempt=request.attempt,
        payload=payload,
        kind=Kind(request.kind),
        fence=request.fence,
        last_success=None
        if last is None
        else LastSuccess(run_id=last.run_id, at=last.at, result=msgspec.json.decode(last.result)),
        schedule=_schedule(request.schedule) if request.schedule else None,
        tell=post,
        completion=None if request.lease is None else _completion(request, request.lease),
    )


def _completion(request: wire.Request, lease: wire.LeaseSent) -> Completion:
    completion: Completion = _Completion(request, lease)
    return MaskedCompletion(completion, Mask(request.hidden)) if request.hidden else completion


@lru_cache(maxsize=100)
def _schedule(written: bytes) -> Schedule:
    return schedule_from_json(msgspec.json.decode(written))


def _unknown(name: str, registry: Registry) -> UnknownTask:
    allowed = f"use one of {', '.join(registry.names)}"
    return UnknownTask(f'"{name}" is in no module of this worker', field="task", value=name, allowed=allowed)


def _tidied(home: str) -> bool:
    """Leave nothing of the task behind; return whether that was possible."""
    try:
        end_descendants()
        os.chdir(home)
    except OSError:  # no descriptor is left to look with: our end will be the end of them
        return False
    finally:
        _flush()
    return threading.active_count() == 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the task may have closed or replaced it
            stream.flush()
    flush_c_streams()


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
