"""Tenants, keys, secrets and the audit, through the front door."""

import asyncio
import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.environment import SystemEnvironment
from mainspring.sealing import read_sealer
from mainspring.store.database import Database
from mainspring.store.secrets import open_secret
from tests.store.ledger import Ledger

from .conftest import Asker, key_for, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOURLY: dict[str, Any] = {"name": "nightly", "task": "noop", "schedule": [{"every": "1h"}]}


async def rows(db: Database, query: str, *given: Any) -> list[Any]:
    async with db.connection() as connection:
        return await connection.fetch(query, *given)


async def everything(db: Database) -> str:
    """Return all that the database holds, as text: to look for what must not be in there."""
    tables = await rows(
        db, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    found = [await rows(db, f'SELECT t::text FROM "{table["relname"]}" AS t') for table in tables]
    answers = await rows(db, "SELECT convert_from(answer, 'UTF8') FROM answers WHERE answer IS NOT NULL")
    return "\n".join(row[0] for each in (*found, answers) for row in each)


async def test_a_tenant_is_made_read_listed_changed_and_deleted(ask: Asker, db: Database) -> None:
    made = await ask(
        "POST", "/tenants", {"name": "acme", "quotas": {"jobs": 1, "shortest_interval": "1m"}, "note": "new"}
    )
    assert made.status == 201, made.body
    assert (made["state"], made["quotas"]["jobs"], made["quotas"]["shortest_interval"]) == ("active", 1, 60.0)
    assert (await ask("POST", "/tenants", {"name": "acme"})).status == 409
    assert (await ask("GET", "/tenants/acme")).body == made.body
    assert [each["name"] for each in (await ask("GET", "/tenants"))["items"]] == ["acme", "default"]
    first = await ask("GET", "/tenants?limit=1")
    assert [each["name"] for each in (await ask("GET", f"/tenants?after={first['next']}"))["items"]] == ["default"]

    edited = await ask("PATCH", "/tenants/acme", {"quotas": {"burst": 7}, "reason": "too loud"})
    assert (edited["quotas"]["burst"], edited["quotas"]["jobs"], edited["note"]) == (7, 1, "new")
    for_acme = ask.given(Mainspring_Tenant="acme")
    assert (await for_acme("POST", "/jobs", HOURLY)).status == 201
    refused = await ask("DELETE", "/tenants/acme")
    assert (refused.status, refused["code"]) == (409, "conflict")
    await for_acme("DELETE", "/jobs/nightly")
    assert (await ask("DELETE", "/tenants/acme?reason=left"))["state"] == "deleted"
    assert [each["name"] for each in (await ask("GET", "/tenants"))["items"]] == ["default"]
    assert (await ask("DELETE", "/tenants/default")).status == 409

    logged = await rows(db, "SELECT action, subject, reason FROM changes WHERE tenant IS NULL ORDER BY at")
    assert [tuple(row) for row in logged] == [
        ("tenants.create", "acme", ""),
        ("tenants.edit", "acme", "too loud"),
        ("tenants.delete", "acme", "left"),
    ]


@pytest.mark.covers("F118")
async def test_who_did_what_to_the_cluster_is_read_by_those_who_run_it(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        operator = ask.with_key(await key_for(db, None, Role.OPERATOR))
        admin = ask.with_key(await key_for(db, None))
        await admin("POST", "/tenants", {"name": "acme", "note": "new"})
        await operator("POST", "/pools/short/pause", {"reason": "a flood"})
        await admin.given(Mainspring_Tenant="acme")("POST", "/jobs", HOURLY)

        first = await operator("GET", "/cluster/changes?limit=1")
        rest = await operator("GET", f"/cluster/changes?after={first['next']}")
        named = await operator("GET", "/cluster/changes?subject=acme")

        read = [(each["action"], each["subject"], each["reason"]) for each in (*first["items"], *rest["items"])]
        assert read == [("pools.pause", "short", "a flood"), ("tenants.create", "acme", "")]
        assert [each["after"]["note"] for each in named["items"]] == ["new"]
        of_acme = ask.with_key(await key_for(db, "acme"))
        assert [each["action"] for each in (await of_acme("GET", "/changes"))["items"]] == ["jobs.create"]
        assert (await of_acme("GET", "/cluster/changes"))["code"] == "forbidden"


async def test_of_quotas_that_several_change_at_once_none_is_lost(ask: Asker, db: Database) -> None:
    await ask("POST", "/tenants", {"name": "acme", "quotas": {"jobs": 10}})

    asked = await asyncio.gather(
        *(ask("PATCH", "/tenants/acme", {"quotas": {name: 7}}) for name in ("jobs", "burst", "batch"))
    )

    assert {each.status for each in asked} <= {200, 409}
    made = {name for each, name in zip(asked, ("jobs", "burst", "batch"), strict=True) if each.status == 200}
    assert made
    quotas = (await ask("GET", "/tenants/acme"))["quotas"]
    assert {name for name in ("jobs", "burst", "batch") if quotas[name] == 7} == made
    logged = await rows(db, "SELECT before, after FROM changes WHERE action = 'tenants.edit' ORDER BY at")
    assert len(logged) == len(made)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "No Name"}, "name"),
        ({"name": "a", "quotas": {"cheese": 1}}, "quotas"),
        ({"name": "a", "quotas": {"jobs": -1}}, "quotas.jobs"),
    ],
)
async def test_a_tenant_that_cannot_be_is_refused(ask: Asker, body: Any, field: str) -> None:
    refused = await ask("POST", "/tenants", body)

    assert (refused.status, refused["field"]) == (422, field)
    assert refused.headers["Content-Type"] == "application/problem+json"


