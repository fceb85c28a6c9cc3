"""HTTP/1.1 over a bare socket: clients that do not read, clients that leave, and a server that stops."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from mainspring.api.connection import Limits
from mainspring.api.incoming import Request

from .wire import MUCH, PATIENCE, SMALL, SOON, Desk, asked, serving, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


# Who does not read, and who leaves.


@pytest.mark.parametrize(
    "last",
    [asked("/", "connection: close"), asked("/", "content-length: 9", method="POST")],
    ids=["that leaves", "with a body that nobody reads"],
)
async def test_who_reads_the_last_answer_slowly_gets_all_of_it(last: bytes) -> None:
    async def application(request: Request) -> None:
        request.answer(200, b"", b"x" * (1 << 20))

    limits = Limits(headers_within=SOON)
    async with serving(application, limits=limits, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.send(last)
        await served.until_late()

        assert [len(each) for each in await client.answers(1)] == [1 << 20]


async def test_who_asks_thousands_of_things_and_reads_nothing_is_not_answered_at_once() -> None:
    answered = 0

    async def application(request: Request) -> None:
        nonlocal answered
        answered += 1
        request.answer(200, b"", request.path.ljust(8_192))

    async with serving(application, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        client.writer.write(b"".join(asked(f"/{number}") for number in range(2_000)))

        assert await served.settled(lambda: answered) < 200
        got = await client.answers(2_000)
        assert [each.rstrip() for each in got] == [b"/%d" % number for number in range(2_000)]


async def test_who_asks_thousands_of_things_is_not_read_while_the_first_is_at_work() -> None:
    desk = Desk("/slow")
    async with serving(desk, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        others = asked("/quick", f"x: {'y' * 4_000}") * 2_000

        assert await served.taken(client, asked("/slow") + others) < MUCH
        assert desk.begun == ["/slow"]
        desk.let_go("/slow")
        assert await client.answers(2_001) == [b"/slow", *[b"/quick"] * 2_000]


async def test_a_part_waits_while_nobody_reads() -> None:
    sent = 0

    async def application(request: Request) -> None:
        nonlocal sent
        request.begin(200, b"")
        for _ in range(500):
            await request.part(b"x" * 16_384)
            sent += 1
        request.end()

    async with serving(application, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.send(asked())

        assert await served.settled(lambda: sent) < 100
        assert len((await client.answer()).body) == 500 * 16_384


async def test_a_part_does_not_wait_for_one_who_has_left() -> None:
    sent, over = 0, asyncio.Event()

    async def application(request: Request) -> None:
        nonlocal sent
        request.begin(200, b"")
        while not request.gone:
            await request.part(b"x" * 16_384)
            sent += 1
        over.set()

    async with serving(application, buffers=SMALL) as served:
        async with served.client(buffers=SMALL) as client:
            await client.send(asked())
            assert await served.settled(lambda: sent) > 0
        await until(over)


@pytest.mark.parametrize("how", ["leaves", "leaves in the middle of a body", "answered", "left alone"])
async def test_it_is_told_when_nobody_waits_any_longer(how: str) -> None:
    began, heard = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> None:
        began.set()
        await request.hung_up()
        heard.set()

    async def application(request: Request) -> None:
        waits.append(asyncio.create_task(wait(request)))
        await until(began)
        if how == "answered":
            request.answer(204, b"", b"")
        elif how.startswith("leaves"):
            await heard.wait()

    waits: list[asyncio.Task[None]] = []
    async with serving(application) as served:
        async with served.client() as client:
            await client.send(asked("/", "content-length: 4", method="POST") if "body" in how else asked())
            await until(began)
            await served.elsewhere()
            assert heard.is_set() == (not how.startswith("leaves"))
        await asyncio.wait(waits, timeout=PATIENCE)
        assert heard.is_set()


# The stop.

UNFINISHED = {
    "said nothing": b"",
    "asked before": asked("/quick"),
    "half way through headers": b"GET / HTTP/1.1\r\nho",
    "half way through the next headers": asked("/quick") + b"GET / HT",
}


@pytest.mark.parametrize("what", UNFINISHED)
async def test_a_stop_closes_at_once_where_nothing_is_asked(what: str) -> None:
    async with serving(Desk()) as served, served.client() as client:
        await client.send(UNFINISHED[what])
        if "quick" in str(UNFINISHED[what]):
            await client.answers(1)
        await served.elsewhere()

        served.stop.request()

        assert await client.rest() == b""
        async with asyncio.timeout(PATIENCE):
            await served.running


async def test_a_stop_waits_for_what_is_at_work() -> None:
    desk = Desk("/slow", "/body")
    async with serving(desk) as served:
        async with served.client() as client, served.client() as other:
            await client.send(asked("/slow"))
            await other.send(asked("/body", "content-length: 4", method="POST"), b"bo")
            await desk.came("/slow")
            await desk.came("/body")
            served.stop.request()
            await until(served.ending)
            with pytest.raises(ConnectionRefusedError):
                await served.elsewhere()

            desk.let_go("/slow")
            desk.let_go("/body")
            answer, whole = await client.answer(), await other.ask(b"dy")

            assert (answer.body, answer.closes) == (b"/slow", True)
            assert (whole.body, whole.closes) == (b"/body body", True)
            assert (await client.rest(), await other.rest()) == (b"", b"")
        async with asyncio.timeout(PATIENCE):
            await served.running


async def test_a_stop_lets_all_be_answered_that_was_asked() -> None:
    desk = Desk("/slow")
    async with serving(desk) as served, served.client() as client:
        await client.send(asked("/slow"), asked("/behind"))
        await desk.came("/slow")
        served.stop.request()
        await until(served.ending)
        desk.let_go("/slow")

        assert await client.answers(2) == [b"/slow", b"/behind"]
        assert await client.rest() == b""


async def test_a_stop_takes_nothing_back_that_was_said() -> None:
    came, let_go = asyncio.Event(), asyncio.Event()

    async def application(request: Request) -> None:
        came.set()
        await let_go.wait()
        request.answer(200, b"", b"x" * 60_000)

    async with serving(application, buffers=4 * SMALL) as served, served.client(buffers=4_096) as client:
        await client.send(asked(), asked())
        await until(came)
        await client.send(asked())  # is not read any more
        served.stop.request()
        await until(served.ending)
        let_go.set()

        assert len(await client.rest()) > 60_000


@pytest.mark.covers("F116")
@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("turns", [0, 50], ids=["at once", "in a while"])
async def test_what_never_ends_is_cut_off_and_nothing_is_left(how: str, turns: int) -> None:
    asking = (b"", asked("/"), b"GET / HT", asked("/slow"), asked("/slow") + asked("/behind"), asked("/stream"))
    through = 0

    async def application(request: Request) -> None:
        nonlocal through
        if request.path == b"/":
            request.answer(204, b"", b"")
            return
        if request.path == b"/stream":
            request.begin(200, b"")
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(turns):  # it has something to put away
                await asyncio.sleep(0)
            through += 1

    before = asyncio.all_tasks()
    async with serving(application, drain=SOON) as served, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in asking]
        for client, data in zip(clients, asking, strict=True):
            await client.send(data)
        await served.elsewhere()
        if how == "stop":
            served.stop.request()
        else:
            served.running.cancel()
        await asyncio.wait((served.running,), timeout=PATIENCE)

        assert asyncio.all_tasks() == before
        assert through == 3
        assert [(await client.rest())[:12] for client in clients] == [
            *(b"", b"HTTP/1.1 204", b"", b"", b""),
            b"HTTP/1.1 200",
        ]
