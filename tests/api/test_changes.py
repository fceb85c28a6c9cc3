"""The log of changes, from the table of routes: what is changed over HTTP is in there, with who did it and why."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.rest.routes import BY_NAME, ROUTES, Route
from mainspring.store.database import Database
from mainspring.store.tenants import create_tenant

from .conftest import Asker, key_for, serve
from .samples import RANGE, SAMPLES, Maker, Sample, Things, fresh, sealing, send

pytestmark = pytest.mark.asyncio(loop_scope="session")

WHY = "it is Monday"
CHANGING = [route for route in ROUTES if route.changes and route.name != "audit.run"]
# Samples that would change nothing as they are.
DONE: Mapping[str, Mapping[str, Any]] = {
    "jobs.set_status": {"state": "paused"},
    "jobs.backfill": RANGE,
    "dead_letters.replay_many": {"filter": {}},
    "dead_letters.discard_many": {"filter": {}},
    "bulk.start": {"action": "jobs.pause", "filter": {}},
}
RESUMES = {"jobs.resume": "/jobs/{0.job}/pause", "pools.resume": "/pools/{0.pool}/pause"}


@pytest_asyncio.fixture(loop_scope="session")
async def admin(db: Database, secured: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asker]:
    await create_tenant(db, "shop")
    async with serve(db, sealing(secured, monkeypatch)) as asker:
        yield asker.with_key(await key_for(db, None, Role.ADMIN)).given(Mainspring_Tenant="shop")


def sample_of(route: Route, things: Things) -> Sample:
    sample = SAMPLES[route.name](things)
    if route.body is None:
        return Sample(query={**sample.query, "reason": WHY})
    return Sample({**DONE.get(route.name, sample.body), "reason": WHY}, sample.query)


async def entries(db: Database) -> list[Mapping[str, Any]]:
    async with db.connection() as connection:
        return await connection.fetch("SELECT * FROM changes ORDER BY at, id")


@pytest.mark.parametrize("name", [route.name for route in CHANGING])
async def test_whatever_changes_something_is_in_the_log_with_who_and_why(name: str, admin: Asker, db: Database) -> None:
    route, things = BY_NAME[name], await Maker(admin, db, "shop").things()
    if name in RESUMES:
        await admin("POST", RESUMES[name].format(things), {})
    before = {entry["id"] for entry in await entries(db)}

    got = await send(admin, route, things, sample=sample_of(route, things))

    assert got.status in {route.status, *(route.also or {})}, got
    request = got.headers["mainspring-request"]
    found = [each for each in await entries(db) if each["id"] not in before and each["request"] == request]
    assert len({entry["subject"] for entry in found}) == len(found) == (2 if name == "jobs.create_many" else 1)
    for entry in found:
        assert (entry["action"], entry["reason"]) == (name, WHY)
        assert entry["actor"].startswith("cluster-key:")
        assert entry["tenant"] == (None if route.noun in {"tenants", "pools", "workers"} else "shop")


async def test_runs_that_are_written_together_are_each_in_the_log(admin: Asker, db: Database) -> None:
    job = {"name": fresh(), "task": "noop"}

    answers = await asyncio.gather(
        *(
            admin("POST", "/runs", {"job": job, "runs": [{"payload": place}], "reason": f"{place}"})
            for place in range(40)
        )
    )

    assert {answer.status for answer in answers} == {201}
    assert len({answer["ids"][0] for answer in answers}) == 40
    said = [entry["reason"] for entry in await entries(db) if entry["action"] == "runs.submit"]
    assert sorted(said, key=int) == [str(place) for place in range(40)]


async def test_a_job_runs_its_own_task_for_whoever_asks_for_another(admin: Asker) -> None:
    """It did so by the task of whoever had asked first, without a word."""
    name = fresh()
    asked = {"job": {"name": name, "task": "noop"}, "runs": [{}]}
    other = {"job": {"name": name, "task": "sum"}, "runs": [{}]}
    assert (await admin("POST", "/runs", asked)).status == 201

    answers = await asyncio.gather(*(admin("POST", "/runs", each) for each in (asked, other, asked, other)))

    assert [answer.status for answer in answers] == [201, 409, 201, 409]
    assert f'the job "{name}" runs task "noop", not "sum"' in answers[1]["detail"]
