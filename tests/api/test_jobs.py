"""Jobs, through the front door."""

import asyncio
from typing import Any

import pytest

from mainspring import task
from mainspring.domain.tenants import quotas_from_json
from mainspring.store.database import Database
from mainspring.store.tenants import change_tenant
from tests.sdk.conftest import Working, until, working

from .conftest import Answered, Asker, serve

__all__ = ["working"]  # a fixture

pytestmark = pytest.mark.asyncio(loop_scope="session")

NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "task": "report",
    "schedule": [{"cron": "30 2 * * *"}],
    "timezone": "Europe/London",
}


async def test_a_job_is_made_read_listed_edited_and_deleted(ask: Asker) -> None:
    made = await ask("POST", "/jobs", NIGHTLY)
    assert made.status == 201, made.body
    assert made.headers["ETag"] == '"1"'
    assert made.headers["Location"] == f"/api/v1/jobs/{made['id']}"
    assert made["definition"] == NIGHTLY

    read = await ask("GET", f"/jobs/{made['id']}")
    assert read.body == made.body
    assert (await ask("GET", "/jobs/nightly")).body == made.body

    status = await ask("GET", "/jobs/nightly/status")
    assert status["state"] == "active"
    assert status["next_fire_at"] == made["next_fire_at"]

    listed = await ask("GET", "/jobs?prefix=ni&state=active&task=report")
    assert [job["name"] for job in listed["items"]] == ["nightly"]

    edited = await ask("PATCH", "/jobs/nightly", {"priority": 7, "reason": "urgent"}, headers={"If-Match": '"1"'})
    assert edited.status == 200, edited.body
    assert edited["definition"] == {**NIGHTLY, "priority": 7}
    assert edited["version"] == 2
    assert edited["effective_at"] == edited["changed_at"]

    stale = await ask("PATCH", "/jobs/nightly", {"priority": 8}, headers={"If-Match": '"1"'})
    assert (stale.status, stale["code"]) == (412, "stale_version")

    for never in ('"0"', '"3"', 'W/"1"'):
        stale = await ask("PATCH", "/jobs/nightly", {"priority": 8}, headers={"If-Match": never})
        assert (stale.status, stale["code"]) == (412, "stale_version")
    for wrong in ("2", "0", '"2', '"2", "3"', "W/2", '"two"', '"1234567890"'):
        refused = await ask("PATCH", "/jobs/nightly", {"priority": 8}, headers={"If-Match": wrong})
        assert (refused.status, refused["field"], refused["value"]) == (422, "If-Match", wrong)
    for version, right in ((3, 'W/"2"'), (4, "*")):
        edited = await ask("PATCH", "/jobs/nightly", {"priority": version}, headers={"If-Match": right})
        assert (edited.status, edited["version"]) == (200, version)
    assert (await ask("PUT", "/jobs/daily", {**NIGHTLY, "name": "daily"}, headers={"If-Match": "*"})).status == 404

    deleted = await ask("DELETE", "/jobs/nightly?reason=over")
    assert deleted.status == 200
    assert deleted["state"] == "deleted"
    assert (await ask("GET", "/jobs/nightly")).status == 404


