"""API keys, as they can be seen: never the key itself, which is shown once, when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from mainspring.domain.tenants import TenantState

KEY_BEGINS: Final = "ms_"  # so that a scanner of repositories can tell one
PREFIX_LENGTH: Final = 8  # of what follows: enough to find one in a list, too little to guess one


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """What is known of a key. Whether it is good, by the database's clock, when it was looked at."""

    id: UUID
    tenant: str | None  # None: a key of the whole cluster
    name: str
    prefix: str
    role: str
    created_at: datetime
    created_by: str
    last_used_at: datetime | None  # to the minute
    revoked_at: datetime | None
    expires_at: datetime | None  # None: never
    expired: bool
    tenant_state: TenantState | None  # None: of the whole cluster, or of a tenant that nobody made

    @property
    def revoked(self) -> bool:
        return self.revoked_at is not None

    @property
    def good(self) -> bool:
        """Whether somebody may come in with it."""
        gone = self.tenant is not None and self.tenant_state in (None, TenantState.DELETED)
        return not (self.revoked or self.expired or gone)
