"""Key sets: from a real server on this machine, and from a file; rotation, outages, and what is left out."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from mainspring.api.jose import NotStrict, keys_of_settings
from mainspring.api.jwks import AGAIN_IN, LARGEST, LOOK_EVERY, FileSource, KeySet, UrlSource, key_set, read_key_set
from mainspring.api.tokens import FixedKeys, Tokens, token_rules
from mainspring.config.settings import AuthSettings
from mainspring.domain.errors import InvalidRequest, Unauthenticated
from mainspring.service import Stop
from mainspring.telemetry.events import AnyEvent, Events, ServiceInterrupted
from mainspring.testing.clock import ManualEnvironment

from .forging import AUDIENCE, ISSUER, SECRET, SECRET_NAME, Issuer, compact, encoded, jwk_of, private_key, signed_by

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.covers("F100")]

OLD, NEW = private_key("rs", 10), private_key("rs", 11)
ALGORITHMS = ("RS256", "ES256", "EdDSA")


class Origin:
    """An issuer's server: what it answers can be changed, and it counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        self.reached = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.url = ""

    def publish(self, *keys: dict[str, Any]) -> None:
        self.status, self.body = 200, json.dumps({"keys": keys}).encode()

    async def answer(self, request: web.Request) -> web.Response:
        del request
        self.asked += 1
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@pytest_asyncio.fixture(loop_scope="session")
async def origin() -> AsyncIterator[Origin]:
    made, app = Origin(), web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    yield made
    await runner.cleanup()


@pytest.fixture
def environment() -> ManualEnvironment:
    return ManualEnvironment()


@pytest.fixture
def seen() -> list[AnyEvent]:
    return []


@pytest.fixture
def keys(origin: Origin, environment: ManualEnvironment, seen: list[AnyEvent]) -> KeySet:
    return KeySet(UrlSource(origin.url), algorithms=ALGORITHMS, environment=environment, events=Events(seen.append))


@pytest.fixture
def tokens(keys: KeySet, environment: ManualEnvironment) -> Tokens:
    return Tokens(token_rules(AuthSettings(issuer=ISSUER, audience=AUDIENCE)), keys, environment=environment)


def token(key: Any, kid: str, algorithm: str = "RS256") -> str:
    return compact({"alg": algorithm, "kid": kid}, Issuer(Path("/nowhere")).claims(), signed_by(algorithm, key))


async def counts(tokens: Tokens, token: str) -> bool:
    try:
        return (await tokens.principal(token)).subject == "ann"
    except Unauthenticated as error:
        assert error.reason == "untrusted"
        return False


async def test_rotation(origin: Origin, keys: KeySet, tokens: Tokens, environment: ManualEnvironment) -> None:
    by_old, by_new = token(OLD, "old"), token(NEW, "new")
    origin.publish(jwk_of(OLD, "old"))
    assert [await counts(tokens, by_old), await counts(tokens, by_new)] == [True, False]

    origin.publish(jwk_of(OLD, "old"), jwk_of(NEW, "new"))  # the overlap
    await environment.advance(AGAIN_IN)
    assert [await counts(tokens, by_old), await counts(tokens, by_new)] == [True, True]

    origin.publish(jwk_of(NEW, "new"))
    assert await counts(tokens, by_old)  # nobody has looked yet
    await keys.look()

    assert [await counts(tokens, by_old), await counts(tokens, by_new)] == [False, True]


async def test_another_key_under_the_same_id_replaces_the_first(origin: Origin, keys: KeySet, tokens: Tokens) -> None:
    origin.publish(jwk_of(OLD, "a"))
    assert await counts(tokens, token(OLD, "a"))

    origin.publish(jwk_of(NEW, "a"))
    await keys.look()

    assert [await counts(tokens, token(OLD, "a")), await counts(tokens, token(NEW, "a"))] == [False, True]


async def test_ids_that_nobody_knows_do_not_hammer_the_issuer(
    origin: Origin, tokens: Tokens, environment: ManualEnvironment
) -> None:
    origin.publish(jwk_of(OLD, "old"))

    for number in range(50):
        assert not await counts(tokens, token(OLD, f"made-up-{number}"))
    assert origin.asked == 1
    await environment.advance(AGAIN_IN - timedelta(milliseconds=1))
    assert not await counts(tokens, token(OLD, "made-up"))
    assert origin.asked == 1
    await environment.advance(timedelta(milliseconds=1))
    assert not await counts(tokens, token(OLD, "made-up"))

    assert origin.asked == 2


async def test_many_wait_for_one_look_and_one_who_gives_up_does_not_end_it(origin: Origin, tokens: Tokens) -> None:
    origin.publish(jwk_of(OLD, "old"))
    origin.hold = asyncio.Event()
    waiting = [asyncio.create_task(counts(tokens, token(OLD, "old"))) for _ in range(20)]
    await origin.reached.wait()

    waiting[0].cancel()  # the one that began it
    await asyncio.sleep(0)
    origin.hold.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [True] * 19
    assert origin.asked == 1


