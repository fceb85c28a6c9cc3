"""Two tenants with the same names and keys, at the same time, over one or two connections, also of a real pooler that
gives each transaction another one: nothing crosses.

Three witnesses. Every answer is searched for the other's marks. A trigger in the database notes as whom, and for whom,
each row was written. And a reader of its own, as the owner and with its own SQL, holds rows against their marks.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import aiohttp
import asyncpg
import msgspec
import pytest

from mainspring import embedded
from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.domain.tenants import Quotas
from mainspring.rest.routes import PREFIX
from mainspring.store.database import TENANT_ROLE, Database, open_database
from mainspring.store.keys import make_key
from mainspring.store.tenants import create_tenant
from tests.process.pooler import pooler_before

from .conftest import Asker, serve
from .samples import ENVIRONMENT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.covers("F98", "F99")]

TENANTS = ("acme", "bolt")
NAMES = [f"job-{number}" for number in range(20)]  # both have them all
KEYS = [f"key-{number}" for number in range(40)]
PLENTY = Quotas(requests_per_second=1_000_000, burst=1_000_000)
WRITTEN = ("jobs", "runs", "run_history", "job_versions", "submissions", "changes", "answers", "bulks", "dead_letters")


def mark_of(tenant: str) -> str:
    return f"mark-of-{tenant}"


@dataclass
class Shared:
    """What each tenant has got hold of, for the other to try."""

    ids: dict[str, list[str]] = field(default_factory=lambda: {tenant: [] for tenant in TENANTS})
    jobs: dict[str, list[str]] = field(default_factory=lambda: {tenant: [] for tenant in TENANTS})
    cursors: dict[str, dict[str, str]] = field(default_factory=lambda: {tenant: {} for tenant in TENANTS})
    events: dict[str, str] = field(default_factory=dict)
    answers: int = 0
    cancelled: int = 0


class Client:
    """One of a tenant's clients: asks for this and that, and looks at every byte that comes back."""

    def __init__(self, asker: Asker, tenant: str, shared: Shared, seed: int) -> None:
        self.asker = asker
        self.tenant = tenant
        self.other = next(each for each in TENANTS if each != tenant)
        self.shared = shared
        self.random = Random(seed)
        self.mark = {"mark": mark_of(tenant)}

    async def work(self, number: int) -> None:
        doings = (
            *(self.create, self.edit, self.trigger, self.trigger_twice, self.submit, self.look, self.list),
            *(self.list_by_cursor, self.pry, self.pry_on_a_job, self.cancel, self.bulk, self.status),
        )
        for _ in range(number):
            await self.random.choice(doings)()

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Ask, sometimes for a moment only; return what was answered, or None."""
        hurry = self.random.random() < 0.06
        try:
            async with asyncio.timeout(self.random.uniform(0, 0.01) if hurry else 30):
                status, content = await self._ask(method, path, body, **more)
        except TimeoutError:
            assert hurry, f"{method} {path} was not answered"
            self.shared.cancelled += 1
            return None
        assert status < 500, (method, path, content)
        assert mark_of(self.other).encode() not in content, (method, path)
        assert f'"tenant":"{self.other}"'.encode() not in content, (method, path)
        self.shared.answers += 1
        return msgspec.json.decode(content) | {"http": status}

    async def _ask(self, method: str, path: str, body: Any, **more: Any) -> tuple[int, bytes]:
        given = {} if body is None else {"json": body}
        headers = {**self.asker.headers, **more.pop("headers", {})}
        where = f"{self.asker.url}{PREFIX}{path}"
        async with self.asker.session.request(method, where, headers=headers, **given, **more) as answer:
            return answer.status, await answer.read()

    def same_key(self) -> dict[str, str]:
        return {"Idempotency-Key": self.random.choice(KEYS)} if self.random.random() < 0.5 else {}

    @property
    def name(self) -> str:
        return self.random.choice(NAMES)

    def got(self, answer: Any, kind: list[str]) -> None:
        if answer is not None and answer["http"] < 300:
            kind += [answer["id"]] if "id" in answer else [str(each) for each in answer["ids"]]

    async def create(self) -> None:
        body = {"name": self.name, "task": "noop", "payload": self.mark, "owner": mark_of(self.tenant)}
        self.got(await self.ask("POST", "/jobs", body, headers=self.same_key()), self.shared.jobs[self.tenant])

    async def edit(self) -> None:
        body = {"tags": [mark_of(self.tenant)], "priority": self.random.randrange(50), "reason": mark_of(self.tenant)}
        await self.ask("PATCH", f"/jobs/{self.name}", body)

    async def trigger(self) -> None:
        body = {"payload": self.mark, "key": self.random.choice(KEYS), "reason": mark_of(self.tenant)}
        self.got(await self.ask("POST", f"/jobs/{self.name}/trigger", body), self.shared.ids[self.tenant])

    async def trigger_twice(self) -> None:
        """Send what is the same to the byte for both tenants, under the same key."""
        name, headers = self.name, {"Idempotency-Key": f"{self.name}-{self.random.randrange(20)}"}
        for _ in range(2):
            answer = await self.ask("POST", f"/jobs/{name}/trigger", {}, headers=headers)
            self.got(answer, self.shared.ids[self.tenant])
            assert answer is None or answer["http"] >= 400 or answer["tenant"] == self.tenant

    async def submit(self) -> None:
        runs = [{"payload": self.mark, "key": self.random.choice(KEYS)} for _ in range(3)]
        body = {"job": {"name": "inbox", "task": "noop", "payload": self.mark}, "runs": runs}
        self.got(await self.ask("POST", "/runs", body, headers=self.same_key()), self.shared.ids[self.tenant])

    async def look(self) -> None:
        for kind, mine in (("runs", self.shared.ids[self.tenant]), ("jobs", self.shared.jobs[self.tenant])):
            if mine:
                seen = await self.ask("GET", f"/{kind}/{self.random.choice(mine)}")
                assert seen is None or (seen["http"], seen["tenant"]) == (200, self.tenant)

    async def status(self) -> None:
        await self.ask("GET", f"/jobs/{self.name}/status")

    async def list(self) -> None:
        what = self.random.choice(
            ["jobs", "runs", "dead-letters", "bulk", "changes", "keys", f"jobs/{self.name}/versions"]
        )
        page = await self.ask("GET", f"/{what}?limit=7")
        if page is not None and page.get("next"):
            self.shared.cursors[self.tenant][what] = page["next"]

    async def list_by_cursor(self) -> None:
        for what, cursor in list(self.shared.cursors[self.other].items()):
            await self.ask("GET", f"/{what}", params={"limit": "20", "after": cursor})

    async def pry(self) -> None:
        if theirs := self.shared.ids[self.other]:
            run = self.random.choice(theirs)
            for method, path in (
                ("GET", ""),
                ("GET", "/attempts"),
                ("GET", "/logs"),
                ("POST", "/cancel"),
                ("POST", "/retry"),
            ):
                answer = await self.ask(method, f"/runs/{run}{path}", {} if method == "POST" else None)
                assert answer is None or answer["http"] == 404, (path, answer)

    async def pry_on_a_job(self) -> None:
        if theirs := self.shared.jobs[self.other]:
            job = self.random.choice(theirs)
            tried: list[tuple[str, str, Any]] = [
                ("GET", "", None),
                ("PATCH", "", {"priority": 1}),
                ("DELETE", "", None),
            ]
            tried += [("POST", "/trigger", {"payload": self.mark}), ("GET", "/status", None), ("GET", "/runs", None)]
            for method, path, body in tried:
                answer = await self.ask(method, f"/jobs/{job}{path}", body)
                assert answer is None or answer["http"] == 404, (path, answer)

    async def cancel(self) -> None:
        if mine := self.shared.ids[self.tenant]:
            await self.ask("POST", f"/runs/{self.random.choice(mine)}/cancel", {"reason": mark_of(self.tenant)})

    async def bulk(self) -> None:
        if self.random.random() < 0.2:
            ids = [*self.random.sample(NAMES, 3), *self.shared.jobs[self.other][-3:]]
            body = {"action": "jobs.trigger", "ids": ids, "payload": self.mark, "reason": mark_of(self.tenant)}
            await self.ask("POST", "/bulk", body)

    async def listen(self, until: asyncio.Event) -> int:
        """Read events, again and again from where the other one was; return how many came."""
        seen = 0
        while not until.is_set():
            last = self.shared.events.get(self.other)
            headers = {**self.asker.headers, **({"Last-Event-ID": last} if last else {})}
            with suppress(TimeoutError):
                async with asyncio.timeout(1.5), self._events(headers) as lines:
                    async for line in lines:
                        assert mark_of(self.other).encode() not in line
                        if line.startswith(b"id: "):
                            self.shared.events[self.tenant] = line[4:].decode().strip()
                            seen += 1
                        if line.startswith(b"data: {") and b'"run' in line:
                            data = msgspec.json.decode(line[6:])
                            assert str(data.get("job_id")) not in self.shared.jobs[self.other], data
        return seen

    @asynccontextmanager
    async def _events(self, headers: dict[str, str]) -> AsyncIterator[aiohttp.StreamReader]:
        async with self.asker.session.get(f"{self.asker.url}{PREFIX}/events", headers=headers) as answer:
            assert answer.status == 200
            yield answer.content


async def look_on(asker: Asker, until: asyncio.Event) -> int:
    """Read as a viewer of the whole cluster, now for one tenant and now for the other."""
    looked = 0
    while not until.is_set():
        for tenant, other in (TENANTS, TENANTS[::-1]):
            for what in ("jobs", "runs", "me"):
                headers = {**asker.headers, "Mainspring-Tenant": tenant}
                async with asker.session.get(f"{asker.url}{PREFIX}/{what}", headers=headers) as answer:
                    content = await answer.read()
                assert answer.status == 200, content
                assert mark_of(other).encode() not in content
                assert f'"tenant":"{other}"'.encode() not in content
                looked += 1
    return looked


async def load(asker: Asker, keys: dict[str, str], number: int) -> Shared:
    """Let them all work at once, and return when they have done so many things."""
    shared, until, clients = Shared(), asyncio.Event(), 5
    at_work = [
        Client(asker.with_key(keys[tenant]), tenant, shared, seed).work(number // (2 * clients))
        for tenant in TENANTS
        for seed in range(clients)
    ]
    listening = [
        asyncio.create_task(Client(asker.with_key(keys[tenant]), tenant, shared, 100).listen(until))
        for tenant in TENANTS
    ]
    looking = asyncio.create_task(look_on(asker.with_key(keys["cluster"]), until))
    try:
        await asyncio.gather(*at_work)
    finally:
        until.set()
    assert await looking > 0
    assert sum(await asyncio.gather(*listening)) > 0
    return shared


@asynccontextmanager
async def served(db: Database) -> AsyncIterator[tuple[Asker, dict[str, str]]]:
    keys: dict[str, str] = {}
    for tenant in TENANTS:
        await create_tenant(db, tenant, quotas=PLENTY)
        keys[tenant] = await a_key(db, tenant, Role.ADMIN)
    keys["cluster"] = await a_key(db, None, Role.VIEWER)
    settings = replace(Settings(), auth=replace(Settings().auth, required=True))
    async with serve(db, settings) as asker:
        yield asker, keys


async def a_key(db: Database, tenant: str | None, role: Role) -> str:
    name = str(tenant)
    return (await make_key(db, ENVIRONMENT, tenant=tenant, name=name, role=role.value, created_by="tests"))[0]


@asynccontextmanager
async def owner_of(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


WITNESS = """
CREATE TABLE witness (seen text, written_as text, written_for text, whose text);
GRANT INSERT ON witness TO PUBLIC;
CREATE FUNCTION bear_witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness VALUES (
        TG_TABLE_NAME, current_user, current_setting('mainspring.tenant', true),
        coalesce(to_jsonb(NEW)->>'tenant', 'job:' || (to_jsonb(NEW)->>'job_id')));
    RETURN NEW;
