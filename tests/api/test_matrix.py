"""Every route of the table, asked by everybody: who is nobody, who is too little, who is enough, who is elsewhere.

What is expected is derived from the table and from the scopes of the roles, here and again: not by the code under test.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from yarl import URL

from mainspring.config import Settings
from mainspring.domain.access import CLUSTER_SCOPES, SCOPES, Role, Scope
from mainspring.domain.tenants import Quotas, TenantState
from mainspring.rest.bulk import RULES
from mainspring.rest.routes import BY_NAME, PREFIX, ROUTES
from mainspring.store.database import Database
from mainspring.store.keys import make_key, revoke_key
from mainspring.store.tenants import change_tenant, create_tenant

from .conftest import Asker, serve
from .forging import SECRET, SECRET_NAME, Issuer, compact, forged, private_key, public_pem, signed_by
from .samples import (
    ENVIRONMENT,
    SAMPLES,
    USES_UP,
    Got,
    Maker,
    Sample,
    Things,
    assert_complete,
    fingerprint,
    fresh,
    named_in,
    never_there,
    sealing,
    send,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = {
    "/healthz": None,
    "/readyz": None,
    "/metrics": Scope.CLUSTER_READ,
    f"{PREFIX}/openapi.json": None,
    "/docs": None,
    "/docs/docs.js": None,
    "/docs/docs.css": None,
}
PLENTY = Quotas(requests_per_second=1_000_000, burst=1_000_000)
KINDS = ("key", "cluster key", "token", "cluster token")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


@dataclass
class World:
    """A server that wants to know who is asking, two tenants with one of each thing, and everybody's credentials."""

    asker: Asker
    db: Database
    issuer: Issuer
    shop: Things
    other: Things
    admin: Asker
    bearers: Mapping[tuple[str, Role], str]
    bad: Mapping[str, dict[str, str]]  # headers that say nothing, by what is wrong with them

    def headers(self, kind: str, role: Role) -> dict[str, str]:
        for_shop = {"Mainspring-Tenant": "shop"} if kind.startswith("cluster") else {}
        return {"Authorization": f"Bearer {self.bearers[kind, role]}", **for_shop}

    def of_other(self, role: Role) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.bearers['other', role]}"}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    directory: Path = tmp_path_factory.mktemp("issuer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET_NAME, SECRET)
        yield Issuer(directory, now=datetime.now(UTC))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(shared_db: Database, issuer: Issuer) -> AsyncIterator[World]:
    db = shared_db
    for tenant in ("shop", "other", "gone", "held"):
        await create_tenant(db, tenant, quotas=PLENTY)
    await change_tenant(db, "default", quotas=PLENTY)
    bearers = {("key", role): await key(db, "shop", role) for role in Role}
    bearers |= {("cluster key", role): await key(db, None, role) for role in Role}
    bearers |= {("other", role): await key(db, "other", role) for role in Role}
    bearers |= {("token", role): issuer.token(role=role.value) for role in Role}
    bearers |= {("cluster token", role): issuer.token(role=role.value, cluster=True, tenant=...) for role in Role}
    bad = await bad_headers(db, issuer)
    with pytest.MonkeyPatch.context() as patch:
        settings = sealing(replace(Settings(), auth=issuer.settings), patch)
        async with serve(db, settings) as asker:
            admin = asker.with_key(bearers["cluster key", Role.ADMIN])
            shop, other = [await Maker(admin, db, tenant).things() for tenant in ("shop", "other")]
            yield World(asker, db, issuer, shop, other, admin, bearers, bad)


async def key(db: Database, tenant: str | None, role: Role = Role.ADMIN) -> str:
    name = fresh("key")
    return (await make_key(db, ENVIRONMENT, tenant=tenant, name=name, role=role.value, created_by="tests"))[0]


