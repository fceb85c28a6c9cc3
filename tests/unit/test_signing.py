"""Signatures on requests, by the rules of Standard Webhooks."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidRequest
from mainspring.worker.targets.signing import SIGNATURE, TIMESTAMP, NotVerified, signature_headers, verify

pytestmark = pytest.mark.covers("F104")

NOW = datetime(2027, 3, 14, 7, 30, tzinfo=UTC)
OLD, NEW = "whsec_" + base64.b64encode(bytes(range(24))).decode(), "a plain text of some length".replace(" ", "-")
BODY = b'{"a": 1}'


def headers(*keys: str, now: datetime = NOW) -> dict[str, str]:
    return signature_headers(BODY, keys or (OLD,), message_id="run-1", now=now)


def test_the_signature_is_the_one_of_the_published_example() -> None:
    at = datetime.fromtimestamp(1614265330, UTC)
    key, identity = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"

    signed = signature_headers(b'{"test": 2432232314}', [key], message_id=identity, now=at)

    assert signed == {
        "webhook-id": identity,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_request_as_it_was_sent_is_verified_whatever_the_case_of_its_headers() -> None:
    assert verify({name.title(): value for name, value in headers().items()}, BODY, [OLD], now=NOW) == "run-1"


def test_keys_are_replaced_while_requests_go_on() -> None:
    for sender, receiver in [([OLD], [OLD]), ([OLD, NEW], [OLD]), ([OLD, NEW], [OLD, NEW]), ([NEW], [OLD, NEW])]:
        assert verify(headers(*sender), BODY, receiver, now=NOW) == "run-1"

    with pytest.raises(NotVerified):
        verify(headers(OLD), BODY, [NEW], now=NOW)


@pytest.mark.parametrize("seconds", [-301, 301, -(10**9), 10**9])
def test_a_request_from_another_time_is_a_replay(seconds: int) -> None:
    with pytest.raises(NotVerified, match="too far from now"):
        verify(headers(now=NOW - timedelta(seconds=seconds)), BODY, [OLD], now=NOW)


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_clocks_may_differ_by_the_tolerance(seconds: int) -> None:
    assert verify(headers(now=NOW + timedelta(seconds=seconds)), BODY, [OLD], now=NOW) == "run-1"


@given(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text(max_size=80))
def test_whatever_is_changed_is_noticed(name: str, value: str) -> None:
    given_headers = headers()
    if given_headers[name] == value or (name == SIGNATURE and given_headers[name] in value.split()):
        return

    with pytest.raises(NotVerified):
        verify({**given_headers, name: value}, BODY, [OLD], now=NOW)


@given(st.binary(max_size=200))
def test_another_body_is_noticed(body: bytes) -> None:
    if body != BODY:
        with pytest.raises(NotVerified):
            verify(headers(), body, [OLD], now=NOW)


def test_the_time_cannot_be_moved_without_the_key() -> None:
    later = NOW + timedelta(hours=1)
    moved = {**headers(), TIMESTAMP: headers(now=later)[TIMESTAMP]}

    with pytest.raises(NotVerified, match="no key fits"):
        verify(moved, BODY, [OLD], now=later)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_without_a_header_nothing_is_verified(missing: str) -> None:
    given_headers = headers()
    del given_headers[missing]

    with pytest.raises(NotVerified, match=missing):
        verify(given_headers, BODY, [OLD], now=NOW)


def test_other_versions_and_more_signatures_are_passed_over() -> None:
    signed = headers()

    assert verify({**signed, SIGNATURE: f"v1a,abc v2,def {signed[SIGNATURE]}"}, BODY, [OLD], now=NOW) == "run-1"
    with pytest.raises(NotVerified):
        verify({**signed, SIGNATURE: "v1,x " * 20 + signed[SIGNATURE]}, BODY, [OLD], now=NOW)


def test_no_key_verifies_nothing() -> None:
    with pytest.raises(NotVerified):
        verify(headers(), BODY, [], now=NOW)


@pytest.mark.covers("F103")
@pytest.mark.parametrize("key", ["", "short", "whsec_c2hvcnQ=", "whsec_not base64 at all!", "whsec_ümlaut"])
def test_a_key_that_is_none_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        headers(key)

    assert str(refused.value).startswith("sign_with: this is no key")
    assert not key or key.removeprefix("whsec_") not in str(refused.value)