END $$;
"""


async def watch(owner: asyncpg.Connection) -> None:
    await owner.execute(WITNESS)
    for table in WRITTEN:
        await owner.execute(
            f"CREATE TRIGGER witnessed AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION bear_witness()"
        )


ALL_RUNS = (
    "(SELECT id, job_id, tenant, payload FROM runs UNION ALL SELECT id, job_id, tenant, payload FROM run_history) AS r"
)
# Each returns rows that are not whose they should be; all of them have to be empty.
CROSSINGS = {
    "a run of another tenant than its job": (
        f"SELECT r.id FROM {ALL_RUNS} LEFT JOIN jobs AS j ON j.id = r.job_id WHERE j.tenant IS DISTINCT FROM r.tenant"
    ),
    "a payload of a run with another's mark": (
        f"SELECT id FROM {ALL_RUNS} WHERE payload LIKE '%mark-of-%' AND payload NOT LIKE '%mark-of-' || tenant || '%'"
    ),
    "a version with another's mark": (
        "SELECT j.id FROM job_versions AS v JOIN jobs AS j ON j.id = v.job_id, "
        "regexp_matches(v.definition::text || v.reason, 'mark-of-[a-z]+', 'g') AS m "
        "WHERE m[1] <> 'mark-of-' || j.tenant"
    ),
    "an author of another tenant": (
        "SELECT j.id FROM job_versions AS v JOIN jobs AS j ON j.id = v.job_id WHERE v.author <> 'key:' || j.tenant"
    ),
    "a change with another's mark, or by another": (
        "SELECT c.id FROM changes AS c LEFT JOIN regexp_matches(c::text, 'mark-of-[a-z]+', 'g') AS m ON true "
        "WHERE c.tenant IS NOT NULL AND (m[1] <> 'mark-of-' || c.tenant OR c.actor <> 'key:' || c.tenant)"
    ),
    "a key that leads to another's run": (
        f"SELECT s.run_id FROM submissions AS s JOIN {ALL_RUNS} ON r.id = s.run_id WHERE r.job_id <> s.job_id"
    ),
    "an answer with another's mark": (
        "SELECT tenant FROM answers, regexp_matches(convert_from(answer, 'UTF8'), 'mark-of-[a-z]+', 'g') AS m "
        "WHERE answer IS NOT NULL AND m[1] <> 'mark-of-' || tenant"
    ),
    "a bulk with another's mark": (
        "SELECT b.id FROM bulks AS b, regexp_matches(b::text, 'mark-of-[a-z]+', 'g') AS m "
        "WHERE m[1] <> 'mark-of-' || b.tenant"
    ),
    "a row that was written without the wall, or inside another's": (
        "SELECT w.* FROM witness AS w LEFT JOIN jobs AS j ON w.whose = 'job:' || j.id "
        f"WHERE w.written_as <> '{TENANT_ROLE}' OR w.written_for <> coalesce(j.tenant, w.whose)"
    ),
    "a tenant nobody made": "SELECT id FROM jobs WHERE tenant NOT IN ('acme', 'bolt')",
}


@pytest.mark.parametrize(("connections", "number"), [(1, 250), (2, 1000)])
async def test_two_tenants_over_few_connections_never_meet(dsn: str, connections: int, number: int) -> None:
    async with open_database(dsn, size=connections) as db:
        await never_meet(db, dsn, number)


async def test_two_tenants_behind_a_pooler_never_meet(server: embedded.Server, dsn: str) -> None:
    with pooler_before(server, dsn, connections=2) as through:
        async with open_database(through, size=10, pooled=True) as db:
            await never_meet(db, dsn, 1000)


async def never_meet(db: Database, dsn: str, number: int) -> None:
    async with owner_of(dsn) as owner, served(db) as (asker, keys):
        await watch(owner)

        shared = await load(asker, keys, number)

        await settled(owner)
        assert shared.answers >= number
        assert shared.cancelled > number / 100
        for what, query in CROSSINGS.items():
            assert await owner.fetch(query) == [], what
        await check_ids(owner, shared)
        assert await owner.fetchval("SELECT count(DISTINCT seen) FROM witness") >= 7
        assert await owner.fetchval("SELECT count(DISTINCT tenant) FROM jobs WHERE name = ANY($1)", NAMES) == 2
        await check_left_behind(asker, owner)


async def settled(owner: asyncpg.Connection) -> None:
    """Wait until no bulk is under way, and nothing that a hasty client had asked for."""
    await until_none(owner, "SELECT count(*) FROM bulks WHERE state IN ('counting', 'going')")
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
    await until_none(owner, f"{others} AND pid <> pg_backend_pid()")


async def until_none(owner: asyncpg.Connection, counted: str) -> None:
    async with asyncio.timeout(60):
        while await owner.fetchval(counted):  # noqa: ASYNC110 - the database has no event for it
            await asyncio.sleep(0.05)


async def check_ids(owner: asyncpg.Connection, shared: Shared) -> None:
    """Check that whatever id a tenant was told is the id of something of its own."""
    for tenant in TENANTS:
        runs = f"SELECT DISTINCT tenant FROM {ALL_RUNS} WHERE id = ANY($1::uuid[])"
        whose = await owner.fetch(runs, shared.ids[tenant])
        assert {row["tenant"] for row in whose} == {tenant}
        whose = await owner.fetch("SELECT DISTINCT tenant FROM jobs WHERE id = ANY($1::uuid[])", shared.jobs[tenant])
        assert {row["tenant"] for row in whose} == {tenant}
    assert not {*shared.ids["acme"]} & {*shared.ids["bolt"]}


async def check_left_behind(asker: Asker, owner: asyncpg.Connection) -> None:
    """Check that no connection of the pool remembers a tenant."""
    pool = asker.api.app._answering._desk.db._pool
    held = [await pool.acquire() for _ in range(pool.get_idle_size())]
    try:
        assert held
        for connection in held:
            assert await connection.fetchval("SELECT current_user") == await owner.fetchval("SELECT current_user")
            assert not await connection.fetchval("SELECT current_setting('mainspring.tenant', true)")
    finally:
        for connection in held:
            await pool.release(connection)
