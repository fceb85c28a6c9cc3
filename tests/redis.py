"""A real Redis for the session, private to it: on loopback, on a free port, with nothing on disk.

``Redis`` can be stopped and started again on the same port, for tests of what happens meanwhile.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_STARTS_WITHIN = 20.0


class Redis:
    """A server, and how to reach it."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        settings = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self._directory}
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self._process = subprocess.Popen([self._program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        give_up_at = time.monotonic() + _STARTS_WITHIN
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended at once: is its port taken?"
            assert time.monotonic() < give_up_at, "redis-server does not answer"
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # nothing of it is worth keeping
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
                line.sendall(b"PING\r\n")
                return line.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def running_redis(directory: Path) -> Iterator[Redis]:
    """Run a server of one's own, or skip the test loudly. In CI a skip is a failure."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not here: run `tools/services`, or `apt-get install redis-server`, and test again")
    server = Redis(program, directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server
