"""One action on everything that a filter finds, over HTTP: counted if asked to, then started, watched, stopped."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET, structs, to_builtins

from mainspring.api.answering import fingerprint
from mainspring.api.app import Handler
from mainspring.api.bulking import COUNTED_UP_TO, Bulks
from mainspring.api.checks import Checks
from mainspring.api.desk import Desk
from mainspring.api.requests import Call, Reply, json_reply
from mainspring.api.runs import written
from mainspring.domain.access import Principal, Scope
from mainspring.domain.errors import InvalidRequest, NotFound
from mainspring.domain.job import JobState, Json
from mainspring.rest import bulk as shapes
from mainspring.rest.bulk import RULES, Action, JobsWhere, NewBulk, Where, check_bulk, filter_of, given
from mainspring.rest.routes import PREFIX
from mainspring.store import bulks, matching, reading
from mainspring.store.bulks import Bulk
from mainspring.store.matching import Meant

_SAMPLES: Final = 5


class BulkActions:
    """Handlers of the routes of bulk actions. What is started here is done by whichever process takes it."""

    def __init__(self, desk: Desk, checks: Checks, service: Bulks) -> None:
        self._desk = desk
        self._checks = checks
        self._service = service

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "bulk.start": self.start,
            "bulk.list": self.list,
            "bulk.get": self.get,
            "bulk.stop": self.stop,
            "dead_letters.replay_many": self.replay_letters,
            "dead_letters.discard_many": self.discard_letters,
        }

    async def start(self, call: Call) -> Reply:
        return await self._start(call, call.body)

    async def replay_letters(self, call: Call) -> Reply:
        return await self._start(call, _of_letters(Action.LETTERS_REPLAY, call.body))

    async def discard_letters(self, call: Call) -> Reply:
        return await self._start(call, _of_letters(Action.LETTERS_DISCARD, call.body))

    async def _start(self, call: Call, asked: NewBulk) -> Reply:
        call.principal.require(RULES[asked.action].scope)
        where = check_bulk(asked)
        payload = None if asked.payload is UNSET else written(asked.payload)
        await self._checks.payload(call.principal, None, payload, asked.payload, "payload")
        wanted: dict[str, Json] = {"per_second": asked.per_second}
        if where is None:
            wanted["ids"] = await self._ids(call.principal, asked)
        else:
            where = await self._with_job(call, where)
            wanted["filter"] = to_builtins(given(where))
        if asked.dry_run:
            return await self._count(call, asked.action, where, wanted)
        if payload is not None:
            wanted["payload"] = payload
            wanted["writes"] = call.principal.may(Scope.JOBS_WRITE)
        if asked.until is not None:
            wanted["until"] = asked.until.isoformat()
        if call.principal.cluster:
            wanted["cluster"] = True
        return await self._write(call, asked, wanted)

    async def _write(self, call: Call, asked: NewBulk, wanted: Mapping[str, Json]) -> Reply:
        tenant, bulk_id = call.principal.tenant, _id_for(call) or self._desk.env.new_id()
        new = bulks.NewBulk(
            id=bulk_id,
            tenant=tenant,
            action=asked.action.value,
            wanted=wanted,
            total=len(wanted["ids"]) if "ids" in wanted else None,
            author=call.principal.subject,
            reason=asked.reason,
        )
        shown = {name: value for name, value in wanted.items() if name not in ("payload", "writes", "ids", "cluster")}
        after: Json = {"action": new.action, **shown, **({"ids": new.total} if "ids" in wanted else {})}
        entry = self._desk.entry(call, str(bulk_id), after=after, reason=asked.reason)
        try:
            bulk = await bulks.find_bulk(self._desk.scoped(call), tenant, bulk_id)  # by a request with the same key
        except NotFound:
            bulk = await bulks.start_bulk(self._desk.scoped(call).noting(entry), new)
        self._service.look()
        return json_reply(bulk_answer(bulk), status=202, headers={"Location": f"{PREFIX}/bulk/{bulk.id}"})

    async def _count(self, call: Call, action: Action, where: Where | None, wanted: Mapping[str, Json]) -> Reply:
        db, tenant = self._desk.scoped(call), call.principal.tenant
        if where is None:
            found = await self._there(call, action, wanted["ids"])
            samples = tuple(shapes.BulkSample(id=each, name=name) for name, each in list(found.items())[:_SAMPLES])
            return json_reply(shapes.BulkCounted(action=action, count=len(found), more=False, samples=samples))
        meant = Meant(tenant, filter_of(where), scheduled=action is Action.JOBS_PAUSE)
        count = await matching.count_matches(db, meant, most=COUNTED_UP_TO + 1)
        first = await matching.matches(db, meant, after=None, limit=_SAMPLES)
        samples = tuple(shapes.BulkSample(id=each.id, name=each.name) for each in first)
        more = count > COUNTED_UP_TO
        counted = shapes.BulkCounted(action=action, count=min(count, COUNTED_UP_TO), more=more, samples=samples)
        return json_reply(counted)

    async def _there(self, call: Call, action: Action, ids: list[str]) -> dict[str, UUID]:
        """Return those that the tenant has, by what they were called in the request."""
        db, tenant = self._desk.scoped(call), call.principal.tenant
        if RULES[action].where is JobsWhere:
            known = await reading.statuses(self._desk.db, tenant, set(ids))
            return {text: known[text].id for text in ids if text in known and known[text].state is not JobState.DELETED}
        runs = {text: UUID(text) for text in ids}
        look = matching.runs_there if RULES[action].where is shapes.RunsWhere else matching.letters_there
        there = await look(db, tenant, runs.values())
        return {text: run for text, run in runs.items() if run in there}

    async def _ids(self, principal: Principal, asked: NewBulk) -> list[str]:
        assert asked.ids is not UNSET
        await self._checks.batch(principal, len(asked.ids), "ids")
        if RULES[asked.action].where is not JobsWhere:
            for place, text in enumerate(asked.ids):
                if reading.as_id(text) is None:
                    allowed = "use the id of a run"
                    raise InvalidRequest("it is no id", field=f"ids[{place}]", value=text[:60], allowed=allowed)
        return list(dict.fromkeys(asked.ids))

    async def _with_job(self, call: Call, where: Where) -> Where:
        """Return a filter that names its job by its id, which stays the same."""
        if isinstance(where, JobsWhere) or where.job is None:
            return where
        job = await self._desk.of(call).find_job(where.job)
        return structs.replace(where, job=str(job.id))

    async def list(self, call: Call) -> Reply:
        db, asked = self._desk.scoped(call), call.query
        page = await bulks.list_bulks(db, call.principal.tenant, limit=asked.limit, after=asked.after)
        return json_reply(shapes.BulkPage(items=tuple(map(bulk_answer, page.items)), next=page.next))

    async def get(self, call: Call) -> Reply:
        bulk = await bulks.find_bulk(self._desk.scoped(call), call.principal.tenant, _id(call))
        return json_reply(bulk_answer(bulk))

    async def stop(self, call: Call) -> Reply:
        bulk = _id(call)
        entry = self._desk.entry(call, str(bulk), after={"state": "stopped"}, reason=call.body.reason)
        db = self._desk.scoped(call).noting(entry)
        return json_reply(bulk_answer(await bulks.stop_bulk(db, call.principal.tenant, bulk)))


def bulk_answer(bulk: Bulk) -> shapes.BulkAnswer:
    """Write a bulk as it stands; what payload it brings along is nobody's to read back."""
    wanted, detail = bulk.wanted, bulk.detail
    return shapes.BulkAnswer(
        id=bulk.id,
        action=Action(bulk.action),
        state=bulk.state,
        total=bulk.total,
        more=bool(detail.get("more")),
        done=bulk.done,
        skipped=bulk.skipped,
        failed=bulk.failed,
        failures=tuple(shapes.BulkFailure(**each) for each in detail.get("failures", ())),
        why=detail.get("why"),
        filter=wanted.get("filter"),
        ids=len(wanted["ids"]) if "ids" in wanted else None,
        per_second=wanted["per_second"],
        until=wanted.get("until"),
        author=bulk.author,
        reason=bulk.reason,
        started_at=bulk.started_at,
        changed_at=bulk.changed_at,
        ended_at=bulk.ended_at,
    )


def _of_letters(action: Action, body: Any) -> NewBulk:
    return NewBulk(
        action=action,
        filter=UNSET if body.filter is UNSET else to_builtins(given(body.filter)),
        ids=body.ids,
        per_second=body.per_second,
        dry_run=body.dry_run,
        reason=body.reason,
        payload=getattr(body, "payload", UNSET),
    )


def _id_for(call: Call) -> UUID | None:
    """Return the id that a request with an idempotency key always has: sent again, it finds its bulk."""
    if call.key is None:
        return None
    return UUID(bytes=sha256(f"bulk/{call.principal.tenant}/{call.key}/".encode() + fingerprint(call)).digest()[:16])


def _id(call: Call) -> UUID:
    found = reading.as_id(call.names["bulk"])
    if found is None:
        raise NotFound(f'there is no bulk action "{call.names["bulk"][:60]}"')
    return found
