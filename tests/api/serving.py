"""A server as a process of its own, for tests to stop, kill and start again: ``mainspring serve --roles api``."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from mainspring.environment import CRASH_AT, TESTING

from .conftest import Answered

SRC = Path(__file__).parents[2] / "src"
PATIENCE = 60  # seconds: the end of hope, not a time anybody waits
LOOK_EVERY = 0.02


class Served:
    """A server process. ``url`` is where it listens."""

    def __init__(self, process: Process, said: Path, session: aiohttp.ClientSession) -> None:
        self.process, self.pid, self.url = process, process.pid, ""
        self._said, self._session = said, session

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._said.read_text().splitlines() if line.startswith("{")]

    @property
    def tracebacks(self) -> list[str]:
        """What was logged as a fault of the server."""
        failed = [line for line in self.log if line["level"] == "error"]
        text = self._said.read_text()
        return [str(line) for line in failed] + ([text[-3000:]] if "Traceback" in text else [])

    @property
    def resident(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def listens(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (urls := [line["url"] for line in self.log if "url" in line]):
                assert self.process.returncode is None, self._said.read_text()
                await asyncio.sleep(LOOK_EVERY)
        self.url = urls[0]

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        given = {} if body is None else {"json": body}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        where = path if path.startswith(("/healthz", "/readyz", "/metrics")) else f"/api/v1{path}"
        async with self._session.request(method, f"{self.url}{where}", headers=named, **given) as answer:
            typed = answer.content_type.endswith("json")
            return Answered(
                answer.status, answer.headers, await (answer.json(content_type=None) if typed else answer.text())
            )

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ends(self, within: float = PATIENCE) -> int:
        async with asyncio.timeout(within):
            return await self.process.wait()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.send(signal.SIGKILL)
            await self.process.wait()


class Servers:
    """Server processes on one database. None outlives its block."""

    def __init__(self, dsn: str, room: Path, session: aiohttp.ClientSession) -> None:
        self._dsn, self._room, self._session = dsn, room, session
        self._numbers = count()
        self.all: list[Served] = []

    async def start(self, *, crash_at: str | None = None, port: int = 0, **settings: str) -> Served:
        """Start one; settings by ``section__name``."""
        said = self._room / f"{next(self._numbers)}.log"
        command = (sys.executable, "-c", "from mainspring.cli.main import main; main()")
        environ = _environ({"database__dsn": self._dsn, "log__format": "json", **settings}, crash_at)
        with said.open("w") as stream:
            process = await asyncio.create_subprocess_exec(
                *command,
                "serve",
                "--roles",
                "api",
                "--port",
                str(port),
                stdin=DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environ,
            )
        served = Served(process, said, self._session)
        self.all.append(served)
        await served.listens()
        return served


def _environ(settings: Mapping[str, str], crash_at: str | None) -> dict[str, str]:
    given = {f"MAINSPRING_{name.upper()}": value for name, value in settings.items()}
    crash = {} if crash_at is None else {CRASH_AT: crash_at, TESTING: "1"}
    return {**os.environ, "PYTHONPATH": str(SRC), **given, **crash}


@asynccontextmanager
async def servers_on(dsn: str) -> AsyncIterator[Servers]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        with tempfile.TemporaryDirectory(prefix="mainspring-servers-") as room:
            servers = Servers(dsn, Path(room), session)
            try:
                yield servers
            finally:
                for served in servers.all:
                    await served.kill()
