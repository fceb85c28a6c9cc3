"""Tenants, keys, secrets and the audit over a server: what the database would say; and that ``--curl`` does nothing."""

import base64
import io
import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from mainspring.domain.access import Role
from tests.store.ledger import Ledger

from .conftest import Said, Shell
from .test_errors import ALL, NOBODY, WORDS
from .test_remote import new_key, serving, timeless

VALUE = "hunter2-canary"
AWAY = "http://127.0.0.1:1"
OFFLINE = {
    "completion": ("bash",),
    "config check": (),
    "config show": (),
    "cron explain": ("* * * * *",),
    "cron lint": ("* * * * *",),
    "cron next": ("* * * * *",),
    "cron play": (),
}
ON_DATABASE: dict[str, tuple[str, ...]] = {
    "dev": (),
    "doctor": (),
    "migrate": (),
    "secrets rotate": (),
    "serve": (),
    "worker": ("mainspring.demo",),
}
ADMINISTRATION = [path for path in WORDS if path.split()[0] in ("tenants", "keys", "secrets", "audit")]


@pytest.fixture
def keyed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell with a key to seal with, as the server has."""
    monkeypatch.setenv("SEAL", base64.b64encode(b"s" * 32).decode())
    monkeypatch.setenv("MAINSPRING_SECRETS__SEAL_WITH", "env:SEAL")
    return shell


@pytest.fixture
def url(dsn: str, keyed: Shell) -> Iterator[str]:
    del keyed
    with serving(dsn, seal_with="env:SEAL") as where:
        yield where


def put(shell: Shell, name: str, *more: str) -> Said:
    return shell("secrets", "put", name, *more, stdin=io.StringIO(f"{VALUE}\n"))


def given_cluster(shell: Shell) -> str:
    """Make tenants, keys and secrets in every state there is; return the id of a good key."""
    for name in ("acme", "gone", "quiet"):
        shell.good("tenants", "create", name, "--quota", "shortest_interval=90s", "--note", f"of {name}")
    made = shell.json("keys", "create", "ci", "--tenant", "acme", "--role", "editor")
    shell.good("keys", "revoke", shell.json("keys", "create", "lost", "--tenant", "acme")["id"])
    shell.good("keys", "create", "ops", "--cluster", "--role", "admin", "--expires-in", "90d")
    shell.good("keys", "create", "orphan", "--tenant", "gone")
    shell.good("keys", "create", "old", "--tenant", "acme", "--expires-in", "1h")
    ageing = "UPDATE api_keys SET expires_at = created_at + interval '1 microsecond' WHERE name = 'old'"
    shell.ledger(lambda ledger: ledger.rows(ageing))
    shell.good("tenants", "delete", "gone", "--yes")
    shell.good("tenants", "suspend", "quiet")
    assert [put(shell, name).status for name in ("smtp", "smtp", "a/b")] == [0, 0, 0]
    put(shell, "other", "--tenant", "acme")
    return str(made["id"])


def comparable(said: Said) -> tuple[int, str, str]:
    """Leave out what is another at every look: instants, ids and the text of keys."""
    out = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "@", timeless(said.out))
    return said.status, re.sub(r"[\da-f]{8}-[\da-f-]{27}|ms_[\w-]+|\"prefix\": \"[\w-]+\"", "~", out), said.err


def test_reads_say_the_same_over_a_server(keyed: Shell, url: str) -> None:
    given_cluster(keyed)
    keyed.good("jobs", "put", "nightly", "--every", "1m", "--task", "noop")
    for command in (
        ("tenants", "list"),
        ("tenants", "list", "--deleted"),
        ("tenants", "list", "-n", "2"),
        ("tenants", "list", "-n", "2", "--after", "acme"),
        ("tenants", "show", "acme"),
        ("tenants", "show", "quiet"),
        ("tenants", "show", "nobody"),
        ("keys", "list"),
        ("keys", "list", "--tenant", "acme"),
        ("keys", "list", "--tenant", "acme", "--revoked"),
        ("keys", "list", "--all", "--revoked"),
        ("keys", "list", "--after", "x"),
        ("secrets", "list"),
        ("secrets", "list", "--tenant", "acme"),
        ("audit",),
        ("audit", "--tenant", "acme", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"),
    ):
        for form in ("table", "json"):
            direct, served = keyed(*command, "-o", form), keyed(*command, "-o", form, "--url", url)
            if form == "json" and command[0] != "audit":
                assert served == direct, command
            assert comparable(served) == comparable(direct), command


def test_changes_say_the_same_over_a_server(keyed: Shell, url: str) -> None:
    id_of = dict[str, str]()

    def act(name: str, *where: str) -> list[Said]:
        made = keyed("keys", "create", "ci", "--tenant", name, "--role", "editor", *where)
        id_of[name] = keyed.json("keys", "list", "--tenant", name)["items"][0]["id"]
        return [
            made,
            keyed("tenants", "edit", name, "--quota", "jobs=7", "--note", "grows", "--reason", "asked", *where),
            keyed("tenants", "suspend", name, "--reason", "unpaid", "-o", "json", *where),
            keyed("tenants", "resume", name, *where),
            keyed("keys", "create", "ops", "--cluster", "--role", "admin", "--expires-in", "90d", *where),
            keyed("keys", "revoke", id_of[name], "--reason", "leaked", *where),
            put(keyed, "smtp", "--tenant", name, *where),
            keyed("secrets", "delete", "smtp", "--tenant", name, *where),
            keyed("secrets", "delete", "smtp", "--tenant", name, *where),
            keyed("tenants", "create", name, *where),
            keyed("tenants", "create", "Acme!", *where),
            keyed("tenants", "create", "b", "--quota", "jbs=5", *where),
            keyed("tenants", "edit", "nobody", "--note", "x", *where),
            keyed("keys", "create", "ci", "--tenant", "nobody", *where),
            keyed("keys", "revoke", NOBODY, *where),
            keyed("tenants", "delete", name, *where),
            keyed("tenants", "delete", name, "--yes", "--reason", "left", *where),
            keyed("tenants", "delete", "default", "--yes", *where),
        ]

    made = [keyed("tenants", "create", "north"), keyed("tenants", "create", "south", "--url", url)]
    direct, served = act("north"), act("south", "--url", url)

    expected = [
        comparable(Said(said.status, *(each.replace("north", "south") for each in (said.out, said.err))))
        for said in direct
    ]
    assert [comparable(said) for said in served] == expected
    assert comparable(made[1])[1] == comparable(made[0])[1].replace("north", "south")
    assert {said.status for said in served} == {0, 2, 3, 4}
    logged = "SELECT action, subject, after::text, reason FROM changes WHERE actor = 'local' ORDER BY at"
    assert [(entry["action"], entry["reason"]) for entry in keyed.ledger(lambda ledger: ledger.rows(logged))] == [
        ("tenants.create", ""),
        ("keys.create", ""),
        ("tenants.edit", "asked"),
        ("tenants.edit", "unpaid"),
        ("tenants.edit", ""),
        ("keys.create", ""),
        ("keys.revoke", "leaked"),
        ("secrets.put", ""),
        ("secrets.delete", ""),
        ("tenants.delete", "left"),
    ]


def test_a_page_that_is_longer_than_any_of_the_server(keyed: Shell, url: str) -> None:
    many = "INSERT INTO tenants (name) SELECT 't' || lpad(i::text, 4, '0') FROM generate_series(1, 620) AS i"
    keyed.ledger(lambda ledger: ledger.rows(many))
    for number in ("501", "600", "1000"):
        command = ("tenants", "list", "-n", number, "-o", "id")

        assert keyed(*command, "--url", url) == keyed(*command)


def test_an_audit_that_finds_something_says_the_same_over_a_server(keyed: Shell, url: str) -> None:
    keyed.good("jobs", "put", "nightly", "--every", "1m", "--task", "noop")
    keyed.ledger(lambda ledger: ledger.rows("UPDATE job_cursors SET next_fire_at = next_fire_at + interval '10 years'"))
    command = ("audit", "--to", "2031-01-01T00:00:00Z", "--from", "2030-12-30T00:00:00Z")

    for form in ("table", "json"):
        direct, served = keyed(*command, "-o", form), keyed(*command, "-o", form, "--url", url)
        assert comparable(served) == comparable(direct)


def test_whoever_asks_a_server_does_what_the_key_may(keyed: Shell, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {role: new_key(dsn, "shop", role) for role in (Role.VIEWER, Role.ADMIN)}
    whole = new_key(dsn, None, Role.ADMIN)
    with serving(dsn, required=True, seal_with="env:SEAL") as url:
        monkeypatch.setenv("MAINSPRING_URL", url)
        keyed.refused("tenants", "list", status=5, because="key")
        monkeypatch.setenv("MAINSPRING_KEY", keys[Role.VIEWER])
        keyed.refused("keys", "list", status=5, because="keys:write")
        assert keyed.good("audit").out.startswith("0 jobs")
        monkeypatch.setenv("MAINSPRING_KEY", keys[Role.ADMIN])
        keyed.refused("tenants", "list", status=5, because="tenants:read")
        keyed.refused("keys", "list", "--all", status=5, because="whole cluster")
        assert {key["tenant"] for key in keyed.json("keys", "list")["items"]} == {"shop"}
        assert put(keyed, "smtp").status == 0
        keyed.refused("secrets", "list", "--tenant", "default", status=5, because="shop")
        monkeypatch.setenv("MAINSPRING_KEY", whole)
        assert [each["name"] for each in keyed.json("secrets", "list", "--tenant", "shop")["items"]] == ["smtp"]
        assert keyed.json("secrets", "list")["items"] == []
        monkeypatch.setenv("MAINSPRING_TENANT", "new")  # which is whose jobs, and no reason not to make it
        keyed.good("tenants", "create", "new")
        assert keyed.json("keys", "create", "ci")["tenant"] == "new"


@pytest.mark.parametrize("path", sorted(set(ADMINISTRATION) - set(ON_DATABASE)))
def test_a_server_that_is_away_is_not_replaced_by_the_database(path: str, keyed: Shell) -> None:
    keyed.refused("--url", AWAY, *path.split(), *WORDS[path], status=6, because="cannot be reached")


@pytest.mark.parametrize("url", ["", "postgresql://localhost/jobs"])
@pytest.mark.parametrize("curl", [(), ("--curl",)], ids=["send", "curl"])
def test_a_url_that_is_none_never_means_the_database(url: str, curl: tuple[str, ...], shell: Shell) -> None:
    shell.good("tenants", "create", "acme")

    shell.refused("--url", url, *curl, "tenants", "delete", "acme", "--yes", status=2, because="no URL of a server")
    shell.refused("--url", url, *curl, "migrate", status=2, because="works on the database itself")
    assert shell.json("tenants", "show", "acme")["state"] == "active"


@pytest.mark.parametrize("path", ON_DATABASE)
def test_what_works_on_the_database_itself_refuses_a_server(path: str, nowhere: Shell) -> None:
    because = f"`mainspring {path}` works on the database itself"
    for options in (("--url", AWAY), ("--curl",), ("--key", "ms_x"), ("--insecure",), ("--url", AWAY, "--curl")):
        nowhere.refused(*options, *path.split(), *ON_DATABASE[path], status=2, because=because)


# --curl


def content(shell: Shell) -> dict[str, str]:
    """Return every table of the database, each as a sum of its rows."""

    async def use(ledger: Ledger) -> dict[str, str]:
        tables = await ledger.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        found = dict[str, str]()
        for table in sorted(row["tablename"] for row in tables):
            rows = f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {table} AS t"
            found[table] = await ledger.value(rows)
        return found

    return shell.ledger(use)


def words_for_all(shell: Shell) -> dict[str, tuple[str, ...]]:
    """Make something of everything, and return what each command takes to find it."""
    key = given_cluster(shell)
    shell.good("tenants", "create", "x")
    assert put(shell, "x").status == 0
    shell.good("pools", "pause", "x")
    shell.given_job("x", "--pool", "x")
    shell.good("jobs", "edit", "x", "--priority", "3")
    dead = shell.given_dead()[0]
    worker = str(shell.ledger(lambda ledger: ledger.node(lease_for=timedelta(hours=1))))
    waiting = shell.json("jobs", "trigger", "x")["id"]
    real: dict[str, Any] = {"workers": {"x": worker}, "keys": {NOBODY: key}}
    given = {
        path: tuple(real.get(path.split()[0], {NOBODY: dead}).get(word, word) for word in words)
        for path, words in WORDS.items()
    }
    given["runs cancel"] = (waiting,)
    return {**given, **OFFLINE, **ON_DATABASE}


def test_every_command_with_curl_leaves_the_database_as_it_was(
    keyed: Shell, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_for_all(keyed)
    assert set(words) == set(ALL), "one for each command that there is"
    monkeypatch.setenv("MAINSPRING_URL", url)
    before = content(keyed)
    for path in ALL:
        said = keyed("--curl", *path.split(), *words[path], stdin=io.StringIO(VALUE))

        if path in OFFLINE | ON_DATABASE:
            assert (said.status, said.out) == (2, ""), path
            assert "--curl is for a server" in said.err, path
        else:
            assert said.status == 0, (path, said.err)
            assert said.out, path
            assert all(line.startswith("curl ") for line in said.out.splitlines()), path
        assert VALUE not in said.out + said.err, path
        assert content(keyed) == before, path


def test_curl_without_a_server_is_refused_and_does_nothing(shell: Shell) -> None:
    shell.good("tenants", "create", "acme")
    before = content(shell)

    for path in ADMINISTRATION:
        shell.refused("--curl", *path.split(), *WORDS[path], status=2, because="--curl ")
    shell.refused("--curl", "tenants", "delete", "acme", "--dsn", shell.dsn, status=2, because="--curl goes with")
    assert content(shell) == before


def test_what_curl_prints_is_what_the_command_would_do(keyed: Shell, url: str) -> None:
    key = new_key(keyed.dsn, None, Role.ADMIN)

    def run(*command: str, body: str = "") -> str:
        said = keyed.good("--key", key, *command, "--url", url, "--curl")
        assert key not in said.out + said.err
        asked = ["/bin/sh", "-c", f"{said.out.strip()} -sS"]
        done = subprocess.run(
            asked, input=body, capture_output=True, text=True, check=True, timeout=30, env={"MAINSPRING_KEY": key}
        )
        return done.stdout

    run("tenants", "create", "acme", "--quota", "jobs=5", "--note", "it's $HOME")
    run("secrets", "put", "smtp", "--tenant", "acme", body='{"value": "hunter2-canary"}')
    text = run("keys", "create", "ci", "--tenant", "acme")
    run("tenants", "suspend", "acme", "--reason", "un paid")

    tenant = keyed.json("tenants", "show", "acme")
    assert (tenant["quotas"]["jobs"], tenant["note"], tenant["state"]) == (5, "it's $HOME", "suspended")
    assert [each["name"] for each in keyed.json("secrets", "list", "--tenant", "acme")["items"]] == ["smtp"]
    assert '"key":"ms_' in text
    assert '"good":true' in run("audit", "--tenant", "acme")
