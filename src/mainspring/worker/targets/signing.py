"""Signatures on requests: who sent this, when, and that nobody changed it on the way (Standard Webhooks).

Three headers. ``webhook-id`` is the run's id, the same for every attempt; ``webhook-timestamp`` is the time of the
attempt in Unix seconds; ``webhook-signature`` is ``v1,`` and the base64 of an HMAC-SHA256 over ``id.timestamp.body``,
once for every key. So keys are replaced while requests go on: the new one beside the old, then the old one away.

Promise. ``verify`` accepts a request only if one of the keys signed these very bytes less than ``tolerance`` ago. In
that time a copy of the request passes again: whoever must not act twice keeps the ids it returns.

A key is ``whsec_`` and base64, or any other text as it is, without blanks.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.domain.errors import InvalidRequest

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
TOLERANCE: Final = timedelta(minutes=5)
_PREFIX: Final = "whsec_"
_VERSION: Final = "v1,"
_SHORTEST_KEY: Final = 16  # bytes; what is shorter can be found by trying
_MOST_SIGNATURES: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class NotVerified(InvalidRequest):
    """A request that is not from whom it says, not as it was sent, or not fresh. Answer 401 and do nothing."""

    code = "not_verified"


def signature_headers(body: bytes, keys: Iterable[str], *, message_id: str, now: datetime) -> dict[str, str]:
    """Return the three headers for a request, signed with every key.

    Raises:
        InvalidRequest: a key is too short, or no base64 after ``whsec_``. The message has no key in it.
    """
    timestamp = str((now - _EPOCH) // timedelta(seconds=1))
    signed = _signed(message_id, timestamp, body)
    signatures = " ".join(_VERSION + _signature(_key(key), signed) for key in keys)
    return {ID: message_id, TIMESTAMP: timestamp, SIGNATURE: signatures}


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Iterable[str], *, now: datetime, tolerance: timedelta = TOLERANCE
) -> str:
    """Check a request that Mainspring sent, and return its id: the run's, the same however often it is sent.

    >>> key, now = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", datetime(2027, 1, 1, tzinfo=UTC)
    >>> headers = signature_headers(b"{}", [key], message_id="run-1", now=now)
    >>> verify(headers, b"{}", ["the-key-of-last-year", key], now=now)
    'run-1'
    >>> verify(headers, b"[]", [key], now=now)
    Traceback (most recent call last):
    mainspring.worker.targets.signing.NotVerified: webhook-signature: no key fits; do not act on this request

    Raises:
        NotVerified: a header is missing or odd, the request is older or newer than ``tolerance``, or no key fits.
    """
    given = {name.lower(): value for name, value in headers.items()}
    identity, timestamp = given.get(ID, ""), given.get(TIMESTAMP, "")
    if not identity or "." in identity:
        raise _not_verified(ID, "missing or odd")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        raise _not_verified(TIMESTAMP, "missing or odd")
    if abs(now - _EPOCH - timedelta(seconds=int(timestamp))) > tolerance:
        raise _not_verified(TIMESTAMP, "too far from now")
    signed = _signed(identity, timestamp, body)
    expected = [(_VERSION + _signature(_key(secret), signed)).encode() for secret in secrets]
    fits = False
    for each in given.get(SIGNATURE, "").split()[:_MOST_SIGNATURES]:
        for one in expected:  # all of them, whatever was found: the time taken says nothing about the keys
            fits |= hmac.compare_digest(one, each.encode())
    if not fits:
        raise _not_verified(SIGNATURE, "no key fits")
    return identity


def _not_verified(field: str, reason: str) -> NotVerified:
    return NotVerified(reason, field=field, value="***", allowed="do not act on this request")


def _signed(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _signature(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def _key(secret: str) -> bytes:
    encoded = secret.removeprefix(_PREFIX)
    try:
        key = secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True)
    except ValueError:  # no base64, or not even ASCII
        key = b""
    if len(key) < _SHORTEST_KEY:
        allowed = f'use "{_PREFIX}" and base64, or text, of at least {_SHORTEST_KEY} bytes'
        raise InvalidRequest("this is no key", field="sign_with", value="***", allowed=allowed)
    return key
