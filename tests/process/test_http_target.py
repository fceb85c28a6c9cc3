"""HTTP jobs against real servers on loopback: every outcome, every way a server misbehaves, nothing leaked."""

import asyncio
import gzip
import itertools
import json
import os
import socket
import ssl
import subprocess
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from mainspring.domain.addresses import parse_networks
from mainspring.domain.settling import Discarded, Failed, Outcome
from mainspring.environment import SystemEnvironment
from mainspring.worker.attempt import Attempt
from mainspring.worker.secrets import EnvironmentSecrets, FileSecrets, SecretsByScheme
from mainspring.worker.targets.answers import retry_after
from mainspring.worker.targets.http import HttpConfig, HttpTarget
from mainspring.worker.targets.signing import verify

from .attempts import JOB, RUN, Told, attempt, error, reason, result
from .origin import Received, answers, never, origin, resets, says

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOOPBACK = parse_networks(["127.0.0.0/8", "::1"], field="http.allow_networks")
ENVIRONMENT = SystemEnvironment()
TOKEN, KEY, OLD_KEY = "Bearer s3cr3t/0451+x", "whsec_" + "QUJD" * 8, "an-older-key-in-plain-text"
VARIABLES = {
    "TOKEN": TOKEN,
    "KEYS": f"{KEY} {OLD_KEY}",
    "KEY": KEY,
    "CLOSED": "hands off",
    "BAD": "a\r\nX-B: c",
    "EMPTY": "",
}
SECRETS = SecretsByScheme({"env": EnvironmentSecrets(["TOKEN", "KEYS", "KEY", "BAD", "EMPTY", "UNSET"], VARIABLES)})


@asynccontextmanager
async def target(tls: ssl.SSLContext | None = None, secrets: Any = SECRETS, **config: Any) -> AsyncIterator[HttpTarget]:
    opened = HttpTarget(HttpConfig(allow_networks=LOOPBACK, **config), secrets, ENVIRONMENT, tls=tls)
    async with opened:
        yield opened


async def call(opened: HttpTarget, url: str, *, output: Told | None = None, **more: object) -> Outcome:
    async with asyncio.timeout(20):  # a target that hangs is a failure, not a wait
        return await opened.run(attempt({"method": "GET", "url": url, **more}, output=output))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# What is sent


@pytest.mark.covers("F58")
async def test_every_request_says_which_run_it_is_and_how_new() -> None:
    async with origin(answers(200)) as server, target(user_agent="Mainspring/test") as opened:
        for number in (1, 2):
            payload = {"method": "POST", "url": server.url("/hook?a=%2B"), "json": {"a": 1}, "headers": {"X-A": "b"}}
            await opened.run(attempt(payload, number=number))

    first, second = server.requests
    assert (first.method, first.path, first.body) == ("POST", "/hook?a=%2B", b'{"a":1}')
    assert first.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "Mainspring/test",
        "accept": "*/*",
        "accept-encoding": "identity",
        "idempotency-key": str(RUN),
        "mainspring-run-id": str(RUN),
        "mainspring-job-id": str(JOB),
        "mainspring-slot": "2027-03-14T07:30:00.000Z",
        "mainspring-attempt": "1",
        "mainspring-fence": "1.1",
        "content-type": "application/json",
        "content-length": "7",
        "x-a": "b",
    }
    assert len(first.names) == len(set(first.names))
    assert second.headers["idempotency-key"] == first.headers["idempotency-key"]
    assert second.headers["mainspring-fence"] > first.headers["mainspring-fence"]


