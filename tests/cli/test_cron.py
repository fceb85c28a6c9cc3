"""``mainspring cron`` through its front door: real processes where exit codes are promised, else in process."""

import json
import subprocess
import sys
from datetime import datetime

import click
import pytest
from click.testing import CliRunner, Result

from mainspring.cli.main import cli
from mainspring.domain.errors import MainspringError

NEW_YORK = ("--tz", "America/New_York", "--from", "2027-03-12T12:00:00Z")


def mainspring(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mainspring", *arguments], capture_output=True, text=True, check=False)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def test_next_as_json_is_an_array_of_utc_instants() -> None:
    result = mainspring("cron", "next", "30 2 * * *", *NEW_YORK, "--count", "3", "--json")

    assert result.returncode == 0
    assert json.loads(result.stdout) == ["2027-03-13T07:30:00Z", "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]


def test_output_json_is_the_same_as_the_flag() -> None:
    arguments = ("cron", "next", "0 0 12 ? * 6L", "--dialect", "quartz", "--from", "2026-11-15T00:00:00Z", "-n", "2")

    assert run(*arguments, "-o", "json").output == run(*arguments, "--json").output
    assert json.loads(run(*arguments, "--json").output) == ["2026-11-27T12:00:00Z", "2026-12-25T12:00:00Z"]


def test_a_schedule_that_ends_lists_fewer() -> None:
    result = run("cron", "next", "0 0 0 1 1 ? 2027", "--dialect", "quartz", "--from", "2026-11-15T00:00:00Z", "--json")

    assert json.loads(result.output) == ["2027-01-01T00:00:00Z"]
    past = run("cron", "next", "0 0 0 1 1 ? 2020", "--dialect", "quartz", "--from", "2026-11-15T00:00:00Z", "--json")
    assert json.loads(past.output) == []


def test_the_table_shows_local_time_utc_offset_and_what_the_clock_did() -> None:
    result = run("cron", "next", "30 2 * * *", *NEW_YORK, "-n", "2")

    assert result.exit_code == 0
    assert "At 02:30 every day, America/New_York time." in result.output
    assert "Sun 2027-03-14 03:00:00" in result.output
    assert "2027-03-14 07:00:00" in result.output
    assert "-0400" in result.output
    assert "for 02:30, which is missing: the clock goes from 02:00 to 03:00" in result.output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--dst-gap", "shift"), "2027-03-14T07:30:00Z"),
        (("--dst-gap", "skip"), "2027-03-15T06:30:00Z"),
        (("--exclude", "2027-03-14"), "2027-03-15T06:30:00Z"),
        (("--exclude", "* * * * SUN"), "2027-03-15T06:30:00Z"),
        (("--exclude", "0 3 * * SUN"), "2027-03-15T06:30:00Z"),  # an exclusion is of instants: the slot stands at 03:00
        (("--exclude", "30 3 * * SUN"), "2027-03-14T07:00:00Z"),
    ],
)
def test_options_change_the_slots(options: tuple[str, ...], expected: str) -> None:
    result = run("cron", "next", "30 2 * * *", *NEW_YORK, "-n", "2", "--json", *options)

    assert expected in json.loads(result.output)


def test_h_needs_and_uses_the_key() -> None:
    keyed = run("cron", "next", "H H * * *", "--key", "job-7", "--from", "2026-11-15T00:00:00Z", "-n", "1", "--json")

    assert keyed.exit_code == 0
    assert mainspring("cron", "next", "H H * * *").returncode == 2


