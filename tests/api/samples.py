"""For every route of the table a request that fits, and a ledger in which it makes sense.

Tests that go through the table take their requests from here: a route that has no sample fails all of them. What a
path names is taken from ``Things`` by the name in its braces.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import UUID

import aiohttp
import pytest
from yarl import URL

from mainspring.config import Settings
from mainspring.domain.ids import RunId
from mainspring.domain.settling import ErrorInfo, Failed, Succeeded
from mainspring.environment import SystemEnvironment
from mainspring.rest.routes import BY_NAME, PREFIX, SSE, Route
from mainspring.store.database import Database
from mainspring.store.lines import Said, write_lines
from tests.store.ledger import Ledger

from .conftest import Asker

ENVIRONMENT: Final = SystemEnvironment()
SEAL_NAME: Final = "SEALING_KEY"
RANGE: Final = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T05:00:00Z"}
_GRAVES: Final = "graves"  # the pool of runs that are to die
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Things:
    """What a tenant has, called as in the paths of the table."""

    tenant: str
    job: str  # its id
    name: str  # the same job's
    run: str  # in motion
    dead: str  # a run with a dead letter
    bulk: str
    key: str
    secret: str
    node: str
    pool: str = "short"
    own: str = "spare"  # another tenant, without jobs


@dataclass(frozen=True, slots=True)
class Sample:
    """What goes along with a path."""

    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Got:
    """An answer to the byte; of a stream its first bytes."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def fresh(what: str = "sample") -> str:
    return f"{what}-{next(_numbers)}"


def _job(**more: Any) -> dict[str, Any]:
    return {"name": fresh(), "task": "noop", **more}


SAMPLES: Final[Mapping[str, Callable[[Things], Sample]]] = {
    "jobs.create": lambda _: Sample(_job(payload={"n": 1}, reason="why not")),
    "jobs.create_many": lambda _: Sample({"jobs": [_job(), _job()]}),
    "jobs.list": lambda _: Sample(query={"limit": "5", "state": "active"}),
    "jobs.get": lambda _: Sample(),
    "jobs.put": lambda it: Sample(_job(name=it.name, schedule={"every": "1h"})),
    "jobs.edit": lambda _: Sample({"owner": fresh()}),
    "jobs.delete": lambda _: Sample(query={"reason": "over"}),
    "jobs.status": lambda _: Sample(),
    "jobs.set_status": lambda _: Sample({"state": "active"}),
    "jobs.pause": lambda _: Sample({"reason": "a break"}),
    "jobs.resume": lambda _: Sample({}),
    "jobs.trigger": lambda _: Sample({"payload": {"n": 2}}),
    "jobs.cancel": lambda _: Sample({}),
    "jobs.backfill": lambda _: Sample({**RANGE, "dry_run": True}),
    "jobs.runs": lambda _: Sample(query={"limit": "5"}),
    "jobs.slots": lambda _: Sample(query=RANGE),
    "jobs.upcoming": lambda _: Sample(query={"limit": "3"}),
    "jobs.explain": lambda _: Sample(query={"at": RANGE["start"]}),
    "jobs.versions": lambda _: Sample(query={"limit": "3"}),
    "runs.submit": lambda it: Sample({"job": _job(name=it.name), "runs": [{"payload": {"n": 3}}]}),
    "runs.list": lambda _: Sample(query={"limit": "5"}),
    "runs.get": lambda _: Sample(),
    "runs.attempts": lambda _: Sample(),
    "runs.logs": lambda _: Sample(query={"limit": "5"}),
    "runs.cancel": lambda _: Sample({}),
    "runs.retry": lambda _: Sample({}),
    "dead_letters.list": lambda _: Sample(query={"limit": "5"}),
    "dead_letters.get": lambda _: Sample(),
    "dead_letters.replay": lambda _: Sample({}),
    "dead_letters.discard": lambda _: Sample({}),
    "dead_letters.replay_many": lambda it: Sample({"ids": [it.dead], "dry_run": True}),
    "dead_letters.discard_many": lambda _: Sample({"filter": {}, "dry_run": True}),
    "bulk.start": lambda it: Sample({"action": "jobs.pause", "ids": [it.job], "dry_run": True}),
    "bulk.list": lambda _: Sample(query={"limit": "5"}),
    "bulk.get": lambda _: Sample(),
    "bulk.stop": lambda _: Sample({}),
    "cluster.show": lambda _: Sample(),
    "cluster.changes": lambda _: Sample(query={"limit": "5"}),
    "workers.quiesce": lambda _: Sample({}),
    "workers.stop": lambda _: Sample({}),
    "pools.list": lambda _: Sample(),
    "pools.pause": lambda _: Sample({"reason": "a break"}),
    "pools.resume": lambda _: Sample({}),
    "pools.scaling": lambda _: Sample(),
    "me.get": lambda _: Sample(),
    "changes.list": lambda _: Sample(query={"limit": "5"}),
    "tenants.list": lambda _: Sample(query={"limit": "5"}),
    "tenants.get": lambda _: Sample(),
    "tenants.create": lambda _: Sample({"name": fresh("tenant"), "quotas": {"jobs": 5}}),
    "tenants.edit": lambda _: Sample({"note": "seen"}),
    "tenants.delete": lambda _: Sample(query={"reason": "over"}),
    "keys.list": lambda _: Sample(query={"limit": "5"}),
    "keys.create": lambda _: Sample({"name": fresh("key"), "role": "viewer"}),
    "keys.revoke": lambda _: Sample(query={"reason": "lost"}),
    "secrets.list": lambda _: Sample(),
    "secrets.put": lambda _: Sample({"value": "correct horse"}),
    "secrets.delete": lambda _: Sample(),
    "audit.run": lambda _: Sample(RANGE),
    "events.stream": lambda _: Sample(),
}

