"""How the text of a setting becomes a value: one reader per kind, for files, the environment and flags alike.

A reader takes what was given and the dotted name of the setting, and raises InvalidRequest with what to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from mainspring.domain.addresses import Network, parse_networks, plain
from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidRequest

Read: TypeAlias = Callable[[object, str], Any]

HMAC_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
PUBLIC_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A DSN that shows everything but its password."""

    value: str

    def __str__(self) -> str:
        if not re.match(r"(postgres(ql)?|rediss?)://", self.value):
            return "***"
        shown = re.sub(r"^(\w+://[^:/@?]*):.*@", r"\1:***@", self.value, flags=re.DOTALL)
        return re.sub(r"(password=)[^&]*", r"\1***", shown)

    def __repr__(self) -> str:
        return f"Secret({self})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKey:
    """A key that signs tokens, and the one algorithm it is good for."""

    kid: str
    algorithm: str
    secret: str | None = None  # env:NAME or file:path, for HS*
    public_key_file: Path | None = None  # PEM, for all others

    def __str__(self) -> str:
        return f"{self.kid} ({self.algorithm})"


def on_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``. A name other than localhost may lead anywhere.

    >>> on_loopback("127.0.0.1"), on_loopback("::1"), on_loopback("0.0.0.0"), on_loopback("intranet")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or plain(ip_address(host.strip("[]"))).is_loopback
    except ValueError:
        return False


def text(given: object, name: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidRequest(f"{given!r} is no text", field=name, value=given, allowed="give it a text")
    return given.strip()


def secret(given: object, name: str) -> Secret:
    text = given.value if isinstance(given, Secret) else given if isinstance(given, str) else ""
    if not re.match(r"postgres(ql)?://", text):
        allowed = "write postgresql://user@host:5432/name"
        raise InvalidRequest("it is no address of a Postgres", field=name, value="***", allowed=allowed)
    return Secret(text)


def redis_address(given: object, name: str) -> Secret:
    text = given.value if isinstance(given, Secret) else given if isinstance(given, str) else ""
    if not re.match(r"rediss?://[^/]", text):
        allowed = "write redis://host:6379/0, or rediss:// for TLS"
        raise InvalidRequest("it is no address of a Redis", field=name, value="***", allowed=allowed)
    return Secret(text)


def whole(least: int, most: int) -> Read:
    def read(given: object, name: str) -> int:
        number = int(given) if isinstance(given, str) and re.fullmatch(r"[0-9]{1,15}", given.strip()) else given
        if type(number) is not int or not least <= number <= most:
            allowed = f"use a whole number from {least} to {most}"
            raise InvalidRequest(f"{given!r} is out of bounds", field=name, value=given, allowed=allowed)
        return number

    return read


def length(shortest: str, longest: str) -> Read:
    least, most = (parse_duration(text, field="length") for text in (shortest, longest))

    def read(given: object, name: str) -> timedelta:
        if not isinstance(given, str | timedelta):
            allowed = "write it as text, such as 90s or 1h30m"
            raise InvalidRequest(f"{given!r} is not a duration", field=name, value=given, allowed=allowed)
        lasts = parse_duration(given, field=name) if isinstance(given, str) else given
        if not least <= lasts <= most:
            allowed = f"use {shortest} to {longest}"
            raise InvalidRequest(f"{format_duration(lasts)} is out of bounds", field=name, value=given, allowed=allowed)
        return lasts

    return read


def choice(*words: str) -> Read:
    def read(given: object, name: str) -> str:
        if given not in words:
            raise InvalidRequest(
                f'"{given}" is no choice', field=name, value=given, allowed=f"use {' or '.join(words)}"
            )
        return str(given)

    return read


def choices(*words: str) -> Read:
    one = choice(*words)

    def read(given: object, name: str) -> tuple[str, ...]:
        return tuple(one(each, name) for each in texts(given, name))

    return read


def flag(given: object, name: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    value = words.get(given.strip().lower()) if isinstance(given, str) else given
    if not isinstance(value, bool):
        raise InvalidRequest(f"{given!r} is no choice", field=name, value=given, allowed="use true or false")
    return value


def texts(given: object, name: str) -> tuple[str, ...]:
    parts = [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part for part in parts):
        allowed = 'use a list, ["a", "b"], or a,b in the environment'
        raise InvalidRequest(f"{given!r} is no list of texts", field=name, value=given, allowed=allowed)
    return tuple(parts)


def networks(given: object, name: str) -> tuple[Network, ...]:
    if isinstance(given, tuple) and all(isinstance(each, IPv4Network | IPv6Network) for each in given):
        return given
    return parse_networks(texts(given, name), field=name)


def ports(given: object, name: str) -> frozenset[int]:
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, list | tuple | set | frozenset):
        allowed = "use a list, [80, 443], or 80,443 in the environment"
        raise InvalidRequest(f"{given!r} is no list of ports", field=name, value=given, allowed=allowed)
    return frozenset(whole(1, 65_535)(part, name) for part in parts)


def pools(given: object, name: str) -> dict[str, int | None]:
    if not isinstance(given, Mapping):  # names alone, or name=number in the environment
        split = [part.partition("=") for part in texts(given, name)]
        given = {pool.strip(): number.strip() or None for pool, _, number in split}
    if not given or not all(isinstance(pool, str) and pool for pool in given):
        allowed = "name at least one, as in { short = 100, long = 4 } or short=100,long=4"
        raise InvalidRequest("no pool is named", field=name, value=given, allowed=allowed)
    return {pool: None if number is None else whole(1, 100_000)(number, name) for pool, number in given.items()}


def commands(given: object, name: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping):
        allowed = 'write them into the file: [shell.commands] backup = ["/usr/local/bin/backup", "--"]'
        raise InvalidRequest(f"{given!r} is no table of commands", field=name, value=given, allowed=allowed)
    read = {command: argv if isinstance(argv, str) else texts(argv, name) for command, argv in given.items()}
    for command, argv in read.items():
        if isinstance(argv, str) or not argv:
            allowed = 'use a list, such as ["/usr/bin/rsync", "--archive", "--"]; no shell reads it'
            raise InvalidRequest(f'"{command}" is no list of words', field=name, value=argv, allowed=allowed)
    return {command: tuple(argv) for command, argv in read.items()}


def directory(given: object, name: str) -> Path:
    path = given if isinstance(given, Path) else Path(text(given, name))
    if not path.is_absolute():
        allowed = "begin it with /: a relative one depends on where a process was started"
        raise InvalidRequest(f"{path} is relative", field=name, value=str(path), allowed=allowed)
    return path


def file(given: object, name: str) -> Path:
    return directory(given, name)  # absolute, for the same reason


def guarded_url(given: object, name: str) -> str:
    """Read a URL whose answers are trusted: nobody on the way may change them."""
    url = text(given, name)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and on_loopback(host))):
        allowed = "use https://…, or http:// on this machine"
        raise InvalidRequest("it is no URL that can be trusted", field=name, value=url[:80], allowed=allowed)
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("it has a password in it", field=name, value="***", allowed="leave out what is before @")
    return url


