"""``serve``, ``worker`` and ``dev MODULE`` as an operator starts them: real processes on a real database."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mainspring import Client, task

TASKS = """
import os
from mainspring import Context, every, task

@task(schedule=every("1s"))
async def tick(ctx: Context) -> str:
    return "VERSION"

@task
def double(number: int) -> int:
    print("doubling", number)
    return 2 * number
"""


@task
def double(number: int) -> int:
    """Stands for the one in the module: a client needs its name and arguments only."""
    raise NotImplementedError(number)


@pytest.fixture
def home() -> Iterator[Path]:
    with TemporaryDirectory(prefix="mainspring-test-") as parent:
        Path(parent).chmod(0o755)  # the embedded server runs as another user than root
        (Path(parent) / "shop.py").write_text(TASKS)
        yield Path(parent)


@contextmanager
def mainspring(where: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends, at the latest."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring", *arguments],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def line_where(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted(line):
            return line
    raise AssertionError(process.stderr.read() if process.stderr else "")


def ends(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors


def test_a_scheduler_and_a_worker_apart_fire_run_and_drain(dsn: str, home: Path) -> None:
    with (
        mainspring(home, "serve", "--roles", "scheduler", "--dsn", dsn, "--log", "json") as scheduler,
        mainspring(home, "worker", "shop", "--pool", "short", "--concurrency", "4", "--dsn", dsn) as worker,
    ):
        fired = json.loads(line_where(scheduler, lambda line: '"fired"' in line))
        line_where(worker, lambda line: "started" in line and "task=tick" in line)
        with Client.sync(dsn) as client:
            run = client.submit(double, 21)
            assert run.result(timeout=30) == 42
            nodes = {node.role: node for node in client.workers.list()}

            client.workers.stop(nodes["worker"].id)
        assert worker.communicate(timeout=30)[1] == ""
        assert worker.returncode == 0
        assert ends(scheduler, signal.SIGTERM) == (0, "")
    with Client.sync(dsn) as client:
        assert [line.text for line in client.runs.logs(run.id)] == [
            "doubling 21"
        ]  # flushed, at the latest by the drain
    assert (fired["level"], fired["engine"]) == ("info", "peers")
    assert nodes["worker"].pools == ("short",)
    assert (nodes["worker"].room, set(nodes["worker"].tasks)) == (4, {"double", "http", "tick"})
    assert nodes["worker"].pid == worker.pid


def test_dev_with_reload_starts_again_with_the_new_code_and_stops_at_once(home: Path) -> None:
    with mainspring(home, "dev", "shop", "--reload", "--data-dir", str(home / "data")) as dev:
        line_where(dev, lambda line: "2 jobs: double, tick" in line)
        line_where(dev, lambda line: line.split()[1:2] == ["tick"])
        changed = TASKS.replace("async def tick", "async def tock").replace("VERSION", "another")
        (home / "shop.py").write_text(changed)
        line_where(dev, lambda line: "shop.py changed: starting again" in line)
        line_where(dev, lambda line: line.split()[1:2] == ["tock"])

        (home / "shop.py").write_text("this is no Python")
        line_where(dev, lambda line: "shop.py changed" in line)
        (home / "shop.py").write_text(TASKS)
        line_where(dev, lambda line: line.split()[1:2] == ["tick"])

        status, _ = ends(dev, signal.SIGINT)
    assert status == 0
    assert not (home / "data/postmaster.pid").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("worker",), 2, "there is no module to take tasks from"),
        (("worker", "nosuch"), 2, 'there is no module "nosuch" here'),
        (("worker", "nosuch.py"), 2, 'there is no file "nosuch.py"'),
        (("worker", "broken.py"), 2, "cannot be imported: ZeroDivisionError"),
        (("worker", "empty.py"), 2, "has no task"),
        (("worker", "shop", "--concurrency", "0"), 2, "not in the range"),
        (("worker", "shop"), 2, "no database is named"),
        (("worker", "shop", "--dsn", "postgresql://x@127.0.0.1:1/x"), 6, "the database cannot be reached"),
        (("serve", "--roles", "cook"), 2, 'there is no role "cook"'),
        (("serve", "--roles", "worker", "--dsn", "postgresql://x@127.0.0.1:1/x"), 6, "cannot be reached"),
        (("serve", "--engine", "steam"), 2, "not one of"),
        (("serve", "--config", "nosuch.toml"), 2, "nosuch.toml"),
        (("dev", "broken.py", "--data-dir", "data"), 2, "cannot be imported: ZeroDivisionError"),
    ],
)
def test_bad_input_is_one_line_and_a_status(arguments: tuple[str, ...], status: int, said: str, home: Path) -> None:
    (home / "broken.py").write_text("1 / 0")
    (home / "empty.py").write_text("")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING")}

    done = subprocess.run(
        [sys.executable, "-m", "mainspring", *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environ,
    )

    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
