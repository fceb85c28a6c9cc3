"""What the store knows of tenants and keys, kept at hand for a few seconds; and the gate that goes by it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from uuid import UUID

from mainspring.api.auth import Authenticator
from mainspring.api.limits import Limiter, limit_headers, payer, refusal
from mainspring.domain.access import CLUSTER_KEY, DEFAULT_TENANT, KEY, Principal, read_role
from mainspring.domain.asking import Change
from mainspring.domain.errors import Forbidden, NotFound, Unauthenticated
from mainspring.domain.gcra import Rate
from mainspring.domain.job import JobState
from mainspring.domain.tenants import Quotas
from mainspring.environment import Environment
from mainspring.service import Stop
from mainspring.store import keys, tenants
from mainspring.store.changes import change_job
from mainspring.store.database import Database

_LET_IN_FOR: Final = timedelta(seconds=1)  # by the same key, without asking who that is
_KEPT_FOR: Final = timedelta(seconds=5)
_TOUCH_EVERY: Final = timedelta(seconds=30)
_USUAL: Final = Quotas()
_MOST: Final = 10_000
_LONGEST_ADDRESS: Final = 100  # what is longer is no address, and not worth remembering


class Tenancy:
    """Answers what the authenticator and the checks ask about keys and tenants. Also a service: says what was used."""

    name = "Tenancy"

    def __init__(self, db: Database, env: Environment) -> None:
        self._db = db
        self._env = env
        self._quotas: dict[str, tuple[float, Quotas]] = {}
        self._used: set[UUID] = set()

    async def find(self, digest: bytes) -> Principal | None:
        """Return whom a key speaks for; None: unknown, revoked or expired."""
        key = await keys.find_key_by_hash(self._db, digest)
        if key is None or not key.good:
            return None
        self._used.add(key.id)
        return Principal(
            subject=f"{KEY if key.tenant is not None else CLUSTER_KEY}{key.name}",
            tenant=key.tenant or DEFAULT_TENANT,
            role=read_role(key.role),
            cluster=key.tenant is None,
            expires_at=key.expires_at,
            key_id=key.id,
        )

    async def state(self, name: str) -> str | None:
        try:
            tenant = await tenants.find_tenant(self._db, name)
        except NotFound:
            return None
        self._keep(name, tenant.quotas)
        return tenant.state.value

    async def quotas(self, name: str) -> Quotas:
        """Return what a tenant may have; a few seconds may pass until a change of it is seen."""
        kept = self._quotas.get(name)
        if kept is not None and kept[0] > self._env.monotonic():
            return kept[1]
        try:
            quotas = (await tenants.find_tenant(self._db, name)).quotas
        except NotFound:
            quotas = _USUAL
        self._keep(name, quotas)
        return quotas

    def _keep(self, name: str, quotas: Quotas) -> None:
        if len(self._quotas) >= _MOST:
            self._quotas.clear()
        self._quotas[name] = (self._env.monotonic() + _KEPT_FOR.total_seconds(), quotas)

    async def run(self, stop: Stop) -> None:
        """Write down now and then which keys were used, and look after what a deleted tenant has left."""
        while not stop.requested:
            await stop.wait(_TOUCH_EVERY)
            used, self._used = self._used, set()
            if used:
                await keys.touch_keys(self._db, used)
            if not stop.requested:
                await self.sweep()

    async def sweep(self) -> int:
        """Delete jobs that were made while their tenant was, by a server that had not heard of it; return how many."""
        left = await tenants.orphans(self._db)
        gone = Change(state=JobState.DELETED, author="mainspring", reason="its tenant was deleted")
        for job in left:
            await change_job(self._db, self._env, job, gone)
        return len(left)


class Gatekeeper:
    """Who is asking, and whether they may ask again."""

    def __init__(self, authenticator: Authenticator, tenancy: Tenancy, limiter: Limiter, env: Environment) -> None:
        self._authenticator = authenticator
        self._tenancy = tenancy
        self._limiter = limiter
        self._env = env
        self._let_in: dict[tuple[str, str | None], Principal] = {}  # in this second
        self._until = 0.0

    async def principal(self, headers: Mapping[str, str], peer: str | None) -> Principal:
        authorization, acting_for = headers.get("authorization"), headers.get("mainspring-tenant")
        if authorization is None:
            if not self._authenticator.required:
                _refuse_other_pages(headers)
            return await self._authenticator.principal(None, peer_is_loopback=_on_loopback(peer), acting_for=acting_for)
        now = self._env.monotonic()
        if now >= self._until:
            self._let_in.clear()
            self._until = now + _LET_IN_FOR.total_seconds()
        known = self._let_in.get((authorization, acting_for))
        if known is not None:
            return known
        if ", " in authorization:
            raise Unauthenticated("there are two of Authorization; send one", reason="malformed")
        principal = await self._authenticator.principal(
            authorization, peer_is_loopback=_on_loopback(peer), acting_for=acting_for
        )
        if principal.expires_at is None:
            self._let_in[authorization, acting_for] = principal
        return principal

    async def admit(self, principal: Principal) -> dict[str, str]:
        quotas = await self._tenancy.quotas(principal.tenant)
        rate = _rate(quotas.requests_per_second, quotas.burst)
        verdict = await self._limiter.take(payer(principal), rate, 1)
        if not verdict.allowed:
            raise refusal(verdict)
        return limit_headers(verdict)


_rate = lru_cache(maxsize=1_000)(Rate)  # checked when it is made, and the same for most


def _refuse_other_pages(headers: Mapping[str, str]) -> None:
    """Refuse what a browser sends for a page of somebody else, where no key is asked for (F113).

    Its own page is not far from the user: one that is open in another tab can send requests here, and one whose name
    leads to this machine could even read the answers. The first says where it is from, the second calls us by its name.
    """
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name != "localhost" and not _on_loopback(name.strip("[]")):
        raise Forbidden(f'without a key this is "localhost" or 127.0.0.1, not "{name[:60]}"')
    origin = headers.get("origin")
    elsewhere = origin is not None and origin.partition("://")[2] != host
    if elsewhere or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("without a key this is not open to pages from elsewhere")


def _on_loopback(peer: str | None) -> bool:
    if peer is None:  # a unix socket: whoever can open it is here
        return True
    return len(peer) <= _LONGEST_ADDRESS and _is_loopback(peer)


@lru_cache(maxsize=1_000)
def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