async def bad_headers(db: Database, issuer: Issuer) -> dict[str, dict[str, str]]:
    at = int(issuer.now.timestamp())
    admin: dict[str, Any] = {"role": "admin", "cluster": True}
    head, pem = {"kid": "rs", "typ": "JWT"}, public_pem(private_key("rs"))
    revoked, made = await make_key(db, ENVIRONMENT, tenant=None, name="revoked", role="admin", created_by="tests")
    await revoke_key(db, made.id)
    gone, held = [await key(db, tenant) for tenant in ("gone", "held")]
    await change_tenant(db, "gone", state=TenantState.DELETED)
    await change_tenant(db, "held", state=TenantState.SUSPENDED)
    bearers = {
        "garbage": "garbage",
        "a key of nobody": "ms_" + "x" * 43,
        "an empty token": "..",
        "expired": issuer.token(exp=at - 60, nbf=at - 120, **admin),
        "not yet": issuer.token(nbf=at + 300, **admin),
        "wrong aud": issuer.token(aud="other", **admin),
        "wrong iss": issuer.token(iss="https://forger.example", **admin),
        "alg none": compact({"alg": "none", "kid": "hs"}, issuer.claims(**admin), lambda _: b""),
        "HS for RS": compact({"alg": "HS256"} | head, issuer.claims(**admin), signed_by("HS256", pem)),
        "unknown kid": issuer.token(header={"kid": "other"}, **admin),
        "revoked key": revoked,
        "key of a deleted tenant": gone,
        "key of a suspended tenant": held,
        "token of a tenant that never was": issuer.token(tenant="never", role="admin"),
    }
    found = {what: {"Authorization": f"Bearer {bearer}"} for what, bearer in bearers.items()}
    return {
        "no token": {},
        "another scheme": {"Authorization": "Basic YWRtaW46YWRtaW4="},
        "said by a proxy": {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "admin", "Forwarded": "for=127.0.0.1"},
        "in a cookie": {"Cookie": f"Authorization=Bearer {revoked}; session=admin"},
        **found,
    }


def may(role: Role, scope: Scope | None, *, cluster: bool) -> bool:
    return scope is None or (scope in SCOPES[role] and (cluster or scope not in CLUSTER_SCOPES))


