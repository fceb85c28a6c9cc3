"""``mainspring runs``: lists, filters, details, lines, and acting on one or on many."""

import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mainspring.domain.ids import RunId
from mainspring.store.lines import Said as SaidLine
from mainspring.store.lines import write_lines
from tests.store.ledger import Ledger

from .conftest import BROKEN, Shell

NOBODY = "00000000-0000-0000-0000-000000000000"
RUN_FIELDS = {
    *("id", "job_id", "job", "tenant", "task", "kind", "state", "reason", "pool", "slot", "version", "attempt"),
    *("failures", "fired_at", "ready_at", "started_at", "settled_at", "worker", "cancel_requested", "payload"),
    *("result", "error"),
}


def test_a_list_as_json_has_a_stable_shape(shell: Shell) -> None:
    shell.given_job("nightly", "--payload", '{"day": 1}')
    run = shell.json("jobs", "trigger", "nightly")["id"]

    page = shell.json("runs", "list")

    assert set(page) == {"items", "next"}
    assert page["next"] is None
    (item,) = page["items"]
    assert set(item) == RUN_FIELDS
    assert (item["id"], item["job"], item["state"], item["kind"]) == (run, "nightly", "queued", "manual")
    assert item["payload"] == {"day": 1}
    assert item["slot"].endswith("Z")
    assert datetime.fromisoformat(item["fired_at"]).tzinfo is not None


def test_a_list_as_a_table_lines_and_ids(shell: Shell) -> None:
    shell.given_job()
    run = shell.json("jobs", "trigger", "nightly")["id"]

    table = shell.good("runs", "list").out
    lines = shell.good("runs", "list", "-o", "ndjson").out

    assert run in table
    assert "queued" in table
    assert lines.count("\n") == 1
    assert shell.good("runs", "list", "-o", "id").out == f"{run}\n"


def test_an_empty_list_says_so(shell: Shell) -> None:
    assert shell.good("runs", "list").out == "no runs\n"
    assert shell.json("runs", "list") == {"items": [], "next": None}


def test_pages_follow_each_other(shell: Shell) -> None:
    shell.given_job()
    made = {shell.json("jobs", "trigger", "nightly")["id"] for _ in range(3)}

    first = shell.json("runs", "list", "--limit", "2")
    second = shell.json("runs", "list", "--limit", "2", "--after", first["next"])

    assert {run["id"] for page in (first, second) for run in page["items"]} == made
    assert second["next"] is None
    assert f"there are more: --after {first['next']}" in shell.good("runs", "list", "--limit", "2").err


def test_filters(shell: Shell) -> None:
    shell.given_dead(2)

    def found(*options: str) -> int:
        return len(shell.good("runs", "list", *options, "-o", "json").items)

    assert found("--where", "state=dead job=etl since=1h") == 2
    assert found("--where", "state=dead,cancelled") == 2
    assert found("--where", "state=queued") == 0
    assert found("--where", "until=1h") == 0
    assert found("--where", "pool=long") == 0
    assert found("--state", "dead", "--state", "queued", "--job", "etl") == 2
    assert found("--where", "state=dead", "--pool", "short") == 2
    assert found("--since", "2020-01-01T00:00:00Z") == 2
    shell.refused("runs", "list", "--where", "job=nosuch", status=3, because='there is no job "nosuch"')
    shell.refused("runs", "list", "--after", "x", status=2, because="is no cursor")


@pytest.mark.parametrize(
    ("where", "because"),
    [
        ("stat=dead", 'there is no field "stat"; did you mean state?'),
        ("state=ded", '"ded" is no state; did you mean dead?'),
        ("state=", '"state=" is no name=value'),
        ("dead", '"dead" is no name=value'),
        ("since=soon", '"soon" is neither an instant nor a duration'),
        ("since=2026-11-15T09:30:00", "has no offset"),
        ("state=dead state=queued", '"state" is given twice'),
        ("job='etl", "no closing quotation"),
        (" ", "it is empty"),
    ],
)
@pytest.mark.parametrize("command", ["list", "cancel", "retry"])
def test_a_filter_that_cannot_be_read(where: str, because: str, command: str, nowhere: Shell) -> None:
    nowhere.refused("runs", command, "--where", where, status=2, because=because)


def test_what_is_said_twice_is_refused(nowhere: Shell) -> None:
    because = 'where: "state" is given twice; leave out --state'

    nowhere.refused("runs", "list", "--where", "state=dead", "--state", "queued", status=2, because=because)


def test_showing_a_run_shows_its_attempts_and_its_error(shell: Shell) -> None:
    (run,) = shell.given_dead()

    shown = shell.json("runs", "show", run)
    table = shell.good("runs", "show", run).out

    assert set(shown) == {*RUN_FIELDS, "attempts"}
    assert (shown["state"], shown["reason"], shown["payload"]) == ("dead", "exhausted", {"day": 1})
    assert shown["error"] == {"type": "shop.Broken", "message": "no stock", "traceback": "Traceback: line 7"}
    (attempt,) = shown["attempts"]
    assert set(attempt) == {"number", "worker", "started_at", "ended_at", "outcome", "error"}
    assert "dead, exhausted" in table
    assert "shop.Broken: no stock" in table
    assert "Traceback: line 7" in table


