"""Key sets: the public keys of an issuer, which it changes when it likes.

Promise. A new key counts as soon as a token names it, or after ``every`` at the latest; a key that is no longer in the
set stops counting with the next look. While the source is away or answers nonsense the last good set goes on, for
``keep_for`` and no longer.

By what. One look at a time, however many requests wait for it; for ids that nobody knows, one in ten seconds: whoever
makes ids up cannot make us hammer the issuer. A file is looked at every two seconds. A set that is as it was is
not taken apart again.

A key is for one algorithm: what its ``alg`` says, else the first of ``auth.algorithms`` that fits its type, and in
either case one of those. Secrets (``oct``), private keys and keys for encryption are left out, as if not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp

from mainspring.api.jose import NotStrict, VerifyingKey, from_jwk, read_object
from mainspring.config.settings import AuthSettings
from mainspring.domain.errors import InvalidRequest, Unavailable
from mainspring.environment import Environment
from mainspring.service import Stop
from mainspring.telemetry.events import Events, ServiceInterrupted

LARGEST: Final = 256 << 10
MOST_KEYS: Final = 100
ANSWER_WITHIN: Final = timedelta(seconds=5)
AGAIN_IN: Final = timedelta(seconds=10)  # at the earliest, because of an id that nobody knows
LOOK_EVERY: Final = timedelta(seconds=2)  # at a file: that costs nothing

_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}
_TYPES: Final = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}


class SourceUnavailable(Unavailable):
    """The key set cannot be had, or is none."""

    code = "keys_unavailable"


class Source(Protocol):
    """Where a key set is."""

    async def read(self) -> bytes:
        """Return the set as it is now.

        Raises:
            SourceUnavailable: it cannot be had.
        """


@dataclass(frozen=True, slots=True)
class FileSource:
    path: Path

    async def read(self) -> bytes:
        try:
            with self.path.open("rb") as file:  # small and local: a thread would cost more than the reading
                return file.read(LARGEST + 1)
        except OSError as error:
            raise SourceUnavailable(f"the key set cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class UrlSource:
    """An address, asked as it stands: no redirect is followed, and no more than a set's worth is read."""

    url: str

    async def read(self) -> bytes:
        limit = aiohttp.ClientTimeout(total=ANSWER_WITHIN.total_seconds())
        try:
            async with (
                aiohttp.ClientSession(timeout=limit, headers={"Accept-Encoding": "identity"}) as session,
                session.get(self.url, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise SourceUnavailable(f"the key set cannot be had: status {response.status}")
                content = b""
                async for chunk in response.content.iter_chunked(16 << 10):
                    content += chunk
                    if len(content) > LARGEST:
                        break
                return content
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise SourceUnavailable(f"the key set cannot be had: {type(error).__name__}") from error


class KeySet:
    """The keys of a source, kept fresh. Also a service: ``run`` looks again and again."""

    def __init__(
        self,
        source: Source,
        *,
        algorithms: Sequence[str],
        environment: Environment,
        events: Events,
        every: timedelta = timedelta(minutes=5),
        keep_for: timedelta = timedelta(days=1),
    ) -> None:
        self._source = source
        self._algorithms = tuple(algorithms)
        self._environment = environment
        self._events = events
        self._every = every
        self._keep_for = keep_for
        self._keys: Mapping[str | None, VerifyingKey] = {}
        self._content = b""  # that they were read from
        self._good_at: float | None = None
        self._tried_at: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._away = False

    def keys(self) -> Mapping[str | None, VerifyingKey]:
        return {} if self._since(self._good_at) > self._keep_for else self._keys

    async def missed(self) -> None:
        if self._looking is not None or self._since(self._tried_at) >= AGAIN_IN:
            await self.look()

    async def look(self) -> None:
        """Look once, together with whoever is looking already. Says so if the source is away; raises nothing."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)  # whoever gives up must not take the others' answer away

    async def run(self, stop: Stop) -> None:
        while not stop.requested:
            await self.look()
            await stop.wait(self._every)

    async def _look(self) -> None:
        self._tried_at = self._environment.monotonic()
        try:
            content = await self._source.read()
            if content != self._content:
                self._keys, self._content = read_key_set(content, self._algorithms), content
        except (SourceUnavailable, NotStrict) as error:
            if not self._away:  # once per outage
                self._events.emit(ServiceInterrupted(service="KeySet", error=str(error), again_in=self._every))
            self._away = True
        else:
            self._good_at, self._away = self._tried_at, False
        finally:
            self._looking = None

    def _since(self, instant: float | None) -> timedelta:
        return timedelta.max if instant is None else timedelta(seconds=self._environment.monotonic() - instant)


def key_set(auth: AuthSettings, *, environment: Environment, events: Events) -> KeySet | None:
    """Return the key set that the settings name, if they do.

    Raises:
        InvalidRequest: they name two.
    """
    source: Source
    if auth.jwks_url is not None and auth.jwks_file is not None:
        allowed = "keep one of auth.jwks_url and auth.jwks_file"
        raise InvalidRequest("there are two key sets", field="auth.jwks_url", value=auth.jwks_url, allowed=allowed)
    if auth.jwks_file is not None:
        source, every = FileSource(auth.jwks_file), min(auth.jwks_every, LOOK_EVERY)
    elif auth.jwks_url is not None:
        source, every = UrlSource(auth.jwks_url), auth.jwks_every
    else:
        return None
    return KeySet(
        source,
        algorithms=auth.algorithms,
        environment=environment,
        events=events,
        every=every,
        keep_for=auth.jwks_keep_for,
    )


def read_key_set(content: bytes, algorithms: Sequence[str]) -> dict[str | None, VerifyingKey]:
    """Read a JWKS (RFC 7517) and return its keys that can be used, by their id.

    Raises:
        NotStrict: it is no key set at all.
    """
    found = read_object(content).get("keys") if len(content) <= LARGEST else None
    if not isinstance(found, list) or len(found) > MOST_KEYS:
        raise NotStrict("no key set, or too large")
    keys: dict[str | None, VerifyingKey] = {}
    for jwk in found:
        algorithm = _algorithm(jwk, algorithms) if isinstance(jwk, dict) else None
        if algorithm is None:
            continue
        try:
            key = from_jwk(jwk, algorithm)
        except NotStrict:
            continue  # one bad key must not take the good ones along
        keys.setdefault(key.kid, key)
    return keys


def _algorithm(jwk: Mapping[str, Any], algorithms: Sequence[str]) -> str | None:
    """Return the one algorithm a key is for; None: it is not to be used here."""
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    families = _TYPES.get(str(jwk.get("kty")))
    if families is None:  # a secret, for one
        return None
    fitting = [each for each in algorithms if each.startswith(families)]
    if jwk.get("kty") != "RSA":
        fitting = [each for each in fitting if each == _CURVES.get(str(jwk.get("crv")))]
    if "alg" in jwk:
        fitting = [each for each in fitting if each == jwk["alg"]]
    return fitting[0] if fitting else None