def own_reference(given: object, name: str) -> str:
    """Read where a secret of the operator's own is; the secret itself would end up wherever settings are shown."""
    if not isinstance(given, str) or not re.fullmatch(r"(env:\w+|file:/.+)", given):
        allowed = "name where it is: env:NAME or file:/path, never the secret itself"
        raise InvalidRequest("it is no reference", field=name, value="***", allowed=allowed)
    return given


def own_references(given: object, name: str) -> tuple[str, ...]:
    return tuple(own_reference(each, name) for each in texts(given, name))


def vault_path(given: object, name: str) -> str:
    path = text(given, name)
    if not re.fullmatch(r"([\w{}-][\w.{}-]*/)*([\w{}-][\w.{}-]*)?", path, re.ASCII) or len(path) > 200:
        allowed = "use names with / between them, and {tenant} where the tenant's goes"
        raise InvalidRequest(f"{path!r:.60} is no path", field=name, value=path[:60], allowed=allowed)
    return path


def token_keys(given: object, name: str) -> tuple[TokenKey, ...]:
    if isinstance(given, str):  # a variable has no tables
        try:
            given = json.loads(given)
        except ValueError:
            given = None
    if not isinstance(given, list | tuple) or not all(isinstance(each, Mapping | TokenKey) for each in given):
        allowed = 'use tables, [{ kid = "a", algorithm = "HS256", secret = "env:NAME" }], or JSON in the environment'
        raise InvalidRequest("it is no list of keys", field=name, value="***", allowed=allowed)
    keys = tuple(each if isinstance(each, TokenKey) else _token_key(each, name) for each in given)
    twice = sorted({key.kid for key in keys if sum(key.kid == other.kid for other in keys) > 1})
    if twice:
        allowed = "give each key a kid of its own"
        raise InvalidRequest(f'two keys have the kid "{twice[0]}"', field=name, value=twice[0], allowed=allowed)
    return keys


def _token_key(given: Mapping[str, object], name: str) -> TokenKey:
    kid = text(given.get("kid"), f"{name}.kid")
    algorithm = choice(*HMAC_ALGORITHMS, *PUBLIC_ALGORITHMS)(given.get("algorithm"), f"{name}.algorithm")
    # One of the two, as the algorithm asks for: a public key that is taken for a secret would open every door.
    source = "secret" if algorithm in HMAC_ALGORITHMS else "public_key_file"
    if set(given) != {"kid", "algorithm", source}:
        shown = ", ".join(sorted(str(each)[:40] for each in given))  # the names alone: a secret may stand there
        allowed = f"a key for {algorithm} has kid, algorithm and {source}"
        raise InvalidRequest(f'"{kid}" has {shown}', field=name, value=kid, allowed=allowed)
    if source == "public_key_file":
        return TokenKey(kid=kid, algorithm=algorithm, public_key_file=file(given[source], f"{name}.{source}"))
    reference = given[source]
    if not isinstance(reference, str) or not re.fullmatch(r"(env:\w+|file:/.+)", reference):
        allowed = "name where it is: env:NAME or file:/path, never the secret itself"
        raise InvalidRequest("it is no reference", field=f"{name}.{source}", value="***", allowed=allowed)
    return TokenKey(kid=kid, algorithm=algorithm, secret=reference)
