"""How the text of a setting becomes a value: one reader per kind, for files, the environment and flags alike.

A reader takes what was given and the dotted name of the setting, and raises InvalidRequest with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, TypeAlias

from mainspring.domain.addresses import Network, parse_networks
from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidRequest

Read: TypeAlias = Callable[[object, str], Any]


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A DSN that shows everything but its password."""

    value: str

    def __str__(self) -> str:
        if not re.match(r"postgres(ql)?://", self.value):
            return "***"
        shown = re.sub(r"^(\w+://[^:/@?]*):.*@", r"\1:***@", self.value, flags=re.DOTALL)
        return re.sub(r"(password=)[^&]*", r"\1***", shown)

    def __repr__(self) -> str:
        return f"Secret({self})"


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