def problem(got: Got, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a problem of this kind, and return it."""
    assert got.status == status, got
    assert got.headers["Content-Type"] == "application/problem+json"
    said: dict[str, Any] = msgspec.json.decode(got.content)
    assert (said["status"], said["code"]) == (status, code), said
    return said


def plain(got: Got, things: Things) -> tuple[int, tuple[str, ...], bytes]:
    """Return an answer without the name of the request and what was asked for."""
    said, content = msgspec.json.decode(got.content), got.content
    for own in (
        said["request"],
        things.job,
        things.name,
        things.run,
        things.dead,
        things.bulk,
        things.key,
        things.secret,
    ):
        content = content.replace(own.encode(), b"*")
    return got.status, tuple(sorted(name.lower() for name in got.headers)), content


async def test_every_route_has_a_sample() -> None:
    assert_complete()
    assert len(ROUTES) == len(BY_NAME) == len({(route.method, route.path) for route in ROUTES})


async def test_every_scope_is_asked_for_by_some_route() -> None:
    assert {route.scope for route in ROUTES} == {*Scope, None}
    assert [route.name for route in ROUTES if route.scope is None] == ["me.get"]
    for route in ROUTES:  # what changes something is never open to those who may only look
        if route.changes and route.name != "audit.run":
            assert route.scope is not None
            assert not route.scope.endswith(":read"), route.name


@pytest.mark.covers("F100", "F101", "F118")
async def test_whom_nobody_knows_gets_nothing_from_any_route(world: World) -> None:
    before = await fingerprint(world.db)

    for route in ROUTES:
        sample = SAMPLES[route.name](world.shop)
        for what, headers in world.bad.items():
            got = await send(world.asker, route, world.shop, headers, sample)

            said = problem(got, 401, "unauthenticated")
            assert got.headers["WWW-Authenticate"].startswith("Bearer"), (route.name, what)
            assert set(said) <= {"title", "status", "detail", "code", "type", "request"}, (route.name, what)

    assert len(world.bad) >= 15
    assert await fingerprint(world.db) == before


@pytest.mark.covers("F100")
async def test_no_forged_token_opens_a_real_route(world: World) -> None:
    route, now = BY_NAME["jobs.list"], datetime.now(UTC)
    issuer, later = replace(world.issuer, now=now), replace(world.issuer, now=now + timedelta(minutes=5))
    good = await send(world.asker, route, world.shop, {"Authorization": f"Bearer {issuer.token()}"})
    assert good.status == 200

    made = [each for each in forged(issuer) if each.reason != "not_yet"]  # a second later those would be good
    made += [each for each in forged(later) if each.reason == "not_yet"]
    tried = 0
    for each in made:
        if not each.token.isascii() or not each.token.isprintable() or each.token != each.token.strip():
            continue  # no client would send it in a header
        got = await send(world.asker, route, world.shop, {"Authorization": f"Bearer {each.token}"})

        assert got.status == 401, each.what
        assert problem(got, 401, "unauthenticated")
        tried += 1
    assert tried >= 100


@pytest.mark.covers("F118")
@pytest.mark.parametrize("kind", KINDS)
async def test_too_little_is_403_and_changes_nothing(world: World, kind: str) -> None:
    before = await fingerprint(world.db)
    refused = 0

    for route in ROUTES:
        sample = SAMPLES[route.name](world.shop)
        for role in Role:
            if not may(role, route.scope, cluster=kind.startswith("cluster")):
                got = await send(world.asker, route, world.shop, world.headers(kind, role), sample)

                assert route.scope is not None
                assert str(route.scope) in problem(got, 403, "forbidden")["detail"], (route.name, role)
                refused += 1

    assert refused > 50
    assert await fingerprint(world.db) == before


@pytest.mark.covers("F118")
@pytest.mark.parametrize("kind", KINDS)
async def test_enough_is_never_refused(world: World, kind: str) -> None:
    maker = Maker(world.admin, world.db, "shop")

    for route in ROUTES:
        for role in Role:
            if may(role, route.scope, cluster=kind.startswith("cluster")):
                got = await send(world.asker, route, world.shop, world.headers(kind, role))

                assert got.status in {route.status, *(route.also or {})}, (route.name, role, got)
                if route.name in USES_UP:
                    world.shop = await maker.renewed(world.shop, USES_UP[route.name])


@pytest.mark.covers("F118")
@pytest.mark.parametrize("kind", ["key", "cluster key"])
async def test_a_bulk_takes_what_its_action_takes(world: World, kind: str) -> None:
    route = BY_NAME["bulk.start"]
    for action, rules in RULES.items():
        sample = Sample({"action": action.value, "filter": {}, "dry_run": True})
        for role in Role:
            got = await send(world.asker, route, world.shop, world.headers(kind, role), sample)

            allowed = may(role, rules.scope, cluster=False) and may(role, route.scope, cluster=False)
            assert got.status == (200 if allowed else 403), (action, role, got)


@pytest.mark.covers("F118")
@pytest.mark.parametrize("role", Role)
async def test_nobody_makes_a_key_that_may_more_than_they(world: World, role: Role) -> None:
    route, ranks = BY_NAME["keys.create"], list(Role)
    for kind in ("key", "cluster key"):
        for wanted in Role:
            for cluster in (False, True):
                sample = Sample({"name": fresh("key"), "role": wanted.value, "cluster": cluster})
                got = await send(world.asker, route, world.shop, world.headers(kind, role), sample)

                enough = role is Role.ADMIN and ranks.index(wanted) <= ranks.index(role)
                allowed = enough and (kind == "cluster key" or not cluster)
                assert got.status == (201 if allowed else 403), (kind, role, wanted, cluster)


ASKED_BY_NAME = [
    route for route in ROUTES if {"job", "run", "dead", "bulk", "key", "secret"} & set(named_in(route).values())
]
WRITES_UNDER_A_NAME = ("jobs.put", "secrets.put")  # which the asker then has too, besides the one who had it


@pytest.mark.covers("F98")
async def test_what_is_anothers_is_answered_as_what_never_was(world: World) -> None:
    before = await fingerprint(world.db)
    by_name = replace(world.shop, job=world.shop.name)
    compared = 0

    for route in ASKED_BY_NAME:
        for theirs in (world.shop, by_name):
            if route.name == "secrets.put" or (route.name == "jobs.put" and theirs is by_name):
                continue
            nothing = never_there(theirs)
            if theirs is by_name:
                nothing = replace(nothing, job=nothing.name)
            sample = SAMPLES[route.name](replace(theirs, name="sample"))

            got = await send(world.asker, route, theirs, world.of_other(Role.ADMIN), sample)
            none = await send(world.asker, route, nothing, world.of_other(Role.ADMIN), sample)

            problem(got, 404, "not_found")
            assert plain(got, theirs) == plain(none, nothing), route.name
            compared += 1
    assert compared >= 2 * (len(ASKED_BY_NAME) - 2)
    assert await fingerprint(world.db) == before


@pytest.mark.covers("F98")
async def test_so_is_what_is_named_in_a_query(world: World) -> None:
    compared = set()
    for route in ROUTES:
        fields = set(route.query.__struct_fields__) if route.query is not None else set()
        for name in fields & {"job", "run"}:
            said = []
            for things in (world.shop, never_there(world.shop)):
                sample = Sample(query={name: getattr(things, name)})
                got = await send(world.asker, route, things, world.of_other(Role.ADMIN), sample)
                problem(got, 404, "not_found")
                said.append(plain(got, things))
            assert said[0] == said[1]
            compared.add((route.name, name))
    assert compared == {
        *(("runs.list", "job"), ("dead_letters.list", "job"), ("events.stream", "job"), ("events.stream", "run")),
    }


@pytest.mark.covers("F98")
async def test_no_list_and_no_cursor_shows_what_is_anothers(world: World) -> None:
    theirs = [
        value.encode() for value in (world.shop.job, world.shop.run, world.shop.dead, world.shop.bulk, world.shop.key)
    ]
    theirs += [b'"shop"', world.shop.secret.encode()]
    with_cursor = 0
    for route in ROUTES:
        if route.method != "GET" or named_in(route) or may(Role.ADMIN, route.scope, cluster=False) is False:
            continue
        got = await send(world.asker, route, world.other, world.of_other(Role.ADMIN))
        assert got.status == 200
        assert not [each for each in theirs if each in got.content], route.name
        if "after" not in (route.query.__struct_fields__ if route.query is not None else ()):
            continue
        first = await send(
            world.asker, route, world.shop, world.headers("key", Role.ADMIN), Sample(query={"limit": "1"})
        )
        cursor = msgspec.json.decode(first.content)["next"]
        if cursor is not None:
            sample = Sample(query={"after": cursor, "limit": "500"})
            got = await send(world.asker, route, world.other, world.of_other(Role.ADMIN), sample)
            assert got.status in (200, 422), route.name
            assert not [each for each in theirs if each in got.content], route.name
            with_cursor += 1
    assert with_cursor >= 3


@pytest.mark.covers("F98")
async def test_a_bulk_finds_nothing_of_anothers(world: World) -> None:
    for action, rules in RULES.items():
        ids = [world.shop.job, world.shop.name] if "jobs" in action else [world.shop.run, world.shop.dead]
        sample = Sample({"action": action.value, "ids": ids, "dry_run": True})
        got = await send(world.asker, BY_NAME["bulk.start"], world.other, world.of_other(Role.ADMIN), sample)
        assert got.status == 200
        assert msgspec.json.decode(got.content)["count"] == 0, (action, rules)


@pytest.mark.covers("F98")
async def test_the_header_that_names_a_tenant_is_for_the_cluster(world: World) -> None:
    said = set()
    for route in ROUTES:
        for tenant in ("shop", "no-such-tenant"):
            headers = {**world.of_other(Role.ADMIN), "Mainspring-Tenant": tenant}
            got = await send(world.asker, route, world.shop, headers)
            said.add(problem(got, 403, "forbidden")["detail"])
    assert len(said) == 1


@pytest.mark.covers("F118")
async def test_nothing_is_served_but_the_table_and_these_pages(world: World) -> None:
    app = world.asker.api.app
    assert {path: page.scope for path, page in app._pages.items()} == PAGES

    for path, scope in PAGES.items():
        assert (await raw(world.asker, "GET", path)).status == (200 if scope is None else 401), path
        for method in METHODS[1:]:
            assert (await raw(world.asker, method, path)).status == 405, (method, path)
    for kind in ("key", "cluster key"):
        for role in Role:
            got = await raw(world.asker, "GET", "/metrics", world.headers(kind, role))
            assert got.status == (200 if may(role, Scope.CLUSTER_READ, cluster=kind == "cluster key") else 403)


@pytest.mark.covers("F118")
async def test_no_other_method_of_a_path_does_anything(world: World) -> None:
    served: dict[str, set[str]] = {}
    for route in ROUTES:
        served.setdefault(route.path, set()).add(route.method)
    for path, methods in served.items():
        for method in METHODS:
            if method not in methods and not (method == "GET" and "GET" in methods):
                got = await raw(world.asker, method, f"{PREFIX}{path}".replace("{", "").replace("}", ""))
                said = problem(got, 405, "method_not_allowed")
                assert set(got.headers["Allow"].split(", ")) == methods
                assert "request" in said


OTHERWISE = (
    *("/", "/api", "/api/", PREFIX, f"{PREFIX}/", "/admin", "/debug", "/debug/pprof", "/console", "/shell", "/env"),
    *("/.env", "/.git/config", "/server-status", "/actuator", "/actuator/env", "/swagger", "/openapi.json", "/redoc"),
    *(
        "/metrics/",
        "/metrics%2f",
        "//metrics",
        "/Metrics",
        "/metrics;a",
        "/./metrics",
        "/docs/../metrics",
        "/%6detrics",
    ),
    *("/docs/../../pyproject.toml", "/docs/..%2f..%2fpyproject.toml", "/docs/%2e%2e/app.py", "/docs/docs.html"),
    *("/static/docs.html", "/docs//docs.js", "/api/v2/jobs", "/API/V1/JOBS", "/api/v1/internal", "/api/v1/debug"),
    *(
        f"{PREFIX}//jobs",
        f"{PREFIX}/jobs/",
        f"{PREFIX}/./jobs",
        f"{PREFIX}/x/../jobs",
        f"{PREFIX}/%6aobs",
        f"/{PREFIX}/jobs",
    ),
    *(
        f"{PREFIX}/jobs;x=1",
        f"{PREFIX}/jobs%00",
        f"{PREFIX}/jobs%2f",
        f"{PREFIX}/jobs?access_token=x",
        f"{PREFIX}/jobs#x",
    ),
    *(f"{PREFIX}/{{}}", f"{PREFIX}/jobs/{{}}", f"{PREFIX}/jobs/x/y/z", f"{PREFIX}/cluster/nodes"),
)


@pytest.mark.covers("F118")
@pytest.mark.parametrize("path", OTHERWISE)
async def test_no_other_spelling_of_a_path_gets_round_the_gate(world: World, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        got = await raw(world.asker, method, path)

        assert got.status in (400, 401, 404, 405), (method, path, got)
        assert got.headers["Content-Type"] == "application/problem+json"


@pytest.mark.covers("F118")
@pytest.mark.parametrize(
    "headers",
    [
        {"X-HTTP-Method-Override": "DELETE"},
        {"X-Original-URL": f"{PREFIX}/jobs"},
        {"X-Rewrite-URL": f"{PREFIX}/jobs"},
        {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x" * 24, "Sec-WebSocket-Version": "13"},
    ],
)
async def test_no_header_turns_a_request_into_another(world: World, headers: dict[str, str]) -> None:
    got = await raw(world.asker, "GET", f"{PREFIX}/jobs/{world.shop.job}", headers)

    assert problem(got, 401, "unauthenticated")


async def raw(asker: Asker, method: str, path: str, headers: Mapping[str, str] | None = None) -> Got:
    """Send a path as it stands."""
    where = URL(f"{asker.url}{path}", encoded=True)
    async with asker.session.request(method, where, headers=headers, allow_redirects=False) as answer:
        return Got(answer.status, dict(answer.headers), await answer.read())
