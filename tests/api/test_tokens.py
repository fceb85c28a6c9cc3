"""Tokens: a good one counts, and nothing that differs from it in any one thing."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from mainspring.api.jose import VerifyingKey, keys_of_settings
from mainspring.api.tokens import FixedKeys, KeySource, Tokens, token_rules
from mainspring.config.settings import AuthSettings
from mainspring.config.values import TokenKey
from mainspring.domain.access import Principal, Role
from mainspring.domain.errors import InvalidRequest, Unauthenticated
from mainspring.testing.clock import ManualEnvironment

from .forging import (
    ALGORITHMS,
    AUDIENCE,
    ISSUER,
    NOW,
    SECRET,
    Forged,
    Issuer,
    compact,
    forged,
    private_key,
    public_pem,
    signed_by,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANN = Principal(subject="ann", tenant="shop", role=Role.EDITOR, expires_at=NOW + timedelta(seconds=600))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def environment() -> ManualEnvironment:
    return ManualEnvironment()


@pytest.fixture
def tokens(issuer: Issuer, environment: ManualEnvironment) -> Tokens:
    return checking(issuer, environment)


def checking(issuer: Issuer, environment: ManualEnvironment, *sources: KeySource, most: int = 10_000) -> Tokens:
    fixed = FixedKeys(keys_of_settings(issuer.settings, issuer.environ))
    return Tokens(token_rules(issuer.settings), *(sources or (fixed,)), environment=environment, most=most)


async def refusal(tokens: Tokens, token: str) -> str:
    with pytest.raises(Unauthenticated) as refused:
        await tokens.principal(token)
    assert str(refused.value) == "the token is not valid; get a new one"  # whatever the reason
    return refused.value.reason


def all_forged() -> list[Forged]:
    """Make them once for their names; the tests make them again, with the keys where the settings look."""
    return list(forged(Issuer(Path("/nowhere"))))


@pytest.mark.covers("F100")
@pytest.mark.parametrize("kid", ALGORITHMS)
async def test_a_good_token_counts(kid: str, tokens: Tokens, issuer: Issuer) -> None:
    assert await tokens.principal(issuer.token(kid)) == ANN


@pytest.mark.covers("F100")
@pytest.mark.parametrize("each", all_forged(), ids=lambda each: each.what)
async def test_a_forged_token_does_not(each: Forged, tokens: Tokens, issuer: Issuer) -> None:
    assert await refusal(tokens, each.token) == each.reason
    assert len(tokens) == 0  # nor is it remembered

    assert await tokens.principal(issuer.token()) == ANN  # the one it was made from
    assert await refusal(tokens, each.token) == each.reason  # which changes nothing


async def test_there_are_enough_of_them() -> None:
    made = all_forged()

    assert len({each.token for each in made}) == len(made) >= 60
    assert len({each.what for each in made}) == len(made)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", AUDIENCE]},
        {"aud": [AUDIENCE]},
        {"iat": int(NOW.timestamp())},
        {"jti": "7", "scope": "a b", "nested": {"a": [1, {"b": None}]}},
        {"cluster": False},
    ],
    ids=str,
)
async def test_what_else_may_be_in_a_token(changes: dict[str, Any], tokens: Tokens, issuer: Issuer) -> None:
    assert await tokens.principal(issuer.token(**changes)) == ANN


@pytest.mark.parametrize("header", [{"typ": "at+jwt"}, {"typ": ...}, {"x5t": "abc"}, {"cat": "x"}], ids=str)
async def test_what_else_may_be_in_its_header(header: dict[str, Any], tokens: Tokens, issuer: Issuer) -> None:
    assert await tokens.principal(issuer.token(header=header)) == ANN


async def test_a_token_of_the_whole_cluster_needs_no_tenant(tokens: Tokens, issuer: Issuer) -> None:
    whole = await tokens.principal(issuer.token(cluster=True, tenant=...))

    assert (whole.cluster, whole.tenant) == (True, "default")
    assert (await tokens.principal(issuer.token(cluster=True))).tenant == "shop"


async def test_claims_go_by_the_names_of_the_settings(issuer: Issuer, environment: ManualEnvironment) -> None:
    settings = AuthSettings(
        keys=issuer.settings.keys, issuer=ISSUER, audience=AUDIENCE, tenant_claim="https://x/org", role_claim="r"
    )
    tokens = Tokens(
        token_rules(settings), FixedKeys(keys_of_settings(settings, issuer.environ)), environment=environment
    )

    assert await tokens.principal(issuer.token(**{"https://x/org": "shop", "r": "editor", "role": "admin"})) == ANN
    assert await refusal(tokens, issuer.token()) == "malformed"


async def test_without_an_id_the_only_key_is_meant(issuer: Issuer, environment: ManualEnvironment) -> None:
    found = keys_of_settings(issuer.settings, issuer.environ)
    alone = checking(issuer, environment, FixedKeys({"hs": found["hs"]}))

    assert await alone.principal(issuer.token(header={"kid": ...})) == ANN
    assert await refusal(alone, issuer.token("rs", header={"kid": ...})) == "untrusted"


async def test_a_good_signature_is_what_another_library_makes(tokens: Tokens, issuer: Issuer) -> None:
    for kid, algorithm in ALGORITHMS.items():
        key = SECRET if kid == "hs" else private_key(kid)
        made = jwt.encode(issuer.claims(), key, algorithm=algorithm, headers={"kid": kid})

        assert await tokens.principal(made) == ANN


async def test_a_token_is_over_at_its_time_though_it_is_remembered(
    tokens: Tokens, issuer: Issuer, environment: ManualEnvironment
) -> None:
    token = issuer.token()
    await tokens.principal(token)

    await environment.advance(timedelta(seconds=609))
    assert await tokens.principal(token) == ANN
    await environment.advance(timedelta(seconds=1))

    assert await refusal(tokens, token) == "expired"
    assert len(tokens) == 0


async def test_a_remembered_token_is_not_good_before_its_time_when_the_clock_is_set_back(
    tokens: Tokens, issuer: Issuer, environment: ManualEnvironment
) -> None:
    token = issuer.token()
    await tokens.principal(token)

    environment.clock.step(-timedelta(hours=1))

    assert await refusal(tokens, token) == "not_yet"


async def test_a_remembered_token_is_not_verified_again(
    issuer: Issuer, environment: ManualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = 0
    really = VerifyingKey.verifies

    def counting(key: VerifyingKey, signed: bytes, signature: bytes) -> bool:
        nonlocal verified
        verified += 1
        return really(key, signed, signature)

    monkeypatch.setattr(VerifyingKey, "verifies", counting)
    tokens, many = checking(issuer, environment, most=3), [issuer.token(sub=f"s{number}") for number in range(4)]

    for token in [*many[:3], *many[:3], *many[:3]]:
        await tokens.principal(token)
    assert verified == 3
    await tokens.principal(many[3])  # one too many: the first is forgotten
    assert len(tokens) == 3
    await tokens.principal(many[3])
    await tokens.principal(many[0])

    assert verified == 5


async def test_a_remembered_token_falls_with_its_key(issuer: Issuer, environment: ManualEnvironment) -> None:
    found = keys_of_settings(issuer.settings, issuer.environ)
    in_force = dict(found)
    tokens, token = checking(issuer, environment, FixedKeys(in_force)), issuer.token("rs")
    await tokens.principal(token)

    del in_force["rs"]

    assert await refusal(tokens, token) == "untrusted"
    in_force["rs"] = found["es"]  # another key under the old name does not help
    assert await refusal(tokens, token) == "untrusted"


async def test_neither_secrets_nor_keys_are_shown(issuer: Issuer, tokens: Tokens) -> None:
    keys = keys_of_settings(issuer.settings, issuer.environ)

    assert SECRET not in repr(keys) + repr(issuer.settings)
    reasons = await asyncio.gather(
        *(tokens.principal(each.token) for each in all_forged() if each.reason == "untrusted"), return_exceptions=True
    )
    assert {str(reason) for reason in reasons} == {"the token is not valid; get a new one"}


def key_of(kid: str, algorithm: str, **where: Any) -> AuthSettings:
    return AuthSettings(keys=(TokenKey(kid=kid, algorithm=algorithm, **where),), issuer=ISSUER, audience=AUDIENCE)


@pytest.mark.parametrize(("algorithm", "needed"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
async def test_a_secret_is_at_least_as_long_as_the_hash(algorithm: str, needed: int) -> None:
    settings = key_of("a", algorithm, secret="env:S")

    assert set(keys_of_settings(settings, {"S": "x" * needed})) == {"a"}
    with pytest.raises(InvalidRequest, match=f"has at least {needed} bytes") as refused:
        keys_of_settings(settings, {"S": "x" * (needed - 1)})
    assert "xxx" not in str(refused.value)
    with pytest.raises(InvalidRequest, match="cannot be read; set env:S"):
        keys_of_settings(settings, {})


async def test_a_secret_in_a_file_ends_before_its_newline(tmp_path: Path, environment: ManualEnvironment) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    settings = key_of("hs", "HS256", secret=f"file:{tmp_path}/secret")
    tokens = Tokens(token_rules(settings), FixedKeys(keys_of_settings(settings, {})), environment=environment)

    assert await tokens.principal(Issuer(tmp_path).token()) == ANN


@pytest.mark.parametrize(
    ("algorithm", "content"),
    [
        ("HS256", public_pem(private_key("rs"))),  # whoever has the public key could sign
        ("RS256", public_pem(private_key("es"))),
        ("RS256", b"x" * 64),
        ("ES256", public_pem(private_key("rs"))),
        ("ES384", public_pem(private_key("es"))),  # the curve of another algorithm
        ("EdDSA", public_pem(private_key("es"))),
        ("RS256", b""),
    ],
    ids=["public as secret", "EC for RSA", "no key", "RSA for EC", "another curve", "EC for OKP", "nothing"],
)
async def test_a_key_that_is_not_for_its_algorithm(algorithm: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    where = {"secret": f"file:{path}"} if algorithm == "HS256" else {"public_key_file": path}

    with pytest.raises(InvalidRequest, match=r"is no key for|cannot be read") as refused:
        keys_of_settings(key_of("a", algorithm, **where), {})

    assert refused.value.field == "auth.keys"


async def test_private_and_weak_keys_are_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    private, weak = tmp_path / "private", tmp_path / "weak"
    private.write_bytes(
        private_key("rs").private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    )
    weak.write_bytes(public_pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)))

    with pytest.raises(InvalidRequest, match="it is a private key"):
        keys_of_settings(key_of("a", "RS256", public_key_file=private), {})
    with pytest.raises(InvalidRequest, match="an RSA key has 2048 to 8192 bits"):
        keys_of_settings(key_of("a", "RS256", public_key_file=weak), {})


@pytest.mark.parametrize("missing", ["issuer", "audience"])
async def test_keys_without_an_issuer_or_an_audience_are_refused(missing: str) -> None:
    names = {"issuer": ISSUER, "audience": AUDIENCE} | {missing: None}

    with pytest.raises(InvalidRequest, match=f"auth.{missing}: it is not set, and there are keys"):
        token_rules(AuthSettings(**names))  # type: ignore[arg-type]


async def test_expiry_is_told_to_whoever_opens_a_stream(tokens: Tokens, issuer: Issuer) -> None:
    at = datetime(2030, 1, 1, 0, 5, 0, 500_000, tzinfo=UTC)

    assert (await tokens.principal(issuer.token(exp=at.timestamp()))).expires_at == at


async def test_a_forger_with_any_other_key_has_none_of_ours(tokens: Tokens, issuer: Issuer) -> None:
    for kid, algorithm in ALGORITHMS.items():
        key = SECRET[::-1] if kid == "hs" else private_key(kid, 7)
        token = compact({"alg": algorithm, "kid": kid}, issuer.claims(role="admin"), signed_by(algorithm, key))

        assert await refusal(tokens, token) == "untrusted"
