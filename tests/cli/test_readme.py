"""The README's ten minutes, from an installed wheel in an empty environment, as a newcomer would type them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MINUTES = 600


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory with an environment into which the wheel is installed, and nothing of this repository."""
    with TemporaryDirectory(prefix="mainspring-readme-") as parent:
        where = Path(parent)
        where.chmod(0o755)  # the embedded server runs as another user than root
        pip = [str(where / "env/bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        run([sys.executable, "-m", "venv", str(where / "env")], where)
        run([*pip, "wheel", "--no-deps", *constraints, "--wheel-dir", str(where), str(ROOT)], where)
        (wheel,) = where.glob("*.whl")
        run([*pip, "install", *constraints, f"{wheel}[embedded]"], where)
        yield where


def run(command: list[str], where: Path, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=where,
        env={**clean(), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=MINUTES,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def clean() -> dict[str, str]:
    """The environment without what would help us to find the source."""
    ours = ("PYTHON", "MAINSPRING", "VIRTUAL")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def blocks() -> Iterator[tuple[str, str]]:
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## Ten minutes") : text.index("## Schedules")]
    yield from re.findall(r"```([^\n]*)\n(.*?)```", section, re.DOTALL)


@contextmanager
def in_another_window(command: list[str], where: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, cwd=where, env={**clean(), **environ}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_the_ten_minutes_of_the_readme(home: Path) -> None:
    shells = []
    for kind, content in blocks():
        if "file=" in kind:
            (home / kind.partition("file=")[2]).write_text(content)
        else:
            shells.append(content)
    dev, asking, curling = shells
    port = free_port()
    environ = {"PATH": f"{home / 'env/bin'}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    environ |= {"MAINSPRING_API__PORT": str(port), "URL": f"http://127.0.0.1:{port}/api/v1"}

    with in_another_window(["sh", "-c", f"exec {dev.strip()}"], home, environ) as window:
        assert window.stdout is not None
        for line in window.stdout:
            if "beat" in line and "started" in line:
                break
        told = run(["sh", "-euxc", asking], home, **environ)
        answered = run(["sh", "-euc", curling], home, **environ)

    assert "hello 7" in told
    assert "is dead, exhausted: ValueError: there is no customer 13" in told
    assert re.search(r"^ *welcome +active +on demand", told, re.MULTILINE), told
    assert re.search(r"^.*beat.*succeeded", told, re.MULTILINE), told
    assert "replayed" in told
    assert "0 missed, 0 doubled" in told
    made, upcoming, paused, resumed, run_, runs, refused, deleted = documents(answered)
    assert made["definition"]["timezone"] == "Europe/London"
    assert len(upcoming["items"]) == 3
    assert (paused["state"], paused["resume_at"], resumed["state"]) == ("paused", "2030-01-01T09:00:00Z", "active")
    assert (run_["state"], run_["result"]) == ("succeeded", "hello 7")
    assert [each["id"] for each in runs["items"]] == [run_["id"]]
    assert (refused["status"], refused["field"], refused["value"]) == (422, "schedule[0].cron", "61")
    assert deleted["state"] == "deleted"


def documents(text: str) -> list[dict[str, Any]]:
    """Return the JSON documents that stand in a text one after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        document, at = decoder.raw_decode(text, at)
        found.append(document)
    return found


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