@pytest.mark.covers("F118")
async def test_being_admin_of_a_tenant_is_not_enough_for_tenants(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        admin = ask.with_key(await key_for(db, "acme"))
        for method, path, body in (
            ("GET", "/tenants", None),
            ("GET", "/tenants/acme", None),
            ("POST", "/tenants", {"name": "mine"}),
            ("PATCH", "/tenants/acme", {"quotas": {"jobs": 9}}),
            ("DELETE", "/tenants/acme", None),
        ):
            refused = await admin(method, path, body)
            assert (refused.status, refused["code"]) == (403, "forbidden"), path
        viewer = ask.with_key(await key_for(db, None, Role.VIEWER))
        assert (await viewer("GET", "/tenants")).status == 200
        assert (await viewer("POST", "/tenants", {"name": "mine"})).status == 403


async def test_a_key_is_made_used_listed_and_revoked(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        admin = ask.with_key(await key_for(db, "acme"))
        made = await admin("POST", "/keys", {"name": "ci", "role": "operator"})
        assert (made.status, made["tenant"], made["role"], made["good"]) == (201, "acme", "operator", True)
        assert (await ask.with_key(made["key"])("GET", "/me"))["subject"] == "key:ci"
        assert made["key"] not in await everything(db)

        listed = await admin("GET", "/keys")
        assert [each["name"] for each in listed["items"]] == ["admin of acme", "ci"]
        assert "key" not in listed["items"][1]
        revoked = await admin("DELETE", f"/keys/{made['id']}?reason=leaked")
        assert (revoked.status, revoked["good"]) == (200, False)
        assert [each["name"] for each in (await admin("GET", "/keys"))["items"]] == ["admin of acme"]
        assert len((await admin("GET", "/keys?revoked=true"))["items"]) == 2

        logged = await rows(db, "SELECT tenant, action, subject, actor FROM changes ORDER BY at")
        assert [tuple(row) for row in logged] == [
            ("acme", "keys.create", "ci", "key:admin of acme"),
            ("acme", "keys.revoke", "ci", "key:admin of acme"),
        ]


async def test_the_text_of_a_key_is_not_kept_for_a_request_that_comes_again(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        admin = ask.with_key(await key_for(db, "acme")).given(Idempotency_Key="once")
        made = await admin("POST", "/keys", {"name": "ci", "role": "viewer"})
        again = await admin("POST", "/keys", {"name": "ci", "role": "viewer"})
        other = await admin("POST", "/keys", {"name": "ci", "role": "admin"})

        assert made.status == 201
        assert (again.status, again["code"]) == (409, "key_already_shown")
        assert again.headers["Content-Type"] == "application/problem+json"
        assert (other.status, other["code"]) == (422, "idempotency_key_reused")
        assert len((await admin("GET", "/keys"))["items"]) == 2
        assert made["key"].removeprefix("ms_") not in await everything(db)


@pytest.mark.covers("F98", "F118")
async def test_nobody_makes_a_key_that_may_do_more_than_they_may(db: Database, secured: Settings) -> None:
    async with serve(db, secured) as ask:
        admin, operator = ask.with_key(await key_for(db, "acme")), ask.with_key(await key_for(db, None))
        theirs = ask.with_key(await key_for(db, "bolt"))
        editor = ask.with_key(await key_for(db, "acme", Role.EDITOR))
        for asker, body in (
            (admin, {"name": "up", "role": "admin", "cluster": True}),
            (editor, {"name": "up", "role": "viewer"}),
            (editor, {"name": "up", "role": "admin"}),
        ):
            assert (await asker("POST", "/keys", body)).status == 403
        assert (await admin("GET", "/keys?cluster=true")).status == 403
        assert (await operator("POST", "/keys", {"name": "root", "role": "viewer", "cluster": True}))["tenant"] is None
        made = await operator.given(Mainspring_Tenant="acme")("POST", "/keys", {"name": "ci", "role": "admin"})
        assert made["tenant"] == "acme"

        for key in (made["id"], str(uuid4()), "nonsense"):
            refused = await theirs("DELETE", f"/keys/{key}")
            assert (refused.status, refused["code"]) == (404, "not_found")
        assert [each["tenant"] for each in (await theirs("GET", "/keys"))["items"]] == ["bolt"]
        assert {each["tenant"] for each in (await operator("GET", "/keys?cluster=true"))["items"]} == {
            None,
            "acme",
            "bolt",
        }
        assert (await operator("DELETE", f"/keys/{made['id']}"))["good"] is False
        past = {"name": "late", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}
        assert (await admin("POST", "/keys", past))["field"] == "expires_at"


@pytest.fixture
def sealed(secured: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with a key to seal with."""
    monkeypatch.setenv("SEAL_KEY", base64.b64encode(bytes(range(32))).decode())
    return replace(secured, secrets=replace(secured.secrets, seal_with="env:SEAL_KEY"))


@pytest.mark.covers("F98", "F103")
async def test_a_secret_is_put_and_listed_and_never_read_back(db: Database, sealed: Settings) -> None:
    async with serve(db, sealed) as ask:
        ours, theirs = ask.with_key(await key_for(db, "acme")), ask.with_key(await key_for(db, "bolt"))
        assert (await ours("PUT", "/secrets/db%2Fpassword", {"value": "hunter1"}))["version"] == 1
        put = await ours("PUT", "/secrets/db%2Fpassword", {"value": "hunter2"})
        assert (put.status, put["name"], put["version"]) == (200, "db/password", 2)
        listed = await ours("GET", "/secrets")

        assert [each["name"] for each in listed["items"]] == ["db/password"]
        assert (await ours("GET", "/secrets/db%2Fpassword")).status == 405
        assert (await theirs("GET", "/secrets"))["items"] == []
        assert (await theirs("DELETE", "/secrets/db%2Fpassword")).status == 404
        for seen in (put.body, listed.body, (await ours("GET", "/changes")).body, await everything(db)):
            assert "hunter" not in str(seen)
        sealer = read_sealer("env:SEAL_KEY", (), {"SEAL_KEY": base64.b64encode(bytes(range(32))).decode()})
        assert await open_secret(db, "acme", "db/password", sealer) == "hunter2"
        assert (await ours("DELETE", "/secrets/db%2Fpassword?reason=over"))["versions"] == 2
        assert (await ours("GET", "/secrets"))["items"] == []
        logged = await rows(db, "SELECT action, subject FROM changes WHERE tenant = 'acme' ORDER BY at")
        assert [tuple(row) for row in logged] == [
            *[("secrets.put", "db/password")] * 2,
            ("secrets.delete", "db/password"),
        ]


@pytest.mark.covers("F103")
@pytest.mark.parametrize(
    "body",
    [
        {"valeu": "hunter2"},
        {"value": ["hunter2"]},
        {"value": "hunter2" * 20_000},
        {"value": "hunter2\0"},
        {"value": ""},
    ],
)
async def test_a_value_that_cannot_be_kept_is_not_repeated(db: Database, sealed: Settings, body: Any) -> None:
    async with serve(db, sealed) as ask:
        refused = await ask.with_key(await key_for(db, "acme"))("PUT", "/secrets/password", body)

        assert refused.status == 422
        assert "hunter2" not in str(refused.body)


async def test_without_a_key_to_seal_with_no_secret_is_put(ask: Asker, db: Database) -> None:
    refused = await ask("PUT", "/secrets/password", {"value": "hunter2"})

    assert (refused.status, refused["field"]) == (422, "secrets.seal_with")
    assert (await ask("PUT", "/secrets/..%2Fpassword", {"value": "x"})).status == 422
    assert await rows(db, "SELECT 1 FROM changes") == []


async def test_secrets_are_for_admins(db: Database, sealed: Settings) -> None:
    async with serve(db, sealed) as ask:
        editor = ask.with_key(await key_for(db, "acme", Role.EDITOR))
        assert (await editor("GET", "/secrets")).status == 403
        assert (await editor("PUT", "/secrets/a", {"value": "x"})).status == 403


@pytest.mark.covers("F98")
async def test_the_audit_counts_what_is_the_tenants_own(db: Database, secured: Settings) -> None:
    ledger = Ledger(db, SystemEnvironment())
    async with serve(db, secured) as ask:
        ours, theirs = ask.with_key(await key_for(db, "acme", Role.OBSERVER)), ask.with_key(await key_for(db, "bolt"))
        now = await ledger.value("SELECT clock_timestamp()")
        await ledger.given_jobs(3, tenant="acme", due=timedelta(seconds=5))
        await ledger.given_jobs(1, tenant="bolt", due=timedelta(seconds=5))
        await ledger.fire()
        window = {"start": (now - timedelta(days=1)).isoformat(), "end": now.isoformat()}

        report, other = await ours("POST", "/audit", window), await theirs("POST", "/audit", window)
        assert (report.status, report["good"], report["jobs"], other["jobs"]) == (200, True, 3, 1), report.body
        assert report["expected"] == report["accounted"] > other["expected"] > 0

        await ledger.execute(
            "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE tenant = 'acme' ORDER BY slot LIMIT 1)"
        )
        await ledger.execute("DELETE FROM skips WHERE job_id IN (SELECT id FROM jobs WHERE tenant = 'acme')")
        broken = await ours("POST", "/audit", window)
        assert (broken["good"], broken["missed"] > 0, broken["findings"][0]["fault"]) == (False, True, "missed")
        assert (await theirs("POST", "/audit", window))["good"] is True


async def test_a_range_that_is_none_is_refused(ask: Asker) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    for length in (timedelta(0), -timedelta(hours=1), timedelta(days=31, seconds=1)):
        refused = await ask("POST", "/audit", {"start": now.isoformat(), "end": (now + length).isoformat()})
        assert (refused.status, refused["field"]) == (422, "end")
    assert (await ask("POST", "/audit", {"start": now.isoformat()})).status == 422
