"""Who may do what: five roles, what a route asks for, and whoever is behind a request.

================  ========  ======  ========  ======  =====
may               observer  viewer  operator  editor  admin
================  ========  ======  ========  ======  =====
see jobs, runs    yes       yes     yes       yes     yes
see payloads      no        yes     yes       yes     yes
trigger, cancel   no        no      yes       yes     yes
see who did what  no        no      yes       yes     yes
write jobs        no        no      no        yes     yes
keys, secrets     no        no      no        no      yes
================  ========  ======  ========  ======  =====

Promise. A principal does nothing outside its tenant. One of the whole cluster chooses the tenant it acts for, and it
alone sees nodes and pools and makes tenants, as far as its role goes. Being admin of a tenant is never enough for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from mainspring.domain.errors import Forbidden, InvalidRequest

DEFAULT_TENANT: Final = "default"
KEY: Final = "key:"  # what the subject of an API key begins with, and that of no token
CLUSTER_KEY: Final = "cluster-key:"  # of one that is no tenant's: a tenant cannot call its own like it


class Scope(StrEnum):
    """What a route needs. The part before the colon is the noun in its path."""

    JOBS_READ = "jobs:read"
    JOBS_OPERATE = "jobs:operate"  # pause, resume, trigger, backfill
    JOBS_WRITE = "jobs:write"
    RUNS_READ = "runs:read"
    RUNS_OPERATE = "runs:operate"  # cancel, retry
    LETTERS_READ = "letters:read"
    LETTERS_OPERATE = "letters:operate"  # replay, discard
    PAYLOADS_READ = "payloads:read"  # no route asks for it: without it payloads, results and lines are left out
    CHANGES_READ = "changes:read"  # what was before and after a change: payloads, too
    KEYS_WRITE = "keys:write"
    SECRETS_WRITE = "secrets:write"
    TENANTS_READ = "tenants:read"
    TENANTS_WRITE = "tenants:write"
    CLUSTER_READ = "cluster:read"
    CLUSTER_WRITE = "cluster:write"  # pause a pool, stop a worker
    CLUSTER_CHANGES = "cluster:changes"  # who did so, and who made which tenant


class Role(StrEnum):
    """How far a principal may go; each may do all that the one before it may."""

    OBSERVER = "observer"  # a viewer that sees no payloads
    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


CLUSTER_SCOPES: Final = frozenset(
    {Scope.TENANTS_READ, Scope.TENANTS_WRITE, Scope.CLUSTER_READ, Scope.CLUSTER_WRITE, Scope.CLUSTER_CHANGES}
)  # whatever the role: for principals of the whole cluster only

_ADDED: Final[Mapping[Role, frozenset[Scope]]] = {
    Role.OBSERVER: frozenset(
        {Scope.JOBS_READ, Scope.RUNS_READ, Scope.LETTERS_READ, Scope.CLUSTER_READ, Scope.TENANTS_READ}
    ),
    Role.VIEWER: frozenset({Scope.PAYLOADS_READ}),
    Role.OPERATOR: frozenset(
        {
            *(Scope.JOBS_OPERATE, Scope.RUNS_OPERATE, Scope.LETTERS_OPERATE, Scope.CHANGES_READ),
            *(Scope.CLUSTER_WRITE, Scope.CLUSTER_CHANGES),
        }
    ),
    Role.EDITOR: frozenset({Scope.JOBS_WRITE}),
    Role.ADMIN: frozenset({Scope.KEYS_WRITE, Scope.SECRETS_WRITE, Scope.TENANTS_WRITE}),
}


def _heaped() -> Mapping[Role, frozenset[Scope]]:
    heap: frozenset[Scope] = frozenset()
    return MappingProxyType({role: (heap := heap | _ADDED[role]) for role in Role})


SCOPES: Final = _heaped()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whoever is behind a request, as a key or a token says.

    >>> Principal(subject="ci", tenant="shop", role=Role.ADMIN).may(Scope.CLUSTER_READ)
    False
    """

    subject: str  # who, in the log of changes
    tenant: str  # the one it acts for
    role: Role
    cluster: bool = False  # of the whole cluster: may act for any tenant
    expires_at: datetime | None = None  # a stream that it opened ends then
    key_id: UUID | None = None  # None: it came with a token, or with nothing

    def may(self, scope: Scope) -> bool:
        return scope in SCOPES[self.role] and (self.cluster or scope not in CLUSTER_SCOPES)

    @property
    def sees_payloads(self) -> bool:
        return self.may(Scope.PAYLOADS_READ)

    def require(self, scope: Scope) -> None:
        """Check that this principal may do what a route asks for.

        Raises:
            Forbidden: it may not; the message says which role could.
        """
        if self.may(scope):
            return
        least = next(role for role in Role if scope in SCOPES[role])
        needed = f"the role {least} or more{' of the whole cluster' if scope in CLUSTER_SCOPES else ''}"
        raise Forbidden(f'{scope} is not open to the role {self.role} of tenant "{self.tenant}"; it takes {needed}')

    def acting_for(self, tenant: str | None) -> Principal:
        """Return this principal at work for ``tenant``; None: for its own.

        Raises:
            Forbidden: it belongs to another tenant. The answer is the same whether that one exists or not.
        """
        if tenant is None or tenant == self.tenant:
            return self
        if not self.cluster:
            raise Forbidden(
                f'this principal acts for tenant "{self.tenant}" only; leave out the header Mainspring-Tenant'
            )
        return replace(self, tenant=tenant)


def read_role(text: object, *, field: str = "role") -> Role:
    """Read the name of a role.

    Raises:
        InvalidRequest: there is no such role.
    """
    for role in Role:
        if text == role.value:
            return role
    shown = str(text)[:40]
    raise InvalidRequest(f'"{shown}" is no role', field=field, value=shown, allowed=f"use {', '.join(Role)}")
