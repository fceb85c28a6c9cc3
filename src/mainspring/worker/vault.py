"""``vault:path#key``: secrets in HashiCorp Vault or OpenBao, read from a KV store of version 2.

Promise. A run reads below the prefix of its own tenant and nowhere else: its path is plain names, without ``..`` and
without anything that a server could decode into one. The token goes to the one address that the operator named; nobody
can redirect it. No answer costs more memory than its cap and more time than its timeout, and no error repeats one.

Failures.
  there is no such path or key     the attempt is refused: the same question would get the same answer
  403                              the token is read anew, once; then the attempt has failed, and may be tried again
  sealed, away, slow, no KV v2     the attempt has failed, and may be tried again
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self

import msgspec

from mainspring.worker.secrets import LONGEST_SECRET, SecretRefused, SecretUnavailable

if TYPE_CHECKING:
    from aiohttp import ClientSession

LARGEST_ANSWER: Final = 1 << 20
_PATH: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_TENANT: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", re.ASCII)
_FORBIDDEN: Final = 403
_MISSING: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultConfig:
    """Where the vault is, and what of it tenants may read."""

    url: str  # https, or http on this machine
    token: Callable[[], str]  # looked up when it is needed: tokens change
    mount: str = "secret"
    prefix: str = "mainspring/{tenant}/"
    answer_within: timedelta = timedelta(seconds=5)


class _Meta(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None


class _Answer(msgspec.Struct):
    data: _Meta


class VaultSecrets:
    """Reads one vault. Open it once per worker, ``async with``."""

    def __init__(self, config: VaultConfig) -> None:
        self._config = config
        self._token = ""
        self._session: ClientSession

    async def __aenter__(self) -> Self:
        from aiohttp import ClientSession, DummyCookieJar  # noqa: PLC0415 - a client worth 200 ms

        # No proxy by a stray variable: it would see the token.
        self._session = ClientSession(cookie_jar=DummyCookieJar(), trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def resolve(self, reference: str, *, tenant: str) -> str:
        path, key = _split(reference, tenant)
        prefix = self._config.prefix.strip("/").replace("{tenant}", tenant)
        where = "/".join(filter(None, (self._config.mount.strip("/"), "data", prefix, path)))
        self._token = self._token or self._config.token()
        status, body = await self._get(reference, where)
        if status == _FORBIDDEN and (token := self._config.token()) != self._token:
            self._token = token
            status, body = await self._get(reference, where)
        return _value(reference, key, status, body)

    async def _get(self, reference: str, where: str) -> tuple[int, bytes]:
        from aiohttp import ClientError  # noqa: PLC0415

        try:
            async with (
                asyncio.timeout(self._config.answer_within.total_seconds()),
                self._session.get(
                    f"{self._config.url.rstrip('/')}/v1/{where}",
                    headers={"X-Vault-Token": self._token, "X-Vault-Request": "true"},
                    allow_redirects=False,  # the token stays here
                ) as response,
            ):
                body = bytearray()
                while chunk := await response.content.readany():
                    body += chunk
                    if len(body) > LARGEST_ANSWER:
                        raise _away(reference, f"answers with more than {LARGEST_ANSWER} bytes")
                return response.status, bytes(body)
        except TimeoutError:
            raise _away(reference, "does not answer in time") from None
        except (ClientError, OSError, ValueError) as error:
            raise _away(reference, f"cannot be asked: {type(error).__name__}") from None


def _split(reference: str, tenant: str) -> tuple[str, str]:
    path, _, key = reference.removeprefix("vault:").partition("#")
    if _PATH.fullmatch(path) is None or _KEY.fullmatch(key) is None:
        allowed = "use vault:path#key, the path without .. and % and with / between its names"
        raise SecretRefused(f'"{reference}" is no place in a vault', reference=reference, allowed=allowed)
    if _TENANT.fullmatch(tenant) is None:
        allowed = "use letters, digits and _ . - in the names of tenants that have secrets in a vault"
        raise SecretRefused(f'tenant "{tenant}" has no place in a vault', reference=reference, allowed=allowed)
    return path, key


def _value(reference: str, key: str, status: int, body: bytes) -> str:
    if status == _MISSING:  # also for a version that was deleted
        raise SecretRefused(f'"{reference}" is not there', reference=reference, allowed="put it into the vault")
    if status == _FORBIDDEN:
        raise _away(reference, "answers 403: the token of this worker has expired, or may not read it")
    if status != 200:
        raise _away(reference, f"answers {status}")
    try:
        data = msgspec.json.decode(body, type=_Answer).data.data
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _away(reference, "answers with something that is no KV version 2") from None
    if data is None or key not in data:
        allowed = "name a key that the path has"
        raise SecretRefused(f'"{reference}" has no such key', reference=reference, allowed=allowed)
    try:
        value = msgspec.json.decode(data[key], type=str)
    except (msgspec.MsgspecError, ValueError):
        value = ""
    if not value or len(value.encode()) > LONGEST_SECRET:
        allowed = f"keep 1 to {LONGEST_SECRET} bytes of text there"
        raise SecretRefused(f'"{reference}" is no text', reference=reference, allowed=allowed)
    return value


def _away(reference: str, what: str) -> SecretUnavailable:
    return SecretUnavailable(f'the vault, asked for "{reference}", {what}')
