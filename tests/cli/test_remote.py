"""The command line over a server: the same answers and exit statuses as over the database, and ``--curl``."""

import asyncio
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from mainspring.config import Settings
from mainspring.domain.access import Role
from mainspring.store.database import open_database
from tests.api.conftest import key_for, serve

from .conftest import BROKEN, Shell

NOBODY = "00000000-0000-0000-0000-000000000000"


@contextmanager
def serving(dsn: str, *, required: bool = False, seal_with: str | None = None) -> Iterator[str]:
    """Run a server in a thread of its own: commands block the one they are in."""
    usual = Settings()
    settings = replace(
        usual, auth=replace(usual.auth, required=required), secrets=replace(usual.secrets, seal_with=seal_with)
    )
    ready, urls = threading.Event(), list[str]()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        ending = asyncio.Event()
        async with open_database(dsn) as db, serve(db, settings) as asker:
            loops.append((asyncio.get_running_loop(), ending))
            urls.append(asker.url)
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(30)
        yield urls[0]
    finally:
        for loop, ending in loops:
            loop.call_soon_threadsafe(ending.set)
        thread.join()


@pytest.fixture
def url(dsn: str) -> Iterator[str]:
    with serving(dsn) as where:
        yield where


def new_key(dsn: str, tenant: str | None, role: Role) -> str:
    async def make() -> str:
        async with open_database(dsn) as db:
            return await key_for(db, tenant, role)

    return asyncio.run(make())