# What a request leaves unfit for the next: the thing that is made anew after it.
USES_UP: Final = {
    "jobs.delete": "job",
    "jobs.cancel": "run",
    "runs.cancel": "run",
    "runs.retry": "dead",
    "dead_letters.discard": "dead",
    "dead_letters.replay": "dead",
    "bulk.stop": "bulk",
    "keys.revoke": "key",
    "secrets.delete": "secret",
    "tenants.delete": "own",
    "workers.quiesce": "node",
    "workers.stop": "node",
}


def thing_in(route: Route, name: str) -> str:
    """Return which of the things a name in the path of a route stands for."""
    if name == "run" and (route.noun == "dead_letters" or route.name == "runs.retry"):
        return "dead"  # what waits to run is not retried
    return "own" if name == "tenant" else name


def named_in(route: Route) -> dict[str, str]:
    """Return the names in the path of a route, and what they stand for."""
    names = [segment[1:-1] for segment in route.path.split("/") if segment.startswith("{")]
    return {name: thing_in(route, name) for name in names}


def path_of(route: Route, things: Things, sample: Sample) -> str:
    """Return the path and the query of a request, in percent encoding."""
    path = route.path
    for name, thing in named_in(route).items():
        path = path.replace(f"{{{name}}}", quote(getattr(things, thing), safe=""))
    return f"{PREFIX}{path}{'?' + urlencode(sample.query) if sample.query else ''}"


async def send(
    asker: Asker, route: Route, things: Things, headers: Mapping[str, str] | None = None, sample: Sample | None = None
) -> Got:
    """Send what fits a route, or what is given."""
    sample = sample or SAMPLES[route.name](things)
    where = URL(f"{asker.url}{path_of(route, things, sample)}", encoded=True)
    given: dict[str, Any] = {} if sample.body is None else {"json": sample.body}
    all_headers = {**asker.headers, **(headers or {})}
    timeout = aiohttp.ClientTimeout(total=20)
    async with asker.session.request(route.method, where, headers=all_headers, timeout=timeout, **given) as answer:
        good_stream = route.media == SSE and answer.status == 200
        content = await (answer.content.readany() if good_stream else answer.read())
        return Got(answer.status, dict(answer.headers), content)


