"""``mainspring dev`` as a person starts it: a real process, an embedded Postgres of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that the account Postgres runs as may enter, which is not so of pytest's own under root."""
    with TemporaryDirectory(prefix="mainspring-test-") as parent:
        Path(parent).chmod(0o755)
        yield Path(parent) / "data"


def mainspring(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainspring", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return mainspring("dev", *arguments)


def test_it_fires_stops_by_itself_and_goes_on_where_it_ended(data_dir: Path) -> None:
    first = dev("--data-dir", str(data_dir), "--for", "3s")
    second = dev("--data-dir", str(data_dir), "--for", "2s", "--engine", "poll")

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "5 jobs: flaky, greet, heartbeat, nightly, report" in first.stdout
    slots = re.findall(r"^(\d\d:\d\d:\d\d)  heartbeat", first.stdout + second.stdout, re.MULTILINE)
    assert len(slots) == len(set(slots)) >= 4  # none twice, across the gap
    assert "succeeded" in second.stdout
    judged = mainspring("audit", "--data-dir", str(data_dir))
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "0 missed, 0 doubled, 0 phantom" in judged.stdout
    told = mainspring("explain", "heartbeat", "2020-01-01T00:00:00Z", "--data-dir", str(data_dir), "-o", "json")
    assert "did not exist yet" in told.stdout
    unknown = mainspring("explain", "nosuch", "2020-01-01T00:00:00Z", "--data-dir", str(data_dir))
    assert (unknown.returncode, unknown.stderr) == (3, 'error: there is no job "nosuch"\n')


def test_interrupting_it_stops_everything(data_dir: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring", "dev", "--data-dir", str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "heartbeat  started" in line:
            break

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)

    assert process.returncode == 0, errors
    assert "succeeded" in output
    assert not (data_dir / "postmaster.pid").exists()


def test_an_unreachable_database_is_said_in_one_line() -> None:
    result = dev("--dsn", "postgresql://nobody@127.0.0.1:1/none", "--for", "1s")

    assert result.returncode == 6
    assert "Traceback" not in result.stderr
    assert "the database cannot be reached" in result.stderr
