"""How an attempt ended: the outcome of a return, of an error, and of a process that died. The same in every mode."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from signal import Signals
from types import TracebackType
from typing import Any, Final

import msgspec

from mainspring.domain.job import Json
from mainspring.domain.settling import Discarded, ErrorInfo, Failed, Outcome, Snoozed, Succeeded
from mainspring.domain.signals import Discard, Retry, Snooze
from mainspring.tasks.arguments import written
from mainspring.tasks.context import Context
from mainspring.tasks.task import Task, TaskOptions
from mainspring.worker.wire import Exited

CRASHED: Final = "crashed"
OUT_OF_MEMORY: Final = "out_of_memory"
CPU_LIMIT: Final = "cpu_limit"

_OURS: Final = "mainspring.worker."
_NEAR: Final = 0.8  # of its limit in use: whatever killed it then, memory is why
_FOR_WANT_OF_MEMORY: Final = (Signals.SIGKILL, Signals.SIGABRT, Signals.SIGSEGV, Signals.SIGBUS)


class TaskStopped(BaseException):
    """Raised inside a task that has to stop: its time is up, somebody cancelled it, or the worker goes.

    No ``Exception``, so that ``except Exception`` does not hold it up; ``finally`` and ``with`` do their work.
    """


def bound_call(task: Task[..., Any], payload: Json, context: Context) -> Callable[[], Any]:
    """Return the call that a payload asks for, with the context where the function wants one.

    Raises:
        InvalidRequest: the payload does not fit the function. Trying again is of no use.
    """
    arguments = task.arguments.read(payload)
    if task.arguments.context_name is not None:
        arguments[task.arguments.context_name] = context
    return partial(task.function, **arguments)


def returned(result: object) -> Outcome:
    """Return the outcome of a task that returned: its result as plain JSON values, or that it has no such form."""
    if result is None:
        return Succeeded()
    try:
        return Succeeded(msgspec.json.decode(written(result)))
    except TypeError as error:
        message = f"the result has no JSON form: {error}"
        return Failed(error=ErrorInfo(type="TypeError", message=message, bases=("Exception",)))


def outcome_of(error: BaseException, *, memory: int | None = None) -> Outcome:
    """Return the outcome of a task that raised; ``memory`` is the limit it ran under, for the message."""
    match error:
        case Snooze():
            return Snoozed(error.delay, error.because)
        case Discard():
            return Discarded(error.because)
        case Retry():
            return Failed(error=described(error), retry_after=error.after)
        case MemoryError():
            traceback.clear_frames(error.__traceback__)  # what they hold is what is missing
            return Failed(error=described(error, kind=OUT_OF_MEMORY, message=_no_memory(memory)))
        case SystemExit():
            return Failed(error=described(error, kind=CRASHED, message=_exit_text(error)))
        case TaskStopped():
            return Failed(error=described(error, kind=CRASHED, message="stopped by SIGTERM, from outside"))
        case _:
            return Failed(error=described(error))


def described(error: BaseException, *, kind: str = "", message: str | None = None) -> ErrorInfo:
    """Return an error as it is kept; another ``kind`` has the error's own type among its bases."""
    types = [_name(each) for each in type(error).__mro__ if each not in (object, BaseException)]
    types = [kind, *types] if kind else types
    shown = traceback.format_exception(type(error), error, _below_ours(error.__traceback__))
    return ErrorInfo(
        type=types[0] if types else _name(type(error)),
        message=_message(error) if message is None else message,
        bases=tuple(types[1:]),
        traceback="".join(shown),
    )


def outcome_of_exit(end: Exited, options: TaskOptions) -> Failed:
    """Return the outcome of a task whose process ended before it had said how the task did."""
    number = -end.status if end.status < 0 else 0
    limit = options.cpu
    if number and limit is not None and (number == Signals.SIGXCPU or end.cpu >= limit.total_seconds()):
        return _died(CPU_LIMIT, f"used {end.cpu:.1f} s of CPU; its limit is {limit.total_seconds():g} s")
    short = options.memory is not None and end.peak >= options.memory * _NEAR
    if short and number in _FOR_WANT_OF_MEMORY:
        return _died(OUT_OF_MEMORY, f"{_signal_name(number)}: {_no_memory(options.memory)}")
    if number == Signals.SIGKILL:
        peak = f"by somebody, or by the kernel for want of memory: it had used {_megabytes(end.peak)}"
        return _died(CRASHED, f"killed by SIGKILL, {peak}")
    if number:
        return _died(CRASHED, f"killed by {_signal_name(number)}")
    return _died(CRASHED, end.reason or f"exited with status {end.status} before the task returned")


def not_started(reason: str) -> Failed:
    """Return the outcome of a task that could be given no process."""
    return _died(CRASHED, f"no process could be started: {reason}")


def _died(kind: str, message: str) -> Failed:
    return Failed(error=ErrorInfo(type=kind, message=message))


def _no_memory(limit: int | None) -> str:
    return "no memory left" if limit is None else f"no memory left below its limit of {_megabytes(limit)}"


def _megabytes(amount: int) -> str:
    return f"{amount / 1_000_000:.0f} MB"


def _exit_text(error: SystemExit) -> str:
    status = error.code if isinstance(error.code, int) else int(error.code is not None)
    said = f": {error.code}" if isinstance(error.code, str) else ""
    return f"exited with status {status} before the task returned{said}"


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - user code
        return f"(its text could not be made: {type(broken).__name__})"


def _below_ours(tb: TracebackType | None) -> TracebackType | None:
    """Leave out how we came to call the task; all of it, if the task was not reached."""
    below = tb
    while below is not None and str(below.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        below = below.tb_next
    return below or tb


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
