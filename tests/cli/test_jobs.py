"""``mainspring jobs``: write, look, change, and what becomes of a job's slots and runs."""

import subprocess
import sys
from pathlib import Path

from mainspring.domain.run import State
from tests.store.ledger import Ledger

from .conftest import BROKEN, Shell

JOB_FIELDS = {
    *("id", "name", "tenant", "state", "version", "definition", "next_fire_at", "last_slot", "resume_at", "fired"),
    *("created_at", "changed_at", "author", "reason"),
}
NIGHTLY = ("jobs", "put", "nightly", "--cron", "30 2 * * *", "--tz", "America/New_York", "--task", "report")


def test_putting_a_job_writes_it_and_shows_it(shell: Shell) -> None:
    job = shell.json(*NIGHTLY, "--payload", '{"day": "today"}', "--reason", "because")

    assert set(job) == JOB_FIELDS
    assert (job["name"], job["state"], job["version"], job["reason"]) == ("nightly", "active", 1, "because")
    assert job["definition"] == {
        "name": "nightly",
        "task": "report",
        "schedule": {
            "specs": [{"cron": "30 2 * * *", "dialect": "unix"}],
            "rules": 1,
            "timezone": "America/New_York",
        },
        "payload": {"day": "today"},
    }
    assert shell.json("jobs", "show", "nightly") == shell.json("jobs", "show", job["id"]) == job
    table = shell.good("jobs", "show", "nightly").out
    assert "At 02:30 every day, America/New_York time." in table
    assert "02:30:00-0" in table  # by the job's clock
    assert shell.good(*NIGHTLY, "-o", "id").out == f"{job['id']}\n"


def test_putting_it_again_changes_only_what_differs(shell: Shell) -> None:
    shell.good(*NIGHTLY)

    assert "nothing to change" in shell.good(*NIGHTLY).out
    assert shell.json(*NIGHTLY, "--pool", "mail")["version"] == 2


def test_every_policy_has_an_option(shell: Shell) -> None:
    options = {
        "--pool": "mail",
        "--priority": "9",
        "--retry": "3",
        "--backoff": "10s..5m",
        "--retry-max-age": "1h",
        "--not-retried": "ValueError",
        "--timeout": "2m",
        "--wait-timeout": "10m",
        "--deadline": "1h",
        "--estimated-duration": "5m",
        "--overlap": "queue",
        "--overlap-most": "1",
        "--misfire": "latest",
        "--misfire-window": "1h",
        "--misfire-pace": "1s",
        "--misfire-most": "7",
        "--jitter": "30s",
        "--on-loss": "fail",
        "--after-done": "delete",
        "--start": "2026-01-01T00:00:00Z",
        "--end": "2030-01-01T00:00:00Z",
        "--max-fires": "100",
        "--exclude": "2027-12-25",
        "--dst-gap": "skip",
        "--dst-overlap": "first",
    }

    said = shell.json(*NIGHTLY, *(word for pair in options.items() for word in pair))["definition"]

    assert said["retry"] == {
        "attempts": 3,
        "base": "10s",
        "cap": "5m",
        "max_age": "1h",
        "not_retried": ["ValueError"],
    }
    assert said["overlap"] == {"policy": "queue", "most": 1}
    assert said["misfire"] == {"policy": "latest", "window": "1h", "pace": "1s", "most": 7}
    assert (said["run_timeout"], said["wait_timeout"], said["deadline"], said["jitter"]) == ("2m", "10m", "1h", "30s")
    assert (said["pool"], said["priority"], said["on_loss"], said["after_done"]) == ("mail", 9, "fail", "delete")
    assert said["schedule"]["dst"] == {"gap": "skip", "overlap": "first"}
    assert said["schedule"]["exclude"] == ["2027-12-25"]
    assert said["schedule"]["max_fires"] == 100


