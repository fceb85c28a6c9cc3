"""Tasks in threads of the worker: for plain functions that are trusted, and mostly wait.

A thread cannot be killed. To stop it an exception is raised in it, which it sees at its next step in Python; one
that is held up in C for longer than its grace is abandoned. The worker goes on without it, and whatever it returns
is too late.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.settling import Discarded, Outcome
from mainspring.service import shielded
from mainspring.tasks.context import Context
from mainspring.tasks.task import Task
from mainspring.worker.attempt import Attempt
from mainspring.worker.capture import capturing
from mainspring.worker.outcomes import TaskStopped, bound_call, outcome_of, returned

_MOST_IDLE: Final = 32


class Threads:
    """Threads of one worker: as many as there are tasks at work, and some that wait for the next."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._abandoned: set[_Work] = set()

    @property
    def abandoned(self) -> int:
        """How many threads were given up, and are still at work."""
        return len(self._abandoned)

    async def run(self, task: Task[..., Any], attempt: Attempt, context: Context) -> Outcome:
        """Run one attempt in a thread. Raises nothing but cancellation: when it has ended, or its grace has."""
        with capturing(attempt.output) as output:
            try:
                call = bound_call(task, attempt.run.payload, replace(context, tell=output))
            except InvalidRequest as error:
                return Discarded(str(error))  # trying again is of no use
            work = _Work(call, copy_context())
            thread = self._idle.pop() if self._idle else _Thread()
            thread.begin(work)
            try:
                outcome = await asyncio.shield(work.ended)
            except asyncio.CancelledError:
                thread.end()
                await shielded(self._stop(work, task.declared.grace))
                raise
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(thread)
        else:
            thread.end()
        return outcome

    async def _stop(self, work: _Work, grace: timedelta) -> None:
        work.interrupt()
        await asyncio.wait([work.ended], timeout=grace.total_seconds())
        if not work.ended.done():
            self._abandoned.add(work)
            work.ended.add_done_callback(lambda _: self._abandoned.discard(work))


class _Thread:
    """A thread that does one piece of work after the other."""

    def __init__(self) -> None:
        self._next: SimpleQueue[_Work | None] = SimpleQueue()
        threading.Thread(target=self._work, name="mainspring task", daemon=True).start()

    def begin(self, work: _Work) -> None:
        self._next.put(work)

    def end(self) -> None:
        """Let it go once it has done what it has."""
        self._next.put(None)

    def _work(self) -> None:
        while (work := self._next.get()) is not None:
            work.do()


class _Work:
    """One call. It ends once, in whatever line it is interrupted."""

    def __init__(self, call: Callable[[], Any], variables: Variables) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Outcome] = self._loop.create_future()
        self._call = call
        self._variables = variables
        self._lock = threading.Lock()
        self._thread = 0  # which may be interrupted
        self._stopped = False
        self._outcome: Outcome | None = None

    def interrupt(self) -> None:
        """Raise TaskStopped in the call, once; not at all if it is over."""
        with self._lock:
            self._stopped = True
            if self._thread:
                _raise_in(self._thread, TaskStopped)

    def do(self) -> None:
        """Make the call, in this thread. What was raised in it and not seen yet does not get out."""
        try:
            self._attempt()
        except TaskStopped as late:  # after the call, before its outcome was kept
            self._outcome = outcome_of(late)
        over = False
        while not over:
            with suppress(TaskStopped):  # later still
                over = self._over()
        with suppress(RuntimeError):  # the loop has ended: nobody waits for it
            self._loop.call_soon_threadsafe(self._end)

    def _attempt(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._thread = threading.get_ident()
        try:
            self._outcome = returned(self._variables.run(self._call))
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is an outcome
            self._outcome = outcome_of(error)

    def _over(self) -> bool:
        with self._lock:
            self._thread = 0
        _raise_in(threading.get_ident(), None)
        return True

    def _end(self) -> None:
        self.ended.set_result(self._outcome or outcome_of(TaskStopped()))


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread, at its next step in Python; None takes back one that it has not seen."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