@pytest.mark.parametrize("trouble", ["status", "redirect", "nonsense", "no set", "huge", "too many", "gone"])
async def test_while_the_source_is_away_the_last_good_set_goes_on_for_a_day(  # noqa: PLR0917 - fixtures
    trouble: str,
    origin: Origin,
    keys: KeySet,
    tokens: Tokens,
    environment: ManualEnvironment,
    seen: list[AnyEvent],
) -> None:
    def another() -> str:  # tokens are short-lived: each time a new one
        return compact(
            {"alg": "RS256", "kid": "old"},
            Issuer(Path("/nowhere"), now=environment.now()).claims(),
            signed_by("RS256", OLD),
        )

    origin.publish(jwk_of(OLD, "old"))
    assert await counts(tokens, another())
    match trouble:
        case "status":
            origin.status = 500
        case "redirect":
            origin.status, origin.headers = 302, {"Location": f"{origin.url}/elsewhere"}
        case "nonsense":
            origin.body = b'{"keys": [}'
        case "no set":
            origin.body = b'{"keys": {}}'
        case "huge":
            origin.body = json.dumps({"keys": [], "more": "x" * LARGEST}).encode()
        case "too many":
            origin.publish(*({"kid": str(number)} for number in range(101)))
        case "gone":
            keys._source = UrlSource("http://127.0.0.1:1/keys")

    for _ in range(3):
        await keys.look()
    asked = origin.asked
    await environment.advance(timedelta(hours=23, minutes=59))
    await keys.look()
    assert await counts(tokens, another())
    assert [type(event) for event in seen] == [ServiceInterrupted]  # once, however often it looked
    await environment.advance(timedelta(minutes=2))
    await keys.look()

    assert not await counts(tokens, another())
    assert origin.asked in (asked, asked + 2)  # a redirect is not followed
    if trouble != "gone":
        origin.headers = {}
        origin.publish(jwk_of(OLD, "old"))
        await keys.look()
        assert await counts(tokens, another())


async def test_it_looks_in_the_background(
    origin: Origin, keys: KeySet, tokens: Tokens, environment: ManualEnvironment
) -> None:
    stop = Stop(environment)
    origin.publish(jwk_of(OLD, "old"))
    running = asyncio.create_task(keys.run(stop))
    await origin.reached.wait()
    await keys.look()  # which joins the one that is under way, or is one more
    first, asked = set(keys.keys()), origin.asked

    origin.publish(jwk_of(NEW, "new"))
    origin.reached.clear()
    await environment.advance(timedelta(minutes=5))
    await origin.reached.wait()
    stop.request()
    await running

    assert first == {"old"}
    assert set(keys.keys()) == {"new"}
    assert origin.asked == asked + 1
    assert not await counts(tokens, token(OLD, "old"))


async def test_a_file_is_seen_when_it_is_replaced(tmp_path: Path, environment: ManualEnvironment) -> None:
    path = tmp_path / "keys.json"
    settings = AuthSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=path)
    found = key_set(settings, environment=environment, events=Events())
    assert found is not None
    tokens = Tokens(token_rules(settings), found, environment=environment)
    path.write_text(json.dumps({"keys": [jwk_of(OLD, "old")]}))
    stop = Stop(environment)
    running = asyncio.create_task(found.run(stop))
    await environment.clock.settle()
    assert await counts(tokens, token(OLD, "old"))

    (tmp_path / "next").write_text(json.dumps({"keys": [jwk_of(NEW, "new")]}))
    os.utime(tmp_path / "next", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))  # as a careful copy would
    (tmp_path / "next").rename(path)
    await environment.advance(LOOK_EVERY)

    assert [await counts(tokens, token(OLD, "old")), await counts(tokens, token(NEW, "new"))] == [False, True]
    path.unlink()
    await environment.advance(LOOK_EVERY)
    assert await counts(tokens, token(NEW, "new"))  # gone is not empty
    stop.request()
    await running


async def test_keys_of_the_settings_come_before_those_of_the_set(
    tmp_path: Path, origin: Origin, keys: KeySet, environment: ManualEnvironment
) -> None:
    issuer = Issuer(tmp_path)
    origin.publish(jwk_of(NEW, "rs"), jwk_of(NEW, "new"))
    await keys.look()
    fixed = FixedKeys(keys_of_settings(issuer.settings, {SECRET_NAME: SECRET}))
    tokens = Tokens(token_rules(issuer.settings), fixed, keys, environment=environment)

    assert await counts(tokens, issuer.token("rs"))
    assert not await counts(tokens, token(NEW, "rs"))
    assert await counts(tokens, token(NEW, "new"))


