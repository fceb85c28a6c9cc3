"""``@task``: a function that jobs can run. It stays a function: call it directly in tests.

The decorator is overloaded, so that a type checker knows the arguments of a submission. A parameter for the
context comes first, and is not among them:

::

    @task(pool="mail", retry=RetryPolicy(attempts=5, backoff="30s..1h"), timeout="2m")
    async def welcome(user_id: int, template: str = "hello") -> str: ...


    await client.submit(welcome, 7, template="vip")  # checked by mypy, and again before it is written
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, partial, update_wrapper
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar, cast, overload

from mainspring.domain.asking import Request
from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.job import Job, Json
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule import OnDemand, Schedule
from mainspring.domain.settling import OnLoss
from mainspring.tasks.arguments import Arguments, result_type
from mainspring.tasks.context import Context
from mainspring.tasks.timing import When

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

_RETRY: Final = RetryPolicy()
BUILT_IN: Final = ("http", "shell")  # names of targets that are no functions
_BYTES: Final = {"kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class Mode(StrEnum):
    """Where a task runs."""

    INLINE = "inline"  # on the worker's event loop; for async functions
    THREAD = "thread"  # in a thread of the worker; for sync functions that are trusted and mostly wait
    PROCESS = "process"  # in a warm child process, one run at a time
    ISOLATED = "isolated"  # in a fresh child process for every attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a task runs, wherever it is called from."""

    name: str
    mode: Mode
    pool: str | None = None
    estimated_duration: timedelta | None = None
    priority: int = 0
    retry: RetryPolicy = _RETRY
    on_loss: OnLoss = OnLoss.RETRY
    timeout: timedelta | None = None
    wait_timeout: timedelta | None = None
    deadline: timedelta | None = None
    concurrency: int | None = None  # of this task, in one worker
    memory: int | None = None  # bytes of address space of its process
    cpu: timedelta | None = None  # of its process
    files: int | None = None  # open at once, in its process
    grace: timedelta = timedelta(seconds=5)  # between asking it to stop and killing it
    last_success: bool = False  # whether the context carries the last success of the job
    schedule: When | None = None


_AS_DECLARED: Final = Request()


class Call(NamedTuple, Generic[R_co]):
    """A task and the arguments for one run of it. A tuple, because there may be very many."""

    task: Task[..., R_co]
    payload: Json
    options: Request = _AS_DECLARED  # what this submission wants otherwise than its task


class Task(Generic[P, R_co]):
    """A function under a name, with how it is to be run. ``P`` are its arguments, without the context."""

    def __init__(self, function: Callable[..., Any], declared: TaskOptions) -> None:
        self.function = function
        self.declared = declared
        self.wanted = _AS_DECLARED
        self._jobs: dict[str, Job] = {}
        self.arguments = Arguments(declared.name, function)
        update_wrapper(cast("Callable[..., Any]", self), function)

    @property
    def name(self) -> str:
        return self.declared.name

    @cached_property
    def returns(self) -> Any:
        return result_type(self.function)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Return this call as a value: to submit it later, or to give it to a job.

        >>> from mainspring import task
        >>> @task
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> add.call(1, b=2).payload
        {'a': 1, 'b': 2}
        """
        return Call(self, self.arguments.payload(args, kwargs), self.wanted)

    def calls(self, arguments: Iterable[tuple[Any, ...]]) -> Iterable[Call[R_co]]:
        """Return a call for each tuple of arguments, for ``submit_many``."""
        return (Call(self, self.arguments.payload(each, {}), self.wanted) for each in arguments)

    def options(
        self,
        *,
        key: str | None = None,
        delay: timedelta | str | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        pool: str | None = None,
    ) -> Self:
        """Return the same task for submissions that differ: later, before others, elsewhere, or once for a key.

        Raises:
            InvalidRequest: an option is out of bounds.

        >>> from mainspring import task
        >>> @task
        ... def remind(user_id: int) -> None: ...
        >>> remind.options(delay="10m", key="remind:7").call(7).options.key
        'remind:7'
        """
        other = copy(self)
        asked = Request(key=key, delay=_length(delay, "delay"), due_at=at, priority=priority, pool=pool)
        other.wanted = asked.checked()
        return other

    def job(self, *, tenant: str = "default") -> Job:
        """Return the job of this task: by its schedule, or only when asked for."""
        known = self._jobs.get(tenant)
        if known is None:
            known = self._jobs[tenant] = self._job(tenant)
        return known

    def _job(self, tenant: str) -> Job:
        options = self.declared
        when = options.schedule or When(schedule=ON_DEMAND, overlap=Overlap(policy=Overlaps.ALLOW))
        return Job(
            name=options.name,
            task=options.name,
            tenant=tenant,
            schedule=when.schedule,
            overlap=when.overlap,
            misfire=when.misfire,
            jitter=when.jitter,
            pool=options.pool or "",
            estimated_duration=options.estimated_duration,
            priority=options.priority,
            retry=options.retry,
            on_loss=options.on_loss,
            run_timeout=options.timeout,
            wait_timeout=options.wait_timeout,
            deadline=options.deadline,
        )

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class AsyncTask(Task[P, R_co]):
    """A task made of a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        return cast("Coroutine[Any, Any, R_co]", self.function(*args, **kwargs))


class SyncTask(Task[P, R_co]):
    """A task made of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return cast("R_co", self.function(*args, **kwargs))


class AsyncContextTask(Task[P, R_co]):
    """A task made of a coroutine function that takes the context first."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        return cast("Coroutine[Any, Any, R_co]", self.function(ctx, *args, **kwargs))