@pytest.mark.parametrize(
    ("more", "body", "content_type"),
    [
        ({"json": None}, b"null", "application/json"),
        ({"json": {"ä": "€"}}, '{"ä":"€"}'.encode(), "application/json"),
        ({"body": "grüße"}, "grüße".encode(), "text/plain; charset=utf-8"),
        ({"body": "<a/>", "headers": {"content-type": "text/xml"}}, b"<a/>", "text/xml"),
        ({"json": 1, "headers": {"CONTENT-TYPE": "application/vnd.x+json"}}, b"1", "application/vnd.x+json"),
    ],
)
async def test_a_body_is_sent_as_what_it_is(more: dict[str, Any], body: bytes, content_type: str) -> None:
    async with origin(answers(204)) as server, target() as opened:
        result(await call(opened, server.url(), **{**more, "method": "PUT"}))

    assert server.requests[0].body == body
    assert server.requests[0].headers["content-type"] == content_type
    assert server.requests[0].names.count("content-type") == 1


async def test_a_trace_is_carried_on() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def traceparent(_: Attempt) -> str | None:
        return parent

    config = HttpConfig(allow_networks=LOOPBACK)
    async with (
        origin(answers(200)) as server,
        HttpTarget(config, SECRETS, ENVIRONMENT, traceparent=traceparent) as opened,
    ):
        await call(opened, server.url())

    assert server.requests[0].headers["traceparent"] == parent


@pytest.mark.covers("F104")
@pytest.mark.parametrize("sign_with", ["env:KEYS", ["env:KEY"], ["env:KEY", "env:KEYS"]])
async def test_a_signed_request_is_verified_by_its_receiver(sign_with: object) -> None:
    async with origin(answers(200)) as server, target() as opened:
        await call(opened, server.url(), method="POST", json={"a": 1}, sign_with=sign_with)
        await call(opened, server.url(), sign_with=sign_with)

    for request in server.requests:
        keys = [KEY] if sign_with == ["env:KEY"] else [KEY, OLD_KEY]
        for key in keys:
            assert verify(request.headers, request.body, [key], now=ENVIRONMENT.now()) == str(RUN)


# What an answer means


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_2xx_is_a_success(status: int) -> None:
    async with origin(answers(status)) as server, target() as opened:
        assert result(await call(opened, server.url())) == {"status": status, "headers": {}, "body": ""}


async def test_a_result_keeps_the_status_a_few_headers_and_the_body() -> None:
    told = answers(
        200,
        '{"id": 7, "names": ["ä"]}',
        content_type="application/json",
        etag='"x"',
        set_cookie="a=b",
        x_request_id="r1",
    )
    async with origin(told) as server, target() as opened:
        assert result(await call(opened, server.url())) == {
            "status": 200,
            "headers": {"content-type": "application/json", "etag": '"x"', "x-request-id": "r1"},
            "body": {"id": 7, "names": ["ä"]},
        }


@pytest.mark.parametrize(
    ("body", "content_type", "kept"),
    [
        (b"plain", "text/plain", "plain"),
        ("grüße".encode(), "text/plain", "grüße"),
        ("grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grüße"),
        ("grüße".encode("utf-16"), 'text/plain; charset="utf-16"', "grüße"),
        (b"\xff\xfe\x00", "application/octet-stream", "��\N{REPLACEMENT CHARACTER}"),
        (b"a\0b", "text/plain", "a\N{REPLACEMENT CHARACTER}b"),
        (b"a", "text/plain; charset=rot13", "a"),
        (b"xn--a", "text/plain; charset=idna", "xn--a"),
        (b"a", "text/plain; charset=no\xc3\xbc".encode().decode("latin-1"), "a"),
        (b"{broken", "application/json", "{broken"),
        (b'"\\ud800"', "application/json", '"\\ud800"'),
        (b'{"a":"\\u0000"}', "application/json", '{"a":"\\u0000"}'),
        (b"[" * 3_000, "application/json", "[" * 3_000),
        (b"1e999", "application/json", "1e999"),
        (b'{"a":1}', "application/problem+json; charset=utf-8", {"a": 1}),
        (b'{"a":1}', "text/html", '{"a":1}'),
    ],
)
async def test_any_body_becomes_something_that_can_be_stored(body: bytes, content_type: str, kept: object) -> None:
    async with origin(answers(200, body, content_type=content_type)) as server, target() as opened:
        found = result(await call(opened, server.url()))

    assert found["body"] == kept
    assert "\0" not in json.dumps(found, ensure_ascii=False)
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "body", ["x" * 20_000, "ü" * 20_000, "\N{GRINNING FACE}" * 9_000, '"' * 20_000, "\\u00fc" * 5_000]
)
@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
async def test_a_long_body_is_kept_as_far_as_it_fits(body: str, content_type: str) -> None:
    text = body if content_type == "text/plain" else json.dumps([body], ensure_ascii=False)
    async with origin(answers(200, text, content_type=content_type)) as server, target() as opened:
        outcomes = [result(await call(opened, server.url())) for _ in range(2)]

    for found in outcomes:
        assert found["truncated"] is True
        assert 7_000 < len(json.dumps(found["body"])) <= 8_000
        assert text.startswith(found["body"])
    assert server.connections == 1  # it was read to its end


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_what_may_pass_with_time_is_tried_again(status: int) -> None:
    async with origin(answers(status, "try later")) as server, target() as opened:
        outcome = await call(opened, server.url("/x?secret=1"))

    assert isinstance(outcome, Failed)
    assert outcome.error.type == f"http_{status}"
    assert outcome.error.bases == (f"http_{status // 100}xx", "http_error")
    assert outcome.error.message.startswith(f"HTTP {status} ")
    assert outcome.error.message.endswith(f"from {server.url('/x')}: try later")
    assert outcome.retry_after is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 418, 422, 451, 600, 999])
