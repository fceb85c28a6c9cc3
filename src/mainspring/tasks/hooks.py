"""What tasks of a worker share: resources that are opened once, and hooks around every attempt.

They are found in the modules that a worker loads, as tasks are. ::

    @resource
    async def db() -> AsyncIterator[Pool]:
        async with create_pool(...) as pool:
            yield pool


    @on_end
    def count(ctx: Context, outcome: str) -> None:
        ENDS.labels(ctx.job, outcome).inc()


    @task
    async def charge(ctx: Context, order: int) -> None:
        await ctx["db"].execute(...)

Resources and hooks live in the worker's own process: tasks in child processes have neither.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal

from mainspring.domain.errors import InvalidRequest


class Resource:
    """Something that is opened when a worker starts, and closed when it has drained; ``ctx[name]`` is its value."""

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        if inspect.signature(function).parameters:
            allowed = "let it take no parameter"
            raise InvalidRequest(f'"{name}" takes parameters', field="resource", value=name, allowed=allowed)
        self.name = name
        self.function = function

    def open(self) -> AbstractAsyncContextManager[Any]:
        if inspect.isasyncgenfunction(self.function):
            return asynccontextmanager(self.function)()
        return self._opened()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Any]:
        if inspect.isgeneratorfunction(self.function):
            with contextmanager(self.function)() as value:
                yield value
        else:
            value = self.function()
            yield await value if inspect.isawaitable(value) else value


class Hook:
    """A function that is called around every attempt."""

    def __init__(self, when: Literal["start", "end"], function: Callable[..., Any]) -> None:
        self.when = when
        self.function = function

    async def call(self, *args: object) -> None:
        done = self.function(*args)
        if inspect.isawaitable(done):
            await done


def resource(function: Callable[[], Any]) -> Resource:
    """Make a function a resource under its own name: one that returns a value, or a generator that yields it once.

    >>> @resource
    ... def greeting() -> str:
    ...     return "hello"
    >>> greeting.name
    'greeting'
    """
    return Resource(function.__name__, function)


def on_start(function: Callable[..., Any]) -> Hook:
    """Call ``function(ctx)`` before every attempt; what it raises fails the attempt.

    >>> @on_start
    ... def note(ctx) -> None:
    ...     ctx.log.info("starting")
    """
    return Hook("start", function)


def on_end(function: Callable[..., Any]) -> Hook:
    """Call ``function(ctx, outcome)`` after every attempt, with its outcome as a word; what it raises is logged.

    >>> @on_end
    ... def note(ctx, outcome) -> None:
    ...     ctx.log.info("ended", outcome=outcome)
    """
    return Hook("end", function)
