"""HTTP/1.1 over a bare socket: all that a client can ask for or send, and what the server makes of it."""

import asyncio

import pytest

from mainspring.api.connection import Limits
from mainspring.api.incoming import Request

from .wire import LARGEST, MUCH, SMALL, Desk, asked, posted, refuses, serving, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

UPGRADE = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk")


def chunked(target: str, *parts: bytes, end: bytes = b"0\r\n\r\n", headers: tuple[str, ...] = ()) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return asked(target, "transfer-encoding: chunked", *headers, method="POST") + chunks + end


class Notebook(list[Request]):
    """An application that reads what it is sent, and keeps it."""

    async def __call__(self, request: Request) -> None:
        assert await request.read(LARGEST) is not None
        self.append(request)
        request.answer(204, b"", b"")


# What is asked for.

TARGETS = {
    "/": (b"/", b""),
    "/a/b": (b"/a/b", b""),
    "/a?b=c&d": (b"/a", b"b=c&d"),
    "/a?b?c": (b"/a", b"b?c"),
    "/a?": (b"/a", b""),
    "/a%2Fb%3f?c=%20+": (b"/a%2Fb%3f", b"c=%20+"),
    "//a": (b"//a", b""),
    "/a#b": (b"/a", b""),
    "/a?b#c?d": (b"/a", b"b"),
    "/a#b?c": (b"/a", b""),
    "*": (b"*", b""),
    "/a?b=http://c/d": (b"/a", b"b=http://c/d"),
    "http://localhost/a?b": (b"/a", b"b"),
    "http://localhost:1": (b"/", b""),
    "http://localhost?b": (b"/", b"b"),
    "http://user:word@localhost:1/a?b#c": (b"/a", b"b"),
}


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_is_divided(target: str) -> None:
    notes = Notebook()
    async with serving(notes) as served, served.client() as client:
        await client.ask(asked(target, method="DELETE"))

    assert [(each.method, each.path, each.query) for each in notes] == [("DELETE", *TARGETS[target])]
    assert notes[0].peer == "127.0.0.1"


async def test_headers_are_by_lower_case_name_and_joined() -> None:
    notes = Notebook()
    async with serving(notes) as served, served.client() as client:
        await client.ask(asked("/", "X-Thing: 1", "ACCEPT:two", "x-thing:", "x-none:", "accept: \u00e9", "X-THING: 3"))
        await client.ask(asked("/", "x-other: alone"))

    assert [each.headers for each in notes] == [
        {"host": "localhost", "x-thing": "1, , 3", "accept": "two, \u00c3\u00a9", "x-none": ""},
        {"host": "localhost", "x-other": "alone"},
    ]


async def test_the_space_around_a_header_is_no_part_of_it() -> None:
    notes = Notebook()
    async with serving(notes) as served, served.client() as client:
        await client.ask(asked("/", "x-thing: \t one two \t "))

    assert notes[0].headers == {"host": "localhost", "x-thing": "one two"}


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("", 400),
        ("Host: localhost\r\n", 200),
        ("Host:\r\n", 200),
        ("Host: localhost\r\nHost: other\r\n", 400),
    ],
    ids=["none", "one", "an empty one", "two"],
)
async def test_there_is_one_host(lines: str, status: int) -> None:
    async with serving(Desk()) as served, served.client() as client:
        assert (await client.ask(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())).status == status


async def test_headers_are_measured_from_where_they_begin() -> None:
    async with serving(Desk(), limits=Limits(largest_headers=1_000)) as served, served.client() as client:
        last = asked("/last")
        await client.send(posted("/body", b"x" * 2_000), last[:20])
        await client.answers(1)
        await client.send(last[20:])

        assert await client.answers(1) == [b"/last"]


async def test_headers_are_measured_also_when_they_come_at_once() -> None:
    async with serving(Desk(), limits=Limits(largest_headers=1_000)) as served, served.client() as client:
        assert (await client.ask(asked("/", f"x: {'y' * 2_000}"))).status == 431


async def test_it_is_the_same_wherever_a_packet_ends() -> None:
    upgrades = asked("/up", *UPGRADE) + posted("/up", b"of it", *UPGRADE)
    sent = posted("/body", b"of it") + chunked("/chunks", b"of", b" it") + upgrades + asked("/last?query", "x-a: b")
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        for cut in range(len(sent)):
            await client.send(sent[:cut])
            for _ in range(3):
                await asyncio.sleep(0)  # for the first part to be read alone; if it is not, that is a case too
            await client.send(sent[cut:])

            assert await client.answers(5) == [b"/body of it", b"/chunks of it", b"/up", b"/up of it", b"/last"]
    assert len(desk.begun) == 5 * len(sent)