async def test_what_will_not_pass_is_given_up(status: int) -> None:
    async with origin(answers(status, "no")) as server, target() as opened:
        said = reason(await call(opened, server.url()))

    assert said.startswith(f"HTTP {status}")
    assert said.endswith(f"from {server.url()}: no")


async def test_a_job_decides_what_is_good() -> None:
    async with origin(answers(404)) as missing, origin(answers(200)) as found, target() as opened:
        assert result(await call(opened, missing.url(), success=["2xx", 404]))["status"] == 404
        assert reason(await call(opened, found.url(), success=[404])).startswith("HTTP 200 OK")


NOW = datetime(2027, 3, 14, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Sun, 14 Mar 2027 07:31:00 GMT", 60),
        ("Sunday, 14-Mar-27 07:31:00 GMT", 60),
        ("Sun Mar 14 07:31:00 2027", 60),
        ("Sun, 14 Mar 2027 08:31:00 +0100", 60),
        ("Sun, 14 Mar 2027 07:31:00 -0000", 60),
        ("Sun, 14 Mar 2026 07:31:00 GMT", 0),
        ("999999999999999999999999", 86_400),
        ("Sun, 14 Mar 9999 07:31:00 GMT", 86_400),
        *(
            (value, None)
            for value in ("", "soon", "-5", "1.5", "1e3", "٣", "Sun, 99 Mar 2027 07:31:00 GMT", "x" * 9_999)
        ),
        *((value, None) for value in (None, "Sun, 14 Mar 2027 07:31:00 +9999999", "12 3", "0x10")),
    ],
)
async def test_retry_after_is_read_in_all_its_forms(value: str | None, seconds: int | None) -> None:
    assert retry_after(value, now=NOW) == (None if seconds is None else timedelta(seconds=seconds))


@pytest.mark.parametrize(("status", "value", "seconds"), [(503, "7", 7), (429, "7", 7), (503, "nonsense", None)])
async def test_a_server_may_ask_for_time(status: int, value: str, seconds: int | None) -> None:
    async with origin(answers(status, retry_after=value)) as server, target() as opened:
        outcome = await call(opened, server.url())

    assert isinstance(outcome, Failed)
    assert outcome.retry_after == (None if seconds is None else timedelta(seconds=seconds))


# Redirects


async def test_a_redirect_is_not_followed_unless_asked_for() -> None:
    async with origin(answers(302, Location="/there?key=1")) as server, target() as opened:
        said = reason(await call(opened, server.url()))

    assert said == f"HTTP 302 Found from {server.url()} points to /there; set redirects to follow it"
    assert len(server.requests) == 1


