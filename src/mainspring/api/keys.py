"""API keys, over HTTP: made, listed and revoked, each tenant its own.

Promise. The text of a key is in one answer, once, and nowhere else: not in the log, not among the answers that are kept
for requests that are sent again. Such a one is refused with ``key_already_shown``: whoever has lost the answer makes
another key and revokes this one. Nobody makes a key that may do more than they may themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from mainspring.api.answering import fingerprint
from mainspring.api.app import Handler
from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.domain.access import Principal, Role
from mainspring.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from mainspring.rest import admin as shapes
from mainspring.rest.problems import problem_of, status_of
from mainspring.store import answers, keys
from mainspring.store.answers import Remembered
from mainspring.store.database import Connection
from mainspring.store.log import Entry
from mainspring.store.reading import as_id

_RANK: Final = {role: rank for rank, role in enumerate(Role)}


class KeyAlreadyShown(Conflict):
    """The key was made, and shown, when this request came first. It is not kept, so it cannot be shown again."""

    code = "key_already_shown"


class Keys:
    """Handlers of the routes of API keys. They belong to the cluster, whoever's they are: the owner's database."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"keys.list": self.list, "keys.create": self.create, "keys.revoke": self.revoke}

    async def list(self, call: Call) -> Reply:
        asked = call.query
        if asked.cluster and not call.principal.cluster:
            raise _of_the_cluster("sees")
        page = await keys.list_keys(
            self._desk.db,
            tenant=None if asked.cluster else call.principal.tenant,
            limit=asked.limit,
            after=asked.after,
            revoked=asked.revoked,
        )
        return json_reply(shapes.KeyPage(items=tuple(map(shapes.key_answer, page.items)), next=page.next))

    async def create(self, call: Call) -> Reply:
        asked, who = call.body, call.principal
        _check_reach(who, asked.role, cluster=asked.cluster)
        if asked.expires_at is not None and asked.expires_at <= self._desk.env.now():
            value = asked.expires_at.isoformat()
            raise InvalidRequest("that is past", field="expires_at", value=value, allowed="use a time to come")
        tenant = None if asked.cluster else who.tenant
        expires = None if asked.expires_at is None else asked.expires_at.isoformat()
        after = {"role": asked.role.value, "cluster": asked.cluster, "expires_at": expires}
        entry = replace(self._desk.entry(call, asked.name, after=after, reason=asked.reason), tenant=tenant)
        shown = KeyAlreadyShown(f'the key "{asked.name}" was made and shown before; make another, and revoke this one')
        note = _Made(entry, None if call.key is None else _remembered(call, shown), shown)
        if call.key is not None:
            async with self._desk.db.transaction() as tx:
                if await answers.find(tx, who.tenant, call.key, fingerprint(call)) is not None:
                    raise shown
        text, key = await keys.make_key(
            self._desk.db.noting(note),
            self._desk.env,
            tenant=tenant,
            name=asked.name,
            role=asked.role.value,
            created_by=who.subject,
            expires_at=asked.expires_at,
        )
        return json_reply(shapes.new_key_answer(key, text), status=201)

    async def revoke(self, call: Call) -> Reply:
        found = as_id(call.names["key"])
        if found is None:
            raise NotFound(f'there is no key "{call.names["key"][:60]}"')
        key = await keys.read_key(self._desk.db, found)
        if key.tenant != call.principal.tenant and not call.principal.cluster:
            raise NotFound(f"there is no key {found}")
        before = {"id": str(key.id), "prefix": key.prefix, "role": key.role}
        entry = self._desk.entry(call, key.name, before=before, after={"revoked": True}, reason=call.query.reason)
        revoked = await keys.revoke_key(
            self._desk.db.noting(replace(entry, tenant=key.tenant)), found, tenant=key.tenant
        )
        return json_reply(shapes.key_answer(revoked))


@dataclass(frozen=True, slots=True)
class _Made:
    """A note: the entry of a new key and, if the request may come again, that it was answered."""

    entry: Entry
    answered: Remembered | None
    shown: KeyAlreadyShown

    async def write(self, tx: Connection, tenant: str | None) -> None:
        if self.answered is not None and await answers.remember(tx, [self.answered]):
            raise self.shown  # the same request was quicker: let the transaction fail
        await self.entry.write(tx, tenant)


def _remembered(call: Call, shown: KeyAlreadyShown) -> Remembered:
    """Return what is kept of a request that made a key: not the key."""
    body = msgspec.json.encode(problem_of(shown, request=call.request))
    return Remembered(call.principal.tenant, call.key or "", fingerprint(call), status_of(shown), body)


def _check_reach(who: Principal, role: Role, *, cluster: bool) -> None:
    if _RANK[role] > _RANK[who.role]:
        raise Forbidden(f"a {who.role} makes no key of an {role}; ask for {who.role} or less")
    if cluster and not who.cluster:
        raise _of_the_cluster("makes")


def _of_the_cluster(does: str) -> Forbidden:
    return Forbidden(f"only a principal of the whole cluster {does} keys of the whole cluster; leave out cluster")
