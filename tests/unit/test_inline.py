"""Secrets written out in jobs: which names and values give them away, where they are, and what it costs to look."""

import base64
import json
from typing import Any

import pytest

from mainspring.domain.errors import InlineSecret, InvalidRequest
from mainspring.domain.inline import check_inline, header_says_secret, inline_secrets, says_secret
from mainspring.domain.references import names_secret, reference_in, references_in, with_secrets
from tests.linear import in_linear_time

SECRET_NAMES = [
    *("password", "Password", "PASSWORD", "passwd", "pwd", "passphrase", "db_password", "smtp-password", "dbPassword"),
    *("password2", "password_1", "SMTPPassword", "userPassword", "new password", "DB_PASS", "smtp_pass", "dbpass"),
    *("secret", "client_secret", "clientSecret", "client-secret", "webhook_secret", "secret_key", "secrets"),
    *("token", "access_token", "accessToken", "X-Auth-Token", "bot_token", "refresh_token", "tokens", "csrf.token"),
    *("api_key", "apiKey", "APIKey", "apikey", "X-Api-Key", "API_KEY", "api_keys", "stripeApiKey"),
    *("access_key", "aws_secret_access_key", "AccessKey", "private_key", "privateKey", "sshKey", "signing_key"),
    *("authorization", "Authorization", "Proxy-Authorization", "auth", "basic_auth", "credential", "credentials"),
    *(
        "aws_credentials",
        "creds",
        "cookie",
        "Set-Cookie",
        "session_cookie",
        "cookies",
        "jwt",
        "bearer",
        "encryption_key",
    ),
]
HARMLESS_NAMES = [
    *("token_count", "max_tokens", "maxTokens", "total_tokens", "input_tokens", "tokenizer", "token_type", "tokenize"),
    *("password_reset", "password_reset_url", "passwordPolicy", "password_hash_rounds", "password_min_length"),
    *("secret_santa", "secret_name", "secretary", "secretId", "secrets_dir", "secret_version", "is_secret_santa"),
    *("author", "authors", "auth_method", "authType", "authority", "auth_url", "oauth_provider", "co_author"),
    *("key", "public_key", "keys", "primary_key", "foreign_key", "sort_key", "keyboard", "monkey", "object_key"),
    *("access_key_id", "api_key_name", "apiKeyHeader", "page_token", "nextPageToken", "next_token", "syncToken"),
    *("cookie_name", "cookieless", "credentialing", "passenger", "pass", "first_pass", "boarding_pass", "compass"),
    *("eos_token", "pad_token", "continuation_token", "idempotency-token", "", "2", "-", "name", "to", "subject"),
]


@pytest.mark.parametrize("name", SECRET_NAMES)
@pytest.mark.parametrize("value", ["hunter2", 451, 4.5])
def test_a_name_that_says_secret_with_a_value_is_found(name: str, value: object) -> None:
    expected = not (isinstance(value, int | float) and name in ("tokens", "cookies", "secrets", "credentials"))
    expected &= not (isinstance(value, int | float) and name == "aws_credentials")  # a number of them

    assert says_secret(name)
    assert bool([*inline_secrets({name: value})]) is expected


@pytest.mark.parametrize("name", HARMLESS_NAMES)
@pytest.mark.parametrize("value", ["hunter2", 5, True])
def test_a_name_that_only_sounds_like_it_is_not(name: str, value: object) -> None:
    assert [*inline_secrets({name: value})] == []


@pytest.mark.parametrize("value", ["", "  ", None, True, False, [], {}, "env:SMTP_PASSWORD", "vault:mail#password"])
def test_a_secret_field_without_a_secret_in_it_is_let_through(value: object) -> None:
    assert [*inline_secrets({"password": value})] == []


@pytest.mark.parametrize("value", ["basic", "Bearer", "none", "oauth2"])
def test_the_name_of_a_method_is_no_secret(value: str) -> None:
    assert [*inline_secrets({"auth": value, "smtp_auth": value})] == []
    assert [*inline_secrets({"password": value})] != []


@pytest.mark.parametrize(
    "reference", ["env:SMTP_PASSWORD", "file:smtp/password", "store:smtp", "vault:mail/smtp#password"]
)
def test_a_reference_is_let_through_at_any_depth(reference: str) -> None:
    check_inline({"smtp": [{"password": {"$secret": reference}}], "token": {"$secret": reference}})


