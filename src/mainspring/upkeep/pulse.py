"""Pulse: the heartbeat of a worker, from a process of its own.

Promise. A task that burns the CPU in the worker's own process, even inside an extension that never lets go of the
interpreter, costs its worker neither its lease nor its other runs (F59).

By what. The heartbeat is a child process. It lives as long as the worker does, for it reads from it. The worker
shows it signs of life from its event loop. Missing for ``stuck_after``, the child asks the worker for a traceback, on
standard error; missing for ``given_up_after``, it stops: a worker that never turns again must not keep its runs.

Failures.
  worker killed       end of file: the child ends, the lease runs out
  child killed        the worker starts another; a lease outlasts the gap
  worker stopped      (SIGSTOP) the child goes on until it gives it up
  declared dead       the child says so, and the worker ends
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from mainspring.domain.errors import NodeDeclaredDead, Unavailable
from mainspring.domain.ids import NodeId
from mainspring.environment import Environment, SystemEnvironment
from mainspring.service import Stop, first_of
from mainspring.store import nodes
from mainspring.store.database import Database, open_database
from mainspring.telemetry.events import Events, LoopStalled, ServiceInterrupted
from mainspring.upkeep.heartbeat import Grant, stop_only

_SIGN_EVERY: Final = timedelta(seconds=1)
_MARGIN: Final = timedelta(seconds=1)
_SHOW: Final = signal.SIGUSR2  # the traceback of a loop that does not turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    every: float  # seconds, as everything here: it travels as JSON
    lease_for: float
    stuck_after: float = 5
    given_up_after: float = 300


class Pulse:
    """A service with the same promise as ``Heartbeat``, kept by a child process."""

    def __init__(
        self,
        db: Database,
        env: Environment,
        node: NodeId,
        events: Events,
        *,
        every: timedelta,
        lease_for: timedelta,
        grant: Grant = stop_only,
    ) -> None:
        self._db = db
        self._env = env
        self._node = node
        self._events = events
        self._grant = grant
        self._rhythm = Rhythm(every=every.total_seconds(), lease_for=lease_for.total_seconds())
        self._trusted_for = (lease_for - _MARGIN).total_seconds()
        self._trusted_until = env.monotonic() + self._trusted_for

    def trusted(self) -> bool:
        return self._env.monotonic() < self._trusted_until

    async def run(self, stop: Stop) -> None:
        """Keep a child at it until the stop.

        Raises:
            NodeDeclaredDead: too late; the process must come back under a new id.
        """
        faulthandler.register(_SHOW, all_threads=False, chain=False)
        try:
            while not stop.requested:
                await self._keep_one(stop)
                if not stop.requested:
                    self._events.emit(ServiceInterrupted(service="Pulse", error="its process ended", again_in=None))
        finally:
            faulthandler.unregister(_SHOW)

    async def _keep_one(self, stop: Stop) -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mainspring.upkeep.pulse",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at a terminal is for the worker: it drains, with a pulse
        )
        assert child.stdin is not None
        assert child.stdout is not None
        told = {"dsn": self._db.dsn, "pooled": self._db.pooled, "node": str(self._node), "rhythm": asdict(self._rhythm)}
        child.stdin.write(json.dumps(told).encode() + b"\n")
        try:
            async with asyncio.TaskGroup() as group:
                signs = group.create_task(self._show_life(child.stdin))
                hearing = group.create_task(self._hear(child.stdout, stop))
                await first_of(stop.wait(), _ended(hearing))
                signs.cancel()
                hearing.cancel()
        except* NodeDeclaredDead as dead:
            raise dead.exceptions[0] from None
        finally:
            child.stdin.close()
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _show_life(self, stdin: asyncio.StreamWriter) -> None:
        while True:
            with suppress(ConnectionError):
                stdin.write(b".\n")
            before = self._env.monotonic()
            await self._env.sleep(_SIGN_EVERY.total_seconds())
            stalled = timedelta(seconds=self._env.monotonic() - before) - _SIGN_EVERY
            if stalled > _SIGN_EVERY:
                self._events.emit(LoopStalled(lasted=stalled))

    async def _hear(self, stdout: asyncio.StreamReader, stop: Stop) -> None:
        while line := (await stdout.readline()).decode().strip():
            word, _, rest = line.partition(" ")
            if word == "beat":
                self._trusted_until = float(rest) + self._trusted_for  # one clock for all processes of a machine
            elif word == "away":
                again_in = timedelta(seconds=self._rhythm.every / 4)
                self._events.emit(ServiceInterrupted(service="Pulse", error=rest, again_in=again_in))
            elif word == "asked":
                self._grant(nodes.Wish(rest), stop)
            elif word == "dead":
                raise NodeDeclaredDead(f"node {self._node} was declared dead by a peer")


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


async def _beat(db: Database, node: NodeId, rhythm: Rhythm, signs: _Signs, env: Environment) -> None:
    while signs.age() < rhythm.given_up_after:
        sent, pause = env.monotonic(), rhythm.every
        try:
            wish = await nodes.heartbeat(db, node)
            _say(f"beat {sent}")
            if wish is not None:
                _say(f"asked {wish}")
        except Unavailable as error:
            _say(f"away {' '.join(str(error).split())}")
            pause = rhythm.every / 4
        except NodeDeclaredDead:
            _say("dead")
            return
        signs.look(rhythm)
        await env.sleep(pause)


class _Signs:
    """Signs of life from the event loop of the worker."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._last = env.monotonic()
        self._shown = False

    def seen(self) -> None:
        self._last = self._env.monotonic()
        self._shown = False

    def age(self) -> float:
        return self._env.monotonic() - self._last

    def look(self, rhythm: Rhythm) -> None:
        if self.age() > rhythm.stuck_after and not self._shown:
            self._shown = True
            sys.stderr.write(f"the event loop of worker {os.getppid()} has not turned for {self.age():.0f} s:\n")
            sys.stderr.flush()
            with suppress(ProcessLookupError):
                os.kill(os.getppid(), _SHOW)


def _say(words: str) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(words + "\n")
        sys.stdout.flush()


async def _main() -> None:
    loop, env = asyncio.get_running_loop(), SystemEnvironment(variables={})
    told: dict[str, Any] = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    signs, gone = _Signs(env), asyncio.Event()

    def read() -> None:
        if os.read(0, 1000):
            signs.seen()
        else:
            gone.set()

    loop.add_reader(0, read)
    rhythm, node = Rhythm(**told["rhythm"]), NodeId(UUID(told["node"]))
    async with open_database(told["dsn"], size=1, pooled=told["pooled"], unsafe=True) as db:
        await first_of(_beat(db, node, rhythm, signs, env), gone.wait())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, Unavailable):  # the worker starts another
        asyncio.run(_main())