def test_other_schedules_and_targets(shell: Shell, surroundings: Path) -> None:
    (surroundings / "payload.json").write_text('{"from": "a file"}')
    put = ("jobs", "put")

    ping = shell.json(
        *(*put, "ping", "--every", "5m", "--http-url", "https://example.com/hook", "--payload", "@payload.json"),
        *("--http-header", "Accept=text/plain", "--http-secret-header", "Authorization=env:TOKEN"),
        *("--http-success", "2xx", "--http-success", "404", "--http-timeout", "10s", "--http-redirects", "2"),
    )["definition"]
    once = shell.json(*put, "once", "--at", "2030-01-01T00:00:00+01:00", "--task", "x")["definition"]
    rule = shell.json(*put, "rule", "--rrule", "FREQ=DAILY", "--start", "2027-01-01T09:00:00Z", "--task", "x")
    spread = shell.json(*put, "spread", "--cron", "H 3 * * *", "--task", "x")["definition"]

    assert ping["task"] == "http"
    assert ping["payload"] == {
        "method": "POST",
        "url": "https://example.com/hook",
        "headers": {"Accept": "text/plain"},
        "secret_headers": {"Authorization": "env:TOKEN"},
        "json": {"from": "a file"},
        "success": ["2xx", 404],
        "timeout": "10s",
        "redirects": 2,
    }
    assert once["schedule"]["specs"] == [{"at": "2029-12-31T23:00:00Z"}]
    assert rule["next_fire_at"] == "2027-01-01T09:00:00Z"
    assert spread["schedule"]["key"] == "spread"


def test_a_dry_run_shows_the_slots_and_writes_nothing(shell: Shell) -> None:
    would = shell.json(*NIGHTLY, "--dry-run")

    assert set(would) == {"name", "definition", "upcoming", "changes", "new"}
    assert (would["new"], len(would["upcoming"])) == (True, 5)
    assert "nothing was written" in shell.good(*NIGHTLY, "--dry-run").out
    shell.refused("jobs", "show", "nightly", status=3, because='there is no job "nightly"')


REFUSED = (
    (("--task", "x"), "schedule: there is none; give --cron"),
    (("--every", "5m"), "task: there is nothing to run; give --task or --http-url"),
    (("--every", "5m", "--task", "x", "--http-url", "https://example.com/"), "a job has one target"),
    (("--every", "often", "--task", "x"), '"often" is not a duration'),
    (("--at", "tomorrow", "--task", "x"), '"tomorrow" is not an instant'),
    (("--at", "2026-11-15T09:30:00", "--task", "x"), "has no offset"),
    (("--cron", "61 * * * *", "--task", "x"), "61"),
    (("--cron", "* * * * *", "--tz", "Mars/Base", "--task", "x"), "Mars/Base"),
    (("--every", "5m", "--task", "x", "--payload", "{day: 1}"), "it is no JSON"),
    (("--every", "5m", "--task", "x", "--payload", "NaN"), "it is no JSON"),
    (("--every", "5m", "--task", "x", "--payload", "@nosuch.json"), "nosuch.json cannot be read"),
    (("--every", "5m", "--task", "x", "--priority", "101"), "101"),
    (("--every", "5m", "--task", "x", "--overlap", "never"), "'never' is not one of"),
    (("--every", "5m", "--task", "x", "--backoff", "soon"), '"soon" is not a duration'),
    (("--every", "5m", "--task", "x", "--on-demand"), "it goes with no other schedule"),
    (("--every", "5m", "--http-url", "ftp://example.com"), "payload.url"),
    (("--every", "5m", "--http-url", "https://a.b/", "--http-header", "Accept"), '"Accept" has no value'),
    (("--every", "5m", "--http-url", "https://a.b/", "--http-header", "Cookie=1"), "would keep a secret"),
    (("--every", "5m", "--http-method", "GET"), "give --task or --http-url"),
)


def test_a_job_that_cannot_be(shell: Shell) -> None:
    for options, because in REFUSED:
        shell.refused("jobs", "put", "job", *options, status=2, because=because)


def test_listing_jobs(shell: Shell) -> None:
    shell.given_job("etl-a")
    shell.given_job("etl-b")
    shell.good(*NIGHTLY)
    shell.good("jobs", "pause", "nightly")

    assert [job["name"] for job in shell.json("jobs", "list")["items"]] == ["etl-a", "etl-b", "nightly"]
    assert [job["name"] for job in shell.json("jobs", "list", "--prefix", "etl-")["items"]] == ["etl-a", "etl-b"]
    assert [job["name"] for job in shell.json("jobs", "list", "--state", "paused")["items"]] == ["nightly"]
    assert [job["name"] for job in shell.json("jobs", "list", "--task", "report")["items"]] == ["nightly"]
    page = shell.json("jobs", "list", "--limit", "1")
    assert shell.json("jobs", "list", "--limit", "1", "--after", page["next"])["items"][0]["name"] == "etl-b"
    assert set(page["items"][0]) == JOB_FIELDS
    table = shell.good("jobs", "list").out
    assert "30 2 * * * America/New_York" in table
    assert "on demand" in table
    assert shell.good("jobs", "list", "-o", "ndjson").out.count("\n") == 3
    shell.refused("jobs", "list", "--state", "asleep", status=2, because="'asleep' is not one of")
    shell.refused("jobs", "list", "--limit", "0", status=2, because="0 is not in the range")


