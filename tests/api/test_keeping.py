"""Values that every request asks for: read by one, and not too often."""

import asyncio
from datetime import timedelta

import pytest

from mainspring.api.keeping import Kept
from mainspring.testing.clock import ManualEnvironment

pytestmark = pytest.mark.asyncio(loop_scope="session")

LASTS = timedelta(seconds=2)


class Source:
    """Something to read, when it is let go."""

    def __init__(self) -> None:
        self.environment = ManualEnvironment()
        self.kept = Kept(self.read, self.environment, lasts=LASTS.total_seconds())
        self.reads = 0
        self.takes = timedelta(0)
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        number = self.reads
        await self.go.wait()
        await self.environment.advance(self.takes)
        if self.error is not None:
            raise self.error
        return number


async def test_however_many_ask_one_reads() -> None:
    source = Source()

    assert await asyncio.gather(*(source.kept.get() for _ in range(50))) == [1] * 50
    await source.environment.advance(2 * LASTS)
    assert await asyncio.gather(*(source.kept.get() for _ in range(50))) == [2] * 50
    assert source.reads == 2


async def test_nobody_waits_for_the_next_one_until_the_last_is_old() -> None:
    source = Source()
    assert await source.kept.get() == 1
    source.go.clear()
    await source.environment.advance(LASTS)

    assert [await source.kept.get() for _ in range(3)] == [1, 1, 1]
    await source.environment.advance(LASTS)
    waiting = asyncio.create_task(source.kept.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    source.go.set()

    assert await waiting == 2
    assert source.reads == 2


async def test_what_takes_long_to_read_is_read_less_often() -> None:
    source = Source()
    source.takes = timedelta(seconds=1)
    await source.kept.get()

    await source.environment.advance(timedelta(seconds=48))
    assert await source.kept.get() == 1
    assert source.reads == 1
    await source.environment.advance(timedelta(seconds=60))
    assert await source.kept.get() == 2


async def test_an_error_is_for_those_who_wait_and_the_next_asks_again() -> None:
    source = Source()
    source.error = LookupError("away")
    for _ in range(2):
        with pytest.raises(LookupError):
            await source.kept.get()
    source.error = None

    assert await source.kept.get() == 3
    source.error = LookupError("away")
    await source.environment.advance(LASTS)
    assert await source.kept.get() == 3
    await asyncio.sleep(0)
    await source.environment.advance(LASTS)
    with pytest.raises(LookupError):
        await source.kept.get()


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    source = Source()
    source.go.clear()
    first, second = (asyncio.create_task(source.kept.get()) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()
    await asyncio.wait((first,))
    source.go.set()

    assert await second == 1


async def test_again_is_what_is_there_now() -> None:
    source = Source()

    assert [await source.kept.get(), await source.kept.again(), await source.kept.get()] == [1, 2, 2]
