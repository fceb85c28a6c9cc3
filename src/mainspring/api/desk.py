"""The desk: for each tenant the SDK's own backend, over a database that shows it nothing of the others.

What the API does is what the SDK does over a DSN: the same operations, the same errors. Here they are bound to a
tenant, and each change to whoever asked for it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mainspring.api.requests import Call
from mainspring.domain.job import Json
from mainspring.environment import Environment
from mainspring.sdk.direct import Direct
from mainspring.store.database import Database
from mainspring.store.hints import Bell
from mainspring.store.log import Entry

_MOST: Final = 1_000  # tenants whose backend is kept at hand


class Desk:
    """Backends by tenant."""

    def __init__(self, db: Database, env: Environment, bell: Bell) -> None:
        self.db = db
        self.env = env
        self._bell = bell
        self._known: OrderedDict[str, Direct] = OrderedDict()

    def scoped(self, call: Call) -> Database:
        """Return the database as the tenant of a call sees it."""
        return self.db.scoped(call.principal.tenant)

    def of(self, call: Call) -> Direct:
        """Return the backend for reading."""
        return self.for_tenant(call.principal.tenant)

    def for_tenant(self, tenant: str) -> Direct:
        """Return the backend of a tenant."""
        known = self._known.get(tenant)
        if known is None:
            known = Direct(self.db.scoped(tenant), self.env, self._bell, tenant=tenant, author="")
            self._known[tenant] = known
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return known

    def changing(
        self, call: Call, subject: str, *, before: Json = None, after: Json = None, reason: str = ""
    ) -> Direct:
        """Return the backend for one change, which is written to the log in the same transaction."""
        return self.of(call).on_behalf_of(
            call.principal.subject, self.entry(call, subject, before=before, after=after, reason=reason)
        )

    def entry(self, call: Call, subject: str, *, before: Json = None, after: Json = None, reason: str = "") -> Entry:
        return Entry(
            action=call.route.name,
            subject=subject,
            before=before,
            after=after,
            reason=reason,
            actor=call.principal.subject,
            request=call.request,
        )
