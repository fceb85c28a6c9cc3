"""Certificates and secrets: whom an HTTP target believes, and what it never tells."""

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mainspring.domain.settling import Discarded
from mainspring.worker.secrets import FileSecrets, SecretsByScheme

from .attempts import Told, attempt, error, reason, result
from .calling import KEY, OLD_KEY, TOKEN, VARIABLES, call, target
from .origin import Received, answers, origin

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
        async def resolve(self, reference: str, *, tenant: str) -> str:
            del tenant
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
