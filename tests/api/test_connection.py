"""HTTP/1.1 over a bare socket: in which order and form answers come, and how long a connection is kept.

There is no database: applications are the tests' own, and events decide what happens before what.
"""

import asyncio
import logging

import pytest

from mainspring.api.connection import Application, Limits
from mainspring.api.incoming import Request

from .wire import LARGEST, PATIENCE, SMALL, SOON, Client, Desk, Served, asked, posted, refuses, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def streams(request: Request) -> None:
    request.begin(200, b"x-said: so\r\n")
    for part in (b"one", b"", b"two"):  # an empty one is not the end
        await request.part(part)
    request.end()


# Order.


async def test_answers_come_in_the_order_of_the_requests_and_none_begins_before_its_turn() -> None:
    desk = Desk("/slow")
    async with serving(desk) as served, served.client() as client:
        await client.send(asked("/slow"), asked("/quick"), posted("/body", b"of it"))
        await desk.came("/slow")
        await served.elsewhere()
        assert desk.begun == ["/slow"]

        desk.let_go("/slow")

        assert await client.answers(3) == [b"/slow", b"/quick", b"/body of it"]
        assert desk.begun == ["/slow", "/quick", "/body"]


WRONG = {
    "malformed": (b"no HTTP", b"", 400, "malformed_request"),
    "without a host": (b"GET / HTTP/1.1\r\n", b"\r\n", 400, "malformed_request"),
    "too large": (b"GET / HTTP/1.1\r\nx: ", b"y" * 2_000, 431, "headers_too_large"),
    "late": (b"GET / HTTP/1.1\r\nx: ", b"y", 408, "request_timeout"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_cannot_be_read_is_refused_when_all_before_it_is_answered(what: str) -> None:
    wrong, more, status, code = WRONG[what]
    desk = Desk("/slow")
    limits = Limits(headers_within=SOON, largest_headers=1_000)
    async with serving(desk, limits=limits) as served, served.client() as client:
        await client.send(asked("/slow"), wrong)
        await desk.came("/slow")
        await client.send(more)
        await (served.until_late() if what == "late" else served.elsewhere())
        await client.send(b"\r\nhost: localhost\r\n\r\n", asked("/behind"))  # too late to be right
        await served.elsewhere()
        desk.let_go("/slow")

        assert await client.answers(1) == [b"/slow"]
        refusal = await client.answer()
        assert (refusal.status, refusal.code, refusal.closes) == (status, code, True)
        assert await client.rest() == b""
    assert desk.begun == ["/slow"]


async def test_a_refusal_stays_what_it_was() -> None:
    desk = Desk("/slow")
    limits = Limits(headers_within=SOON, largest_headers=1_000)
    async with serving(desk, limits=limits) as served, served.client() as client:
        await client.send(asked("/slow"), b"GET / HTTP/1.1\r\nx: ")
        await desk.came("/slow")
        await client.send(b"y" * 2_000)
        await served.until_late()
        desk.let_go("/slow")

        assert await client.answers(1) == [b"/slow"]
        assert (await client.answer()).status == 431


async def goes_on(client: Client, served: Served) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            await client.send(b"more")
            await served.elsewhere()


async def test_who_was_refused_and_stays_is_let_go() -> None:
    async with serving(Desk(), limits=Limits(headers_within=SOON)) as served, served.client() as client:
        await client.send(b"no HTTP\r\n\r\n")
        assert b"400" in await client.rest()

        await client.send(b"more")  # it is heard out
        with pytest.raises(ConnectionError):
            await goes_on(client, served)


async def test_nobody_is_late_who_is_not_being_read() -> None:
    desk = Desk("/slow")
    async with serving(desk, limits=Limits(headers_within=SOON)) as served, served.client() as client:
        last = asked("/last")
        await client.send(asked("/slow"), asked("/quick"), last[:20])
        await desk.came("/slow")
        await client.send(last[20:])

        await served.until_late()
        desk.let_go("/slow")

        assert await client.answers(3) == [b"/slow", b"/quick", b"/last"]


async def test_somebody_is_late_again_when_it_is_being_read() -> None:
    desk = Desk("/slow")
    async with serving(desk, limits=Limits(headers_within=SOON)) as served, served.client() as client:
        await client.send(asked("/slow"), asked("/quick"), asked("/last")[:20])
        await desk.came("/slow")
        desk.let_go("/slow")

        assert await client.answers(2) == [b"/slow", b"/quick"]
        assert (await client.answer()).status == 408


# Forms of an answer, and how long a connection is kept.


async def test_head_is_answered_with_the_headers_alone() -> None:
    async with serving(Desk()) as served, served.client() as client:
        whole = await client.ask(asked("/thing"))
        await client.send(asked("/thing", method="HEAD"), asked("/next"))
        head = await client.head()

        assert whole.body == b"/thing"
        assert {**head.headers, "date": ""} == {**whole.headers, "date": ""}
        assert (head.headers["content-length"], head.headers["x-said"]) == ("6", "so")
        assert await client.answers(1) == [b"/next"]


async def test_a_stream_is_not_sent_to_who_asked_for_its_head() -> None:
    async with serving(streams) as served, served.client() as client:
        await client.send(asked(method="HEAD"), asked())
        head = await client.head()

        assert (head.status, head.headers["x-said"], head.closes) == (200, "so", False)
        assert await client.answers(1) == [b"onetwo"]


@pytest.mark.parametrize("status", [204, 304])
async def test_some_answers_have_no_body_and_no_length(status: int) -> None:
    async def application(request: Request) -> None:
        request.answer(status, b"", b"not to be sent")

    async with serving(application) as served, served.client() as client:
        for _ in range(2):
            answer = await client.ask(asked())
            assert answer.status == status
            assert set(answer.headers) == {"date"}


async def test_a_stream_is_sent_in_chunks_and_the_connection_goes_on() -> None:
    async with serving(streams) as served, served.client() as client:
        for _ in range(2):
            head = await client.ask(asked())
            assert head.headers["transfer-encoding"] == "chunked"
            assert (head.body, head.closes) == (b"onetwo", False)


CLOSING = {
    "HTTP/1.0": asked(version="1.0"),
    "HTTP/1.0 without a host": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP/1.0 that would stay": asked("/", "connection: keep-alive", version="1.0"),
    "HTTP/1.1 that leaves": asked("/", "connection: close"),
    "HTTP/1.1 that leaves, among others": asked("/", "Connection: foo, Close"),
    "a body of one that leaves": posted("/", b"body", "connection: close"),
}


@pytest.mark.parametrize("what", CLOSING)
@pytest.mark.parametrize("application", [Desk(), streams], ids=["answer", "stream"])
async def test_the_last_answer_says_so_and_is_followed_by_the_end(what: str, application: Application) -> None:
    async with serving(application) as served, served.client() as client:
        answer = await client.ask(CLOSING[what])

        assert (answer.status, answer.closes) == (200, True)
        assert answer.body in (b"/", b"/ body", b"onetwo")
        assert ("transfer-encoding" in answer.headers) == (application is streams and "1.0" not in what)
        assert await client.rest() == b""


@pytest.mark.parametrize(("version", "next_version"), [("1.0", "1.1"), ("1.1", "1.0")])
async def test_an_answer_has_the_form_of_its_own_version(version: str, next_version: str) -> None:
    let_go = asyncio.Event()

    async def application(request: Request) -> None:
        await let_go.wait()
        await streams(request)

    async with serving(application) as served, served.client() as client:
        await client.send(asked("/", "connection: keep-alive", version=version), asked(version=next_version))
        await served.elsewhere()
        let_go.set()
        answer = await client.answer()

        assert answer.body == b"onetwo"
        assert ("transfer-encoding" in answer.headers, answer.closes) == (version == "1.1", version == "1.0")


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0"])
async def test_no_other_version_is_spoken(version: str) -> None:
    async with serving(streams) as served, served.client() as client:
        assert (await client.ask(f"GET / HTTP/{version}\r\n\r\n".encode())).status in (400, 505)
        assert await client.rest() == b""


async def test_nothing_is_answered_behind_the_last() -> None:
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        answer = await client.ask(asked("/last", "connection: close"), asked("/behind"))

        assert (answer.body, answer.closes) == (b"/last", True)
        assert await client.rest() == b""
    assert desk.begun == ["/last"]


async def test_a_connection_is_used_many_times() -> None:
    async with serving(Desk()) as served, served.client() as client:
        for number in range(1, 100):
            body = b"x" * number
            assert (await client.ask(posted(f"/{number}", body))).body == b"/%d %b" % (number, body)
        await client.send(*(asked(f"/{number}") for number in range(1_000)))

        assert await client.answers(1_000) == [b"/%d" % number for number in range(1_000)]


async def test_an_end_that_was_announced_comes_also_when_the_body_has_come_meanwhile() -> None:
    let_go = asyncio.Event()

    async def application(request: Request) -> None:
        request.begin(200, b"")
        await let_go.wait()
        await request.read(LARGEST)
        request.end()

    async with serving(application) as served, served.client() as client:
        await client.send(asked("/", "content-length: 4", method="POST"))
        head = await client.head()
        await client.send(b"body", asked("/behind", "connection: close"))
        await served.elsewhere()
        let_go.set()

        assert head.closes
        assert await client.part() == b""
        assert await client.rest() == b""


async def test_an_idle_connection_is_closed_but_not_one_at_work() -> None:
    desk = Desk("/slow")
    async with serving(desk, limits=Limits(kept_for=SOON)) as served, served.client() as client:
        await client.ask(asked("/quick"))
        await client.send(asked("/slow"))
        await desk.came("/slow")
        await served.until_idle()
        desk.let_go("/slow")

        assert await client.answers(1) == [b"/slow"]
        assert await client.rest() == b""


async def test_nobody_is_idle_who_is_still_reading_an_answer_with_others_behind_it() -> None:
    async def application(request: Request) -> None:
        request.answer(200, b"", b"x" * (2 << 20) if request.path == b"/large" else b"small")

    limits = Limits(kept_for=SOON)
    async with serving(application, limits=limits, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.ask(asked())
        await client.send(asked("/large"), asked())
        await served.until_idle()

        assert [len(each) for each in await client.answers(2)] == [2 << 20, 5]


async def test_who_is_heard_out_is_not_idle() -> None:
    async with serving(refuses, limits=Limits(kept_for=SOON)) as served, served.client() as client:
        await client.ask(asked())
        assert (await client.ask(asked("/", f"content-length: {LARGEST}", method="POST"))).closes
        await served.until_idle()

        for _ in range(16):
            await client.send(b"x" * (LARGEST >> 4))
            await served.elsewhere()


# An application that fails.


async def raising(_: Request) -> None:
    raise RuntimeError("on purpose")


async def returning(_: Request) -> None:
    return


async def raising_later(request: Request) -> None:
    request.begin(200, b"")
    await request.part(b"part")
    raise RuntimeError("on purpose")


FAILING: list[Application] = [raising, returning, raising_later]


@pytest.mark.parametrize("failing", FAILING)
async def test_an_application_that_fails_ends_its_own_connection(
    failing: Application, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk("/slow")

    async def application(request: Request) -> None:
        await (failing if request.path == b"/bad" else desk)(request)

    async with serving(application) as served, served.client() as client, served.client() as other:
        await other.send(asked("/slow"))
        await desk.came("/slow")
        await client.send(asked("/bad"))

        if failing is raising_later:
            assert (await client.head()).status == 200
            assert await client.part() == b"part"
        assert await client.rest() == b""
        desk.let_go("/slow")
        assert await other.answers(1) == [b"/slow"]
        assert (await other.ask(asked("/more"))).status == 200
    logged = [str(each.exc_info[1]) for each in caplog.records if each.levelno >= logging.ERROR and each.exc_info]
    assert logged == ([] if failing is returning else ["on purpose"])


@pytest.mark.parametrize("failing", FAILING)
async def test_nobody_gets_the_answer_to_another_question(failing: Application) -> None:
    desk = Desk()

    async def application(request: Request) -> None:
        await (failing if request.path == b"/bad" else desk)(request)

    async with serving(application) as served, served.client() as client:
        await client.send(asked("/good"), asked("/bad"), asked("/behind"))

        assert await client.answers(1) == [b"/good"]
        assert b"/behind" not in await client.rest()


@pytest.mark.parametrize("failing", FAILING)
async def test_nobody_gets_the_refusal_of_another_question(failing: Application) -> None:
    async with serving(failing) as served, served.client() as client:
        await client.send(asked("/bad"), b"no HTTP\r\n\r\n")

        assert b"400" not in await client.rest()
