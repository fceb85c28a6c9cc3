"""``mainspring workers``, ``pools``, ``cluster`` and ``migrate``."""

import subprocess
import sys
from datetime import timedelta

from mainspring import embedded
from mainspring.store import nodes
from mainspring.store.migrations import known
from tests.postgres import named
from tests.store.ledger import Ledger

from .conftest import Shell

NODE_FIELDS = {
    *("id", "role", "host", "pid", "version", "pools", "tasks", "rooms", "room", "running", "registered_at"),
    *("heartbeat_age", "alive"),
}


def given_nodes(shell: Shell) -> tuple[str, str]:
    """Enter a scheduler that leads, and a worker."""

    async def register(ledger: Ledger) -> tuple[str, str]:
        scheduler = await ledger.node(role="scheduler")
        await nodes.take_lease(ledger.db, "leader", scheduler)
        works = nodes.Works(pools=["short", "mail"], tasks=["noop", "welcome"], rooms=[30, 10], version="1.2")
        worker = await nodes.register(
            ledger.db, ledger.env, role="worker", host="box", pid=77, lease_for=timedelta(minutes=10), works=works
        )
        return str(scheduler), str(worker)

    return shell.ledger(register)


def test_workers(shell: Shell) -> None:
    _, worker = given_nodes(shell)

    (listed,) = shell.json("workers", "list")["items"]

    assert set(listed) == NODE_FIELDS
    assert (listed["id"], listed["pools"], listed["room"], listed["alive"]) == (worker, ["short", "mail"], 40, True)
    assert "0 of 40" in shell.good("workers", "list").out
    assert shell.json("workers", "show", worker[:8])["id"] == worker
    assert "welcome" in shell.good("workers", "show", worker).out
    shell.refused("workers", "show", "ffffffff-0000", status=3, because="there is no node")
    shell.refused("workers", "show", "", status=3, because="there is no node")


def test_without_workers(shell: Shell) -> None:
    assert shell.good("workers", "list").out == "no workers\n"
    assert shell.good("pools", "list").out == "no pools\n"
    assert shell.good("cluster", "show").out == "no process is running\n"


def test_pools(shell: Shell) -> None:
    given_nodes(shell)
    shell.good("jobs", "put", "mail", "--on-demand", "--task", "unheard-of", "--pool", "mail")
    shell.good("jobs", "trigger", "mail")

    pools = {pool["name"]: pool for pool in shell.json("pools", "list")["items"]}

    assert set(pools["mail"]) == {
        *("name", "workers", "room", "running", "ready", "waiting", "oldest_ready", "unknown_tasks", "paused"),
    }
    assert (pools["mail"]["ready"], pools["mail"]["workers"]) == (1, 1)
    assert pools["mail"]["unknown_tasks"] == ["unheard-of"]
    assert "unheard-of" in shell.good("pools", "list").out
    assert shell.good("pools", "list", "-o", "id").out == "mail\nshort\n"


def test_a_pool_is_paused_and_resumed(shell: Shell) -> None:
    given_nodes(shell)

    assert shell.json("pools", "pause", "mail", "--reason", "provider down") == {"name": "mail", "paused": True}
    assert shell.good("pools", "pause", "mail").out == 'pool "mail" is paused\n'  # twice is once
    paused = {pool["name"]: pool["paused"] for pool in shell.json("pools", "list")["items"]}
    assert paused == {"mail": "provider down", "short": None}
    assert "yes: provider down" in shell.good("pools", "list").out
    assert shell.good("pools", "resume", "mail").out == 'pool "mail" goes on\n'
    shell.refused("pools", "resume", "mail", status=4, because="is not paused")
    shell.refused("pools", "pause", "", status=2, because="is no name")


def test_a_worker_is_asked_to_quiesce_and_to_stop(shell: Shell) -> None:
    _, worker = given_nodes(shell)

    assert shell.json("workers", "quiesce", worker[:8]) == {"id": worker, "asked": "quiesce"}
    assert shell.good("workers", "stop", worker).out == f"{worker} will drain and end\n"
    shell.refused("workers", "stop", "ffffffff-0000", status=3, because="there is no node")

    async def asked(ledger: Ledger) -> str:
        return str(await ledger.value("SELECT asked FROM nodes WHERE role = 'worker'"))

    assert shell.ledger(asked) == "stop"


def test_the_cluster(shell: Shell) -> None:
    scheduler, worker = given_nodes(shell)

    shown = {node["id"]: node for node in shell.json("cluster", "show")["items"]}

    assert set(shown) == {scheduler, worker}
    assert set(shown[worker]) == {*NODE_FIELDS, "shards", "leases"}
    assert (shown[worker]["role"], shown[worker]["pid"], shown[worker]["shards"]) == ("worker", 77, [])
    assert shown[scheduler]["leases"] == ["leader"]
    assert "leader, epoch 1" in shell.good("cluster", "show").out


def test_migrating(shell: Shell, server: embedded.Server) -> None:
    async def make(ledger: Ledger) -> None:
        async with ledger.db.connection() as connection:
            await connection.execute("CREATE DATABASE still_empty")

    shell.ledger(make)
    dsn, names = named(server.dsn, "still_empty"), [migration.name for migration in known()]
    try:
        shell.refused("jobs", "list", "--dsn", dsn, status=2, because="run mainspring migrate")
        planned = shell.json("migrate", "--plan", "--dsn", dsn)["items"]
        assert planned == [{"name": name, "applied": False} for name in names]
        assert f"{names[0]} would be applied" in shell.good("migrate", "--plan", "--dsn", dsn).out
        assert shell.json("migrate", "--dsn", dsn)["items"] == [{"name": name, "applied": True} for name in names]
        assert shell.good("migrate", "--dsn", dsn).out == "the schema is up to date\n"
        assert shell.good("jobs", "list", "--dsn", dsn).out == "no jobs\n"
    finally:

        async def drop(ledger: Ledger) -> None:
            async with ledger.db.connection() as connection:
                await connection.execute("DROP DATABASE still_empty WITH (FORCE)")

        shell.ledger(drop)


def test_as_processes(shell: Shell) -> None:
    given_nodes(shell)

    for words in (("workers", "list"), ("pools", "list"), ("cluster", "show"), ("migrate", "--plan")):
        command = [sys.executable, "-m", "mainspring", *words, "-o", "json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert '"items": [' in shown.stdout
