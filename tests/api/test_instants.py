"""Instants at the ends of the calendar, wherever one can be given."""

from typing import Any

import pytest

from mainspring.store.database import Database

from .conftest import serve

pytestmark = pytest.mark.asyncio(loop_scope="session")

GOOD = "2026-01-01T00:00:00Z"
NIGHTLY = {"name": "nightly", "task": "noop", "schedule": [{"cron": "0 3 * * *"}]}


def asking(at: str) -> list[tuple[str, str, Any, str]]:
    """Return every kind of request that has an instant in it, and the field that has it."""
    text = at.replace("+", "%2B")
    return [
        ("POST", "/audit", {"start": at, "end": GOOD}, "start"),
        ("POST", "/audit", {"start": GOOD, "end": at}, "end"),
        ("GET", f"/runs?since={text}", None, "since"),
        ("GET", f"/runs?until={text}", None, "until"),
        ("GET", f"/changes?since={text}", None, "since"),
        ("GET", f"/dead-letters?since={text}", None, "since"),
        ("GET", f"/jobs/nightly/slots?start={text}&end={text}", None, "start"),
        ("GET", f"/jobs/nightly/upcoming?after={text}", None, "after"),
        ("GET", f"/jobs/nightly/explain?at={text}", None, "at"),
        ("POST", "/jobs/nightly/pause", {"until": at}, "until"),
        ("POST", "/jobs/nightly/backfill", {"start": at, "end": GOOD}, "start"),
        ("POST", "/jobs/nightly/backfill", {"start": GOOD, "end": at}, "end"),
        ("POST", "/keys", {"name": "k", "role": "viewer", "expires_at": at}, "expires_at"),
        ("POST", "/runs", {"job": {"name": "e", "task": "noop"}, "runs": [{"due_at": at}]}, "runs[0].due_at"),
        ("POST", "/jobs", {**NIGHTLY, "name": "a", "schedule": {"at": at}}, "schedule.at"),
        ("POST", "/jobs", {**NIGHTLY, "name": "b", "schedule": [{"at": at}]}, "schedule[0].at"),
        ("POST", "/jobs", {**NIGHTLY, "name": "c", "schedule": [{"every": "1h", "anchor": at}]}, "schedule[0].anchor"),
        ("POST", "/jobs", {**NIGHTLY, "schedule": [{"rrule": "FREQ=DAILY", "start": at}]}, "schedule[0].start"),
        ("POST", "/jobs:batch", {"jobs": [{**NIGHTLY, "name": "d", "start": at}]}, "jobs[0].start"),
        ("PATCH", "/jobs/nightly", {"end": at}, "end"),
        ("POST", "/bulk", {"action": "jobs.pause", "filter": {}, "until": at, "dry_run": True}, "until"),
        ("POST", "/bulk", {"action": "runs.cancel", "filter": {"since": at}, "dry_run": True}, "filter.since"),
    ]


@pytest.mark.parametrize("at", ["0001-01-01T00:01:00+03:51", "9999-12-31T23:59:59-05:00", "9999-12-31T23:59:59Z"])
async def test_an_instant_that_is_none_in_utc_is_refused_by_name(db: Database, at: str) -> None:
    async with serve(db) as ask:
        assert (await ask("POST", "/jobs", NIGHTLY)).status == 201
        for method, path, body, field in asking(at):
            answer = await ask(method, path, body) if body is not None else await ask(method, path)
            assert (answer.status, answer["field"]) == (422, field), (method, path, body, answer)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59-12:00", "9000-01-01T00:00:00Z"])
async def test_others_are_answered_however_far_away(db: Database, at: str) -> None:
    async with serve(db) as ask:
        assert (await ask("POST", "/jobs", NIGHTLY)).status == 201
        statuses = set()
        for method, path, body, _ in asking(at):
            answer = await ask(method, path, body) if body is not None else await ask(method, path)
            statuses.add(answer.status)
    assert statuses <= {200, 201, 202, 404, 409, 422}
    assert {200, 422} <= statuses
