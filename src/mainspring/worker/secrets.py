"""Secrets: jobs name them, the worker looks them up when it needs them, and nothing that is kept shows them.

Promise. Whoever writes a job reads only what the operator put on a list: a variable by its name, a file below one
directory. A value is looked up anew for every attempt, and masked in all that the attempt leaves behind.

Not promised. A server that means harm can send a secret back in a form nobody would look for. It has it already.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, quote_plus

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json
from mainspring.domain.urls import HIDDEN

LONGEST_SECRET: Final = 64 << 10
_SHORTEST_PART: Final = 4  # shorter parts of a secret are words that stand everywhere


class SecretRefused(InvalidRequest):
    """A job names a secret that it may not have, or that is not there."""

    code = "secret_refused"

    def __init__(self, reason: str, *, reference: str, allowed: str) -> None:
        super().__init__(reason, field="secret", value=reference, allowed=allowed)


class Secrets(Protocol):
    """Where references lead."""

    def resolve(self, reference: str) -> str:
        """Return the value behind ``env:NAME`` or its like.

        Raises:
            SecretRefused: it may not be read here, or is not there. The message has no value in it.
        """


class EnvironmentSecrets:
    """``env:NAME``, for the names the operator allows: the worker's own variables are nobody else's business."""

    def __init__(self, allowed: Collection[str], variables: Mapping[str, str]) -> None:
        self._allowed = frozenset(allowed)
        self._variables = variables

    def resolve(self, reference: str) -> str:
        name = reference.removeprefix("env:")
        if name not in self._allowed:
            allowed = "the operator of the worker may add it to secrets.environment"
            raise SecretRefused(f'"{reference}" is not open to jobs', reference=reference, allowed=allowed)
        value = self._variables.get(name, "")
        if not value:
            allowed = "set it where the worker is started"
            raise SecretRefused(f'"{reference}" is not set', reference=reference, allowed=allowed)
        return value


class FileSecrets:
    """``file:path``, below one directory; links may lead anywhere inside it, as mounted secrets do, and never out."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    def resolve(self, reference: str) -> str:
        asked = reference.removeprefix("file:")
        allowed = f"use a file below {self._directory}, of up to {LONGEST_SECRET} bytes of text"
        try:
            path = (self._directory / asked).resolve(strict=True)
            content = _read(path) if path.is_relative_to(self._directory) else None
        except (OSError, ValueError, RuntimeError):  # not there, no path at all, no text, links in a circle
            content = None
        if not content:  # one answer for all of it: what is outside is not even confirmed to be there
            raise SecretRefused(f'"{reference}" cannot be read', reference=reference, allowed=allowed) from None
        return content


class SecretsByScheme:
    """Each reference to the provider of its scheme; without providers, no job has secrets."""

    def __init__(self, providers: Mapping[str, Secrets] | None = None) -> None:
        self._providers = dict(providers or {})

    def resolve(self, reference: str) -> str:
        provider = self._providers.get(reference.partition(":")[0])
        if provider is None:
            allowed = f"this worker knows {', '.join(sorted(self._providers)) or 'no secrets at all'}"
            raise SecretRefused(f'"{reference}" leads nowhere here', reference=reference, allowed=allowed)
        return provider.resolve(reference)


class Mask:
    """Puts ``***`` in place of every secret an attempt has used, however it is likely to be written."""

    __slots__ = ("_forms", "longest")

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value)}
        self._forms = sorted(forms, key=len, reverse=True)  # the whole before its parts
        self.longest = len(self._forms[0]) if self._forms else 0

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text

    def json(self, value: Json) -> Json:
        """Return ``value`` with every text in it masked, keys included."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self.json(each) for name, each in value.items()}
            case list():
                return [self.json(each) for each in value]
            case int() | float() if not isinstance(value, bool) and (shown := self.text(str(value))) != str(value):
                return shown
        return value


def _read(path: Path) -> str:
    # The path is resolved: a link that appears now is not followed. Nor does a pipe hold the worker up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no plain file")
        content = file.read(LONGEST_SECRET + 1)
    if len(content) > LONGEST_SECRET:
        raise ValueError("too long")
    return content.decode().rstrip("\r\n")  # editors end files with a newline; no header may have one


@lru_cache(maxsize=100)  # a worker uses the same few for ever, and this is slower than the request it serves
def _forms(value: str) -> tuple[str, ...]:
    parts = {value, *(part for part in value.split() if len(part) >= _SHORTEST_PART)}  # "Bearer 0451…": the latter too
    parts -= {"Bearer", "Basic", "Digest", "Token", "token", "bearer", "basic"}
    return tuple({form for part in parts for form in _spellings(part)})


def _spellings(text: str) -> Iterable[str]:
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text)[1:-1].replace("/", r"\/")
    yield quote(text, safe="")
    yield quote_plus(text)
    yield base64.b64encode(text.encode()).decode().rstrip("=")
