"""The HTTP target: what a request carries, what answers mean, where redirects lead, how connections are used."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.domain.settling import Failed
from mainspring.worker.attempt import Attempt
from mainspring.worker.targets.answers import retry_after
from mainspring.worker.targets.http import HttpConfig, HttpTarget
from mainspring.worker.targets.signing import verify

from .attempts import JOB, RUN, Told, attempt, reason, result
from .calling import ENVIRONMENT, KEY, LOOPBACK, OLD_KEY, SECRETS, TOKEN, call, open_files, target
from .origin import Received, answers, never, origin, resets, says

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