def stepping(*statuses: int) -> Any:
    """Answer /0 with the first status and a way on to /1, and so on; then 200 with what came."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        step = int(request.path[1:])
        if step < len(statuses):
            await answers(statuses[step], location=f"/{step + 1}#part")(request, writer)
        else:
            await answers(200, f"{request.method} {request.body.decode()}")(request, writer)

    return answer


@pytest.mark.parametrize(
    ("method", "status", "arrives"),
    [
        *(("POST", status, "GET ") for status in (301, 302, 303)),
        *(("POST", status, "POST hello") for status in (307, 308)),
        *(("PUT", status, "PUT hello") for status in (301, 302, 307, 308)),
        ("PUT", 303, "GET "),
    ],
)
async def test_a_redirect_keeps_or_changes_the_method_as_it_should(method: str, status: int, arrives: str) -> None:
    told = Told()
    async with origin(stepping(status)) as server, target() as opened:
        outcome = await call(opened, server.url("/0"), method=method, body="hello", redirects=1, output=told)

    last = server.requests[1]
    assert result(outcome)["body"] == arrives
    assert ("content-type" in last.headers) == ("hello" in arrives)
    assert last.headers["idempotency-key"] == str(RUN)
    assert told.of("log") == [f"HTTP {status} {_phrase(status)} from {server.url('/0')}: on to {server.url('/1')}"]
    assert server.connections == 1


def _phrase(status: int) -> str:
    phrases = {301: "Moved Permanently", 302: "Found", 303: "See Other", 307: "Temporary Redirect"}
    return phrases.get(status, "Permanent Redirect")


async def test_redirects_have_an_end() -> None:
    async with origin(stepping(302, 302, 302)) as server, target() as opened:
        assert result(await call(opened, server.url("/0"), redirects=3))["status"] == 200
        said = reason(await call(opened, server.url("/0"), redirects=2))

    assert said == f"HTTP 302 Found from {server.url('/2')} points to /3#part; more than 2 redirects"
    assert len(server.requests) == 4 + 3


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("/", "back in a circle"),
        ("ftp://example.com/", "does not begin with http:// or https://"),
        ("http://user:0451@example.com/", "has a user or password in it"),
        ("http://[", "no URL at all"),
        ("http://a b/", "has characters that no URL may have"),
    ],
)
async def test_a_redirect_that_leads_astray_is_not_followed(location: str, where: str) -> None:
    async with origin(answers(302, Location=location)) as server, target() as opened:
        said = reason(await call(opened, server.url(), redirects=5))

    assert f"HTTP 302 Found from {server.url()} leads astray: " in said
    assert where in said
    assert "0451" not in said
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [300, 304, 305, 302])
async def test_a_redirect_to_nowhere_is_given_up(status: int) -> None:
    async with origin(answers(status)) as server, target() as opened:
        assert f"HTTP {status}" in reason(await call(opened, server.url(), redirects=5))


@pytest.mark.covers("F103")
async def test_secrets_and_signature_go_to_their_own_origin_only() -> None:
    async with origin(answers(200)) as other:

        async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
            where = "/same" if request.path == "/" else other.url("/other")
            await answers(307, location=where)(request, writer)

        async with origin(answer) as server, target() as opened:
            await call(
                opened,
                server.url(),
                method="POST",
                body="x",
                redirects=5,
                secret_headers={"Authorization": "env:TOKEN"},
                sign_with="env:KEY",
                headers={"X-A": "b"},
            )

    assert [request.headers.get("authorization") for request in server.requests] == [TOKEN, TOKEN]
    for request in server.requests:
        assert verify(request.headers, request.body, [KEY], now=ENVIRONMENT.now())
    (last,) = other.requests
    assert (last.path, last.body, last.headers["x-a"]) == ("/other", b"x", "b")
    assert not {"authorization", "webhook-signature", "webhook-id", "webhook-timestamp"} & set(last.headers)


@pytest.mark.covers("F103")
async def test_a_secret_does_not_come_back_with_the_way_back() -> None:
    async with origin(never) as server, origin(never) as other, target() as opened:

        async def home(request: Received, writer: asyncio.StreamWriter) -> None:
            await (answers(200) if request.path == "/back" else answers(307, location=other.url()))(request, writer)

        server.answer, other.answer = home, answers(307, location=server.url("/back"))
        result(await call(opened, server.url(), redirects=5, secret_headers={"Authorization": "env:TOKEN"}))

    assert [request.headers.get("authorization") for request in server.requests] == [TOKEN, None]


# What goes wrong on the way


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


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Certificates with their keys: of this host, of another, and of this host until yesterday."""
    folder = tmp_path_factory.mktemp("certificates")
    key = folder / "key"
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    for name, host in (("good", "localhost"), ("other", "elsewhere.example")):
        extension = ("-addext", f"subjectAltName=DNS:{host}")
        _openssl("req", "-x509", "-key", key, "-days", 2, "-subj", f"/CN={host}", *extension, "-out", folder / name)
    _openssl("req", "-new", "-key", key, "-subj", "/CN=localhost", "-out", folder / "request")
    _openssl("x509", "-req", "-in", folder / "request", "-signkey", key, "-days", -1, "-out", folder / "expired")
    for name in ("good", "other", "expired"):
        (folder / f"{name}.pem").write_text(key.read_text() + (folder / name).read_text())
    return {name: folder / f"{name}.pem" for name in ("good", "other", "expired")}


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


