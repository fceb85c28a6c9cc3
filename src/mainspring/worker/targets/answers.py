"""What the answer to a request means for its run, and what of it is kept.

  answered with                       the run
  one of ``success`` (2xx)            succeeded: status, a few headers, the body
  3xx                                 followed up to ``redirects`` times; after that discarded
  408, 425, 429, 5xx                  failed, ``http_<status>``; no sooner again than ``Retry-After`` says
  any other status                    discarded: the same request would get the same answer

  not answered because                the run
  the address may not be dialled      discarded
  there is no such name               failed, ``http_dns``
  nobody took the connection          failed, ``http_connect``
  the certificate is not good         failed, ``http_tls``
  its time was up                     failed, ``http_timeout``
  the connection broke                failed, ``http_reset``; also in the middle of a good body
  it was no HTTP                      failed, ``http_protocol``

Once there is a status that is no success, it decides, even if its body never ends. A body is cut at the cap and says
so; it decides nothing. Every failure also counts as ``http_error``, statuses as ``http_5xx`` and the like, so that a
retry policy can name them. What a job keeps has the secrets of the attempt masked.
"""

from __future__ import annotations

import codecs
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

from mainspring.domain.job import Json
from mainspring.domain.requests import HttpRequest
from mainspring.domain.settling import LONGEST_MESSAGE, Discarded, ErrorInfo, Failed, Outcome, Succeeded
from mainspring.domain.urls import Url
from mainspring.worker.masking import Mask
from mainspring.worker.targets.guard import refusal

AGAIN: Final = (408, 425, 429)  # too slow, too early, too many: of 4xx, what may pass with time
LONGEST_RETRY_AFTER: Final = timedelta(days=1)
_KEPT_HEADERS: Final = ("Content-Type", "ETag", "Last-Modified", "Location", "Retry-After", "X-Request-Id")
_LONGEST_KEPT_HEADER: Final = 500
_EXCERPT: Final = 500
# Not every codec of Python: some are no encodings of text, and some take quadratic time.
_CHARSETS: Final = ("utf-8", "utf-16", "utf-32", "ascii", "iso8859", "cp125", "koi8", "shift_jis", "euc_", "gb", "big5")


@dataclass(slots=True)
class Answer:
    """A status, and as much of what follows it as has come."""

    url: Url
    status: int
    headers: Mapping[str, str]  # names in any case
    body: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    @property
    def title(self) -> str:
        try:
            return f"HTTP {self.status} {HTTPStatus(self.status).phrase}"  # theirs could say anything
        except ValueError:
            return f"HTTP {self.status}"


def judge(request: HttpRequest, answer: Answer, *, mask: Mask, keep: int, now: datetime) -> Outcome:
    """Decide by the table above what an answer means; ``keep`` is how many bytes of JSON a body may be kept as."""
    if request.succeeds(answer.status):
        return Succeeded(kept(answer, mask, keep))
    if 300 <= answer.status < 400:
        return Discarded(mask.text(_not_followed(request, answer)))
    said = mask.text(f"{answer.title} from {answer.url.shown}") + _excerpt(answer, mask)
    if answer.status not in AGAIN and not 500 <= answer.status < 600:
        return Discarded(said)
    family = f"http_{answer.status // 100}xx"
    error = ErrorInfo(type=f"http_{answer.status}", message=said, bases=(family, "http_error"))
    return Failed(error=error, retry_after=retry_after(answer.headers.get("Retry-After"), now=now))


def judge_error(error: BaseException, url: Url, *, mask: Mask) -> Outcome:
    """Decide what it means that there is no answer."""
    cause = getattr(error, "os_error", error)  # of the connector's errors: what the system said
    refused = refusal(cause)
    if refused is not None:
        return Discarded(mask.text(f"{url.host} may not be called: {refused}"))
    kind = next((name for errors, name in _KINDS if isinstance(error, errors)), "http_failed")
    said = _reason(error, cause)
    message = mask.text(f"{_SAID[kind]} {url.shown}" + (f": {said}" if said else ""))
    return Failed(error=ErrorInfo(type=kind, message=message, bases=("http_error",)))


