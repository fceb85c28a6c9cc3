"""Things that are asked for one by one, and done many at a time."""

import asyncio
from collections.abc import Sequence

import pytest

from mainspring.api import together
from mainspring.api.together import Together
from mainspring.domain.errors import MainspringError, NotFound, StoreUnavailable

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Doing:
    """Something to be done, when it is let go."""

    def __init__(self) -> None:
        self.together = Together(self.do, apart=0.001)
        self.done: list[tuple[str, Sequence[str]]] = []
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.go = {"a": asyncio.Event(), "b": asyncio.Event()}
        self.error: Exception | None = None

    async def do(self, tenant: str, asked: Sequence[str]) -> Sequence[str | MainspringError]:
        self.done.append((tenant, asked))
        self.began.put_nowait(tenant)
        await self.go[tenant].wait()
        if self.error is not None:
            raise self.error
        return [NotFound("it is not there") if each == "wrong" else each.upper() for each in asked]

    def ask(self, *asked: str, tenant: str = "a") -> list[asyncio.Task[str]]:
        return [asyncio.create_task(self.together.ask(tenant, each)) for each in asked]


async def test_what_is_asked_for_meanwhile_is_done_together() -> None:
    doing = Doing()
    first = doing.ask("one")
    await doing.began.get()
    others = doing.ask("two", "three", "two")
    await asyncio.sleep(0)
    assert doing.done == [("a", ["one"])]  # it waits for the first, and for nothing else
    doing.go["a"].set()

    assert await asyncio.gather(*first, *others) == ["ONE", "TWO", "THREE", "TWO"]
    assert doing.done == [("a", ["one"]), ("a", ["two", "three", "two"])]
    assert await asyncio.gather(*doing.ask("four")) == ["FOUR"]


async def test_tenants_are_never_done_together_and_do_not_wait_for_each_other() -> None:
    doing = Doing()
    doing.go["b"].set()
    waiting = doing.ask("one", "two")

    assert await asyncio.gather(*doing.ask("three", "four", tenant="b")) == ["THREE", "FOUR"]
    assert not any(each.done() for each in waiting)
    doing.go["a"].set()
    assert await asyncio.gather(*waiting) == ["ONE", "TWO"]
    assert sorted(doing.done) == [("a", ["one", "two"]), ("b", ["three", "four"])]


async def test_an_error_is_raised_where_it_belongs_and_nowhere_else() -> None:
    doing = Doing()
    doing.go["a"].set()
    right, wrong, also_right = await asyncio.gather(*doing.ask("right", "wrong", "also"), return_exceptions=True)

    assert (right, also_right) == ("RIGHT", "ALSO")
    assert isinstance(wrong, NotFound)


async def test_a_time_that_fails_fails_for_its_own_and_the_next_goes_on() -> None:
    doing = Doing()
    failing = doing.ask("one", "two", "three")
    await doing.began.get()
    doing.error = ValueError("broken")
    doing.go["a"].set()
    assert [type(each) for each in await asyncio.gather(*failing, return_exceptions=True)] == [ValueError] * 3
    doing.error = None

    assert await asyncio.gather(*doing.ask("four")) == ["FOUR"]


async def test_one_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_WITHIN", 0.02)
    doing = Doing()
    hanging = doing.ask("one", "two")
    await doing.began.get()
    monkeypatch.undo()  # the next one has all the time it needs
    later = doing.ask("three")
    said = await asyncio.gather(*hanging, return_exceptions=True)
    doing.go["a"].set()

    assert [type(each) for each in said] == [StoreUnavailable] * 2
    assert await asyncio.gather(*later) == ["THREE"]


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    doing = Doing()
    leaving, staying = doing.ask("one", "two")
    await doing.began.get()
    leaving.cancel()
    doing.go["a"].set()

    assert await staying == "TWO"
    assert doing.done == [("a", ["one", "two"])]
    assert leaving.cancelled()