# What nobody speaks here.


@pytest.mark.covers("F106")
@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        pytest.param(asked("/up", *UPGRADE), b"/up", id="alone"),
        pytest.param(asked("/up", "connection: Upgrade", "upgrade: websocket"), b"/up", id="to a websocket"),
        pytest.param(asked("/up", method="CONNECT"), b"/up", id="to a tunnel"),
        pytest.param(
            asked("/up", "content-length: 4", method="CONNECT") + b"body", b"/up body", id="to a tunnel, and a body"
        ),
        pytest.param(posted("/up", b"body", *UPGRADE), b"/up body", id="with a body"),
        pytest.param(chunked("/up", b"bo", b"dy", headers=UPGRADE), b"/up body", id="with chunks"),
        pytest.param(posted("/up", asked("/hidden"), *UPGRADE), b"/up " + asked("/hidden"), id="hiding"),
    ],
)
async def test_an_upgrade_is_not_heard(sent: bytes, answered: bytes) -> None:
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        await client.send(sent, asked("/behind"), sent)

        assert await client.answers(3) == [answered, b"/behind", answered]
        assert (await client.ask(sent)).body == answered
    assert desk.begun == ["/up", "/behind", "/up", "/up"]


@pytest.mark.parametrize("number", [2, 1_000])
async def test_many_upgrades_at_once_are_not_heard(number: int) -> None:
    async with serving(Desk()) as served, served.client() as client:
        await client.send(*(asked(f"/{each}", *UPGRADE) for each in range(number)), asked("/last"))

        assert await client.answers(number + 1) == [*(b"/%d" % each for each in range(number)), b"/last"]