@pytest.mark.parametrize(
    "value",
    [{"$secret": "hunter2"}, {"$secret": ""}, {"$secret": 1}, {"$secret": "env:A", "b": 1}, {"$secret": {"a": "b"}}],
)
def test_a_secret_in_place_of_its_reference_is_found_and_not_repeated(value: object) -> None:
    with pytest.raises(InlineSecret) as refused:
        check_inline({"smtp": {"password": value}})

    assert refused.value.field == "payload.smtp.password.$secret"
    assert "hunter2" not in str(refused.value) + repr(vars(refused.value))


def jwt(head: object) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (head, {"sub": "a"})]
    return ".".join([*parts, "c2lnbmF0dXJl"])


# Put together here, for whoever looks for secrets in this repository is not to find these.
SECRET_VALUES = [
    "-----BEGIN " + "PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "x -----BEGIN RSA " + "PRIVATE KEY-----",
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "aws ASIA" + "IOSFODNN7EXAMPLE!",
    "ghp_" + "a1B2" * 9,
    "use ghs_" + "a1B2" * 9 + " there",
    "github_pat_" + "11ABCDEFG0" * 3,
    "glpat-" + "a1B2c" * 4,
    "xoxb-" + "123456789012-abcdef",
    "xoxp-" + "123456789012",
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "rk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "AIza" + "a1B2c" * 7,
    jwt({"alg": "HS256", "typ": "JWT"}),
    f"curl -H 'X: {jwt({'typ': 'JWT', 'alg': 'none'})}'",
    "ms_" + "k3y1d4t5_" + "a1B2c3D4" * 4,
    "ms_" + "a1B-" * 8,
    "Bearer abcdefgh",
    "bearer " + "a1B2c3D4" * 3 + "==",
    "curl -H 'Authorization: Bearer " + "a1B2c3D4" * 3 + "'",
    "Basic " + base64.b64encode(b"user:hunter2").decode(),
    "Authorization: basic " + base64.b64encode(b"u:pw").decode(),
    "https://user:hunter2@example.com/a",
    "postgresql://app:p@ss@db:5432/x",
    "see redis://:hunter2@cache, please",
]
HARMLESS_VALUES = [
    *("-----BEGIN PUBLIC KEY-----", "-----BEGIN CERTIFICATE-----", "AKIAshort", "XAKIAIOSFODNN7EXAMPLE", "ghp_short"),
    *("xoxo", "xox-", "sk_live_", "ms_between_two_heartbeats_of_a_node", "ms_1", "items_" + "a1B2c3D4" * 4),
    *(
        "Bearer",
        "the bearer of bad news",
        "Bearer of it",
        "a bearer responsibilities",
        "Basic auth",
        "Basic training now",
    ),
    *(
        "https://example.com/a:b@c",
        "https://user@example.com/",
        "http://[::1]:80/",
        "https://h/?u=a:b@c",
        "a://b://c:d",
    ),
    *(
        "postgresql://app:***@db/x",
        "postgresql://app:${PASSWORD}@db/x",
        "https://{user}:{password}@h/",
        "no secret here",
    ),
    *(
        "eyJ.a.b",
        "eyJhbGciOiJ.x.y",
        jwt({"typ": "JWT"}),
        jwt(["alg"]),
        "1.2.3",
        "www.example.com",
        "a" * 500,
        "env:A",
        "",
    ),
]


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_that_looks_like_a_secret_is_found_whatever_its_name(value: str) -> None:
    assert [found.path for found in inline_secrets({"note": [value], "b": value})] == ["payload.note[0]", "payload.b"]


@pytest.mark.parametrize("value", HARMLESS_VALUES)
def test_a_value_that_only_looks_a_little_like_one_is_not(value: str) -> None:
    assert [*inline_secrets({"note": [value]})] == []


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_secret_that_is_used_as_a_name_is_found_and_not_repeated(value: str) -> None:
    found = [*inline_secrets({"a": {value: {"password": "x"}}})]

    assert [each.path for each in found] == ["payload.a.***", "payload.a.***.password"]


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"smtp": [{"password": "x"}]}, "payload.smtp[0].password"),
        ([{"a": 1}, {"b": {"c-d": [[], [{"apiKey": 5}]]}}], "payload[1].b.c-d[1][0].apiKey"),
        ({"passwords": ["", {"$secret": "env:A"}, "x"]}, "payload.passwords[2]"),
        ({"a.b": {"a token": "x"}}, 'payload["a.b"]["a token"]'),
        ({"env": [{"name": "A", "value": "x"}, {"name": "DB_PASSWORD", "value": "x"}]}, "payload.env[1].value"),
        ({"headers": [{"key": "Authorization", "value": "x"}]}, "payload.headers[0].value"),
        ("Bearer abcdefgh", "payload"),
        ({"b": {"token": "1"}, "a": {"token": "2"}}, "payload.b.token"),
    ],
)
def test_the_first_secret_is_named_by_its_exact_path(payload: Any, path: str) -> None:
    with pytest.raises(InlineSecret) as refused:
        check_inline(payload)

    assert refused.value.field == path