def given_history(shell: Shell) -> str:
    """Write jobs, let a run succeed and some die; return one that is dead."""
    shell.good("jobs", "put", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/London", "--task", "report")
    shell.good("jobs", "edit", "nightly", "--priority", "7", "--reason", "more")
    shell.good("jobs", "put", "ping", "--every", "5m", "--http-url", "https://example.com/health")
    shell.given_job("report", "--payload", '{"text": "ü"}')
    shell.good("jobs", "trigger", "report")
    shell.work()
    return shell.given_dead(4)[0]


def test_reads_say_the_same_over_a_server(shell: Shell, url: str) -> None:
    dead = given_history(shell)
    for command in (
        ("jobs", "list"),
        ("jobs", "list", "-n", "2"),
        ("jobs", "list", "-n", "700", "--state", "active"),
        ("jobs", "list", "--prefix", "ni", "--task", "report"),
        ("jobs", "show", "nightly"),
        ("jobs", "show", "ping"),
        ("jobs", "diff", "nightly"),
        ("jobs", "upcoming", "nightly"),
        ("jobs", "slots", "nightly", "-n", "1000"),
        ("jobs", "runs", "etl"),
        ("jobs", "put", "nightly", "--every", "1h", "--task", "report", "--dry-run"),
        ("runs", "list", "--where", "job=etl state=dead"),
        ("runs", "show", dead),
        ("runs", "tail", dead),
        ("runs", "retry", "--where", "job=etl", "--dry-run"),
        ("dead-letters", "list", "-n", "3"),
        ("dead-letters", "show", dead),
        ("pools", "list"),
        ("explain", "nightly", "2020-01-01T00:00:00Z"),
        ("jobs", "show", "none"),
        ("runs", "show", NOBODY),
        ("runs", "show", "x"),
        ("runs", "list", "--after", "?"),
        ("dead-letters", "show", NOBODY),
        ("workers", "show", "ffffffff"),
    ):
        for form in ("table", "json")[command[-1] == "ping" :]:  # in JSON its request may stand in another order
            direct, served = shell(*command, "-o", form), shell(*command, "-o", form, "--url", url)
            assert (served.status, served.err) == (direct.status, direct.err), command
            if form == "json" and served.out:
                assert stable(served.json) == stable(direct.json), command
            else:
                assert timeless(served.out) == timeless(direct.out), command


def timeless(table: str) -> str:
    """Leave out how long it is until something or since, and how wide that makes a column."""
    return re.sub(r"[\s─]+", " ", re.sub(r"\bnow\b|(?:in )?\d+ (?:ms|s|min|h|d)\b(?: ago)?", "#", table))


def stable(answer: Any) -> Any:
    """Leave out how long ago something was."""
    for item in answer.get("items", ()):
        item.pop("oldest_ready", None)
    return answer


def test_changes_over_a_server(shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_URL", url)  # stronger than MAINSPRING_DSN
    put = ("jobs", "put", "nightly", "--cron", "30 2 * * *", "--task", "report")

    assert shell.json(*put)["author"] == "local"
    assert shell.good(*put).out.startswith("nothing to change")
    assert shell.json("jobs", "edit", "nightly", "--priority", "5", "--if-version", "1")["version"] == 2
    shell.refused("jobs", "edit", "nightly", "--priority", "6", "--if-version", "1", status=4, because="version 2")
    assert shell.json("jobs", "pause", "nightly", "--reason", "x")["state"] == "paused"
    assert shell.json("jobs", "resume", "nightly")["state"] == "active"
    run = shell.json("jobs", "trigger", "nightly", "--payload", '{"a": 1}', "--key", "k")["id"]
    assert shell.json("jobs", "trigger", "nightly", "--payload", '{"a": 1}', "--key", "k")["id"] == run
    assert shell.json("jobs", "backfill", "nightly", "--from", "3d", "--yes")["written"] == 3
    assert shell.json("jobs", "cancel", "nightly", "--yes")["cancelled"] == 4
    first, second, third = shell.given_dead(3)
    assert shell.good("runs", "retry", first).out.startswith(f"{first} retried as ")
    assert shell.good("dead-letters", "replay", second, "--payload", '{"day": 2}').status == 0
    assert shell.json("dead-letters", "discard", third, "--because", "old")["items"][0]["closed_as"] == "discarded"
    shell.refused("dead-letters", "discard", third, status=4, because="discarded already")
    assert len(shell.work(BROKEN)) == 2
    assert shell.good("pools", "pause", "short").out.startswith('pool "short"')
    assert shell.good("pools", "resume", "short").status == 0
    shell.refused("pools", "resume", "short", status=4, because="is not paused")
    assert shell.json("jobs", "delete", "nightly", "--yes")["state"] == "deleted"


def test_exit_statuses_of_a_server_that_refuses_or_is_away(
    shell: Shell, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer, editor = new_key(dsn, "shop", Role.VIEWER), new_key(dsn, "shop", Role.EDITOR)
    with serving(dsn, required=True) as url:
        shell.refused("jobs", "list", "--url", url, status=5, because="key")
        shell.refused("--key", "ms_0123456789ab_x", "jobs", "list", "--url", url, status=5, because="key")
        monkeypatch.setenv("MAINSPRING_KEY", viewer)
        assert shell.good("--url", url, "jobs", "list").out == "no jobs\n"
        put = ("jobs", "put", "x", "--on-demand", "--task", "noop", "--url", url)
        shell.refused(*put, status=5, because="jobs:write")
        said = shell("--key", editor, *put, "-o", "json")
        assert (said.status, said.json["tenant"]) == (0, "shop")
        shell.refused("jobs", "show", "y", "--url", url, status=3, because='"y"')
    shell.refused("jobs", "list", "--url", url, status=6, because="cannot be reached")
    shell.refused("jobs", "list", "--url", "http://jobs.example.com", status=2, because="in the open")
    shell.refused("jobs", "list", "--url", url, "--dsn", dsn, status=2, because="not both")
    shell.refused("jobs", "list", "--curl", status=2, because="--curl goes with a server")


@pytest.mark.parametrize("command", [("migrate", "--plan"), ("secrets", "rotate")], ids=lambda command: command[0])
def test_what_is_about_the_database_itself_says_so(
    command: tuple[str, ...], shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_URL", url)
    assert "only a server is named" not in shell(*command).err  # there is MAINSPRING_DSN, too

    monkeypatch.delenv("MAINSPRING_DSN")
    shell.refused(*command, status=2, because="the database itself, and only a server is named; give --dsn")


# --curl


def test_curl_prints_what_would_be_sent_and_changes_nothing(shell: Shell, url: str) -> None:
    shell.given_job("nightly")
    before = shell.json("jobs", "show", "nightly")
    key = new_key(shell.dsn, "default", Role.EDITOR)

    said = shell.good("--key", key, "--curl", "jobs", "delete", "nightly", "--url", url)

    lookup, change = said.out.splitlines()
    assert lookup == f'curl {url}/api/v1/jobs/nightly -H "Authorization: Bearer $MAINSPRING_KEY"'
    assert change.startswith(f"curl -X DELETE {url}/api/v1/jobs/{before['id']} ")
    assert "nothing was changed" in said.err
    assert key not in said.out + said.err
    assert shell.json("jobs", "show", "nightly") == before


def test_curl_of_one_request_is_one_line_also_without_the_server(shell: Shell) -> None:
    away = ("--url", "http://127.0.0.1:1", "--curl")

    said = shell.good("runs", "list", "--where", "state=dead", "-n", "5", *away)

    assert said.out == "curl 'http://127.0.0.1:1/api/v1/runs?state=dead&limit=5'\n"
    assert "there may be more" in said.err
    assert shell.good("dead-letters", "discard", NOBODY, *away).out.startswith("curl http://127.0.0.1:1/api/v1/dead")


def test_curl_of_many_prints_each_of_them_and_of_a_watch_the_first_look(shell: Shell, url: str) -> None:
    dead = shell.given_dead(3)

    said = shell.good("runs", "retry", *dead, "--url", url, "--curl")
    watched = shell.good("jobs", "list", "--watch", "1", "--url", url, "--curl")
    tailed = shell.good("runs", "tail", dead[0], "--follow", "--url", url, "--curl")

    posts = [line for line in said.out.splitlines() if " -X POST " in line]
    assert [any(f"/runs/{run}/retry" in line for line in posts) for run in dead] == [True] * 3
    assert len(watched.out.splitlines()) == 1
    assert len(tailed.out.splitlines()) == 2
    assert len(shell.json("dead-letters", "list")["items"]) == 3


def test_what_curl_prints_does_it_when_a_shell_runs_it(shell: Shell, url: str) -> None:
    shell.given_job("o'clock $(false) `x`")
    payload = '{"text": "it\'s $HOME `id` \\"quoted\\" \\\\ ü\\n"}'
    command = ("jobs", "trigger", "o'clock $(false) `x`", "--payload", payload, "--url", url, "--curl")

    lookup, change = shell.good(*command).out.splitlines()
    answers = [
        subprocess.run(["/bin/sh", "-c", f"{line} -sS"], capture_output=True, text=True, check=True, timeout=30)
        for line in (lookup, change, change)
    ]

    (run,) = shell.json("runs", "list")["items"]  # the key that is printed along makes two of it one
    assert run["payload"] == {"text": 'it\'s $HOME `id` "quoted" \\ ü\n'}
    assert [run["id"] in answer.stdout for answer in answers] == [False, True, True]
    assert shlex.split(change)[:3] == ["curl", "-X", "POST"]