FOREIGN = {
    "a tunnel": asked("localhost:443", method="CONNECT"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_nothing_else_is_spoken(what: str) -> None:
    desk = Desk()
    async with serving(desk) as served, served.client() as client:
        await client.send(asked("/first"), asked("/second"), FOREIGN[what], asked("/behind"))

        assert await client.answers(2) == [b"/first", b"/second"]
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
    assert desk.begun == ["/first", "/second"]


# Bodies.


async def test_to_go_ahead_is_said_when_the_body_is_wanted() -> None:
    async with serving(Desk()) as served, served.client() as client:
        for more in ((), UPGRADE, ()):
            go_ahead = await client.ask(asked("/", "content-length: 4", "expect: 100-Continue", *more, method="POST"))
            answer = await client.ask(b"body")

            assert (go_ahead.status, go_ahead.headers) == (100, {})
            assert (answer.body, answer.closes) == (b"/ body", False)
        answer = await client.ask(posted("/", b"came along", "expect: 100-continue"))
        assert (answer.status, answer.body) == (200, b"/ came along")


async def test_to_go_ahead_is_not_said_to_who_does_not_know_it() -> None:
    async with serving(Desk()) as served, served.client() as client:
        await client.send(asked("/", "content-length: 4", "expect: 100-continue", method="POST", version="1.0"))
        await served.elsewhere()

        assert (await client.ask(b"body")).status == 200


async def test_to_go_ahead_is_not_said_when_the_body_is_not_wanted() -> None:
    async with serving(refuses) as served, served.client() as client:
        answer = await client.ask(asked("/", "content-length: 4", "expect: 100-continue", method="POST"))

        assert (answer.status, answer.closes) == (413, True)
        assert await client.rest() == b""


AS_CHUNKS = pytest.mark.parametrize("as_chunks", [False, True], ids=["length", "chunks"])


@AS_CHUNKS
async def test_who_sends_all_of_a_body_that_nobody_reads_gets_all_of_the_answer(*, as_chunks: bool) -> None:
    part = b"x" * (1 << 16)
    async with serving(refuses, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        await client.send(chunked("/", *[part] * 80) if as_chunks else posted("/", part * 80))
        answer = await client.answer()

        assert (answer.status, len(answer.body), answer.closes) == (413, 100_000, True)
        assert await client.rest() == b""


@AS_CHUNKS
@pytest.mark.parametrize(("length", "fits"), [(0, True), (999, True), (1_000, True), (1_001, False), (300_000, False)])
async def test_a_body_is_read_if_it_is_not_too_large(length: int, *, fits: bool, as_chunks: bool) -> None:
    async def application(request: Request) -> None:
        body = await request.read(1_000)
        request.answer(200, b"", b"too large" if body is None else b"%d" % len(body))

    body = b"x" * length
    parts = [body[at : at + 400] for at in range(0, length, 400)]
    sent, last = (chunked("/", *parts), -8) if as_chunks else (posted("/", body), -1)
    async with serving(application) as served, served.client() as client:
        await client.send(sent[:last])
        await served.elsewhere()
        answer = await client.ask(sent[last:])  # with its last byte

        assert answer.body == (b"%d" % length if fits else b"too large")


@AS_CHUNKS
async def test_a_body_is_not_measured_as_headers_are(*, as_chunks: bool) -> None:
    parts = [b"%d" % number * 10_000 for number in range(10)]
    async with serving(Desk(), limits=Limits(largest_headers=1_000)) as served, served.client() as client:
        sent = chunked("/", *parts) if as_chunks else posted("/", b"".join(parts))
        for at in range(0, len(sent), 25_000):
            await client.send(sent[at : at + 25_000])
            await served.elsewhere()

        assert await client.answers(1) == [b"/ " + b"".join(parts)]


@pytest.mark.parametrize("largest", [None, 1_000], ids=["not read", "too large"])
async def test_a_body_that_nobody_reads_is_not_kept(largest: int | None) -> None:
    let_go = asyncio.Event()

    async def application(request: Request) -> None:
        if largest is not None:
            assert await request.read(largest) is None
        await let_go.wait()
        request.answer(200, b"", b"after all")

    async with serving(application, buffers=SMALL) as served, served.client(buffers=SMALL) as client:
        assert await served.taken(client, posted("/", b"x" * (20 << 20))) < MUCH
        let_go.set()
        assert (await client.answer()).body == b"after all"


@pytest.mark.parametrize("front", [b"", asked("/slow")], ids=["alone", "behind another"])
async def test_a_body_that_is_broken_while_it_is_read_has_one_answer(front: bytes) -> None:
    desk, broken = Desk("/slow"), 0

    async def application(request: Request) -> None:
        nonlocal broken
        try:
            await desk(request)
        except ConnectionError:
            broken += 1

    async with serving(application) as served, served.client() as client:
        await client.send(front, chunked("/broken", b"good", end=b""))
        await served.elsewhere()
        await client.send(b"no length\r\n", asked("/behind"))
        await served.elsewhere()
        desk.let_go("/slow")
        if front:
            assert await client.answers(1) == [b"/slow"]
        answer = await client.answer()

        assert (answer.status, answer.closes) == (400, True)
        assert await client.rest() == b""
    assert broken == 1


async def test_an_answer_to_a_body_that_is_broken_is_the_only_one() -> None:
    came, let_go = asyncio.Event(), asyncio.Event()

    async def application(request: Request) -> None:
        came.set()
        await let_go.wait()
        request.answer(200, b"", b"not looked at")

    async with serving(application) as served, served.client() as client:
        await client.send(chunked("/", b"good", end=b"no length\r\n"))
        await until(came)
        let_go.set()
        answer = await client.answer()

        assert (answer.body, answer.closes) == (b"not looked at", True)
        assert await client.rest() == b""


async def test_what_follows_a_body_is_no_header() -> None:
    notes = Notebook()
    trailer = b"0\r\nauthorization: another\r\nhost: other\r\n\r\n"
    async with serving(notes) as served, served.client() as client:
        await client.ask(chunked("/", b"body", end=trailer, headers=("authorization: mine",)))

    assert (notes[0].headers["authorization"], notes[0].headers["host"]) == ("mine", "localhost")


async def test_what_follows_a_body_is_bounded() -> None:
    trailers = b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1_000) for number in range(2_000))
    async with serving(Desk()) as served, served.client() as client:
        answer = await client.ask(chunked("/", b"body", end=b"0\r\n" + trailers + b"\r\n"))

        assert (answer.status, answer.closes) == (431, True)


async def test_what_follows_a_body_is_bounded_also_where_it_has_no_end() -> None:
    desk, refused = Desk(), asyncio.Event()

    async def application(request: Request) -> None:
        try:
            await desk(request)
        except ConnectionError:
            refused.set()

    async with serving(application) as served, served.client() as client:
        await client.send(chunked("/", b"body", end=b"0\r\nx: "))
        for _ in range(20):
            await client.send(b"y" * 10_000)
            await served.elsewhere()

        assert refused.is_set()
        assert (await client.answer()).status == 431