def the_set(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


ES, ED = private_key("es", 10), private_key("ed", 10)
ES384 = ec.generate_private_key(ec.SECP384R1())
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.mark.parametrize(
    ("jwk", "algorithm"),
    [
        (jwk_of(OLD, "a"), "RS256"),
        (jwk_of(OLD, "a", alg="RS256"), "RS256"),
        (jwk_of(ES, "a"), "ES256"),
        (jwk_of(ED, "a"), "EdDSA"),
        (jwk_of(OLD, "a", key_ops=["verify"]), "RS256"),
    ],
    ids=["RSA", "RSA with alg", "EC", "OKP", "RSA with key_ops"],
)
async def test_the_one_algorithm_of_a_key(jwk: dict[str, Any], algorithm: str) -> None:
    (key,) = read_key_set(the_set(jwk), ALGORITHMS).values()

    assert (key.kid, key.algorithm) == ("a", algorithm)


async def test_without_alg_the_first_that_fits_is_meant() -> None:
    (key,) = read_key_set(the_set(jwk_of(OLD, "a")), ("ES256", "PS256", "RS256")).values()

    assert key.algorithm == "PS256"


def published(key: Any, algorithm: str) -> dict[str, Any]:
    """Return a whole private key as an entry of a set, as somebody might publish it by mistake."""
    described: Any = jwt.get_algorithm_by_name(algorithm)
    whole = described.to_jwk(key, as_dict=True)
    assert "d" in whole
    return {name: value for name, value in whole.items() if name != "key_ops"} | {"kid": "a", "use": "sig"}


LEFT_OUT: dict[str, Any] = {
    "a secret": {"kty": "oct", "kid": "a", "k": encoded(SECRET.encode()), "alg": "HS256"},
    "a secret that says it is a public key": {"kty": "oct", "kid": "a", "k": encoded(SECRET.encode()), "alg": "RS256"},
    "a public key for HMAC": jwk_of(OLD, "a", alg="HS256"),
    "a key for none": jwk_of(OLD, "a", alg="none"),
    "an RSA key for ES256": jwk_of(OLD, "a", alg="ES256"),
    "an algorithm that is not among those of the settings": jwk_of(OLD, "a", alg="RS512"),
    "an algorithm that is null": jwk_of(OLD, "a", alg=None),
    "for encryption": jwk_of(OLD, "a", use="enc"),
    "for operations without verifying": jwk_of(OLD, "a", key_ops=["encrypt"]),
    "operations that are no list": jwk_of(OLD, "a", key_ops=None),
    "operations that are a text": jwk_of(OLD, "a", key_ops="verify"),
    "a private key": published(OLD, "RS256"),
    "a private key on a curve": published(ES, "ES256"),
    "a private key on the other kind of curve": published(ED, "EdDSA"),
    "half a private key": jwk_of(OLD, "a", d="AQAB"),
    "of another type": jwk_of(OLD, "a", kty="EC"),
    "a modulus that is no base64": jwk_of(OLD, "a", n="!"),
    "a modulus that is a number": jwk_of(OLD, "a", n=1),
    "a weak one": jwk_of(WEAK, "a"),
    "on a curve that is not among those of the settings": jwk_of(ES384, "a"),
    "on another curve than it says": jwk_of(ES, "a", crv="P-384"),
    "on a curve we do not take": jwk_of(ES, "a", crv="secp256k1"),
    "on no curve": jwk_of(ES, "a", x=jwk_of(private_key("es", 11), "b")["x"]),
    "too short": jwk_of(ED, "a", x="AA"),
    "a name only": {"kid": "a"},
    "nothing": {},
    "a text": "a",
    "null": None,
}


@pytest.mark.parametrize("what", LEFT_OUT)
async def test_what_is_left_out_takes_nothing_along(what: str) -> None:
    assert set(read_key_set(the_set(LEFT_OUT[what], jwk_of(NEW, "good")), ALGORITHMS)) == {"good"}


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b'{"keys":1}', b'{"keys":[],"keys":[]}', b'{"keys":[NaN]}', b"\xff", b"[" * 5000, b"{}"],
)
async def test_what_is_no_key_set(content: bytes) -> None:
    with pytest.raises(NotStrict):
        read_key_set(content, ALGORITHMS)


async def test_an_empty_set_is_a_set() -> None:
    assert read_key_set(b'{"keys":[]}', ALGORITHMS) == {}


async def test_a_key_without_an_id_counts_while_it_is_alone(origin: Origin, keys: KeySet, tokens: Tokens) -> None:
    nameless = {name: value for name, value in jwk_of(OLD, "x").items() if name != "kid"}
    unnamed = compact({"alg": "RS256"}, Issuer(Path("/nowhere")).claims(), signed_by("RS256", OLD))
    origin.publish(nameless)
    assert await counts(tokens, unnamed)

    origin.publish(nameless, jwk_of(NEW, "new"))
    await keys.look()

    assert not await counts(tokens, unnamed)


async def test_settings_name_one_set_or_none(tmp_path: Path, environment: ManualEnvironment) -> None:
    def made(**names: Any) -> KeySet | None:
        return key_set(AuthSettings(**names), environment=environment, events=Events())

    path, url = tmp_path / "keys", "https://issuer.example/keys"
    by_url, by_file = made(jwks_url=url), made(jwks_file=path)

    assert made() is None
    assert by_url is not None
    assert by_file is not None
    assert (by_url._source, by_file._source) == (UrlSource(url), FileSource(path))
    with pytest.raises(InvalidRequest, match="there are two key sets"):
        made(jwks_url=url, jwks_file=path)
