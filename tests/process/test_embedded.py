"""The private Postgres: started, stopped, killed, and refused, with real processes."""

import asyncio
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring import embedded

ROOT = os.geteuid() == 0
SOURCE = Path(embedded.__file__).parents[1]
# A cluster is a thousand files: some disks take a second for them. Containers with little shared memory use the disk.
MEMORY = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 2**30 else "/tmp"
PATIENCE = 20  # seconds: the end of hope, not a time anybody waits
OWNER = """
import sys
from pathlib import Path
from mainspring import embedded
server = embedded.start(Path(sys.argv[1]))
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture(scope="module")
def cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ms-cache-", dir=MEMORY) as where:
        Path(where).chmod(0o755)
        yield Path(where)


@pytest.fixture
def room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory any server's user may enter, which tmp_path is not; nothing is alive in it afterwards."""
    where = Path(tempfile.mkdtemp(prefix="ms-", dir=MEMORY))
    where.chmod(0o755)
    (where / "t").mkdir()
    (where / "t").chmod(0o1777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("MAINSPRING_PG_BIN", raising=False)
    monkeypatch.setenv("TMPDIR", str(where / "t"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield where
    left = processes_in(where)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    sockets = list((where / "t").iterdir())
    shutil.rmtree(where)
    assert not left
    assert not sockets


def processes_in(where: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(where):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def ask(server: embedded.Server, *statements: str) -> Any:
    """Run the statements and return the value of the last."""

    async def run() -> Any:
        connection = await asyncpg.connect(server.dsn)
        try:
            return [await connection.fetchval(statement) for statement in statements][-1]
        finally:
            await connection.close()

    return asyncio.run(run())


def await_end(pid: int) -> None:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([watched], [], [], PATIENCE)[0], f"process {pid} goes on"
    finally:
        os.close(watched)


def owner(data_dir: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a process of its own that has a server on ``data_dir`` until its input ends."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [options.pop("python", sys.executable), "-c", OWNER, str(data_dir)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, **options
    )


def pid_from(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def contents(where: Path) -> dict[str, tuple[int, int, int]]:
    status = {path.name: path.stat() for path in (where, *where.iterdir())}
    return {name: (found.st_mtime_ns, found.st_mode, found.st_uid) for name, found in status.items()}


def server_user() -> int:
    if not ROOT:
        return os.geteuid()
    return next(user.pw_uid for name in ("postgres", "nobody") for user in pwd.getpwall() if user.pw_name == name)


def test_rows_are_there_after_stop_and_start(room: Path) -> None:
    with embedded.running(room / "data") as first:
        ask(first, "CREATE TABLE kept AS SELECT 7 AS value")

    with embedded.running(room / "data") as second:
        assert ask(second, "SELECT value FROM kept") == 7

    assert second.dsn == first.dsn
    assert second.pid != first.pid


def test_the_server_is_private_durable_and_a_child_of_ours(room: Path) -> None:
    with embedded.running(room / "data", settings={"max_connections": "17", "listen_addresses": "*"}) as server:
        sockets = Path(ask(server, "SELECT current_setting('unix_socket_directories')"))
        names = ("listen_addresses", "fsync", "synchronous_commit", "max_connections", "data_checksums")
        values = ask(server, f"SELECT array_agg(current_setting(name)) FROM unnest(ARRAY{list(names)}) AS name")

        assert dict(zip(names, values, strict=True)) == {
            "listen_addresses": "",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "17",
            "data_checksums": "on",
        }
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert sockets.stat().st_uid == server.data_dir.stat().st_uid == server_user()
        assert f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{server.pid}/status").read_text()
        assert os.getsid(server.pid) == server.pid  # Ctrl-C in our terminal does not reach it


def test_new_clusters_are_copies_of_one_template(room: Path, cache: Path) -> None:
    def identity(data_dir: Path) -> Any:
        with embedded.running(data_dir) as server:
            return ask(server, "SELECT system_identifier FROM pg_control_system()")

    assert identity(room / "one") == identity(room / "two")
    assert len(list((cache / "mainspring").glob("template-*"))) == 1


def test_two_processes_that_need_the_template_make_it_once(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (room / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(room / "cache"))

    owners = [owner(room / name) for name in ("one", "two")]
    pids = [pid_from(process) for process in owners]
    for process in owners:
        process.communicate()

    assert len(set(pids)) == 2
    assert [process.returncode for process in owners] == [0, 0]
    assert sorted(path.name.partition("-")[0] for path in (room / "cache/mainspring").iterdir()) == ["lock", "template"]


def test_a_killed_server_recovers_at_the_next_start(room: Path) -> None:
    killed = embedded.start(room / "data")
    ask(killed, "CREATE TABLE kept AS SELECT 7 AS value")
    os.kill(killed.pid, signal.SIGKILL)

    with embedded.running(room / "data") as server:
        killed.stop()  # late, and none of the new server's business

        assert ask(server, "SELECT value FROM kept") == 7


@pytest.mark.parametrize("at_once", [True, False])
def test_the_server_of_a_killed_owner_stops_by_itself(room: Path, at_once: bool) -> None:  # noqa: FBT001
    with owner(room / "data") as process:
        pid = pid_from(process)
        process.kill()
    if not at_once:
        await_end(pid)
        assert not (room / "data/postmaster.pid").exists()  # it had the time to shut down in order

    with embedded.running(room / "data") as server:
        assert ask(server, "SELECT 1") == 1

    log = (room / "data" / embedded.LOG).read_text()
    assert "received fast shutdown request" in log
    assert "not properly shut down" not in log


def test_a_child_whose_parent_is_gone_already_starts_nothing() -> None:
    other_than_us = os.getppid()
    who = [str(os.geteuid()), str(os.getegid())]
    command = [sys.executable, "-I", "-S", "-c", embedded.LAUNCHER, str(other_than_us), *who, "/bin/echo", "started"]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_the_server_outlives_the_thread_that_asked_for_it(room: Path) -> None:
    servers: list[embedded.Server] = []
    thread = threading.Thread(target=lambda: servers.append(embedded.start(room / "one")))
    thread.start()
    thread.join()
    servers.append(asyncio.run(asyncio.to_thread(embedded.start, room / "two")))

    try:
        assert [ask(server, "SELECT 1") for server in servers] == [1, 1]
        assert not any(server.wait(timedelta(0)) for server in servers)
    finally:
        for server in servers:
            server.stop()


def test_a_directory_in_use_is_refused_with_the_pid(room: Path) -> None:
    with embedded.running(room / "data") as server:
        with pytest.raises(embedded.EmbeddedUnavailable, match=rf"in use by a running Postgres, pid {server.pid}\b"):
            embedded.start(room / "data")

        assert ask(server, "SELECT 1") == 1


def test_of_two_owners_at_once_one_gets_the_directory(room: Path) -> None:
    owners = [owner(room / "data", stderr=subprocess.PIPE) for _ in range(2)]
    watched = {os.pidfd_open(process.pid): process for process in owners}
    refused = watched[select.select(list(watched), [], [], PATIENCE)[0][0]]
    for pidfd in watched:
        os.close(pidfd)
    server = next(process for process in owners if process is not refused)
    pid = pid_from(server)
    _, words = refused.communicate()
    server.communicate()

    assert f"in use by a running Postgres, pid {pid}" in words
    assert (server.returncode, refused.returncode) == (0, 1)


def test_another_major_version_is_refused_with_the_way_out(room: Path) -> None:
    (room / "data").mkdir()
    (room / "data/PG_VERSION").write_text("12\n")
    before = contents(room / "data")

    with pytest.raises(embedded.EmbeddedUnavailable, match=r"written by Postgres 12, and this is (?s:.)*pg_upgrade"):
        embedded.start(room / "data")

    assert contents(room / "data") == before


def test_a_directory_of_something_else_is_refused_untouched(room: Path) -> None:
    (room / "photos").mkdir()
    (room / "photos/beach.jpg").write_text("sand")
    before = contents(room / "photos")

    with pytest.raises(embedded.EmbeddedUnavailable, match="something else than Postgres"):
        embedded.start(room / "photos")

    assert contents(room / "photos") == before


def test_a_path_too_long_for_a_socket_is_fine_for_data(room: Path) -> None:
    with embedded.running(room / ("deep" * 20) / ("er" * 50) / "data") as server:
        assert ask(server, "SELECT 1") == 1


def test_a_temporary_path_too_long_for_a_socket_is_passed_over(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (room / ("long" * 30)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room / ("long" * 30)))

    with embedded.running(room / "data") as server:
        assert ask(server, "SELECT current_setting('unix_socket_directories')").startswith("/tmp/mainspring-")


def test_nothing_is_left_behind_when_the_body_fails(room: Path) -> None:
    def body() -> None:
        with embedded.running() as server:
            lent.append(server)
            assert len(list((room / "t").iterdir())) == 2  # data and socket
            raise ZeroDivisionError

    lent: list[embedded.Server] = []
    with pytest.raises(ZeroDivisionError):
        body()

    server = lent[0]
    assert not server.data_dir.exists()
    assert not list((room / "t").iterdir())
    assert server.wait(timedelta(0))


def test_stop_is_for_stuck_servers_too_and_for_twice(room: Path) -> None:
    server = embedded.start(room / "data")
    os.kill(server.pid, signal.SIGSTOP)

    server.stop(grace=timedelta(milliseconds=300))
    server.stop()

    assert server.wait(timedelta(0))
    assert not processes_in(room)


@pytest.mark.parametrize("who", ["zombie", "stranger"])
def test_a_stale_pid_file_stops_nobody(room: Path, who: str) -> None:
    embedded.start(room / "data").stop()
    command = ["true"] if who == "zombie" else ["cat"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, user=server_user())
    if who == "zombie":
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # has ended, is not reaped
    (room / "data/postmaster.pid").write_text(f"{process.pid}\n{room}/data\n1\n5432\n")

    with embedded.running(room / "data") as server:
        assert ask(server, "SELECT 1") == 1
    process.communicate()


def test_a_copy_cut_short_is_begun_again(room: Path) -> None:
    (room / "data/base").mkdir(parents=True)
    (room / "data" / embedded.UNFINISHED).touch()
    (room / "data/base/half").write_text("a page")
    for path in (room / "data", *(room / "data").rglob("*")):
        os.chown(path, server_user(), -1)

    with embedded.running(room / "data") as server:
        assert ask(server, "SELECT 1") == 1

    assert not (room / "data/base/half").exists()
    assert not (room / "data" / embedded.UNFINISHED).exists()


def test_a_failed_start_tells_what_the_log_says_and_spoils_nothing(room: Path) -> None:
    with pytest.raises(embedded.EmbeddedUnavailable, match=r'(?s)did not start.*parameter "shared_buffers": "much"'):
        embedded.start(room / "data", settings={"shared_buffers": "much"})

    with embedded.running(room / "data") as server:
        assert ask(server, "SELECT 1") == 1


def test_a_start_that_takes_too_long_is_given_up(room: Path) -> None:
    embedded.start(room / "data").stop()

    with pytest.raises(embedded.EmbeddedUnavailable, match="not ready in time"):
        embedded.start(room / "data", ready_within=timedelta(0))


def test_a_long_log_begins_again(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOG_LIMIT", 1000)
    embedded.start(room / "data").stop()

    embedded.start(room / "data").stop()

    assert (room / "data" / embedded.LOG).read_text().count("starting PostgreSQL") == 1


def test_the_binaries_named_by_the_environment_are_used(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = embedded._within_reach(embedded.find(), embedded.Account(server_user(), os.getegid())).bin
    (room / "witness").touch()
    (room / "witness").chmod(0o666)
    (room / "bin").mkdir()
    for name in ("postgres", "initdb"):
        (room / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {room}/witness\nexec {real}/{name} "$@"\n')
        (room / "bin" / name).chmod(0o755)
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(room / "bin"))

    with embedded.running(room / "data") as server:
        assert ask(server, "SELECT 1") == 1

    assert f"postgres -D {room}/data" in (room / "witness").read_text()


def test_missing_binaries_are_named_with_what_to_do(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_wheel", lambda: room / "no-wheel")
    monkeypatch.setattr(embedded, "DISTRIBUTION", room / "no-distribution")
    with pytest.raises(embedded.EmbeddedUnavailable, match=r"no wheel: run `pip install 'mainspring\[embedded\]'`"):
        embedded.start(room / "data")

    monkeypatch.setenv("MAINSPRING_PG_BIN", str(room))
    with pytest.raises(embedded.EmbeddedUnavailable, match=f"no `postgres` in MAINSPRING_PG_BIN={room}"):
        embedded.start(room / "data")

    assert not (room / "data").exists()


def test_the_newest_postgres_of_the_distribution_is_taken(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_wheel", lambda: room / "no-wheel")
    monkeypatch.setattr(embedded, "DISTRIBUTION", room)
    for version in ("9.6", "17", "8.4"):
        (room / version / "bin").mkdir(parents=True)
        (room / version / "bin/postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}.3 (Debian)'\n")
        (room / version / "bin/postgres").chmod(0o755)

    assert embedded.find() == embedded.Installation(room / "17/bin", "17.3")


if ROOT:  # what only root can try; a suite run by anybody else is the other half of it

    def test_root_runs_the_server_as_the_owner_of_the_data(room: Path) -> None:
        nobody = pwd.getpwnam("nobody")
        (room / "data").mkdir()
        os.chown(room / "data", nobody.pw_uid, nobody.pw_gid)

        with embedded.running(room / "data") as server:
            assert Path(f"/proc/{server.pid}").stat().st_uid == nobody.pw_uid
            assert ask(server, "SELECT 1") == 1

    def test_an_ordinary_user_runs_it_as_himself(room: Path) -> None:
        nobody = pwd.getpwnam("nobody")
        python = next(path for path in (sys.executable, "/usr/bin/python3") if reachable_for(nobody.pw_uid, path))
        binaries = embedded._within_reach(embedded.find(), embedded.Account(nobody.pw_uid, nobody.pw_gid)).bin
        (room / "src/mainspring/domain").mkdir(parents=True)
        for part in ("mainspring/embedded.py", "mainspring/domain/errors.py"):  # needs no more of us than this
            shutil.copy(SOURCE / part, room / "src" / part)
        (room / "home").mkdir()
        os.chown(room / "home", nobody.pw_uid, nobody.pw_gid)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(room / "home"))
            patch.setenv("MAINSPRING_PG_BIN", str(binaries))
            patch.setattr(sys.modules[__name__], "SOURCE", room / "src")
            process = owner(room / "home/data", python=python, user="nobody", group=nobody.pw_gid, extra_groups=[])

        pid = pid_from(process)
        with pytest.raises(embedded.EmbeddedUnavailable, match=f"pid {pid}"):  # root sees whose it is
            embedded.start(room / "home/data")
        assert Path(f"/proc/{pid}").stat().st_uid == nobody.pw_uid
        process.kill()
        process.communicate()
        await_end(pid)

        with embedded.running(room / "home/data") as server:  # the same data, now by root's hand
            assert ask(server, "SELECT 1") == 1

    def test_a_wheel_closed_to_the_server_is_copied(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (room / "closed").mkdir(mode=0o700)
        package = embedded._wheel().parents[1]
        for part in (package, package.with_name(f"{package.name}.libs")):
            (room / "closed" / part.name).symlink_to(part)
        (room / "cache").mkdir()
        monkeypatch.setattr(embedded, "_wheel", lambda: room / "closed" / package.name / "pginstall18/bin")
        monkeypatch.setenv("XDG_CACHE_HOME", str(room / "cache"))

        with embedded.running(room / "data") as server:
            assert Path(f"/proc/{server.pid}/cmdline").read_text().startswith(f"{room}/cache/mainspring/postgres-")

    def test_a_directory_the_server_cannot_enter_is_refused(room: Path) -> None:
        (room / "closed").mkdir(mode=0o700)

        with pytest.raises(embedded.EmbeddedUnavailable, match=f"may not enter {room}/closed"):
            embedded.start(room / "closed/data")

        assert not list((room / "closed").iterdir())
        assert (room / "closed").stat().st_mode & 0o777 == 0o700

    def reachable_for(uid: int, path: str) -> bool:
        return subprocess.run(["test", "-x", path], user=uid, check=False).returncode == 0
