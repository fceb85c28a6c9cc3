"""The tasks of the worker benchmark: nothing at all, in each of the places where a task may run."""

import time

from mainspring import task


@task
async def inline(number: int) -> None:
    del number


@task(mode="thread")
def thread(number: int) -> None:
    del number


@task(mode="process")
def process(number: int) -> None:
    del number


@task(mode="isolated")
def isolated(number: int) -> None:
    del number


@task
async def now() -> float:
    """Return when it began: CLOCK_MONOTONIC is the same in all processes of a machine."""
    return time.monotonic()


@task
async def noop() -> None:
    """Do nothing, every second."""
