"""``mainspring config``: everything that is wrong at once, and what is in effect."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Shell

SECRET = "correct-horse"
BROKEN = "[worker]\nconcurency = 4\ngrace = 'soon'\n[cluster]\nheartbeat_every = '4s'\n"


def test_nothing_is_wrong(nowhere: Shell) -> None:
    assert nowhere.good("config", "check").out == "nothing is wrong\n"
    assert nowhere.json("config", "check") == {"items": [], "next": None}


def test_all_problems_with_their_remedies(nowhere: Shell, surroundings: Path) -> None:
    (surroundings / "mainspring.toml").write_text(BROKEN)

    said = nowhere("config", "check")
    items = nowhere("config", "check", "-o", "json").items

    assert said.status == 2
    assert "error: worker.concurency: there is no such setting" in said.out
    assert "did you mean worker.concurrency?" in said.out
    assert 'error: worker.grace: "soon" is not a duration' in said.out
    assert "warning: cluster.heartbeat_every" in said.out
    assert set(items[0]) == {"severity", "field", "value", "reason", "remedy", "source"}
    assert len(items) == 3


def test_warnings_alone_are_no_reason_to_fail(nowhere: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_CLUSTER__HEARTBEAT_EVERY", "4s")

    said = nowhere("config", "check")

    assert said.status == 0
    assert "warning: cluster.heartbeat_every" in said.out


def test_a_file_that_is_not_there(nowhere: Shell) -> None:
    said = nowhere("config", "check", "--config", "nosuch.toml")

    assert said.status == 2
    assert "it cannot be read: No such file" in said.out


def test_showing_settings_hides_secrets(nowhere: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_DSN", f"postgresql://jobs:{SECRET}@db/jobs")

    plain, table = nowhere.json("config", "show"), nowhere.good("config", "show", "--sources").out
    sources = {item["name"]: item["source"] for item in nowhere.json("config", "show", "--sources")["items"]}

    shown = {item["name"]: item["value"] for item in plain["items"]}
    assert shown["database.dsn"] == "postgresql://jobs:***@db/jobs"
    assert shown["cluster.lease_ttl"] == "6s"
    assert shown["worker.pools"] == {"short": None, "long": None}
    assert all(set(item) == {"name", "value"} for item in plain["items"])
    assert SECRET not in table
    assert sources["database.dsn"] == "MAINSPRING_DSN"
    assert sources["log.format"] == "default"


def test_what_cannot_be_read_is_said_beside_what_is_in_effect(nowhere: Shell, surroundings: Path) -> None:
    (surroundings / "other.toml").write_text(BROKEN)

    said = nowhere("config", "show", "--config", "other.toml")

    assert said.status == 0
    assert "error: worker.grace" in said.err


def test_commands_use_the_database_of_the_settings(
    shell: Shell, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_DSN")
    (surroundings / "mainspring.toml").write_text(f'[database]\ndsn = "{shell.dsn}"\n')
    (surroundings / "else.toml").write_text('[database]\ndsn = "postgresql://nobody@127.0.0.1:1/none"\n')
    (surroundings / "wrong.toml").write_text('[database]\ndsn = "mysql://root@db/jobs"\n')

    assert shell.good("jobs", "list").out == "no jobs\n"
    shell.refused("jobs", "list", "--config", "else.toml", status=6, because="the database cannot be reached")
    shell.refused(
        "jobs", "list", "--config", "wrong.toml", status=2, because="database.dsn: it is no address of a Postgres"
    )
    shell.refused("jobs", "list", "--config", "none.toml", status=2, because="config: it cannot be read")
    assert shell.good("jobs", "list", "--config", "else.toml", "--dsn", shell.dsn).out == "no jobs\n"


def test_as_a_process(nowhere: Shell) -> None:
    del nowhere
    command = [sys.executable, "-m", "mainspring", "config", "check"]

    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "nothing is wrong\n", "")
