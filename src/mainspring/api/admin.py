"""Tenants, secrets and the audit, over HTTP. Tenants are the cluster's own; the rest is done as whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from msgspec import UNSET

from mainspring.api.app import Handler
from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json
from mainspring.domain.tenants import Tenant, TenantState, quotas_from_json, quotas_to_json
from mainspring.insight.audit import run_audit
from mainspring.insight.report import AuditReport, Fault
from mainspring.rest import admin as shapes
from mainspring.rest.shapes import fields_of
from mainspring.sealing import Sealer
from mainspring.store import secrets, tenants

LONGEST_AUDIT: Final = timedelta(days=31)
_MOST_FINDINGS: Final = 100


class Tenants:
    """Handlers of the routes of tenants: for principals of the whole cluster, in the cluster's own log."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "tenants.list": self.list,
            "tenants.get": self.get,
            "tenants.create": self.create,
            "tenants.edit": self.edit,
            "tenants.delete": self.delete,
        }

    async def list(self, call: Call) -> Reply:
        asked = call.query
        page = await tenants.list_tenants(self._desk.db, limit=asked.limit, after=asked.after, deleted=asked.deleted)
        return json_reply(shapes.TenantPage(items=tuple(map(shapes.tenant_answer, page.items)), next=page.next))

    async def get(self, call: Call) -> Reply:
        return json_reply(shapes.tenant_answer(await tenants.find_tenant(self._desk.db, call.names["tenant"])))

    async def create(self, call: Call) -> Reply:
        asked = call.body
        quotas = quotas_from_json(asked.quotas)
        after: Json = {"quotas": quotas_to_json(quotas), "note": asked.note}
        db = self._desk.db.noting(self._desk.entry(call, asked.name, after=after, reason=asked.reason))
        made = await tenants.create_tenant(db, asked.name, quotas=quotas, note=asked.note)
        return json_reply(shapes.tenant_answer(made), status=201)

    async def edit(self, call: Call) -> Reply:
        asked = call.body
        old = await tenants.find_tenant(self._desk.db, call.names["tenant"])
        quotas = None if asked.quotas is UNSET else quotas_from_json(asked.quotas, base=old.quotas)
        note = None if asked.note is UNSET else asked.note
        state = None if asked.state is UNSET else TenantState(asked.state)
        after: dict[str, Json] = {} if quotas is None else {"quotas": quotas_to_json(quotas)}
        after |= {} if note is None else {"note": note}
        after |= {} if state is None else {"state": state.value}
        entry = self._desk.entry(call, old.name, before=_logged(old), after=after, reason=asked.reason)
        db = self._desk.db.noting(entry)
        changed = await tenants.change_tenant(db, old.name, state=state, quotas=quotas, note=note, since=old)
        return json_reply(shapes.tenant_answer(changed))

    async def delete(self, call: Call) -> Reply:
        old = await tenants.find_tenant(self._desk.db, call.names["tenant"])
        after = {"state": TenantState.DELETED.value}
        entry = self._desk.entry(call, old.name, before=_logged(old), after=after, reason=call.query.reason)
        return json_reply(shapes.tenant_answer(await tenants.delete_tenant(self._desk.db.noting(entry), old.name)))


class Secrets:
    """Handlers of the routes of secrets. They are put and deleted; no route reads a value back."""

    def __init__(self, desk: Desk, sealer: Callable[[], Sealer]) -> None:
        self._desk = desk
        self._sealer = sealer  # raises where none is set: only putting needs one

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"secrets.list": self.list, "secrets.put": self.put, "secrets.delete": self.delete}

    async def list(self, call: Call) -> Reply:
        found = await secrets.list_secrets(self._desk.scoped(call), call.principal.tenant)
        return json_reply(shapes.Secrets(items=tuple(map(_secret_answer, found))))

    async def put(self, call: Call) -> Reply:
        who, name = call.principal, call.names["secret"]
        db = self._desk.scoped(call).noting(self._desk.entry(call, name[:200], reason=call.body.reason))
        put = await secrets.put_secret(db, who.tenant, name, call.body.value, self._sealer(), author=who.subject)
        return json_reply(_secret_answer(put))

    async def delete(self, call: Call) -> Reply:
        name = call.names["secret"]
        db = self._desk.scoped(call).noting(self._desk.entry(call, name[:200], reason=call.query.reason))
        versions = await secrets.delete_secret(db, call.principal.tenant, name)
        return json_reply(shapes.SecretDeleted(name=name, versions=versions))


class Audits:
    """The handler of the audit. One at a time: it reads much, and judging it takes its time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._alone = asyncio.Semaphore(1)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"audit.run": self.run}

    async def run(self, call: Call) -> Reply:
        start, end = call.body.start, call.body.end
        if not timedelta(0) < end - start <= LONGEST_AUDIT:
            allowed = f"use an end after the start, up to {LONGEST_AUDIT.days} days later"
            raise InvalidRequest("it is no range to audit", field="end", value=end.isoformat(), allowed=allowed)
        async with self._alone:
            report = await run_audit(self._desk.scoped(call), start=start, end=end, tenant=call.principal.tenant)
        return json_reply(_audit_answer(report))


def _logged(tenant: Tenant) -> Json:
    return {"state": tenant.state.value, "quotas": quotas_to_json(tenant.quotas), "note": tenant.note}


def _secret_answer(view: secrets.SecretView) -> shapes.SecretAnswer:
    return shapes.SecretAnswer(**fields_of(view, shapes.SecretAnswer))


def _audit_answer(report: AuditReport) -> shapes.AuditAnswer:
    findings = report.findings[:_MOST_FINDINGS]
    return shapes.AuditAnswer(
        good=not any(report.faults.values()),
        start=report.start,
        end=report.end,
        judged_at=report.judged_at,
        dropped_before=report.dropped_before,
        jobs=report.jobs,
        expected=report.expected,
        accounted=report.fired + sum(report.skipped.values()),
        fired=report.fired,
        skipped=dict(report.skipped),
        pending=report.pending,
        oldest_pending=report.oldest_pending,
        quarantined=report.quarantined,
        **{fault.value: report.faults[fault] for fault in Fault},
        late=shapes.lateness_answer(p50=report.late.p50, p99=report.late.p99, max=report.late.max),
        findings=tuple(
            shapes.FindingAnswer(**{**fields_of(each, shapes.FindingAnswer), "fault": each.fault.value})
            for each in findings
        ),
        more=len(report.findings) > len(findings),
    )