@pytest.mark.parametrize(
    "definition",
    [
        {"name": "on demand", "task": "t"},
        {"name": "a/b ü", "task": "t", "schedule": [{"every": "5m", "phase": "1m"}, {"at": "2031-01-01T00:00:00Z"}]},
        {"name": "q", "task": "t", "schedule": [{"cron": "0 0 12 ? * 6L", "dialect": "quartz"}]},
        {"name": "r", "task": "t", "schedule": [{"rrule": "FREQ=DAILY", "start": "2026-01-01T00:00:00Z"}]},
        {
            "name": "all",
            "http": {"url": "https://api.example.com/ping", "method": "POST", "json": None, "success": ["2xx", 404]},
            "schedule": [{"cron": "0 9 * * 1-5"}],
            "timezone": "America/New_York",
            "dst": {"gap": "skip", "overlap": "both"},
            "exclude": ["2026-12-25", {"cron": "* * 1 1 *"}],
            "start": "2026-01-01T00:00:00Z",
            "end": "2030-01-01T00:00:00Z",
            "max_fires": 10,
            "pool": "mail",
            "estimated_duration": "2m",
            "priority": 5,
            "misfire": {"policy": "latest", "most": 7, "window": "1h", "pace": "1s"},
            "overlap": {"policy": "queue", "most": 3},
            "retry": {"kind": "list", "attempts": 3, "delays": ["1s", "1m"], "not_retried": ["ValueError"]},
            "on_loss": "fail",
            "jitter": "30s",
            "wait_timeout": "1h",
            "run_timeout": "5m",
            "deadline": "1d",
            "after_done": "delete",
            "owner": "payroll",
            "tags": ["a", "b"],
            "external_id": "x-1",
        },
    ],
    ids=lambda definition: definition["name"],
)
async def test_what_is_written_is_read_back_as_it_was(ask: Asker, definition: dict[str, Any]) -> None:
    made = await ask("POST", "/jobs", definition)

    assert made.status == 201, made.body
    assert (await ask("GET", f"/jobs/{made['id']}"))["definition"] == definition


async def test_an_edit_takes_null_for_the_default_and_leaves_the_rest(ask: Asker) -> None:
    await ask("POST", "/jobs", {**NIGHTLY, "priority": 9, "tags": ["a"], "payload": {"x": 1}})

    edited = await ask(
        "PATCH", "/jobs/nightly", {"priority": None, "timezone": None, "tags": None, "payload": {"y": 2}}
    )

    assert edited["definition"] == {
        "name": "nightly",
        "task": "report",
        "schedule": NIGHTLY["schedule"],
        "payload": {"y": 2},
    }


async def test_two_edits_at_once_lose_nothing(ask: Asker) -> None:
    await ask("POST", "/jobs", NIGHTLY)

    answers = await asyncio.gather(
        *(ask("PATCH", "/jobs/nightly", {field: value}) for field, value in [("priority", 3), ("pool", "mail")] * 5)
    )

    assert {answer.status for answer in answers} <= {200, 412}
    read = await ask("GET", "/jobs/nightly")
    assert read["version"] == 1 + sum(answer.status == 200 for answer in answers)


async def test_putting_makes_or_changes_and_says_which(ask: Asker) -> None:
    first = await ask("PUT", "/jobs/nightly", NIGHTLY)
    same = await ask("PUT", "/jobs/nightly", NIGHTLY)
    other = await ask("PUT", "/jobs/nightly", {**NIGHTLY, "priority": 1})
    wrong = await ask("PUT", "/jobs/weekly", NIGHTLY)
    stale = await ask("PUT", "/jobs/nightly", NIGHTLY, headers={"If-Match": '"1"'})

    assert [answer.status for answer in (first, same, other, wrong, stale)] == [201, 200, 200, 422, 412]
    assert [answer["version"] for answer in (first, same, other)] == [1, 1, 2]
    assert wrong["field"] == "name"