class Maker:
    """Makes things for a tenant, as an administrator of the cluster who acts for it."""

    def __init__(self, admin: Asker, db: Database, tenant: str) -> None:
        self._admin = admin.given(**{"Mainspring-Tenant": tenant})
        self._ledger = Ledger(db, ENVIRONMENT)
        self._tenant = tenant

    async def things(self, **told: str) -> Things:
        """Make one of each; what a run says when it dies may be told."""
        job, name = await self.job(**told)
        return Things(
            tenant=self._tenant,
            job=job,
            name=name,
            run=await self.run(job),
            dead=await self.dead(**told),
            bulk=await self.bulk(),
            key=await self.key(),
            secret=await self.secret(),
            node=str(await self._ledger.node()),
            own=await self.own(),
        )

    async def renewed(self, things: Things, what: str) -> Things:
        """Return the same with a new one of these."""
        match what:
            case "job":
                job, name = await self.job()
                return replace(things, job=job, name=name)
            case "run":
                return replace(things, run=await self.run(things.job))
            case "dead":
                return replace(things, dead=await self.dead())
            case "node":
                return replace(things, node=str(await self._ledger.node()))
        made: Callable[[], Any] = getattr(self, what)
        return replace(things, **{what: await made()})

    async def job(self, payload: str = "", **_: str) -> tuple[str, str]:
        definition = _job(
            schedule={"every": "1h"}, overlap={"policy": "allow"}, payload={"note": payload, "of": self._tenant}
        )
        made = await self._good("POST", "/jobs", definition)
        return str(made["id"]), str(made["name"])

    async def run(self, job: str) -> str:
        return str((await self._good("POST", f"/jobs/{job}/trigger", {}))["id"])

    async def dead(self, payload: str = "", error: str = "no stock", line: str = "hello", **_: str) -> str:
        job = _job(pool=_GRAVES, retry={"attempts": 1})
        await self._good("POST", "/runs", {"job": job, "runs": [{"payload": {"note": payload}}]})
        runs = await self._ledger.claim(await self._ledger.node(), pool=_GRAVES)
        said = [
            Said(RunId(run.id), run.slot, 1, number, await self._ledger.value("SELECT now()"), "stdout", "", line)
            for number, run in enumerate(runs, 1)
        ]
        await write_lines(self._ledger.db, said)
        broken = ErrorInfo(type="shop.Broken", message=error, traceback=f"Traceback: {error}")
        await self._ledger.settle(runs, Failed(error=broken))
        return str(runs[0].id)

    async def done(self, result: str) -> str:
        """Make a run that succeeded with this result."""
        job = _job(pool=_GRAVES)
        await self._good("POST", "/runs", {"job": job, "runs": [{"payload": {"note": result}}]})
        (run,) = await self._ledger.claim(await self._ledger.node(), pool=_GRAVES)
        await self._ledger.settle([run], Succeeded(result={"said": result}))
        return str(run.id)

    async def bulk(self) -> str:
        """Start a bulk that goes on for long, and does nothing: there are no such jobs."""
        asked = {"action": "jobs.pause", "ids": [str(UUID(int=number)) for number in range(500)], "per_second": 1}
        return str((await self._good("POST", "/bulk", asked))["id"])

    async def key(self) -> str:
        return str((await self._good("POST", "/keys", {"name": fresh("key"), "role": "observer"}))["id"])

    async def secret(self) -> str:
        return str((await self._good("PUT", f"/secrets/{fresh('secret')}", {"value": "correct horse"}))["name"])

    async def own(self) -> str:
        return str((await self._good("POST", "/tenants", {"name": fresh("spare")}))["name"])

    async def _good(self, method: str, path: str, body: Any) -> Any:
        answer = await self._admin(method, path, body)
        assert answer.status < 300, (method, path, answer.body)
        return answer


def sealing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings under which secrets can be kept."""
    monkeypatch.setenv(SEAL_NAME, base64.b64encode(b"s" * 32).decode())
    return replace(settings, secrets=replace(settings.secrets, seal_with=f"env:{SEAL_NAME}"))


def never_there(things: Things) -> Things:
    """Return things that look as those do, and exist nowhere."""
    ids = {
        name: str(UUID(int=(0xDEAD << 112) | next(_numbers))) for name in ("job", "run", "dead", "bulk", "key", "node")
    }
    return replace(things, **ids, name=fresh("sample"), secret=fresh("secret"), own=fresh("spare"))


async def fingerprint(db: Database, *, but: tuple[str, ...] = ("bulks", "api_keys")) -> dict[str, str]:
    """Return what every table holds, as a hash, so that two moments can be compared.

    Left out are a bulk's progress, and when a key was last used.
    """
    async with db.connection() as connection:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
            "AND NOT relispartition ORDER BY relname"
        )
        names = [row["relname"] for row in tables if row["relname"] not in but]
        hashed = "SELECT md5(coalesce(string_agg(each::text, '|' ORDER BY each::text), '')) FROM {} AS each"
        return {name: await connection.fetchval(hashed.format(name)) for name in names}


def assert_complete() -> None:
    """Fail if the table has a route without a sample, or the other way round."""
    assert set(SAMPLES) == set(BY_NAME), f"write a sample for {sorted(set(SAMPLES) ^ set(BY_NAME))}"
    assert set(USES_UP) <= set(BY_NAME)
