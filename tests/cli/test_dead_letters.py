"""``mainspring dead-letters``: look, replay and discard, one or many."""

import subprocess
import sys

import pytest

from .conftest import BROKEN, Shell

NOBODY = "00000000-0000-0000-0000-000000000000"
LETTER_FIELDS = {
    *("run_id", "job_id", "job", "tenant", "kind", "slot", "version", "reason", "error", "payload", "attempts"),
    *("died_at", "closed_at", "closed_as", "replayed_as"),
}


def test_a_list_in_every_form(shell: Shell) -> None:
    first, second = shell.given_dead(2)

    page = shell.json("dead-letters", "list")
    table = shell.good("dead-letters", "list").out

    assert {letter["run_id"] for letter in page["items"]} == {first, second}
    assert set(page["items"][0]) == LETTER_FIELDS
    assert page["next"] is None
    assert first in table
    assert "shop.Broken: no stock" in table
    assert set(shell.good("dead-letters", "list", "-o", "id").out.split()) == {first, second}
    assert shell.good("dead-letters", "list", "-o", "ndjson").out.count("\n") == 2
    page = shell.json("dead-letters", "list", "--limit", "1")
    assert len(shell.json("dead-letters", "list", "--limit", "1", "--after", page["next"])["items"]) == 1


def test_filters(shell: Shell) -> None:
    shell.given_dead()

    def found(*options: str) -> int:
        return len(shell.good("dead-letters", "list", *options, "-o", "json").items)

    assert found("--where", "job=etl reason=exhausted since=1h") == 1
    assert found("--reason", "lost") == 0
    assert found("--until", "1h") == 0
    assert shell.good("dead-letters", "list", "--reason", "lost").out == "no dead letters\n"


@pytest.mark.parametrize(
    ("where", "because"),
    [
        ("state=dead", 'there is no field "state"; use job, reason, since, until'),
        ("reason=exhusted", '"exhusted" is no reason; did you mean exhausted?'),
        ("reason=lost,expired", "only one reason at a time"),
        ("since=yesterday", "neither an instant nor a duration"),
    ],
)
@pytest.mark.parametrize("command", ["list", "replay", "discard"])
def test_a_filter_that_cannot_be_read(where: str, because: str, command: str, nowhere: Shell) -> None:
    nowhere.refused("dead-letters", command, "--where", where, status=2, because=because)


def test_showing_one(shell: Shell) -> None:
    (run,) = shell.given_dead()

    letter = shell.json("dead-letters", "show", run)
    table = shell.good("dead-letters", "show", run).out

    assert set(letter) == LETTER_FIELDS
    assert (letter["reason"], letter["payload"], letter["closed_at"]) == ("exhausted", {"day": 1}, None)
    assert letter["attempts"][0]["error"]["message"] == "no stock"
    assert "Traceback: line 7" in table
    assert '{"day": 1}' in table


def test_replaying_one_with_another_payload(shell: Shell) -> None:
    (run,) = shell.given_dead()

    (item,) = shell.json("dead-letters", "replay", run, "--payload", '{"day": 2}')["items"]

    again = shell.json("runs", "show", item["replayed_as"])
    assert (again["kind"], again["state"], again["payload"]) == ("replay", "queued", {"day": 2})
    assert shell.json("dead-letters", "list")["items"] == []
    assert shell.good("dead-letters", "replay", run).out == f"{run} replayed as {item['replayed_as']}\n"
    assert "replayed" in shell.good("dead-letters", "show", run).out


def test_waiting_for_a_replay(shell: Shell) -> None:
    first, second = shell.given_dead(2)
    shell.good("dead-letters", "replay", first)
    shell.work()
    shell.good("dead-letters", "replay", second)
    shell.work(BROKEN)

    assert shell("dead-letters", "replay", first, "--wait", "5").status == 0
    assert shell("dead-letters", "replay", first, second, "--wait", "5").status == 1


def test_replaying_many_is_counted_first_and_wants_a_yes(shell: Shell) -> None:
    runs = shell.given_dead(3)
    etl = ("dead-letters", "replay", "--where", "job=etl")

    counted = shell.json(*etl, "--dry-run")
    assert {item["run_id"] for item in counted["items"]} == set(runs)
    assert "3 dead letters would be replayed" in shell.good(*etl, "--dry-run").out
    shell.refused(*etl, status=2, because="Replay 3 dead letters? Add --yes")
    done = shell.json(*etl, "--yes")

    assert {item["run_id"] for item in done["items"]} == set(runs)
    assert "0 done" in shell.good(*etl, "--yes").out


def test_discarding(shell: Shell) -> None:
    first, second, third = shell.given_dead(3)

    one = shell.json("dead-letters", "discard", first, "--because", "gone")
    shell.refused("dead-letters", "discard", "--where", "job=etl", status=2, because="Discard 2 dead letters for good?")
    rest = shell.json("dead-letters", "discard", "--where", "job=etl", "--yes")

    assert one["items"] == [{"run_id": first, "closed_as": "discarded"}]
    assert {item["run_id"] for item in rest["items"]} == {second, third}
    shell.refused("dead-letters", "discard", first, status=4, because="was discarded already")
    shell.refused("dead-letters", "replay", first, status=4, because="was discarded")


def test_an_unknown_letter(shell: Shell) -> None:
    for command in ("show", "replay", "discard"):
        shell.refused("dead-letters", command, NOBODY, status=3, because="there is no dead letter")
        shell.refused("dead-letters", command, "nonsense", status=2, because='"nonsense" is no id of a run')


def test_what_makes_no_sense(shell: Shell) -> None:
    shell.refused("dead-letters", "replay", status=2, because="say which")
    shell.refused("dead-letters", "replay", NOBODY, "--where", "job=etl", status=2, because="not both")
    shell.refused("dead-letters", "replay", NOBODY, "--payload", "{", status=2, because="it is no JSON")
    several = ("dead-letters", "replay", "--where", "since=1h", "--payload", "{}")
    shell.refused(*several, status=2, because="--payload goes with one RUN")


def test_as_a_process(shell: Shell) -> None:
    (run,) = shell.given_dead()
    command = [
        sys.executable,
        "-m",
        "mainspring",
        "dead-letters",
        "replay",
        "--where",
        "job=etl",
        "--yes",
        "-o",
        "json",
    ]

    replayed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (replayed.returncode, replayed.stderr) == (0, "")
    assert run in replayed.stdout