async def test_a_certificate_that_is_trusted_is_good(certificates: Mapping[str, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates["good"]))
    async with (
        origin(answers(200, "hello"), tls=serving(certificates["good"])) as server,
        target(tls=trusting) as opened,
    ):
        assert result(await call(opened, f"https://localhost:{server.port}/"))["body"] == "hello"


@pytest.mark.parametrize(
    ("name", "trusted", "why"),
    [
        ("good", None, "self-signed certificate"),
        ("other", "other", "Hostname mismatch, certificate is not valid for 'localhost'."),
        ("expired", "expired", "certificate has expired"),
    ],
)
async def test_a_bad_certificate_is_a_failure_that_says_why(
    name: str, trusted: str | None, why: str, certificates: Mapping[str, Path]
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates[trusted])) if trusted else None
    async with origin(answers(200), tls=serving(certificates[name])) as server, target(tls=trusting) as opened:
        url = f"https://localhost:{server.port}/"
        assert error(await call(opened, url)) == ("http_tls", f"no trusted connection to {url}: {why}")

    assert server.requests == []


async def test_no_tls_where_tls_belongs_is_a_failure_of_trust() -> None:
    def greets(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greets, "127.0.0.1", 0)
    async with server, target() as opened:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert error(await call(opened, url))[0] == "http_tls"


async def test_a_redirect_does_not_lead_from_https_down_to_http(certificates: Mapping[str, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates["good"]))
    async with origin(answers(200)) as plain, target(tls=trusting) as opened:
        down = answers(307, location=plain.url())
        async with origin(down, tls=serving(certificates["good"])) as server:
            said = reason(await call(opened, f"https://localhost:{server.port}/", redirects=5))

    assert f"from https down to {plain.url()}" in said
    assert plain.connections == 0


# Secrets


