"""Authentication: from the header of a request to the principal behind it.

Promise. Nobody gets in without a key or a token, except from this very machine while authentication is off; and it
cannot be off while others can reach us. A key that is revoked is refused within ten seconds, a tenant that is suspended
or deleted within five, wherever that was done. What is not known is refused: a database that is away lets nobody in.

By what. Where a request comes from is what the socket says. ``X-Forwarded-For`` and its like are never read here, so
no client can write itself onto this machine.

A principal of the whole cluster acts for the tenant that ``Mainspring-Tenant`` names, and else for its own.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from datetime import timedelta
from hashlib import sha256
from typing import Final, Generic, Protocol, TypeVar

from mainspring.api.tokens import Tokens, refused
from mainspring.config.settings import AuthSettings
from mainspring.config.values import on_loopback
from mainspring.domain.access import DEFAULT_TENANT, Principal, Role
from mainspring.domain.errors import InvalidRequest, NotFound, Unauthenticated
from mainspring.environment import Environment

KEY_PREFIX: Final = "ms_"
KNOWN_FOR: Final = timedelta(seconds=9)  # a key that was good
UNKNOWN_FOR: Final = timedelta(seconds=1)  # a key that was not: a new one is good at once, nearly
TENANT_FOR: Final = timedelta(seconds=5)
MOST_REMEMBERED: Final = 10_000
LOCAL: Final = Principal(subject="local", tenant=DEFAULT_TENANT, role=Role.ADMIN, cluster=True)

_KEY: Final = re.compile(r"ms_[A-Za-z0-9_-]{20,200}", re.ASCII)
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]+)")
_ACTIVE: Final = "active"
_DELETED: Final = "deleted"
_UNKNOWN: Final = "unknown"
_K = TypeVar("_K")
_V = TypeVar("_V")


class KeyStore(Protocol):
    async def find(self, digest: bytes) -> Principal | None:
        """Return whom the key speaks for whose text has this SHA-256; None: unknown, revoked or expired."""


class TenantStore(Protocol):
    async def state(self, name: str) -> str | None:
        """Return the state of a tenant: active, suspended or deleted; None: there is none of that name."""


def authentication_required(host: str, auth: AuthSettings) -> bool:
    """Return whether a request needs a key or a token on a server that is bound to ``host``."""
    return not on_loopback(host) or (auth.takes_tokens if auth.required is None else auth.required)


def check_exposure(host: str, auth: AuthSettings) -> None:
    """Refuse to be reached from elsewhere without authentication.

    Raises:
        InvalidRequest: ``host`` is not on loopback, and nothing says that requests have to be authenticated.
    """
    if on_loopback(host) or auth.required or (auth.required is None and auth.takes_tokens):
        return
    allowed = "set auth.keys, or create an API key and set auth.required = true, or bind to 127.0.0.1"
    reason = f'"{host}" can be reached from elsewhere, and authentication is off'
    raise InvalidRequest(reason, field="api.host", value=host, allowed=allowed)


class Authenticator:
    """Says who is behind a request."""

    def __init__(
        self, *, required: bool, tokens: Tokens | None, keys: KeyStore, tenants: TenantStore, environment: Environment
    ) -> None:
        self.required = required
        self._tokens = tokens
        self._environment = environment
        self._keys = keys
        self._tenants = tenants
        # Apart, so that a flood of made-up keys does not push out those that are in use.
        self._known: _Recent[bytes, Principal] = _Recent(KNOWN_FOR, environment)
        self._unknown: _Recent[bytes, bool] = _Recent(UNKNOWN_FOR, environment)
        self._states: _Recent[str, str] = _Recent(TENANT_FOR, environment)

    async def principal(
        self, authorization: str | None, *, peer_is_loopback: bool, acting_for: str | None = None
    ) -> Principal:
        """Return who is behind a request.

        Args:
            authorization: the header of that name, if there is one; two of them are for the caller to refuse.
            peer_is_loopback: whether the socket leads to this machine.
            acting_for: the header ``Mainspring-Tenant``, if there is one.

        Raises:
            Unauthenticated: nobody knows, or the tenant is closed.
            Forbidden: a principal of one tenant names another.
            NotFound: a principal of the whole cluster names a tenant that is not there.
        """
        if authorization is None:
            if self.required or not peer_is_loopback:
                raise Unauthenticated("this needs a key or a token; send Authorization: Bearer …", reason="missing")
            found = LOCAL
        else:
            found = await self._of_bearer(authorization)
        if not (found.cluster and found.tenant == DEFAULT_TENANT) and await self._state(found.tenant) != _ACTIVE:
            raise Unauthenticated("the tenant of this key or token is closed; ask the operator", reason="tenant_closed")
        acting = found.acting_for(acting_for)  # that of a suspended tenant, too: somebody has to look after it
        if acting is not found and await self._state(acting.tenant) in (_DELETED, _UNKNOWN):
            raise NotFound(f'there is no tenant "{acting.tenant[:63]}"')
        return acting

    async def _of_bearer(self, authorization: str) -> Principal:
        match = _BEARER.fullmatch(authorization)
        if match is None:
            raise Unauthenticated("only Authorization: Bearer … is understood here", reason="malformed")
        text = match[1]
        if text.startswith(KEY_PREFIX) and "." not in text:
            return await self._of_key(text)
        if self._tokens is None:
            raise refused("untrusted")
        return await self._tokens.principal(text)

    async def _of_key(self, text: str) -> Principal:
        if not _KEY.fullmatch(text):
            raise _not_a_key("malformed")
        digest = sha256(text.encode("ascii")).digest()
        principal = self._known.get(digest)
        if principal is None:
            principal = None if self._unknown.get(digest) else await self._looked_up(digest)
        if principal is None:
            raise _not_a_key("untrusted")
        if principal.expires_at is not None and principal.expires_at <= self._environment.now():
            raise _not_a_key("expired")
        return principal

    async def _looked_up(self, digest: bytes) -> Principal | None:
        asked_at = self._environment.monotonic()
        principal = await self._keys.find(digest)
        if principal is None:
            self._unknown.put(digest, True, as_of=asked_at)
        else:
            self._known.put(digest, principal, as_of=asked_at)
        return principal

    async def _state(self, tenant: str) -> str:
        state = self._states.get(tenant)
        if state is None:
            asked_at = self._environment.monotonic()
            state = await self._tenants.state(tenant) or _UNKNOWN
            self._states.put(tenant, state, as_of=asked_at)
        return state


class _Recent(Generic[_K, _V]):
    """Answers of the store, each for a while, the least used forgotten first.

    The while begins when the question was asked: an answer that took long is that much older.
    """

    def __init__(self, lasts: timedelta, environment: Environment) -> None:
        self._lasts = lasts.total_seconds()
        self._environment = environment
        self._kept: OrderedDict[_K, tuple[float, _V]] = OrderedDict()

    def get(self, name: _K) -> _V | None:
        kept = self._kept.get(name)
        if kept is None:
            return None
        until, value = kept
        if until <= self._environment.monotonic():
            del self._kept[name]
            return None
        self._kept.move_to_end(name)
        return value

    def put(self, name: _K, value: _V, *, as_of: float) -> None:
        self._kept[name] = (as_of + self._lasts, value)
        self._kept.move_to_end(name)
        if len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)


def _not_a_key(reason: str) -> Unauthenticated:
    return Unauthenticated("the key is not valid; make a new one", reason=reason)
