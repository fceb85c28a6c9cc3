"""The request that a job describes: what is accepted has one reading, what is refused is named and not repeated."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from yarl import URL

from mainspring import http
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.requests import (
    ABSENT,
    RESERVED,
    HttpRequest,
    check_header,
    request_from_json,
    request_to_json,
)
from mainspring.domain.urls import Url, parse_url

FULL: dict[str, Any] = {
    "method": "POST",
    "url": "https://api.example.com:8443/ping?a=%41",
    "headers": {"Accept": "application/json", "X-Trace": "a b"},
    "json": {"a": [1, None]},
    "secret_headers": {"Authorization": "env:API_TOKEN", "X-Api-Key": "file:keys/api"},
    "sign_with": ["env:NEW", "env:OLD"],
    "redirects": 3,
    "success": ["2xx", 404],
    "timeout": "1m30s",
}
LEAST = {"method": "GET", "url": "http://example.com/"}


def test_a_request_is_read_and_written_without_loss() -> None:
    request = request_from_json(FULL)

    assert request == HttpRequest(
        method="POST",
        url=Url("https://api.example.com:8443/ping?a=%41", "https", "api.example.com", 8443),
        headers=FULL["headers"],
        json={"a": [1, None]},
        secret_headers=FULL["secret_headers"],
        sign_with=("env:NEW", "env:OLD"),
        redirects=3,
        success=("2xx", 404),
        timeout=timedelta(seconds=90),
    )
    assert request_to_json(request) == FULL


def test_what_is_not_said_has_a_cautious_default() -> None:
    request = request_from_json(LEAST)

    assert (request.redirects, request.success, request.timeout, request.json) == (0, ("2xx",), None, ABSENT)
    assert request_to_json(request) == LEAST
    assert request_to_json(request_from_json({**LEAST, "json": None})) == {**LEAST, "json": None}
    assert request_to_json(request_from_json({**LEAST, "body": ""})) == {**LEAST, "body": ""}


def test_success_is_by_class_or_by_status() -> None:
    request = request_from_json({**LEAST, "success": ["2xx", 404]})

    assert [status for status in (200, 204, 299, 300, 404, 410, 500) if request.succeeds(status)] == [
        200,
        204,
        299,
        404,
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"method": "CONNECT"}, "method"),
        ({"method": "TRACE"}, "method"),
        ({"method": "GET /admin HTTP/1.1\r\nX: "}, "method"),
        ({"method": None}, "method"),
        ({"url": None}, "url"),
        ({"url": "x" * 5_000}, "url"),
        ({"url": "http://h/" + "x" * 5_000}, "url"),
        ({"headers": ["Accept"]}, "headers"),
        ({"headers": {"Accept": 1}}, "headers"),
        ({"headers": {f"X-{n}": "" for n in range(51)}}, "headers"),
        ({"headers": {"x-a": "1", "X-A": "2"}}, "headers"),
        ({"headers": {"X-A": "x" * 4_001}}, "headers"),
        ({"secret_headers": {"X-A": 1}}, "secret_headers"),
        ({"secret_headers": {"Host": "env:X"}}, "secret_headers"),
        ({"secret_headers": "env:TOKEN"}, "secret_headers"),
        ({"headers": {"x-a": "1"}, "secret_headers": {"X-A": "env:X"}}, "secret_headers"),
        ({"json": 1, "body": "x"}, "body"),
        ({"body": b"x"}, "body"),
        ({"body": "x" * (1 << 20) + "x"}, "body"),
        ({"sign_with": []}, "sign_with"),
        ({"sign_with": ["env:X"] * 5}, "sign_with"),
        ({"sign_with": "whsec_abcdef"}, "sign_with"),
        ({"redirects": 11}, "redirects"),
        ({"redirects": -1}, "redirects"),
        ({"redirects": True}, "redirects"),
        ({"redirects": "1"}, "redirects"),
        ({"success": []}, "success"),
        ({"success": "2xx"}, "success"),
        ({"success": ["1xx"]}, "success"),
        ({"success": [True]}, "success"),
        ({"success": [199]}, "success"),
        ({"success": [600]}, "success"),
        ({"success": ["20x"]}, "success"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 30}, "timeout"),
        ({"timeout": "2h"}, "timeout"),
        ({"timeout": "0s"}, "timeout"),
        ({"proxy": "http://10.0.0.1"}, "proxy"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        request_from_json({**LEAST, **change})

    assert refused.value.field == f"payload.{field}"
    assert refused.value.allowed


@pytest.mark.parametrize("payload", [None, [], "GET http://example.com/", {}, {"method": "GET"}, {"url": "http://h/"}])
def test_a_payload_without_a_request_is_refused(payload: object) -> None:
    with pytest.raises(InvalidRequest, match="payload"):
        request_from_json(payload)


# Some of these some parser somewhere takes for an internal host, or for another host than the next parser does.
ODD_URLS = [
    *(
        "",
        "/",
        "//example.com/",
        "example.com",
        "http:",
        "http:/",
        "http://",
        "http:///",
        "http://:80/",
        "http:example.com",
    ),
    *(
        "file:///etc/passwd",
        "gopher://127.0.0.1:70/_x",
        "ftp://example.com/",
        "data:text/plain,x",
        "javascript:alert(1)",
    ),
    *("unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "dict://127.0.0.1:11211/", "ws://h/"),
    *(
        "http://user@example.com/",
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "http://@127.0.0.1/",
    ),
    *("http://example.com:80@127.0.0.1/", "http://127.0.0.1#@example.com/", "http://127.0.0.1?@example.com/#x"),
    *(
        "http://example.com\\@127.0.0.1/",
        "http://127.0.0.1\\.example.com/",
        "http:\\\\127.0.0.1\\",
        "http:/\\127.0.0.1/",
    ),
    *("http://127.0.0.1/\\x", "http://example.com /", "http://exa mple.com/", " http://example.com/", "http://h/ x"),
    *(
        "http://example.com/\r\nX: y",
        "http://example.com\r\n/",
        "http://example.com\t/",
        "http://example.com/\0",
        "\x00http://h/",
    ),
    *("http://127.1/", "http://127.0.1/", "http://2130706433/", "http://017700000001/", "http://0177.0.0.1/"),
    *(
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0x7f.0x0.0x0.0x1/",
        "http://127.0.0.0x1/",
        "http://0/",
        "http://0x/",
    ),
    *("http://127.0.0.01/", "http://127.0.0.1./", "http://127.0.0.1../", "http://127.0.0.256/", "http://1.2.3.4.5/"),
    *("http://4294967297/", "http://127.0.0.1.127.0.0.1/", "http://1e3.1/", "http://00.0.0.0/"),
    *(
        "http://１２７.０.０.１/",
        "http://127。0。0。1/",
        "http://127．0．0．1/",
        "http://ⓛocalhost/",
        "http://locałhost/",
    ),
    *("http://①②⑦.⓪.⓪.①/", "http://bücher.example/", "http://example.com/ü", "http://exa\u00admple.com/"),
    *(
        "http://127%2e0%2e0%2e1/",
        "http://%31%32%37.0.0.1/",
        "http://localhost%00.example.com/",
        "http://%6c%6fcalhost/",
    ),
    *(
        "http://[::1",
        "http://::1/",
        "http://[::1]x/",
        "http://[::1%25lo]/",
        "http://[fe80::1%eth0]/",
        "http://[::1%lo]/",
    ),
    *(
        "http://[v1.x]/",
        "http://[127.0.0.1]/",
        "http://[]/",
        "http://[::g]/",
        "http://[0:0:0:0:0:0:0:0:1]/",
        "http://[/",
    ),
    *("http://example.com:/", "http://example.com:0/", "http://example.com:65536/", "http://example.com:-1/"),
    *("http://example.com:80:80/", "http://example.com:８０/", "http://example.com:0x50/", "http://example.com:+80/"),
    *(
        "http://example..com/",
        "http://.example.com/",
        "http://example.com../",
        "http://-a.example/",
        "http://a-.example/",
    ),
    *(
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 130 + "example/",
        "http://a_b!c/",
        "http://(x)/",
        "http://a,b/",
    ),
    *(
        "http://example.com#x",
        "http://example.com/#x",
        "HTTP:/example.com/",
        "hTTp//example.com/",
        "https//example.com",
    ),
]


@pytest.mark.covers("F102")
@pytest.mark.parametrize("url", ODD_URLS)
def test_an_odd_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^payload\.url: "):
        parse_url(url)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://example.com", ("http", "example.com", 80)),
        ("HTTPS://EXAMPLE.com/A", ("https", "example.com", 443)),
        ("http://example.com./", ("http", "example.com.", 80)),
        ("http://my_service:8080/x", ("http", "my_service", 8080)),
        ("http://xn--bcher-kva.example/?q=%C3%BC", ("http", "xn--bcher-kva.example", 80)),
        ("http://127.0.0.1:9/", ("http", "127.0.0.1", 9)),  # who may be reached is decided when it is dialled
        ("http://[::ffff:127.0.0.1]/", ("http", "::ffff:127.0.0.1", 80)),
        ("http://1password.example/@x:y?a@b", ("http", "1password.example", 80)),
        ("http://a.1a/", ("http", "a.1a", 80)),
        ("http://h?x", ("http", "h", 80)),
    ],
)
def test_a_plain_url_is_read(url: str, origin: tuple[str, str, int]) -> None:
    assert parse_url(url).origin == origin


pieces = st.sampled_from(
    [
        *"http:/@?#%[].\\-_ \t\r\n0x127。１\0",
        "http://",
        "https://",
        "127.0.0.1",
        "example.com",
        "::1",
        "%2e",
        "user:pass@",
    ]
)


@pytest.mark.covers("F102")
@given(
    st.one_of(
        st.lists(pieces, max_size=12).map("".join), st.lists(pieces, max_size=9).map(lambda p: "http://" + "".join(p))
    )
)
def test_every_parser_reads_the_same_host_in_what_is_accepted(text: str) -> None:
    try:
        url = parse_url(text)
    except InvalidRequest:
        return

    dialled, other = URL(text), urlsplit(text)
    assert (dialled.scheme, dialled.raw_host, dialled.port) == url.origin
    assert (other.scheme, other.hostname, other.port or {"http": 80, "https": 443}[other.scheme]) == url.origin
    assert dialled.raw_user is dialled.raw_password is None
    assert re.fullmatch(r"[!-~]+", text)


@pytest.mark.parametrize("url", ["https://example.com/a%2Fb?x=%2B%3D&y=%41", "http://h/?sig=a%2Bb%3D%3D"])
def test_escapes_reach_the_server_as_they_are(url: str) -> None:
    assert str(URL(url)).replace("=A", "=%41") == url  # but for a letter that needs none, which means the same


@pytest.mark.covers("F106")
@pytest.mark.parametrize("name", sorted({*RESERVED, "Mainspring-Run-Id", "MAINSPRING-FENCE", "Content-Length", "HOST"}))
def test_headers_of_ours_and_of_the_connection_cannot_be_set(name: str) -> None:
    for field, value in (("headers", "x"), ("secret_headers", "env:X")):
        with pytest.raises(InvalidRequest, match=f"payload.{field}: .*is set by Mainspring or by the connection"):
            request_from_json({**LEAST, field: {name: value}})


@pytest.mark.covers("F106")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "a\r\nX-B: c"),
        ("X-A", "a\nb"),
        ("X-A", "a\rb"),
        ("X-A", "a\0b"),
        ("X-A", "a\r\n\r\nGET /admin HTTP/1.1"),
        ("X-A", " a"),
        ("X-A", "a "),
        ("X-A", "ü"),
        ("X-A", "a\x7f"),
        ("X-A", "a\u2028b"),
        ("X-A", "嘊"),  # its low byte is a newline
        ("X-A\r\nX-B", "c"),
        ("X-A:", "c"),
        ("X A", "c"),
        ("", "c"),
        ("X-Ä", "c"),
        ("(x)", "c"),
        ("x" * 101, "c"),
    ],
)
def test_a_header_that_would_end_early_or_begin_another_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^payload\.headers: "):
        request_from_json({**LEAST, "headers": {name: value}})


@pytest.mark.covers("F106")
@given(st.text(max_size=20), st.text(alphabet=st.characters(max_codepoint=0x3000), max_size=40))
def test_an_accepted_header_is_one_line_of_its_own(name: str, value: str) -> None:
    try:
        check_header(name, value, field="headers")
    except InvalidRequest:
        return

    line = f"{name}: {value}\r\n".encode()
    assert len(line.splitlines()) == 1
    assert [part.strip().decode() for part in line.split(b":", 1)] == [name, value]
    assert CIMultiDict({name: value})[name] == value


SECRET = "s3cr3t-0451"


@pytest.mark.covers("F103")
@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "Api-Key", "apikey", "X-Auth-Token"),
        *("X-Access-Token", "X-Gitlab-Token", "X-Vault-Token", "X-Amz-Security-Token", "X-Auth-Key", "X_API_KEY"),
        *("Private-Token", "X-Secret", "X-Password", "Ocp-Apim-Subscription-Api-Key", "DD-API-KEY"),
    ],
)
def test_a_secret_in_a_job_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(InvalidRequest, match="put it into secret_headers with a reference") as refused:
        request_from_json({**LEAST, "headers": {name: SECRET}})

    assert SECRET not in repr(refused.value) + repr(vars(refused.value))


@pytest.mark.parametrize(
    "name", ["Accept", "X-Tokenizer", "X-Author", "Keynote", "If-Match", "X-Request-Id", "Content-Type"]
)
def test_a_header_that_only_sounds_like_a_secret_is_not(name: str) -> None:
    assert request_from_json({**LEAST, "headers": {name: "x"}}).headers == {name: "x"}


@pytest.mark.covers("F103")
@pytest.mark.parametrize("value", [f"Bearer {SECRET}", SECRET, f"basic:{SECRET}", f"env:{SECRET} x", "env:", 451])
@pytest.mark.parametrize("field", ["secret_headers", "sign_with"])
def test_a_secret_in_place_of_its_reference_is_refused_and_not_repeated(field: str, value: object) -> None:
    given_value = {"Authorization": value} if field == "secret_headers" else value

    with pytest.raises(InvalidRequest, match=f"payload.{field}: ") as refused:
        request_from_json({**LEAST, field: given_value})

    assert SECRET not in repr(refused.value) + repr(vars(refused.value))


@pytest.mark.covers("F103")
@pytest.mark.parametrize(
    "url", [f"http://user:{SECRET}@h/", f"http://{SECRET}@h/", f"ftp://h/?key={SECRET}", f"http://h/#?{SECRET}"]
)
def test_a_password_in_a_url_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_url(url)

    assert SECRET not in repr(refused.value) + repr(vars(refused.value))


def test_builders_describe_the_same_requests() -> None:
    url = "https://example.com/x"

    assert http.get(url) == http.HttpCall({"method": "GET", "url": url})
    assert http.put(url, body="x").payload == {"method": "PUT", "url": url, "body": "x"}
    assert http.patch(url, json=None).payload == {"method": "PATCH", "url": url, "json": None}
    assert http.delete(url, timeout=timedelta(seconds=5)).payload == {"method": "DELETE", "url": url, "timeout": "5s"}
    assert http.post(url, secret_header="env:A", secret_headers={"X-Api-Key": "env:B"}).payload["secret_headers"] == {
        "X-Api-Key": "env:B",
        "Authorization": "env:A",
    }
    assert http.post(url, sign_with=("env:A", "env:B"), success=(200, "4xx")).payload == {
        "method": "POST",
        "url": url,
        "sign_with": ["env:A", "env:B"],
        "success": [200, "4xx"],
    }
    assert http.get(url).task == "http"


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}, b"x", "x" * (1 << 20)])
def test_a_builder_takes_only_what_json_can_hold(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"payload\.json"):
        http.post("https://example.com/", json=value)