@pytest.mark.covers("F103")
@pytest.mark.parametrize("status", [200, 500, 404, 302])
@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
async def test_a_secret_that_is_echoed_is_masked_in_all_that_is_kept(status: int, content_type: str) -> None:
    bare = TOKEN.removeprefix("Bearer ")

    async def echoes(request: Received, writer: asyncio.StreamWriter) -> None:
        seen = request.headers["authorization"]
        assert seen == TOKEN
        spelled = {
            "all": seen,
            "bare": bare,
            "percent": "s3cr3t%2F0451%2Bx",
            bare: 1,
            "list": [f"<{bare}>", KEY, OLD_KEY],
        }
        body = json.dumps(spelled).replace("/", "\\/") if content_type == "application/json" else str(spelled)
        where = f"/there/{bare}" if request.path == "/" else f"/{bare}/again?{bare}"
        headers: dict[str, Any] = {
            "content_type": content_type,
            "x_request_id": f"for {seen}",
            "location": where,
            "retry_after": bare,
        }
        await answers(302 if request.path == "/" else status, body, **headers)(request, writer)

    told = Told()
    async with origin(echoes) as server, target() as opened:
        asked = {"secret_headers": {"Authorization": "env:TOKEN"}, "sign_with": "env:KEYS", "redirects": 1}
        outcome = await call(opened, server.url(), output=told, **asked)

    assert len(server.requests) == 2
    assert len(told.lines) == 1
    left = repr(outcome) + repr(told)
    for secret in (TOKEN, bare, KEY, KEY.removeprefix("whsec_"), OLD_KEY, "s3cr3t", "0451"):
        assert secret not in left, secret
    assert "***" in left


@pytest.mark.covers("F103")
async def test_half_a_secret_at_the_cut_is_not_kept_either() -> None:
    bare = TOKEN.removeprefix("Bearer ")
    for padding in range(7_950, 8_010, 3):
        async with origin(answers(200, "x" * padding + bare * 2_000)) as server, target() as opened:
            found = result(await call(opened, server.url(), secret_headers={"Authorization": "env:TOKEN"}))

        assert "s3" not in found["body"]


@pytest.mark.covers("F103")
@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("env:CLOSED", "is not open to jobs"),
        ("env:PATH", "is not open to jobs"),
        ("env:UNSET", "is not set"),
        ("env:EMPTY", "is not set"),
        ("file:/etc/passwd", "leads nowhere here"),
        ("vault:a#b", "leads nowhere here"),
    ],
)
@pytest.mark.parametrize("field", ["secret_headers", "sign_with"])
async def test_a_job_reads_no_variable_that_was_not_opened(reference: str, why: str, field: str) -> None:
    asked: dict[str, Any] = {field: {"X-A": reference} if field == "secret_headers" else reference}
    async with origin(answers(200)) as server, target() as opened:
        said = reason(await call(opened, server.url(), **asked))

    assert f'"{reference}" {why}' in said
    assert not any(value and value in said for value in VARIABLES.values())
    assert server.connections == 0


@pytest.mark.covers("F103", "F106")
async def test_a_secret_that_no_header_can_carry_is_refused_and_not_repeated() -> None:
    async with origin(answers(200)) as server, target() as opened:
        said = reason(await call(opened, server.url(), secret_headers={"X-A": "env:BAD"}))

    assert 'the value of "x-a" cannot be sent' in said
    assert "X-B" not in said
    assert server.connections == 0


@pytest.mark.covers("F103")
async def test_files_are_read_below_their_directory_and_nowhere_else(tmp_path: Path) -> None:
    inside, outside = tmp_path / "secrets", tmp_path / "private"
    (inside / "..data").mkdir(parents=True)
    outside.write_text("hands off")
    (inside / "..data" / "token").write_text("from a file\n")
    (inside / "token").symlink_to("..data/token")  # as mounted secrets are
    (inside / "out").symlink_to(outside)
    (inside / "up").symlink_to("..")
    (inside / "loop").symlink_to("loop")
    (inside / "large").write_bytes(b"x" * 70_000)
    (inside / "binary").write_bytes(b"\xff")
    (inside / "empty").touch()
    os.mkfifo(inside / "pipe")
    secrets = SecretsByScheme({"file": FileSecrets(inside)})

    async with origin(answers(200)) as server, target(secrets=secrets) as opened:
        for reference in ("file:token", f"file:{inside}/token", "file:./token"):
            result(await call(opened, server.url(), secret_headers={"X-A": reference}))
        refused = ["../private", "out", "up/private", f"{outside}", "/etc/passwd", "loop", "large", "binary", "empty"]
        for name in (*refused, "pipe", "missing", ".", "..data", "x" * 400):
            said = reason(await call(opened, server.url(), secret_headers={"X-A": f"file:{name}"}))
            assert "cannot be read" in said
            assert "hands off" not in said

    assert [request.headers["x-a"] for request in server.requests] == ["from a file"] * 3


