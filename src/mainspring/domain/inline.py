"""Secrets written out where a reference belongs: found by the name of a field, and by the look of a value.

Promise. Linear time, whatever is written: no pattern here can go back over what it has read. What is found is named
by its exact path, ``payload.smtp[0].password``, and never repeated.

Not promised. That everything is found: a password in a field called ``colour`` looks like a word. The last word of a
name decides, for English puts it last: an ``access_token`` is a token, a ``token_count`` is a count.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from mainspring.domain.errors import InlineSecret
from mainspring.domain.references import KEY, is_reference, reference_in
from mainspring.domain.urls import HIDDEN

Json: TypeAlias = Any

# The one list of words in the product that say secret, for fields and for headers.
SECRET_WORDS: Final = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "token", "tokens"),
        *("credential", "credentials", "creds", "authorization", "authentication", "auth", "cookie", "cookies"),
        *("bearer", "jwt", "apikey", "apikeys", "authkey", "accesskey", "secretkey", "privatekey", "clientsecret"),
        *("apitoken", "authtoken", "accesstoken", "refreshtoken", "dbpass", "userpass", "smtppass"),
    }
)
SECRET_PAIRS: Final = frozenset(
    {
        *((word, "key") for word in ("api", "access", "auth", "private", "secret", "client", "account", "master")),
        *((word, "key") for word in ("encryption", "signing", "shared", "service", "ssh", "deploy", "webhook")),
        *((word, "keys") for word in ("api", "access", "auth", "private", "secret", "signing")),
        *((word, "pass") for word in ("db", "database", "user", "smtp", "mail", "email", "ftp", "admin", "root")),
    }
)
_SECRET_ANYWHERE: Final = SECRET_WORDS - {"auth"}  # X-Auth-Method is none
# What these tokens say is for anybody to read: how many there are, where a list goes on, words of a model.
_HARMLESS_BEFORE: Final = frozenset(
    {
        *("max", "min", "num", "total", "input", "output", "prompt", "completion", "cached", "reasoning"),
        *("page", "next", "previous", "continuation", "sync", "idempotency", "cancellation"),
        *("bos", "eos", "pad", "unk", "sep", "cls", "stop", "special"),
    }
)
_HARMLESS_VALUES: Final = frozenset(
    {"none", "basic", "bearer", "digest", "oauth", "oauth2", "oidc", "jwt", "ldap", "saml", "kerberos", "mtls", "token"}
)
_LONGEST_NAME: Final = 100  # characters from its end, where the last word is
_SHORTEST_VALUE: Final = 8  # of those that are known by their look
_LONGEST_HEAD: Final = 2_000  # characters of the head of a JWT
_MOST_TRIED: Final = 1_000  # places in one text that are looked at more closely
_WORD: Final = re.compile(r"[A-Z]++(?![a-z])|[A-Z]?[a-z]++|[A-Z]|[0-9]++|[^\W\d_]++")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][\w-]{0,59}", re.ASCII)


class Found(NamedTuple):
    """A secret that was written out: where it is, and what gave it away."""

    path: str
    why: str


class _Place(NamedTuple):
    """A value, and how it was reached. A chain, so that paths cost nothing until one is asked for."""

    value: Json
    above: _Place | None
    step: str | int  # a name or an index; for the outermost, what the whole is called
    named: bool = False  # it, or the list it is in, has the name of a secret


def inline_secrets(value: Json, at: str = "payload") -> Iterator[Found]:
    """Yield every secret that is written out in a value, in its order; ``at`` is what the whole is called.

    >>> [found.path for found in inline_secrets({"smtp": [{"password": "hunter2"}], "max_tokens": 100})]
    ['payload.smtp[0].password']
    """
    todo = [_Place(value, None, at)]
    while todo:
        place = todo.pop()
        here = place.value
        match here:
            case str():
                why = _why_of_text(here, named=place.named, name=place.step)
                if why is not None:
                    yield Found(_path(place), why)
            case bool() | None:
                pass
            case int() | float() if place.named and not _counts(place.step):
                yield Found(_path(place), "its name says so")
            case list() | tuple():
                todo += [_Place(each, place, index, place.named) for index, each in reversed([*enumerate(here)])]
            case Mapping():
                if KEY in here:
                    if reference_in(here) is None:
                        yield Found(f"{_path(place)}.{KEY}", "it stands in place of a reference")
                else:
                    yield from _names_in(here, place)
                    todo += reversed([*_fields(here, place)])


def check_inline(value: Json, at: str = "payload") -> None:
    """Check that no secret is written out in a value.

    Raises:
        InlineSecret: one is. It names the first one's path and does not repeat it.
    """
    for found in inline_secrets(value, at):
        raise InlineSecret(found.path, why=found.why)


def says_secret(name: str) -> bool:
    """Say whether the value of a field with this name is a secret.

    >>> [name for name in ("apiKey", "client-secret", "token_count", "author") if says_secret(name)]
    ['apiKey', 'client-secret']
    """
    return _says_secret(name[-_LONGEST_NAME:])  # what is remembered is short, whatever is sent


@lru_cache(maxsize=4_000)
def _says_secret(name: str) -> bool:
    words = words_of(name)
    while words and words[-1].isdigit():  # password2
        words.pop()
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    if words[-1] in ("token", "tokens") and before in _HARMLESS_BEFORE:
        return False
    return words[-1] in SECRET_WORDS or (before, words[-1]) in SECRET_PAIRS


@lru_cache(maxsize=2_000)
def header_says_secret(name: str) -> bool:
    """Say whether the value of a header is a secret; stricter than for a field, for headers have a place for those."""
    words = words_of(name)
    pairs = pairwise(words)
    return says_secret(name) or not _SECRET_ANYWHERE.isdisjoint(words) or not SECRET_PAIRS.isdisjoint(pairs)


def words_of(name: str) -> list[str]:
    """Return the words that a name ends with, in lower case, however they are joined.

    >>> words_of("X-Api_keyForHTTPServer2")
    ['x', 'api', 'key', 'for', 'http', 'server', '2']
    """
    return [word.lower() for word in _WORD.findall(_SEAM.sub(r"\1_\2", name[-_LONGEST_NAME:]))]


_SEAM: Final = re.compile(r"([A-Z])([A-Z][a-z])")  # HTTPServer: the last capital begins a word


def _fields(here: Mapping[str, Json], place: _Place) -> Iterator[_Place]:
    # {"name": "Authorization", "value": …}: how lists of headers and of variables are written
    label = here.get("name", here.get("key")) if "value" in here else None
    labelled = isinstance(label, str) and says_secret(label)
    for name, each in here.items():
        yield _Place(each, place, name, says_secret(name) or (labelled and name == "value"))


def _names_in(here: Mapping[str, Json], place: _Place) -> Iterator[Found]:
    for name in here:
        why = _look(name)
        if why is not None:
            yield Found(f"{_path(place)}.{HIDDEN}", why)


def _why_of_text(text: str, *, named: bool, name: str | int) -> str | None:
    if named and text.strip() and not is_reference(text) and not _is_method(text, name):
        return "its name says so"
    return _look(text)


def _counts(name: str | int) -> bool:
    """Say whether a number under this name is how many there are."""
    return isinstance(name, str) and words_of(name)[-1:] in (["tokens"], ["cookies"], ["secrets"], ["credentials"])


def _is_method(text: str, name: str | int) -> bool:
    """Say whether a text names a way to show who one is: ``auth: basic``."""
    if len(text) > 20 or text.lower() not in _HARMLESS_VALUES or not isinstance(name, str):
        return False
    return words_of(name)[-1] in ("auth", "authentication", "authorization")


def _path(place: _Place) -> str:
    steps = []
    at: _Place | None = place
    while at is not None:
        steps.append(str(at.step) if at.above is None else _step(at.step))
        at = at.above
    return "".join(reversed(steps))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_NAME.fullmatch(step):
        return f".{step}" if _look(step) is None else f".{HIDDEN}"
    return f"[{json.dumps(step[:60])}]" if _look(step) is None else f".{HIDDEN}"


def _look(text: str) -> str | None:
    """Return what a text looks like, if that is a secret."""
    if len(text) < _SHORTEST_VALUE:
        return None
    for marks, finds, what in _LOOKS:
        if any(mark in text for mark in marks) and finds(text):
            return f"it looks like {what}"
    return None


def _like(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.search(text) is not None


_AUTHORITY: Final = re.compile(r"""://([^/?#\s"'<>\\]++)""", re.ASCII)
_BASIC: Final = re.compile(r"\b[Bb]asic {1,4}([A-Za-z0-9+/_-]{6,1000})={0,2}(?![A-Za-z0-9+/_-])", re.ASCII)
_BEARER: Final = re.compile(r"\b[Bb]earer {1,4}([A-Za-z0-9._~+/-]{8,1000})", re.ASCII)
_JWT: Final = re.compile(r"(?<![\w-])(eyJ[\w-]{11,}+)\.[\w-]++\.", re.ASCII)
_OURS: Final = re.compile(r"(?<![\w-])ms_([\w-]{20,200})", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\*+|\{.*\}|\$\{?\w+\}?|%\(?\w+\)?s?", re.ASCII)


def _tried(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(text), _MOST_TRIED)


def _is_jwt(text: str) -> bool:
    return any(_has_algorithm(found[1]) for found in _tried(_JWT, text))


def _has_algorithm(head: str) -> bool:
    if len(head) > _LONGEST_HEAD:
        return False
    try:
        decoded = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "alg" in decoded


def _has_password(text: str) -> bool:
    for found in _tried(_AUTHORITY, text):
        password = found[1].rpartition("@")[0].partition(":")[2]
        if password and _PLACEHOLDER.fullmatch(password[:200]) is None:
            return True
    return False


def _is_basic(text: str) -> bool:
    return any(_has_colon(found[1]) for found in _tried(_BASIC, text))


def _has_colon(encoded: str) -> bool:
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        return b":" in base64.b64decode(padded, altchars=b"-_" if "-" in encoded or "_" in encoded else None)
    except ValueError:
        return False


def _is_bearer(text: str) -> bool:
    """Say whether a bearer is a token: the whole of a text, or no word."""
    for found in _tried(_BEARER, text):
        if len(found[0]) == len(text.rstrip("= \t\r\n")) or (len(found[1]) >= 16 and _mixed(found[1])):
            return True
    return False


def _is_ours(text: str) -> bool:
    return any(_mixed(found[1]) for found in _tried(_OURS, text))


def _mixed(text: str) -> bool:
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


_LOOKS: Final[
    tuple[tuple[tuple[str, ...], Callable[[str], bool], str], ...]
] = (  # marks, found by a plain search first
    (("PRIVATE KEY-----",), _like(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----"), "a private key"),
    (("AKIA", "ASIA"), _like(r"(?<![A-Z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Z0-9])"), "an access key of AWS"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _like(r"(?<!\w)gh[pousr]_[A-Za-z0-9]{36}"), "a token of GitHub"),
    (("github_pat_",), _like(r"(?<!\w)github_pat_\w{22}"), "a token of GitHub"),
    (("glpat-",), _like(r"(?<!\w)glpat-[\w-]{20}"), "a token of GitLab"),
    (("xox",), _like(r"(?<!\w)xox[abeoprs]-[A-Za-z0-9-]{10}"), "a token of Slack"),
    (("k_live_", "k_test_"), _like(r"(?<!\w)[sr]k_(?:live|test)_[A-Za-z0-9]{10}"), "a key of Stripe"),
    (("AIza",), _like(r"(?<![\w-])AIza[\w-]{35}(?![\w-])"), "a key of Google"),
    (("eyJ",), _is_jwt, "a JSON Web Token"),
    (("ms_",), _is_ours, "a key of Mainspring"),
    (("earer ",), _is_bearer, "a bearer's token"),
    (("asic ",), _is_basic, "a user with a password"),
    (("://",), _has_password, "a URL with a password"),
)
