"""Secrets: jobs name them, the worker looks them up when it needs them, and nothing that is kept shows them.

Promise. Whoever writes a job reads only what the operator put on a list, a variable by its name or a file below one
directory, and what its own tenant keeps in the store or in the vault (``vault.py``). Variables and files are looked up
anew for every attempt, the others at least every minute; and all that an attempt leaves behind is masked
(``masking.py``).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from mainspring.domain.errors import InvalidRequest, NotFound, Unavailable
from mainspring.domain.job import Json
from mainspring.domain.references import references_in, with_secrets
from mainspring.environment import Environment

LONGEST_SECRET: Final = 64 << 10
KEEP_FOR: Final = timedelta(seconds=60)
_MOST_REMEMBERED: Final = 1_000

OpenSecret: TypeAlias = Callable[[str, str], Awaitable[str]]  # of a tenant, by its name


class SecretRefused(InvalidRequest):
    """A job names a secret that it may not have, or that is not there."""

    code = "secret_refused"

    def __init__(self, reason: str, *, reference: str, allowed: str) -> None:
        super().__init__(reason, field="secret", value=reference, allowed=allowed)


class SecretUnavailable(Unavailable):
    """Where a secret is kept cannot be asked now. The message has no value in it."""

    code = "secret_unavailable"


class Secrets(Protocol):
    """Where references lead."""

    def resolve(self, reference: str, *, tenant: str) -> Coroutine[Any, Any, str]:
        """Return the value behind ``env:NAME`` or its like, for a run of this tenant.

        Raises:
            SecretRefused: it may not be read here, or is not there. The message has no value in it.
            Unavailable: it cannot be read now, and perhaps later.
        """


class EnvironmentSecrets:
    """``env:NAME``, for the names the operator allows: the worker's own variables are nobody else's business."""

    def __init__(self, allowed: Collection[str], variables: Mapping[str, str]) -> None:
        self._allowed = frozenset(allowed)
        self._variables = variables

    async def resolve(self, reference: str, *, tenant: str) -> str:
        del tenant  # the operator's, for all
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

    async def resolve(self, reference: str, *, tenant: str) -> str:
        del tenant
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


class StoredSecrets:
    """``store:name``, of the run's own tenant: what it calls by that name, whatever others do."""

    def __init__(self, open_secret: OpenSecret) -> None:
        self._open = open_secret

    async def resolve(self, reference: str, *, tenant: str) -> str:
        try:
            return await self._open(tenant, reference.removeprefix("store:"))
        except NotFound:
            reason, allowed = "is not there", "put it: mainspring secrets put NAME"
        except InvalidRequest as error:  # sealed with a key that is not here, or changed by somebody
            reason, allowed = f"does not open: {error.reason}", error.allowed
        raise SecretRefused(f'"{reference}" {reason}', reference=reference, allowed=allowed) from None


class SecretsByScheme:
    """Each reference to the provider of its scheme; without providers, no job has secrets."""

    def __init__(self, providers: Mapping[str, Secrets] | None = None) -> None:
        self._providers = dict(providers or {})

    def also(self, providers: Mapping[str, Secrets]) -> SecretsByScheme:
        """Return these and others."""
        return SecretsByScheme({**self._providers, **providers})

    async def resolve(self, reference: str, *, tenant: str) -> str:
        provider = self._providers.get(reference.partition(":")[0])
        if provider is None:
            allowed = f"this worker knows {', '.join(sorted(self._providers)) or 'no secrets at all'}"
            raise SecretRefused(f'"{reference}" leads nowhere here', reference=reference, allowed=allowed)
        return await provider.resolve(reference, tenant=tenant)


class Remembered:
    """Values of another provider, kept for a little: many runs that start at once ask once. Refusals are not kept."""

    def __init__(self, secrets: Secrets, env: Environment, *, keep_for: timedelta = KEEP_FOR) -> None:
        self._secrets = secrets
        self._env = env
        self._keep_for = keep_for.total_seconds()
        self._known: dict[tuple[str, str], tuple[float, asyncio.Task[str]]] = {}  # oldest first

    async def resolve(self, reference: str, *, tenant: str) -> str:
        key, now = (tenant, reference), self._env.monotonic()
        self._forget(now)
        if key not in self._known:
            asking = asyncio.ensure_future(self._secrets.resolve(reference, tenant=tenant))
            self._known[key] = now + self._keep_for, asking  # counted from before the question: never older than that
            asking.add_done_callback(partial(self._asked, key))
        return await asyncio.shield(self._known[key][1])  # whoever is cancelled leaves the others their answer

    def _forget(self, now: float) -> None:
        while self._known:
            key, (until, _) = next(iter(self._known.items()))
            if until > now and len(self._known) < _MOST_REMEMBERED:
                return
            del self._known[key]

    def _asked(self, key: tuple[str, str], asking: asyncio.Task[str]) -> None:
        failed = asking.cancelled() or asking.exception() is not None
        if failed and key in self._known and self._known[key][1] is asking:
            del self._known[key]


async def opened(secrets: Secrets, payload: Json, *, tenant: str) -> tuple[Json, tuple[str, ...]]:
    """Return a payload with the values of the secrets that it names, and these values, for masking.

    Raises:
        InvalidRequest: it names one that it may not have, or in a way that cannot be read.
        Unavailable: where a secret is kept cannot be reached now.
    """
    values = dict.fromkeys(references_in(payload), "")
    for reference in values:
        values[reference] = await secrets.resolve(reference, tenant=tenant)
    return with_secrets(payload, values), tuple(values.values())


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