def test_a_moved_slot_is_noted_for_rules_and_lost_days_too() -> None:
    rule = ("cron", "next", "RRULE:FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "--tz", "America/New_York")
    lost = ("cron", "next", "0 12 30 12 *", "--tz", "Pacific/Apia", "--dst-gap", "first_after")

    assert "for 02:30, which is missing" in run(*rule, "--from", "2027-03-13T10:00:00Z", "-n", "2").output
    assert "2011-12-30 12:00" in run(*lost, "--from", "2011-01-01T00:00:00Z", "-n", "2").output


def test_explain_says_it_in_a_sentence() -> None:
    assert run("cron", "explain", "0 0 13 * 5").output == "At 00:00 on day 13 of the month or on Friday, UTC.\n"
    explained = json.loads(run("cron", "explain", "@daily", "--json", "--from", "2026-11-15T00:00:00Z").output)
    assert explained["next"][0] == "2026-11-16T00:00:00Z"
    assert explained["explanation"].endswith(".")


def test_lint_names_reasons_and_dates() -> None:
    found = json.loads(run("cron", "lint", "30 2 * * *", *NEW_YORK, "--json").output)

    assert [finding["name"] for finding in found] == ["dst-gap"]
    assert found[0]["dates"][0] == "2027-03-14T07:00:00Z"


def test_lint_is_quiet_about_a_good_schedule_and_strict_when_told() -> None:
    assert run("cron", "lint", "0 9 * * MON-FRI").output == "nothing to report\n"
    assert mainspring("cron", "lint", "*/7 * * * *").returncode == 0
    assert mainspring("cron", "lint", "*/7 * * * *", "--strict").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("next", "61 * * * *"), ("minute", '"61"', "0-59")),
        (("next", "* * * * 9"), ("day-of-week", '"9"', "0-7 or SUN-SAT")),
        (("explain", "0 0 30 2 *"), ("day-of-month", '"30"', "never comes")),
        (("lint", "*/0 * * * *"), ("minute", '"*/0"', "1-")),
        (("next", "0 9 * * *", "--tz", "Europe/Lundon"), ("timezone", '"Europe/Lundon"', "Europe/")),
        (("next", "0 9 * * *", "--from", "2026-11-15T00:00:00"), ("--from", "2026-11-15T00:00:00", "offset")),
        (("next", "0 9 * * *", "--from", "soon"), ("--from", '"soon"', "2026-11-15T09:30:00Z")),
        (("next", "0 9 * * *", "--count", "0"), ("--count", "0", "1<=x")),
        (("next", "0 9 * * *", "--dialect", "aws"), ("--dialect", "'aws'", "'quartz'")),
        (("next", "0", "9", "*", "*", "*"), ("expression", "5 arguments", "quote")),
        (("next", "0 9 * * *", "--exclude", "nonsense"), ("expression", "1 fields", "5")),
        (("lint", "0 9 * * *", "--at-least-apart", "often"), ("--at-least-apart", '"often"', "1h30m")),
        (("next",), ("EXPR",)),
        (("nxt", "0 9 * * *"), ("nxt",)),
        (("play", "--tz", "Mars/Olympus"), ("timezone", '"Mars/Olympus"')),
    ],
)
def test_bad_input_is_named_on_stderr_with_exit_code_2(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = mainspring("cron", *arguments)

    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_the_playground_answers_and_survives_mistakes() -> None:
    lines = "0 9 * * 1\ntz Europe/Paris\n61 * * * *\ntz Nowhere\ndialect quartz\n0 0 9 ? * MON\nexamples\n\nquit\n"

    result = run("cron", "play", stdin=lines)

    assert result.exit_code == 0
    assert "At 09:00 on Monday, UTC." in result.output
    assert 'error: minute: "61" is out of range' in result.output
    assert 'error: timezone: "Nowhere"' in result.output
    assert "At 09:00 on Monday, Europe/Paris time." in result.output
    assert run("cron", "play", stdin="").exit_code == 0


def test_every_command_has_help_with_an_example() -> None:
    group = cli.get_command(click.Context(cli), "cron")
    assert isinstance(group, click.Group)

    for name in group.commands:
        shown = run("cron", name, "--help")
        assert shown.exit_code == 0
        assert f"mainspring cron {name} " in shown.output


def test_no_error_of_ours_escapes_as_a_traceback_in_process_either() -> None:
    result = run("cron", "next", "61 * * * *")

    assert isinstance(result.exception, MainspringError)


def test_now_is_the_default_start() -> None:
    (first,) = json.loads(run("cron", "next", "* * * * *", "-n", "1", "--json").output)

    assert abs((datetime.fromisoformat(first) - datetime.now().astimezone()).total_seconds()) < 120
