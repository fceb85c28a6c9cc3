"""How work grows, without a stopwatch that fails on a busy machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time

_MILLISECONDS_NOT_MINUTES = 5.0


@contextmanager
def in_linear_time() -> Iterator[None]:
    """Fail over an order, not a speed: give it so much that what is linear takes milliseconds, and all else minutes."""
    started = process_time()  # of this process alone: others may be busy
    yield
    assert process_time() - started < _MILLISECONDS_NOT_MINUTES
