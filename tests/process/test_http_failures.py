"""Servers that are away, slow, broken or endless: each has a defined outcome, in bounded time."""

import asyncio
import gzip
import itertools
import socket
import time
import tracemalloc
import zlib
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from mainspring.worker.targets.http import HttpConfig, HttpTarget

from .attempts import error, reason, result
from .calling import ENVIRONMENT, SECRETS, call, target
from .origin import Received, answers, never, origin, resets, says

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_nobody_there_is_a_failure_to_connect() -> None:
    async with origin(answers(200)) as server:
        pass
    async with target() as opened:
        assert error(await call(opened, server.url())) == (
            "http_connect",
            f"no connection to {server.url()}: Connect call failed ('127.0.0.1', {server.port})",
        )


class Nobody(AbstractResolver):
    """A name server that knows nobody; the real one is not to be asked from here."""

    async def resolve(self, *_: object, **__: object) -> list[ResolveResult]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def close(self) -> None:
        pass


async def test_a_name_without_address_is_a_failure_of_its_own() -> None:
    async with HttpTarget(HttpConfig(), SECRETS, ENVIRONMENT, resolver=Nobody()) as opened:
        assert error(await call(opened, "http://nowhere.example/?a")) == (
            "http_dns",
            "no address for http://nowhere.example/: Name or service not known",
        )


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "http_reset"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "http_reset"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "http_reset"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nXYZ\r\nhello", "http_protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", "http_reset"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "http_reset"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "http_protocol"),
        (b"HTTP/1.1 banana\r\n\r\n", "http_protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", "http_protocol"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5_000 + b"\r\n", "http_protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "http_protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nab", "http_protocol"),
    ],
)
@pytest.mark.parametrize("how", [says, resets])
async def test_a_broken_answer_is_a_failure(raw: bytes, kind: str, how: Any) -> None:
    async with origin(how(raw)) as server, target() as opened:
        found, message = error(await call(opened, server.url(), method="POST"))

    assert found in ((kind, "http_reset") if how is resets else (kind,))  # a reset may overtake what was written
    assert server.url() in message
    assert len(server.requests) == 1  # sent once: whether the server acted, nobody knows


@pytest.mark.parametrize(("status", "word"), [(503, "failed"), (404, "discarded"), (302, "discarded")])
@pytest.mark.parametrize("how", ["cut", "endless"])
async def test_a_status_that_is_no_success_decides_even_if_its_body_breaks(status: int, word: str, how: str) -> None:
    raw = f"HTTP/1.1 {status} X\r\nContent-Length: 100\r\n\r\nbecause".encode()

    async def stalls(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await asyncio.Event().wait()

    async with origin(says(raw) if how == "cut" else stalls) as server, target() as opened:
        outcome = await call(opened, server.url(), timeout="200ms")

    assert outcome.word == word
    assert str(status) in repr(outcome)
    assert status == 302 or "because" in repr(outcome)


async def test_a_server_that_never_answers_costs_no_more_than_the_timeout() -> None:
    async with origin(never) as server, target(answer_within=timedelta(milliseconds=300)) as opened:
        began = time.monotonic()
        kind, message = error(await call(opened, server.url()))
        took = time.monotonic() - began

        async with asyncio.timeout(10):
            await server.closed.wait()
    assert (kind, message) == ("http_timeout", f"no complete answer in time from {server.url()}")
    assert 0.25 < took < 5


async def test_a_job_may_want_another_timeout() -> None:
    async with origin(never) as server, target() as opened:
        assert error(await call(opened, server.url(), timeout="100ms"))[0] == "http_timeout"


@pytest.mark.parametrize("part", ["status", "header", "body"])
async def test_a_slow_drip_does_not_stretch_the_timeout(part: str) -> None:
    begin = {
        "status": b"",
        "header": b"HTTP/1.1 200 OK\r\nX-Long: ",
        "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    }[part]

    async def drips(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        for piece in itertools.chain(b"HTTP/1.1 200 OK"[:14] if part == "status" else b"", itertools.repeat(120)):
            writer.write(bytes([piece]))
            await asyncio.sleep(0.03)

    async with origin(drips) as server, target() as opened:
        began = time.monotonic()
        kind, _ = error(await call(opened, server.url(), timeout="300ms"))
        took = time.monotonic() - began

    assert kind == "http_timeout"
    assert took < 5


async def test_a_server_that_takes_no_connection_is_given_up_on() -> None:
    # The queue of connections that nobody accepts is full: the next one gets no answer at all.
    with socket.socket() as listening, ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            first = waiting.enter_context(socket.socket())
            first.setblocking(False)
            first.connect_ex(listening.getsockname())
        async with target(connect_within=timedelta(milliseconds=300)) as opened:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            assert error(await call(opened, url)) == ("http_connect", f"no connection to {url}: it took too long")


async def test_an_endless_body_is_cut_and_the_connection_closed() -> None:
    async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    async with origin(endless) as server, target() as opened:
        found = result(await call(opened, server.url()))

        async with asyncio.timeout(10):
            await server.closed.wait()
    assert found["truncated"] is True
    assert found["body"].startswith("xxxx")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_bomb_unfolds_no_further_than_the_cap(coding: str) -> None:
    huge = bytes(300_000_000)
    bomb = gzip.compress(huge, 6) if coding == "gzip" else zlib.compress(huge, 6)
    del huge
    told = answers(200, bomb, content_encoding=coding, content_type="text/plain")
    async with origin(told) as server, target() as opened:
        await call(opened, server.url())
        tracemalloc.start()
        try:
            found = result(await call(opened, server.url()))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert found["truncated"] is True
    assert peak < 20_000_000


async def test_a_server_that_answers_before_it_has_read_all_is_heard() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 X\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo much")
        await writer.drain()
        while await reader.read(65_536):
            pass
        writer.close()

    server = await asyncio.start_server(early, "127.0.0.1", 0)
    async with server, target() as opened:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        said = reason(await call(opened, url, method="POST", body="x" * (1 << 20)))

    assert "too much" in said