@pytest.mark.covers("F103")
async def test_a_provider_that_breaks_says_nothing() -> None:
    class Broken:
        def resolve(self, reference: str) -> str:
            raise RuntimeError(f"{reference} is 0451")

    async with target(secrets=Broken()) as opened:
        outcome = await call(opened, "http://127.0.0.1/", secret_headers={"X-A": "env:X"})

    assert error(outcome) == ("http_failed", "could not be sent: RuntimeError")


@pytest.mark.covers("F106")
@pytest.mark.parametrize("payload", [None, 1, [], "x", {}, {"url": 1}, {"method": "GET", "url": "http://h/", "x": 1}])
async def test_a_payload_that_is_no_request_is_given_up(payload: object) -> None:
    async with target() as opened:
        assert isinstance(await opened.run(attempt(payload)), Discarded)


async def test_a_body_that_cannot_be_sent_is_given_up() -> None:
    async with target() as opened:
        for more in ({"json": "\ud800"}, {"body": "\ud800"}, {"body": "ü" * (1 << 20)}, {"json": ["x" * (1 << 20)]}):
            assert "this cannot be sent" in reason(await call(opened, "http://127.0.0.1/", **more))


# Connections


async def test_connections_are_used_again() -> None:
    async with origin(answers(200, "x" * 100)) as server, target() as opened:
        for _ in range(20):
            await asyncio.gather(*(call(opened, server.url()) for _ in range(5)))

    assert len(server.requests) == 100
    assert server.connections == 5


async def test_cookies_are_neither_kept_nor_sent() -> None:
    async with origin(answers(200, set_cookie="session=1; Path=/")) as server, target() as opened:
        for _ in range(2):
            await call(opened, server.url())

    assert all("cookie" not in request.headers for request in server.requests)


async def test_two_hundred_at_once_are_no_trouble() -> None:
    async with origin(answers(200, "ok")) as server, target() as opened:
        outcomes = await asyncio.gather(*(call(opened, server.url(f"/{n}")) for n in range(200)))

    assert [result(outcome)["body"] for outcome in outcomes] == ["ok"] * 200
    assert {request.path for request in server.requests} == {f"/{n}" for n in range(200)}


async def test_more_requests_than_connections_wait_for_one() -> None:
    async with origin(answers(200)) as server, target(connections=3) as opened:
        outcomes = await asyncio.gather(*(call(opened, server.url()) for _ in range(30)))

    assert all(outcome.word == "succeeded" for outcome in outcomes)
    assert server.connections == 3


@pytest.mark.parametrize("when", ["waiting", "reading"])
async def test_cancelled_the_connection_is_closed_at_once(when: str) -> None:
    async def half(request: Received, writer: asyncio.StreamWriter) -> None:
        if when == "reading":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await never(request, writer)

    async with origin(half) as server, target() as opened:
        work = asyncio.create_task(call(opened, server.url()))
        async with asyncio.timeout(10):
            await server.arrived.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            await server.closed.wait()

        server.answer = answers(200, "next")
        assert result(await call(opened, server.url()))["body"] == "next"  # on a connection of its own
    assert server.connections == 2


async def test_nothing_stays_open_whatever_happened() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    cases = [answers(200), answers(500), answers(302, location="/x"), says(raw), resets(raw), never, says(b"?")]
    before = open_files()
    for _ in range(3):
        async with target() as opened:
            for case in cases:
                async with origin(case) as server:
                    await asyncio.gather(*(call(opened, server.url(), timeout="100ms", redirects=2) for _ in range(5)))
                await call(opened, server.url())

    deadline = time.monotonic() + 10
    while open_files() > before:  # the loop closes them when it gets to it
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