def test_editing_a_job(shell: Shell) -> None:
    shell.good(*NIGHTLY, "--timeout", "5m", "--retry", "2", "--priority", "5")

    would = shell.json("jobs", "edit", "nightly", "--cron", "0 3 * * *", "--clear", "timeout", "--dry-run")
    edited = shell.json("jobs", "edit", "nightly", "--cron", "0 3 * * *", "--clear", "timeout", "--reason", "later")

    assert would["changes"] == [
        {
            "field": "schedule.specs",
            "before": [{"cron": "30 2 * * *", "dialect": "unix"}],
            "after": [{"cron": "0 3 * * *", "dialect": "unix"}],
        },
        {"field": "run_timeout", "before": "5m", "after": None},
    ]
    assert edited["definition"] == would["definition"]
    assert (edited["version"], edited["reason"]) == (2, "later")
    assert edited["definition"]["schedule"]["timezone"] == "America/New_York"  # what is not said stays
    assert shell.json("jobs", "edit", "nightly", "--priority", "0")["definition"].get("priority") is None
    assert shell.json("jobs", "edit", "nightly", "--backoff", "10s")["definition"]["retry"]["attempts"] == 2
    assert "nothing to change" in shell.good("jobs", "edit", "nightly", "--priority", "0").out
    shell.refused("jobs", "edit", "nightly", status=2, because="nothing is to be changed")
    shell.refused("jobs", "edit", "nosuch", "--priority", "1", status=3, because='there is no job "nosuch"')
    stale = ("jobs", "edit", "nightly", "--priority", "1", "--if-version", "1")
    shell.refused(*stale, status=4, because="not at 1; look again")


def test_what_differs_between_versions(shell: Shell) -> None:
    shell.good(*NIGHTLY)
    shell.good("jobs", "edit", "nightly", "--priority", "7")
    shell.good("jobs", "pause", "nightly", "--reason", "outage")

    assert shell.json("jobs", "diff", "nightly", "1", "2") == {
        "job": "nightly",
        "old": 1,
        "new": 2,
        "changes": [{"field": "priority", "before": None, "after": 7}],
    }
    last = shell.json("jobs", "diff", "nightly")
    assert last["changes"] == [{"field": "state", "before": "active", "after": "paused"}]
    assert ": outage" in shell.good("jobs", "diff", "nightly").out
    shell.refused("jobs", "diff", "nightly", "1", "9", status=3, because="has no version 9, but 1 to 3")


def test_pausing_and_resuming(shell: Shell) -> None:
    shell.good(*NIGHTLY)

    paused = shell.json("jobs", "pause", "nightly", "--reason", "outage", "--until", "2030-01-01T00:00:00Z")

    assert (paused["state"], paused["resume_at"]) == ("paused", "2030-01-01T00:00:00Z")
    assert "the job is paused" in shell.good("jobs", "upcoming", "nightly").out
    assert shell.json("jobs", "resume", "nightly")["state"] == "active"
    shell.refused("jobs", "pause", "nightly", "--until", "tomorrow", status=2, because='"tomorrow" is not an instant')
    shell.given_job("done")
    shell.refused("jobs", "pause", "done", status=4, because="nothing to pause")


def test_triggering_a_job(shell: Shell) -> None:
    shell.given_job()

    first = shell.json("jobs", "trigger", "nightly", "--payload", '{"day": 2}', "--key", "a")
    again = shell.json("jobs", "trigger", "nightly", "--key", "a")
    shell.work()
    waited = shell("jobs", "trigger", "nightly", "--key", "a", "--wait", "5", "-o", "json")

    assert first["payload"] == {"day": 2}
    assert first["id"] == again["id"]
    assert (waited.status, waited.json["state"]) == (0, State.SUCCEEDED)
    shell.refused("jobs", "trigger", "nightly", "--wait", "1", status=1, because="is queued after 1 s; it goes on")
    shell.refused("jobs", "trigger", "nightly", "--payload", "{", status=2, because="it is no JSON")
    shell.refused("jobs", "trigger", "nightly", "--wait", "soon", status=2, because='"soon" is not a duration')


def test_waiting_for_a_run_that_dies(shell: Shell) -> None:
    shell.given_job("etl", "--retry", "1")
    shell.good("jobs", "trigger", "etl", "--key", "a")
    shell.work(BROKEN)

    said = shell("jobs", "trigger", "etl", "--key", "a", "--wait")

    assert said.status == 1
    assert "shop.Broken: no stock" in said.out