def test_an_unknown_run(shell: Shell) -> None:
    for command in ("show", "tail", "retry", "cancel"):
        shell.refused("runs", command, NOBODY, status=3, because=f"there is no run {NOBODY}")
        shell.refused("runs", command, "nonsense", status=2, because='"nonsense" is no id of a run')


def test_tail_shows_the_lines_in_order(shell: Shell) -> None:
    (run,) = shell.given_dead()
    view = shell.json("runs", "show", run)
    slot = datetime.fromisoformat(view["slot"])

    async def say(ledger: Ledger) -> None:
        at, key = datetime(2026, 11, 15, 9, 30, tzinfo=UTC), RunId(UUID(run))
        lines = [SaidLine(key, slot, 1, n, at, "stdout", "", text) for n, text in enumerate(["one", "\x1b[2Jtwo"], 1)]
        await write_lines(ledger.db, lines)

    shell.ledger(say)

    assert shell.good("runs", "tail", run).out.splitlines() == ["09:30:00 1 stdout  one", "09:30:00 1 stdout  �[2Jtwo"]
    items = shell.good("runs", "tail", run, "--follow", "-o", "json").items
    assert [item["text"] for item in items] == ["one", "\x1b[2Jtwo"]
    assert set(items[0]) == {"attempt", "number", "at", "stream", "level", "text"}
    assert shell.good("runs", "tail", run, "-o", "ndjson").out.count("\n") == 2


def test_retrying_a_dead_run_makes_a_new_one(shell: Shell) -> None:
    (run,) = shell.given_dead()

    answer = shell.json("runs", "retry", run)

    (item,) = answer["items"]
    assert item["run_id"] == run
    assert shell.json("runs", "show", item["retried_as"])["kind"] == "replay"
    assert shell.good("runs", "retry", run, "-o", "id").out == f"{item['retried_as']}\n"  # twice is once
    assert shell.good("runs", "retry", run).out == f"{run} retried as {item['retried_as']}\n"


def test_waiting_for_what_was_retried(shell: Shell) -> None:
    (run,) = shell.given_dead()
    shell.good("runs", "retry", run)
    shell.work()

    said = shell("runs", "retry", run, "--wait", "5")

    assert said.status == 0
    assert "succeeded" in said.err
    assert f"{run} retried as" in said.out


def test_waiting_for_what_fails_again(shell: Shell) -> None:
    (run,) = shell.given_dead()
    shell.good("runs", "retry", run)
    shell.work(BROKEN)

    assert shell("runs", "retry", run, "--wait", "5").status == 1


def test_retrying_what_has_not_been_tried(shell: Shell) -> None:
    shell.given_job()
    run = shell.json("jobs", "trigger", "nightly")["id"]

    shell.refused("runs", "retry", run, status=4, because="it can be retried when it waits or has ended")


def test_retrying_many_is_counted_first_and_wants_a_yes(shell: Shell) -> None:
    runs = shell.given_dead(3)

    counted = shell.good("runs", "retry", "--where", "job=etl", "--dry-run")
    shell.refused("runs", "retry", "--where", "job=etl", status=2, because="Retry 3 runs? Add --yes")
    done = shell.good("runs", "retry", "--where", "job=etl", "--yes", "-o", "json")

    assert "3 runs would be retried" in counted.out
    assert {item["run_id"] for item in done.items} == set(runs)


def test_cancelling_runs(shell: Shell) -> None:
    shell.given_job()
    first, second, third = (shell.json("jobs", "trigger", "nightly")["id"] for _ in range(3))

    assert shell.json("runs", "cancel", first)["items"] == [{"run_id": first, "state": "cancelled"}]
    assert "2 runs would be cancelled" in shell.good("runs", "cancel", "--where", "job=nightly", "--dry-run").out
    assert "2 done" in shell.good("runs", "cancel", "--where", "job=nightly", "--yes").out
    assert {shell.json("runs", "show", run)["state"] for run in (second, third)} == {"cancelled"}
    shell.refused("runs", "cancel", first, status=4, because="is cancelled; only what is in motion")


def test_one_of_many_that_cannot_be_done_does_not_hold_up_the_rest(shell: Shell) -> None:
    shell.given_job()
    run = shell.json("jobs", "trigger", "nightly")["id"]

    said = shell("runs", "cancel", NOBODY, run, "-o", "json")

    assert said.status == 3
    assert [item["run_id"] for item in said.items] == [run]
    assert f"error: there is no run {NOBODY}" in said.err


def test_nothing_is_not_everything(shell: Shell) -> None:
    for command in ("cancel", "retry"):
        shell.refused("runs", command, status=2, because="say which")
        shell.refused("runs", command, NOBODY, "--where", "state=dead", status=2, because="not both")


def test_a_watch_writes_a_line_per_change_until_interrupted(shell: Shell) -> None:
    shell.given_job()
    run = shell.json("jobs", "trigger", "nightly")["id"]
    command = [sys.executable, "-u", "-m", "mainspring", "runs", "list", "--watch", "200ms", "-o", "ndjson"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            assert '"state": "queued"' in watching.stdout.readline()
            shell.good("runs", "cancel", run)
            assert '"state": "cancelled"' in watching.stdout.readline()
            watching.send_signal(2)
            rest, complaint = watching.communicate(timeout=20)
        finally:
            watching.kill()

    assert (rest, complaint, watching.returncode) == ("", "", 0)
