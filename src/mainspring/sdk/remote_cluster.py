"""Tenants, keys, secrets and the audit over HTTP: as over a database, but the server wants to know who asks.

Nothing is decided here, and the routes are those of the table. Tenants are for a key of the whole cluster; for the rest
the server goes by the tenant of the key, or by the one that a key of the whole cluster names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from uuid import UUID

from mainspring.domain.ids import JobId
from mainspring.domain.job import Json, instant_text
from mainspring.domain.keys import KeyView
from mainspring.domain.tenants import Quotas, Tenant, TenantState
from mainspring.domain.views import Page
from mainspring.environment import SystemEnvironment
from mainspring.insight.report import AuditReport, Fault, Finding, Lateness
from mainspring.rest import admin as shapes
from mainspring.rest.shapes import fields_of
from mainspring.sdk.addresses import checked_url
from mainspring.sdk.cluster import SecretView
from mainspring.sdk.http import Http
from mainspring.sdk.remote import TENANT
from mainspring.sdk.session import Through, open_session


@asynccontextmanager
async def open_remote_cluster(
    url: str,
    key: str | None = None,
    *,
    tenant: str | None = None,
    insecure: bool = False,
    through: Through | None = None,
) -> AsyncIterator[RemoteCluster]:
    """Find a server. Who we are to it turns out with the first request."""
    where = checked_url(url, insecure=insecure)
    async with open_session(key, size=2) as session:
        send = session.send if through is None else through(session.send)
        headers = {} if tenant is None else {TENANT: tenant}
        yield RemoteCluster(Http(where, send, session.stream, SystemEnvironment(), headers=headers))


class RemoteCluster:
    """The ``Administration`` and the ``Secrets`` of ``cluster.py`` over HTTP, and the audit of one tenant."""

    def __init__(self, http: Http) -> None:
        self._ask = http.ask
        self._page = http.page
        self._now = http.env.now

    async def list_tenants(self, *, limit: int, after: str | None, deleted: bool) -> Page[Tenant]:
        query = _flags(deleted=deleted)
        return await self._page("tenants.list", shapes.TenantPage, _tenant_view, query, limit, after)

    async def find_tenant(self, name: str) -> Tenant:
        return _tenant_view(await self._ask("tenants.get", shapes.TenantAnswer, name))

    async def create_tenant(self, name: str, *, quotas: Json, note: str) -> Tenant:
        body = {"name": name, "quotas": quotas, "note": note}
        return _tenant_view(await self._ask("tenants.create", shapes.TenantAnswer, body=body))

    async def edit_tenant(self, name: str, *, quotas: Json, note: str | None, reason: str) -> Tenant:
        body = {"quotas": quotas, "reason": reason} | ({} if note is None else {"note": note})
        return _tenant_view(await self._ask("tenants.edit", shapes.TenantAnswer, name, body=body))

    async def set_state(self, name: str, state: TenantState, *, reason: str) -> Tenant:
        why = {"reason": reason}
        if state is TenantState.DELETED:
            asking = self._ask("tenants.delete", shapes.TenantAnswer, name, query=why)
        else:
            asking = self._ask("tenants.edit", shapes.TenantAnswer, name, body={"state": state.value, **why})
        return _tenant_view(await asking)

    async def make_key(
        self, *, name: str, role: str, expires_at: datetime | None, whole_cluster: bool
    ) -> tuple[str, KeyView]:
        body: dict[str, Json] = {"name": name, "role": role, "cluster": whole_cluster}
        body |= {} if expires_at is None else {"expires_at": instant_text(expires_at)}
        made = await self._ask("keys.create", shapes.NewKeyAnswer, body=body)
        return made.key, self._key_view(made)

    async def list_keys(self, *, limit: int, after: str | None, revoked: bool, every: bool) -> Page[KeyView]:
        query = _flags(revoked=revoked, cluster=every)
        return await self._page("keys.list", shapes.KeyPage, self._key_view, query, limit, after)

    async def revoke_key(self, key: UUID, *, reason: str) -> KeyView:
        return self._key_view(await self._ask("keys.revoke", shapes.KeyAnswer, str(key), query={"reason": reason}))

    async def put_secret(self, name: str, value: str) -> SecretView:
        return _secret_view(await self._ask("secrets.put", shapes.SecretAnswer, name, body={"value": value}))

    async def list_secrets(self) -> Sequence[SecretView]:
        return list(map(_secret_view, (await self._ask("secrets.list", shapes.Secrets)).items))

    async def delete_secret(self, name: str) -> int:
        return (await self._ask("secrets.delete", shapes.SecretDeleted, name)).versions

    async def audit(self, start: datetime, end: datetime) -> AuditReport:
        """Judge the slots of a tenant; of what is wrong the first hundred are told, and all are counted."""
        body = {"start": instant_text(start), "end": instant_text(end)}
        return _report(await self._ask("audit.run", shapes.AuditAnswer, body=body))

    def _key_view(self, answer: shapes.KeyAnswer) -> KeyView:
        """Return a key, as far as a server tells of it: whether it is good, not how its tenant is."""
        bad = not answer.good and answer.revoked_at is None
        expired = bad and answer.expires_at is not None and answer.expires_at <= self._now()
        there = None if answer.tenant is None or (bad and not expired) else TenantState.ACTIVE
        known = fields_of(answer, shapes.KeyAnswer)
        del known["good"]
        return KeyView(**known, expired=expired, tenant_state=there)


def _flags(**given: bool) -> dict[str, str]:
    return {name: "true" for name, asked in given.items() if asked}


def _tenant_view(answer: shapes.TenantAnswer) -> Tenant:
    quotas = fields_of(answer.quotas, shapes.QuotasAnswer)
    quotas["shortest_interval"] = timedelta(seconds=answer.quotas.shortest_interval)
    return Tenant(**{**fields_of(answer, shapes.TenantAnswer), "quotas": Quotas(**quotas)})


def _secret_view(answer: shapes.SecretAnswer) -> SecretView:
    return SecretView(**fields_of(answer, shapes.SecretAnswer))


def _report(answer: shapes.AuditAnswer) -> AuditReport:
    known = fields_of(answer, shapes.AuditAnswer)
    faults = {fault: known.pop(fault.value) for fault in Fault}
    for told in ("good", "accounted", "more"):  # they follow from the rest
        del known[told]
    late = Lateness(
        **{name: timedelta(seconds=held) for name, held in fields_of(answer.late, shapes.LatenessAnswer).items()}
    )
    findings = tuple(
        Finding(**{**fields_of(each, shapes.FindingAnswer), "fault": Fault(each.fault), "job": JobId(each.job)})
        for each in answer.findings
    )
    return AuditReport(**{**known, "late": late, "faults": faults, "findings": findings})