def test_the_error_says_what_to_write_and_not_what_was_written() -> None:
    with pytest.raises(InlineSecret) as refused:
        check_inline({"smtp": {"password": "hunter2"}}, "arguments")

    assert refused.value.code == "inline_secret"
    assert isinstance(refused.value, InvalidRequest)
    assert refused.value.field == "arguments.smtp.password"
    assert '{"$secret": "env:NAME"}' in refused.value.allowed
    assert "hunter2" not in str(refused.value) + repr(vars(refused.value))


def test_the_payload_of_an_http_job_with_references_is_let_through() -> None:
    check_inline(
        {
            "method": "POST",
            "url": "https://api.example.com:8443/a@b",
            "headers": {"X-Auth-Method": "basic", "Accept": "*/*"},
            "secret_headers": {"Authorization": "env:API_TOKEN", "X-Api-Key": "file:keys/api"},
            "sign_with": ["store:hook", "vault:hook#key"],
        }
    )


KIB_256 = 256 << 10
HOSTILE = [
    *(
        "eyJ",
        "eyJ.",
        "eyJa.",
        "eyJhbGciOi0000.",
        "a.",
        "A",
        "Aa",
        "AKIA",
        "ms_",
        "xoxb-",
        "Bearer ",
        "Bearer a",
        "Basic ",
        "Basic a/",
    ),
    *("://", "://a:", "://a:b", "a://@", "://:@", "-----BEGIN ", "-----BEGIN PRIVATE KEY", "sk_live_", "ghp_a", " "),
    *(
        "eyJhbGciOiJub25lIn0.",
        "AIza",
        "github_pat_",
        "_",
        "Ab1-",
        "\N{SNOWMAN}",
        "{",
        '{"',
        "$secret",
        "ASIAAAAAAAAAAA",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_looking_takes_linear_time_whatever_is_written(piece: str) -> None:
    text = (piece * (KIB_256 // len(piece) + 1))[:KIB_256]

    with in_linear_time():
        for value in ([text], {text: 1}, [text + "\n"]):
            list(inline_secrets(value))


def test_depth_and_breadth_cost_no_more_than_length() -> None:
    broad: Any = [*[{"a": "b"}] * 100_000, {"token": "x"}]
    deep: Any = {"token": "x"}
    for _ in range(100_000):
        deep = [deep]

    with in_linear_time():
        assert len([*inline_secrets(broad)]) == 1
        assert len([*inline_secrets(deep)]) == 1


@pytest.mark.parametrize("name", ["X-Auth-Token-2", "X-Api-Key-Id", "X-Token-Hint"])
def test_a_header_is_judged_by_all_of_its_words(name: str) -> None:
    assert header_says_secret(name)
    assert not header_says_secret("X-Auth-Method")


def test_references_are_found_and_replaced_at_any_depth_and_nothing_else_is_touched() -> None:
    payload = {"a": [{"$secret": "env:A"}, {"b": {"$secret": "store:b"}}], "c": "env:A", "d": [1, None, {}]}

    assert sorted(references_in(payload)) == ["env:A", "store:b"]
    assert with_secrets(payload, {"env:A": "1", "store:b": "2"}) == {**payload, "a": ["1", {"b": "2"}]}
    assert names_secret(payload)
    assert not names_secret({"a": ["$secret", {"b": "env:A"}], "secret": "store:b"})


@pytest.mark.parametrize("value", [{"$secret": "hunter2"}, {"$secret": "env:A", "b": 1}, {"$secret": ["env:A"]}])
def test_what_stands_in_place_of_a_reference_is_refused_and_not_repeated(value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        [*references_in({"a": [value]})]

    assert names_secret({"a": [value]})
    assert reference_in(value) is None
    assert "hunter2" not in str(refused.value) + repr(vars(refused.value))
