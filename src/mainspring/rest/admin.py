"""Tenants, keys, secrets and the audit, as they travel. No answer has a secret's value in it, one has a key's text."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mainspring.domain.keys import KeyView
from mainspring.domain.tenants import Quotas, Tenant, TenantState
from mainspring.rest.asked import PageQuery
from mainspring.rest.shapes import Answer, Seconds, fields_of


class TenantsQuery(PageQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    deleted: bool = False  # these, too


class KeysQuery(PageQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    revoked: bool = False  # these, too
    cluster: bool = False  # of the whole cluster and of every tenant; for keys of the whole cluster


class QuotasAnswer(Answer, frozen=True, kw_only=True):
    """How much a tenant may have and ask for."""

    jobs: int
    shortest_interval: Seconds
    requests_per_second: int
    burst: int
    batch: int
    payload_bytes: int


class TenantAnswer(Answer, frozen=True, kw_only=True):
    name: str
    state: TenantState
    quotas: QuotasAnswer
    created_at: datetime
    changed_at: datetime
    note: str


class TenantPage(Answer, frozen=True, kw_only=True):
    items: tuple[TenantAnswer, ...]
    next: str | None


class KeyAnswer(Answer, frozen=True, kw_only=True):
    """What is known of a key; the key itself was shown when it was made, and never again."""

    id: UUID
    tenant: str | None  # null: of the whole cluster
    name: str
    prefix: str
    role: str
    created_at: datetime
    created_by: str
    last_used_at: datetime | None
    revoked_at: datetime | None
    expires_at: datetime | None
    good: bool


class NewKeyAnswer(KeyAnswer, frozen=True, kw_only=True):
    key: str  # keep it: nobody can show it again


class KeyPage(Answer, frozen=True, kw_only=True):
    items: tuple[KeyAnswer, ...]
    next: str | None


class SecretAnswer(Answer, frozen=True, kw_only=True):
    """What is known of a secret: never its value."""

    name: str
    version: int
    key_id: str  # of the key that it is sealed with
    created_at: datetime
    author: str


class Secrets(Answer, frozen=True, kw_only=True):
    items: tuple[SecretAnswer, ...]


class SecretDeleted(Answer, frozen=True, kw_only=True):
    name: str
    versions: int  # that there were


class LatenessAnswer(Answer, frozen=True, kw_only=True):
    p50: Seconds
    p99: Seconds
    max: Seconds


class FindingAnswer(Answer, frozen=True, kw_only=True):
    fault: str
    job: UUID
    name: str
    slot: datetime
    last: datetime
    count: int
    why: str


class AuditAnswer(Answer, frozen=True, kw_only=True):
    """Every slot of a range, recomputed and held against the ledger."""

    good: bool  # none missed, doubled, phantom, unexplained or unreadable
    start: datetime
    end: datetime
    judged_at: datetime
    dropped_before: datetime | None  # asked for older ones, whose history is gone
    jobs: int
    expected: int
    accounted: int  # fired, or skipped with a reason
    fired: int
    skipped: dict[str, int]
    pending: int
    oldest_pending: datetime | None
    quarantined: int
    missed: int
    doubled: int
    phantom: int
    unexplained: int
    unreadable: int
    late: LatenessAnswer
    findings: tuple[FindingAnswer, ...]  # the first hundred
    more: bool  # there are further findings


def tenant_answer(tenant: Tenant) -> TenantAnswer:
    return TenantAnswer(**{**fields_of(tenant, TenantAnswer), "quotas": quotas_answer(tenant.quotas)})


def quotas_answer(quotas: Quotas) -> QuotasAnswer:
    interval = quotas.shortest_interval.total_seconds()
    return QuotasAnswer(**{**fields_of(quotas, QuotasAnswer), "shortest_interval": interval})


def key_answer(key: KeyView) -> KeyAnswer:
    return KeyAnswer(**fields_of(key, KeyAnswer))


def new_key_answer(key: KeyView, text: str) -> NewKeyAnswer:
    return NewKeyAnswer(**fields_of(key, KeyAnswer), key=text)


def lateness_answer(**lengths: timedelta) -> LatenessAnswer:
    seconds: dict[str, Any] = {name: length.total_seconds() for name, length in lengths.items()}
    return LatenessAnswer(**seconds)