def test_backfilling_counts_asks_and_writes(shell: Shell) -> None:
    shell.good("jobs", "put", "hourly", "--every", "1h", "--task", "noop", "--overlap", "allow")
    week = ("jobs", "backfill", "hourly", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")

    counted = shell.json(*week, "--dry-run")
    shell.refused(*week, status=2, because="Run 24 slots, from 2026-01-01T00:00:00Z to 2026-01-01T23:00:00Z")
    written = shell.json(*week, "--yes", "--pace", "1m", "--key", "week")

    first, last = "2026-01-01T00:00:00Z", "2026-01-01T23:00:00Z"
    assert counted == {"job": "hourly", "slots": 24, "first": first, "last": last, "written": 0}
    assert written == {**counted, "written": 24}
    assert "0 runs written" in shell.good(*week, "--yes", "--key", "week").out
    assert len(shell.json("jobs", "runs", "hourly", "--limit", "100")["items"]) == 24
    empty = ("jobs", "backfill", "hourly", "--from", "1h", "--to", "2h", "--yes")
    shell.refused(*empty, status=2, because="the range is empty")
    future = ("jobs", "backfill", "hourly", "--from", "1h", "--to", "2030-01-01T00:00:00Z", "--yes")
    shell.refused(*future, status=2, because="the future")
    shell.refused("jobs", "backfill", "hourly", "--from", "then", status=2, because="neither an instant nor a duration")


def test_upcoming_slots(shell: Shell) -> None:
    shell.good(*NIGHTLY, "--start", "2027-03-13T00:00:00Z")

    slots = shell.json("jobs", "upcoming", "nightly", "-n", "2")["items"]

    assert slots == [{"slot": "2027-03-13T07:30:00Z"}, {"slot": "2027-03-14T07:00:00Z"}]
    assert "the clock goes from 02:00 to 03:00" in shell.good("jobs", "upcoming", "nightly", "-n", "2").out


def test_slots_that_were_decided(shell: Shell) -> None:
    async def fire(ledger: Ledger) -> str:
        (job,) = await ledger.given_jobs()
        await ledger.fire()
        return str(job)

    job = shell.ledger(fire)

    found = shell.json("jobs", "slots", job, "--from", "1h")["items"]

    assert set(found[0]) == {"slot", "first_slot", "disposition", "covers", "decided_at", "run_id"}
    assert found[-1]["disposition"] == "fired"
    assert "fired" in shell.good("jobs", "slots", job).out
    assert shell.good("jobs", "slots", job, "--to", "1h").out == "no slots\n"


def test_cancelling_the_runs_of_a_job(shell: Shell) -> None:
    shell.given_job()
    shell.good("jobs", "trigger", "nightly")
    shell.good("jobs", "trigger", "nightly")

    assert shell.json("jobs", "cancel", "nightly", "--dry-run") == {"job": "nightly", "runs": 2, "cancelled": 0}
    shell.refused("jobs", "cancel", "nightly", status=2, because='Cancel 2 runs of "nightly"? Add --yes')
    assert shell.json("jobs", "cancel", "nightly", "--yes") == {"job": "nightly", "runs": 2, "cancelled": 2}


def test_deleting_a_job(shell: Shell) -> None:
    shell.good(*NIGHTLY)

    assert "would be deleted" in shell.good("jobs", "delete", "nightly", "--dry-run").out
    shell.refused("jobs", "delete", "nightly", status=2, because='Delete the job "nightly"? Add --yes')
    assert shell.json("jobs", "delete", "nightly", "--yes")["state"] == "deleted"
    shell.refused("jobs", "show", "nightly", status=3, because='there is no job "nightly"')


def test_an_unknown_job_is_told_by_every_command(shell: Shell) -> None:
    backfill = ("backfill", "nosuch", "--from", "1h", "--yes")
    verbs = ("show", "pause", "resume", "trigger", "upcoming", "slots", "runs", "diff", "cancel", "delete")

    for words in (*((verb, "nosuch") for verb in verbs), backfill):
        shell.refused("jobs", *words, status=3, because='there is no job "nosuch"')


def test_tenants_do_not_see_each_other(shell: Shell) -> None:
    shell.good(*NIGHTLY, "--tenant", "shop")

    assert shell.json("jobs", "list")["items"] == []
    assert len(shell.json("jobs", "list", "--tenant", "shop")["items"]) == 1


def test_as_a_process(shell: Shell) -> None:
    shell.good(*NIGHTLY)
    command = [sys.executable, "-m", "mainspring", "jobs", "list", "-o", "id"]

    listed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (listed.returncode, listed.stderr) == (0, "")
    assert len(listed.stdout.splitlines()) == 1
