"""What is wrong with the database is said in one line, with a status to act on, and without secrets."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias
from urllib.parse import urlsplit

import asyncpg
import pytest

from mainspring import embedded
from mainspring.cli.main import main

Refused: TypeAlias = Callable[..., None]

CHANGE_THE_REQUEST, TRY_AGAIN_LATER = 2, 6
SECRET = "correct-horse"


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.Server]:
    with embedded.running() as running:
        rules = running.data_dir / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
        execute(running.dsn, "CREATE ROLE guarded LOGIN PASSWORD 'battery-staple'", "CREATE ROLE guest LOGIN")
        execute(running.dsn, "SELECT pg_reload_conf()")
        yield running


def execute(dsn: str, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def database(server: embedded.Server, name: str, *, user: str = "mainspring") -> str:
    return urlsplit(server.dsn)._replace(netloc=f"{user}@", path=f"/{name}").geturl()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command, and see it end with this status and one line that says why."""

    def run(dsn: str, *, status: int, because: str, command: tuple[str, ...] = ("audit",)) -> None:
        monkeypatch.setattr(sys, "argv", ["mainspring", *command, "--dsn", dsn])
        with pytest.raises(SystemExit) as ended:
            main()

        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
        assert because in said.err
        assert SECRET not in said.err
        assert ended.value.code == status

    return run


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://nobody@127.0.0.1:1/none",
        f"postgresql://nobody:{SECRET}@127.0.0.1:1/none",
        "postgresql:///none?host=/nonexistent",
    ],
)
def test_a_database_that_is_not_there(dsn: str, refused: Refused) -> None:
    refused(dsn, status=TRY_AGAIN_LATER, because="the database cannot be reached")


def test_a_database_that_is_not_there_is_told_by_explain_too(refused: Refused) -> None:
    dsn, command = "postgresql://nobody@127.0.0.1:1/none", ("explain", "job", "2026-11-15T00:00:00Z")

    refused(dsn, status=TRY_AGAIN_LATER, because="the database cannot be reached", command=command)


@pytest.mark.parametrize(
    "dsn",
    [
        "nonsense",
        f"mysql://root:{SECRET}@127.0.0.1/none",
        f"postgresql://nobody:{SECRET}@127.0.0.1:port/none",
        f"postgresql://nobody:{SECRET}@[::1/none",
        f"postgresql://nobody:{SECRET}@127.0.0.1:1/none?sslmode=quite",
    ],
)
def test_a_dsn_that_is_none(dsn: str, refused: Refused) -> None:
    refused(dsn, status=CHANGE_THE_REQUEST, because="dsn")


def test_a_wrong_password(server: embedded.Server, refused: Refused) -> None:
    dsn = database(server, "postgres", user=f"guarded:{SECRET}")

    refused(dsn, status=TRY_AGAIN_LATER, because='password authentication failed for user "guarded"')


def test_an_unknown_role(server: embedded.Server, refused: Refused) -> None:
    refused(database(server, "postgres", user="nosuch"), status=TRY_AGAIN_LATER, because='role "nosuch" does not exist')


def test_an_unknown_database(server: embedded.Server, refused: Refused) -> None:
    refused(database(server, "nosuch"), status=TRY_AGAIN_LATER, because='database "nosuch" does not exist')


def test_a_role_that_may_not_make_the_schema(server: embedded.Server, refused: Refused) -> None:
    execute(server.dsn, "CREATE DATABASE closed")

    dsn = database(server, "closed", user="guest")

    refused(dsn, status=CHANGE_THE_REQUEST, because="permission denied")


def test_a_database_that_takes_no_writes_such_as_a_standby(server: embedded.Server, refused: Refused) -> None:
    execute(server.dsn, "CREATE DATABASE standby", "ALTER DATABASE standby SET default_transaction_read_only = on")

    refused(database(server, "standby"), status=TRY_AGAIN_LATER, because="read-only")


@pytest.mark.parametrize("command", ["audit", "dev"])
def test_a_database_newer_than_the_code(server: embedded.Server, command: str, refused: Refused) -> None:
    dsn = database(server, f"newer_{command}")
    execute(server.dsn, f"CREATE DATABASE newer_{command}")
    newer = "CREATE TABLE mainspring_migrations (name text PRIMARY KEY, checksum text, applied_at timestamptz)"
    execute(dsn, newer, "INSERT INTO mainspring_migrations VALUES ('9999_later.expand', 'x', now())")

    refused(dsn, status=CHANGE_THE_REQUEST, because="newer than this code: it has 9999_later", command=(command,))


def test_a_node_that_a_peer_declared_dead(server: embedded.Server) -> None:
    execute(server.dsn, "CREATE DATABASE left_behind")
    dsn = database(server, "left_behind")
    command = [sys.executable, "-u", "-m", "mainspring", "dev", "--dsn", dsn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while "heartbeat  started" not in process.stdout.readline():
                assert process.poll() is None
            execute(dsn, "UPDATE nodes SET dead_at = clock_timestamp()")
            _, complaint = process.communicate(timeout=30)
        finally:
            process.kill()

    assert "Traceback" not in complaint
    assert complaint.endswith(" was declared dead by a peer\n")
    assert process.returncode == 1
