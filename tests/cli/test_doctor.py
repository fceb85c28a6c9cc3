"""``mainspring doctor``: names what is wrong, by a number, with a remedy. First the judgement, then the whole."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from mainspring.domain.ids import NodeId
from mainspring.domain.views import NodeView, PoolView
from mainspring.insight.doctor import Severity, judge
from mainspring.store.checkup import Checkup, LedgerState, TableState
from mainspring.store.history import make_partitions
from tests.store.ledger import Ledger

from .conftest import Shell

SCHEDULER = NodeView(
    id=NodeId(UUID(int=1)),
    role="scheduler+worker",
    host="box",
    pid=1,
    version="1",
    pools=("short",),
    tasks=("noop",),
    rooms={"short": 1},
    room=1,
    running=0,
    registered_at=datetime(2026, 11, 15, tzinfo=UTC),
    heartbeat_age=timedelta(seconds=1),
    alive=True,
)
POOL = PoolView(name="short", workers=1, room=1, running=0, ready=0, waiting=0, oldest_ready=None, unknown_tasks=())
LEDGER = LedgerState(
    nodes=[SCHEDULER],
    pools=[POOL],
    overdue=0,
    lag=None,
    quarantined=[],
    open_letters=0,
    tables=[TableState(name="runs", live=10, dead=100)],
    missing_partitions=[],
)
HEALTHY = Checkup(
    version=180_004,
    settings={"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on"},
    connections=5,
    most_connections=100,
    clock_offset=timedelta(milliseconds=3),
    longest_transaction=timedelta(seconds=1),
    snapshot_age=10,
    pending=[],
    ledger=LEDGER,
)


def test_a_healthy_one() -> None:
    assert list(judge(HEALTHY, available="18.4")) == []


@pytest.mark.parametrize(
    ("changes", "name", "severity", "evidence"),
    [
        ({"settings": {"fsync": "off"}}, "fsync_off", "error", "off"),
        ({"settings": {"synchronous_commit": "off"}}, "synchronous_commit_off", "error", "off"),
        ({"settings": {"full_page_writes": "off"}}, "full_page_writes_off", "error", "off"),
        ({"settings": {"autovacuum": "off"}}, "autovacuum_off", "error", "off"),
        ({"version": 150_008}, "postgres_old", "note", 15),
        ({"version": 180_001}, "embedded_old", "note", "18.1"),
        ({"connections": 81}, "connections_scarce", "warning", 81),
        ({"clock_offset": timedelta(milliseconds=251)}, "clock_apart", "warning", 251),
        ({"clock_offset": timedelta(seconds=-2)}, "clock_apart", "warning", -2000),
        ({"longest_transaction": timedelta(minutes=6)}, "transaction_open", "warning", 360),
        ({"snapshot_age": 20_000_000}, "snapshot_old", "warning", 20_000_000),
        ({"pending": ["0003_x"], "ledger": None}, "schema_behind", "error", 1),
    ],
)
def test_a_sick_server(changes: dict[str, object], name: str, severity: str, evidence: object) -> None:
    available = "18.4" if name == "embedded_old" else None

    (found,) = judge(replace(HEALTHY, **changes), available=available)  # type: ignore[arg-type]  # one field at a time

    assert (found.name, found.severity, found.evidence) == (name, severity, evidence)
    assert found.what
    assert found.remedy


@pytest.mark.parametrize(
    ("changes", "name", "severity", "evidence"),
    [
        ({"nodes": [replace(SCHEDULER, alive=False)]}, "no_scheduler", "error", 0),
        ({"nodes": [replace(SCHEDULER, role="worker")]}, "no_scheduler", "error", 0),
        ({"overdue": 7, "lag": timedelta(minutes=1)}, "jobs_overdue", "error", 7),
        ({"quarantined": [f"job-{n}" for n in range(9)]}, "jobs_quarantined", "error", 9),
        (
            {"pools": [replace(POOL, workers=0, ready=3, oldest_ready=timedelta(minutes=2))]},
            "pool_without_worker",
            "error",
            3,
        ),
        ({"pools": [replace(POOL, unknown_tasks=("a", "b"))]}, "task_unknown", "error", 2),
        ({"open_letters": 4}, "dead_letters_open", "note", 4),
        ({"tables": [TableState(name="runs", live=10, dead=60_000)]}, "table_bloated", "warning", 60_000),
        ({"missing_partitions": ["skips_20261116"]}, "partitions_missing", "warning", 1),
    ],
)
def test_a_sick_ledger(changes: dict[str, object], name: str, severity: str, evidence: object) -> None:
    (found,) = judge(replace(HEALTHY, ledger=replace(LEDGER, **changes)))  # type: ignore[arg-type]  # as above

    assert (found.name, found.severity, found.evidence) == (name, severity, evidence)


async def well(ledger: Ledger) -> None:
    await make_partitions(ledger.db, days=7)
    await ledger.node(role="scheduler", lease_for=timedelta(minutes=10))


def test_a_healthy_installation(shell: Shell) -> None:
    shell.ledger(well)

    assert shell.good("doctor").out == "nothing is wrong\n"
    assert shell.json("doctor") == {"items": [], "next": None}


def test_a_note_is_no_reason_to_fail(shell: Shell) -> None:
    shell.ledger(well)
    shell.given_dead(2)

    said = shell.good("doctor")

    assert said.out.startswith("note: 2 dead letters are open\n")
    assert "mainspring dead-letters list" in said.out


def test_everything_that_is_wrong_worst_first(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def spoil(ledger: Ledger) -> None:
        await ledger.given_jobs(2, due=timedelta(minutes=1))
        (broken,) = await ledger.given_jobs()
        await ledger.execute("UPDATE job_cursors SET state = 'quarantined' WHERE job_id = $1", broken)

    shell.ledger(spoil)
    shell.given_job()
    shell.good("jobs", "trigger", "nightly")
    monkeypatch.setenv("MAINSPRING_CLUSTER__HEARTBEAT_EVERY", "4s")

    said = shell("doctor", "-o", "json")

    assert said.status == 1
    found = {item["name"]: item for item in said.items}
    assert {name: item["evidence"] for name, item in found.items()} == {
        "no_scheduler": 0,
        "jobs_overdue": 2,
        "jobs_quarantined": 1,
        "pool_without_worker": 1,
        "settings": "4s",
        "partitions_missing": 4,
    }
    assert set(found["settings"]) == {"name", "severity", "what", "evidence", "remedy"}
    assert [item["severity"] for item in said.items] == ["error"] * 4 + ["warning"] * 2
    assert "error: no scheduler is alive" in shell("doctor").out
    shell.good("migrate")
    assert "partitions_missing" not in shell("doctor", "-o", "id").out


def test_a_database_that_cannot_be_reached_is_what_is_wrong(nowhere: Shell) -> None:
    said = nowhere("doctor", "-o", "json")

    assert said.status == 1
    assert [(item["name"], item["evidence"]) for item in said.items] == [("database", "store_unavailable")]


def test_settings_that_do_not_say_where_it_is(nowhere: Shell, surroundings: Path) -> None:
    (surroundings / "wrong.toml").write_text('[database]\ndsn = "mysql://root@db/jobs"\n')

    said = nowhere("doctor", "--config", "wrong.toml", "-o", "json")

    assert said.status == 1
    assert {item["name"] for item in said.items} >= {"database"}


def test_a_database_that_does_not_keep_its_word(shell: Shell) -> None:
    shell.ledger(well)
    name = shell.dsn.rpartition("?")[0].rpartition("/")[2]

    async def forget(ledger: Ledger) -> None:
        await ledger.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")

    shell.ledger(forget)

    assert [item["name"] for item in shell("doctor", "-o", "json").items] == ["synchronous_commit_off"]
    shell.refused("jobs", "list", status=2, because="synchronous_commit is off")


def test_as_a_process(shell: Shell) -> None:
    shell.ledger(well)

    command = [sys.executable, "-m", "mainspring", "doctor"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (said.returncode, said.stdout, said.stderr) == (0, "nothing is wrong\n", "")


def test_severities_are_ordered() -> None:
    assert list(Severity) == ["error", "warning", "note"]