class SyncContextTask(Task[P, R_co]):
    """A task made of a plain function that takes the context first."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return cast("R_co", self.function(ctx, *args, **kwargs))


class TaskDecorator(Protocol):
    """What ``@task(...)`` returns."""

    @overload  # the first that fits counts: a coroutine is also something a plain function may return
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> SyncContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


@overload
def task(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
) -> AsyncContextTask[P, R]: ...
@overload
def task(  # type: ignore[overload-overlap]
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[Concatenate[Context, P], R], /) -> SyncContextTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> SyncTask[P, R]: ...
@overload
def task(
    *,
    name: str | None = None,
    mode: Mode | str | None = None,
    isolate: bool = False,
    pool: str | None = None,
    estimated_duration: timedelta | str | None = None,
    priority: int = 0,
    retry: RetryPolicy | str | None = None,
    on_loss: OnLoss | str = OnLoss.RETRY,
    timeout: timedelta | str | None = None,
    wait_timeout: timedelta | str | None = None,
    deadline: timedelta | str | None = None,
    concurrency: int | None = None,
    memory: int | str | None = None,
    cpu: timedelta | str | None = None,
    files: int | None = None,
    grace: timedelta | str = ...,
    last_success: bool = False,
    schedule: When | None = None,
) -> TaskDecorator: ...


def task(function: Callable[..., Any] | None = None, /, **given: Any) -> Any:
    """Make a function a task, under its own name unless another is given.

    >>> from mainspring import cron, task
    >>> @task(pool="mail", timeout="2m", schedule=cron("0 9 * * 1-5", tz="Europe/Paris"))
    ... async def digest() -> None: ...
    >>> digest.job().run_timeout
    datetime.timedelta(seconds=120)

    Raises:
        InvalidRequest: an option is out of bounds, or the function cannot be called by JSON.
    """
    return _made(function, given) if function is not None else lambda wrapped: _made(wrapped, given)


def _made(function: Callable[..., Any], given: dict[str, Any]) -> Task[..., Any]:
    if not inspect.isroutine(function) and not isinstance(function, partial):
        function = getattr(function, "__call__")  # noqa: B004, B009 - an object that can be called, as its own method
    is_async = inspect.iscoroutinefunction(function)
    declared = _declared(function, given, is_async=is_async)
    plain: Task[..., Any] = Task(function, declared)
    kind = {
        (True, True): AsyncContextTask,
        (True, False): AsyncTask,
        (False, True): SyncContextTask,
        (False, False): SyncTask,
    }[is_async, plain.arguments.context_name is not None]
    made: Task[..., Any] = kind(function, declared)
    if declared.schedule is not None:
        made.arguments.check(None)  # a schedule gives no arguments
    declared_job = made.job()  # refuses what no job may have
    assert declared_job.name == declared.name
    return made


def _declared(function: Callable[..., Any], given: dict[str, Any], *, is_async: bool) -> TaskOptions:
    options = {name: value for name, value in given.items() if value is not None}
    name = options.pop("name", None) or function.__name__
    if name in BUILT_IN:
        raise InvalidRequest(f'"{name}" is taken by a target', field="task", value=name, allowed="use another name")
    mode = _mode(options.pop("mode", None), isolate=options.pop("isolate", False), is_async=is_async, name=name)
    for field in ("timeout", "wait_timeout", "deadline", "estimated_duration", "cpu", "grace"):
        if field in options:
            options[field] = _length(options[field], field)
    if isinstance(options.get("retry"), str):
        options["retry"] = RetryPolicy(backoff=options["retry"])
    if "on_loss" in options:
        options["on_loss"] = _word(OnLoss, options["on_loss"], "on_loss")
    if "memory" in options:
        options["memory"] = parse_bytes(options["memory"], field="memory")
    for field in ("concurrency", "files"):
        if field in options and not (type(options[field]) is int and options[field] >= 1):
            allowed = "use a whole number from 1 on"
            raise InvalidRequest("out of bounds", field=field, value=options[field], allowed=allowed)
    return TaskOptions(name=name, mode=mode, **options)


def _mode(given: Mode | str | None, *, isolate: bool, is_async: bool, name: str) -> Mode:
    if given is None:
        given = Mode.ISOLATED if isolate else Mode.INLINE if is_async else Mode.PROCESS
    mode = _word(Mode, given, "mode")
    wrong = {Mode.INLINE: not is_async, Mode.THREAD: is_async}.get(mode, False)
    if wrong or (isolate and mode is not Mode.ISOLATED):
        what = "an async function" if is_async else "a plain function"
        allowed = f"use {'inline' if is_async else 'thread'}, process or isolated for {what}"
        raise InvalidRequest(f'"{mode}" does not fit task "{name}"', field="mode", value=mode.value, allowed=allowed)
    return mode


_E = TypeVar("_E", bound=StrEnum)


def _word(kind: type[_E], word: str, field: str) -> _E:
    try:
        return kind(word)
    except ValueError:
        allowed = f"use {', '.join(kind)}"
        raise InvalidRequest(f'"{word}" is no choice', field=field, value=word, allowed=allowed) from None


def parse_bytes(given: int | str, *, field: str) -> int:
    """Read an amount of memory: ``512MB``, ``2GiB``, or a number of bytes.

    Raises:
        InvalidRequest: it is no amount.
    """
    found = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", str(given).strip().lower())
    worth = _BYTES.get(found[2], 1 if found[2] in ("", "b") else None) if found else None
    if found is None or worth is None or int(found[1]) == 0:
        allowed = "use a number with KB, MB, GB, KiB, MiB or GiB, such as 512MB"
        raise InvalidRequest(f'"{given}" is no amount of memory', field=field, value=given, allowed=allowed)
    return int(found[1]) * worth


def _length(given: timedelta | str | None, field: str) -> timedelta | None:
    return parse_duration(given, field=field) if isinstance(given, str) else given


ON_DEMAND: Final = Schedule(specs=(OnDemand(),))