def retry_after(value: str | None, *, now: datetime) -> timedelta | None:
    """Read ``Retry-After``: seconds or a date, within a day; None for anything else.

    >>> retry_after("120", now=datetime(2027, 1, 1, tzinfo=UTC))
    datetime.timedelta(seconds=120)
    """
    text = (value or "").strip()
    if text.isascii() and text.isdecimal():
        asked = timedelta(seconds=min(int(text[:10]), 10**9))
    else:
        try:
            at = parsedate_to_datetime(text[:100])
        except (ValueError, OverflowError):
            return None
        asked = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - now
    return min(max(asked, timedelta(0)), LONGEST_RETRY_AFTER)


def kept(answer: Answer, mask: Mask, keep: int) -> Json:
    """Return what a run keeps of a good answer."""
    headers = {
        name.lower(): mask.text(_storable(value[:_LONGEST_KEPT_HEADER]))
        for name in _KEPT_HEADERS
        if (value := answer.headers.get(name)) is not None
    }
    body = _decoded(answer, mask, keep)
    if body is not msgspec.UNSET:
        return {"status": answer.status, "headers": headers, "body": body}
    text, cut = _text(answer, mask, keep)
    result = {"status": answer.status, "headers": headers, "body": text}
    return {**result, "truncated": True} if cut else result


def _decoded(answer: Answer, mask: Mask, keep: int) -> Json:
    media = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if answer.truncated or len(answer.body) > keep or not (media == "application/json" or media.endswith("+json")):
        return msgspec.UNSET
    if b"\\u0000" in answer.body:  # no database would take it; as text it stays an escape
        return msgspec.UNSET
    try:
        value = msgspec.json.decode(answer.body)
        if not mask and 6 * len(answer.body) <= keep:  # written anew it can grow, but not that much
            return value
        value = mask.json(value)
        return value if len(json.dumps(value)) <= keep else msgspec.UNSET
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.UNSET


def _text(answer: Answer, mask: Mask, keep: int) -> tuple[str, bool]:
    """Return the body as text, cut to ``keep``, and whether something is missing."""
    whole = _charset(answer.headers.get("Content-Type", ""))
    text = bytes(answer.body[: 4 * (keep + mask.longest)]).decode(whole, errors="replace")
    cut = answer.truncated or len(answer.body) > 4 * (keep + mask.longest)
    if cut and mask:
        text = text[: -mask.longest]  # half a secret would not be found
    text = _storable(mask.text(text))
    while (size := len(json.dumps(text))) > keep:
        text, cut = text[: min(len(text) - 1, len(text) * keep // size)], True
    return text, cut


def _excerpt(answer: Answer, mask: Mask) -> str:
    value = _decoded(answer, mask, LONGEST_MESSAGE) if mask else msgspec.UNSET
    if value is not msgspec.UNSET:  # masked value by value: there are many ways to escape a character in JSON
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = _text(answer, mask, 2 * _EXCERPT)[0].strip()
    return f": {text[:_EXCERPT]}" if text else ""


def _charset(content_type: str) -> str:
    _, found, rest = content_type.lower().partition("charset=")
    name = rest.partition(";")[0].strip(' "') if found else "utf-8"
    try:
        name = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name.startswith(_CHARSETS) else "utf-8"


def _storable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _not_followed(request: HttpRequest, answer: Answer) -> str:
    where = _storable(answer.headers.get("Location", "nowhere").partition("?")[0])[:_LONGEST_KEPT_HEADER]
    advice = f"more than {request.redirects} redirects" if request.redirects else "set redirects to follow it"
    return f"{answer.title} from {answer.url.shown} points to {where}; {advice}"


# In this order: the first that fits names the failure.
_KINDS: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    ((aiohttp.ClientConnectorDNSError,), "http_dns"),
    ((aiohttp.ClientSSLError, ssl.SSLError, ssl.CertificateError), "http_tls"),
    ((aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError), "http_connect"),
    ((TimeoutError,), "http_timeout"),
    ((aiohttp.ClientResponseError, aiohttp.InvalidURL), "http_protocol"),
    ((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError), "http_reset"),
)
_SAID: Final = {
    "http_dns": "no address for",
    "http_tls": "no trusted connection to",
    "http_connect": "no connection to",
    "http_timeout": "no complete answer in time from",
    "http_reset": "the connection broke to",
    "http_protocol": "no valid HTTP from",
    "http_failed": "could not call",
}


def _reason(error: BaseException, cause: BaseException) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return "" if isinstance(error, TimeoutError) else str(cause)[:_EXCERPT]