async def test_a_batch_is_made_whole_or_not_at_all(ask: Asker) -> None:
    batch = [{**NIGHTLY, "name": f"job-{number}"} for number in range(1500)]

    made = await ask("POST", "/jobs:batch", {"jobs": batch})
    again = await ask("POST", "/jobs:batch", {"jobs": [{**NIGHTLY, "name": "new"}, batch[7]]})
    twice = await ask("POST", "/jobs:batch", {"jobs": [NIGHTLY, NIGHTLY]})
    wrong = await ask("POST", "/jobs:batch", {"jobs": [NIGHTLY, {**NIGHTLY, "name": "x", "timezone": "Mars/Base"}]})

    assert made.status == 201
    assert [job["name"] for job in made["jobs"]] == [job["name"] for job in batch]
    assert (again.status, again["code"]) == (409, "already_exists")
    assert "job-7" in again["detail"]
    assert twice.status == 409
    assert (wrong.status, wrong["field"]) == (422, "jobs[1].timezone")
    for name in ("new", "nightly"):
        assert (await ask("GET", f"/jobs/{name}")).status == 404
    names, after = [], ""
    while True:
        page = await ask("GET", f"/jobs?limit=400{after}")
        names += [job["name"] for job in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert names == sorted(job["name"] for job in batch)


async def test_a_key_gives_the_same_answer_once_and_refuses_another_body(ask: Asker, db: Database) -> None:
    keyed = ask.given(Idempotency_Key="k-1")

    answers = await asyncio.gather(*(keyed("POST", "/jobs", NIGHTLY) for _ in range(8)))
    other = await keyed("POST", "/jobs", {**NIGHTLY, "name": "other"})
    bad = await ask.given(Idempotency_Key="ü")("POST", "/jobs", {**NIGHTLY, "name": "bad"})

    good = [answer for answer in answers if answer.status == 201]
    assert good
    assert {answer.status for answer in answers} <= {201, 503}  # 503: the very moment; asked again it has the answer
    assert all(answer.body == good[0].body for answer in good)
    assert (other.status, other["code"]) == (422, "idempotency_key_reused")
    assert (bad.status, bad["field"]) == (422, "Idempotency-Key")
    async with db.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 1
        assert await connection.fetchval("SELECT count(*) FROM changes") == 1


@pytest.mark.parametrize(
    ("path", "body"), [("pause", {"reason": "x"}), ("trigger", {"payload": {"a": 1}}), ("resume", {}), ("cancel", {})]
)
async def test_every_other_post_keeps_its_answer_too(ask: Asker, path: str, body: dict[str, Any]) -> None:
    await ask("POST", "/jobs", {**NIGHTLY, "overlap": {"policy": "allow"}})
    keyed = ask.given(Idempotency_Key=f"key-of-{path}")

    first = await keyed("POST", f"/jobs/nightly/{path}", body)
    again = await keyed("POST", f"/jobs/nightly/{path}", body)
    other = await keyed("POST", f"/jobs/nightly/{path}", {**body, "reason": "another"})

    assert first.status in (200, 201), first.body
    assert again.body == first.body
    assert again.headers["Idempotency-Replayed"] == "true"
    assert other.status == 422
    version = (await ask("GET", "/jobs/nightly"))["version"]
    assert version == (2 if path in ("pause", "resume") else 1)


async def test_a_pause_says_from_when_on_and_ends_by_itself(ask: Asker) -> None:
    await ask("POST", "/jobs", NIGHTLY)

    paused = await ask("POST", "/jobs/nightly/pause", {"reason": "vendor", "until": "2030-01-01T00:00:00Z"})
    resumed = await ask("PATCH", "/jobs/nightly/status", {"state": "active"})
    wrong = await ask("PATCH", "/jobs/nightly/status", {"state": "active", "until": "2030-01-01T00:00:00Z"})
    unknown = await ask("PATCH", "/jobs/nightly/status", {"state": "asleep"})

    assert (paused["state"], paused["resume_at"], paused["reason"]) == ("paused", "2030-01-01T00:00:00Z", "vendor")
    assert paused["effective_at"] < resumed["effective_at"]
    assert resumed["state"] == "active"
    assert (wrong.status, wrong["field"]) == (422, "until")
    assert (unknown.status, unknown["field"]) == (422, "state")


async def test_a_backfill_is_counted_before_it_is_done(ask: Asker) -> None:
    await ask("POST", "/jobs", {**NIGHTLY, "timezone": "UTC", "overlap": {"policy": "allow"}})
    asked = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-11T00:00:00Z"}

    preview = await ask("POST", "/jobs/nightly/backfill", {**asked, "dry_run": True})
    none = await ask("GET", "/jobs/nightly/runs")
    done = await ask("POST", "/jobs/nightly/backfill", {**asked, "key": "once"})
    again = await ask("POST", "/jobs/nightly/backfill", {**asked, "key": "once"})
    runs = await ask("GET", "/jobs/nightly/runs?kind=backfill")

    assert preview.body == {
        "dry_run": True,
        "slots": 10,
        "runs": 10,
        "first": "2026-01-01T02:30:00Z",
        "last": "2026-01-10T02:30:00Z",
    }
    assert none["items"] == []
    assert (done["runs"], again["runs"]) == (10, 0)
    assert len(runs["items"]) == 10


async def test_upcoming_and_explain_speak_of_the_change_of_the_clock(ask: Asker) -> None:
    job = {"name": "night", "task": "t", "schedule": {"cron": "30 2 * * *"}, "timezone": "America/New_York"}
    await ask("POST", "/jobs", job)

    upcoming = await ask("GET", "/jobs/night/upcoming?limit=2&after=2027-03-13T12:00:00Z")
    explained = await ask("GET", "/jobs/night/explain?at=2030-01-01T07:30:00Z")

    assert [slot["at"] for slot in upcoming["items"]] == ["2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]
    assert upcoming["items"][0]["local"] == "2027-03-14T03:00:00-04:00"
    assert "02:30" in upcoming["items"][0]["note"]
    assert upcoming["items"][1]["note"] is None
    assert any("due in" in sentence for sentence in explained["sentences"])


@task
async def greet(name: str) -> str:
    return f"hello {name}"


async def test_a_trigger_may_wait_for_the_end(ask: Asker, working: Working) -> None:
    await ask("POST", "/jobs", {"name": "greet", "task": "greet", "payload": {"name": "you"}})

    at_once = await ask("POST", "/jobs/greet/trigger", {})
    in_vain = await ask("POST", "/jobs/greet/trigger", headers={"Prefer": "wait=1"})
    async with working(greet):
        ended = await ask("POST", "/jobs/greet/trigger", {"payload": {"name": "me"}}, headers={"Prefer": "wait=20"})

    assert (at_once.status, at_once["state"]) == (201, "queued")
    assert in_vain["state"] in ("queued", "held")
    assert ended.headers["Preference-Applied"] == "wait"
    assert (ended["state"], ended["result"]) == ("succeeded", "hello me")


async def _known(ask: Asker, name: str) -> bool:
    return any(name in node["tasks"] for node in (await ask("GET", "/cluster"))["nodes"])


@pytest.mark.covers("F115")
async def test_a_task_that_no_worker_knows_is_refused_once_there_is_a_worker(db: Database, working: Working) -> None:
    async with serve(db) as ask:
        before = await ask("POST", "/jobs", NIGHTLY)
    async with working(greet), serve(db) as ask:
        await until(lambda: _known(ask, "greet"))
        unknown = await ask("POST", "/jobs", {**NIGHTLY, "name": "other"})
        known = await ask("POST", "/jobs", {**NIGHTLY, "name": "other", "task": "greet"})

    assert before.status == 201
    assert (unknown.status, unknown["code"], unknown["field"], unknown["value"]) == (
        422,
        "unknown_task",
        "task",
        "report",
    )
    assert "greet" in unknown["allowed"]
    assert known.status == 201


@pytest.mark.covers("F110")
async def test_a_tenant_keeps_to_its_quotas(db: Database) -> None:
    quotas = {"jobs": 3, "shortest_interval": "1m", "batch": 2, "payload_bytes": 100}
    await change_tenant(db, "default", quotas=quotas_from_json(quotas))
    async with serve(db) as ask:

        async def tried(**more: Any) -> Answered:
            return await ask("POST", "/jobs", {**NIGHTLY, **more})

        often = await tried(schedule=[{"cron": "0,30 0 0 * * *"}])
        hidden = await tried(schedule=[{"cron": "0 0 1 1 *"}, {"cron": "30 0 0 1 1 *"}])
        large = await tried(payload="x" * 200)
        many = await ask("POST", "/jobs:batch", {"jobs": [{**NIGHTLY, "name": f"n{n}"} for n in range(3)]})
        made = [await tried(name=f"job-{number}") for number in range(4)]

    for refused, field in ((often, "schedule"), (hidden, "schedule"), (large, "payload"), (many, "jobs")):
        assert (refused.status, refused["code"], refused["field"]) == (422, "over_quota", field)
    assert [answer.status for answer in made] == [201, 201, 201, 422]
    assert "3 of 3" in made[3]["detail"]


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"name": ""}, "name", ""),
        ({"name": None}, "name", None),
        ({"task": None}, "task", None),
        ({"schedule": [{"cron": "61 * * * *"}]}, "schedule[0].cron", "61"),
        ({"schedule": {"cron": "61 * * * *"}}, "schedule.cron", "61"),
        ({"schedule": [{"cron": "0 3 * * *"}, {"cron": "* * *"}]}, "schedule[1].cron", "* * *"),
        ({"schedule": [{"every": "1500ms"}]}, "schedule[0].every", "1s500ms"),
        (
            {"schedule": [{"every": "1h", "anchor": "1969-01-01T00:00:00Z"}]},
            "schedule[0].anchor",
            "1969-01-01T00:00:00Z",
        ),
        ({"schedule": [{"rrule": "FREQ=NEVER", "start": "2026-01-01T09:00:00Z"}]}, "schedule[0].rrule", "NEVER"),
        (
            {"schedule": [{"rrule": "FREQ=DAILY", "start": "1969-01-01T09:00:00Z"}], "start": "2026-01-01T09:00:00Z"},
            "schedule[0].start",
            "1969-01-01T09:00:00Z",
        ),
        ({"schedule": [{"rrule": "DAILY", "start": "2026-01-01T09:00:00Z"}]}, "schedule[0].rrule", "DAILY"),
        ({"start": "1969-01-01T09:00:00Z"}, "start", "1969-01-01T09:00:00Z"),
        ({"schedule": [], "end": "1969-01-01T09:00:00Z"}, "end", "1969-01-01T09:00:00Z"),
        ({"exclude": ["2026-12-25", {"cron": "* 24 * * *"}]}, "exclude[1].cron", "24"),
        ({"schedule": [{"every": "1h"}] * 101}, "schedule", 101),
        ({"schedule": [{"cron": "0 0 30 2 *"}]}, "schedule[0].cron", "30"),
        ({"schedule": [{"every": "5 minutes"}]}, "schedule[0].every", "5 minutes"),
        ({"schedule": [{}]}, "schedule[0]", "an object of 0"),
        ({"timezone": "Mars/Base"}, "timezone", "Mars/Base"),
        ({"priority": 101}, "priority", 101),
        ({"priority": "high"}, "priority", "high"),
        ({"retry": {"attempts": 0}}, "retry.attempts", 0),
        ({"on_loss": "shrug"}, "on_loss", "shrug"),
        ({"unknown": 1}, "unknown", 1),
        ({"misfire": {"policy": "later"}}, "misfire.policy", "later"),
        ({"exclude": ["tomorrow"]}, "exclude[0]", "tomorrow"),
        ({"start": "2026-01-01T00:00:00"}, "start", "2026-01-01T00:00:00"),
        ({"http": {"url": "https://example.com/"}}, "task", "report"),
    ],
)
async def test_a_refusal_names_the_field_and_the_value(
    ask: Asker, change: dict[str, Any], field: str, value: Any
) -> None:
    definition = {name: each for name, each in {**NIGHTLY, **change}.items() if each is not None or name != "name"}

    refused = await ask("POST", "/jobs", definition)

    assert refused.status == 422, refused.body
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused["field"] == field
    assert refused.body.get("value") == value
    assert refused["allowed"]
    assert refused["code"]
