"""Real processes and real signals: what TERM, INT and KILL leave behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
PATIENCE = 30  # seconds until a test gives up on its child; never slept through

SERVE = """
import asyncio, sys
from datetime import timedelta
from mainspring.environment import SystemEnvironment
from mainspring.service import Stop, run_all, signals
from mainspring.telemetry.events import Events

def say(text):
    print(text, flush=True)

class Polite:
    async def run(self, stop):
        say("ready")
        await stop.wait()
        say("asked")

class Stubborn(Polite):
    async def run(self, stop):
        await super().run(stop)
        try:
            await asyncio.Event().wait()
        finally:
            say("cancelled")

class Stuck(Polite):
    async def run(self, stop):
        await super().run(stop)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                say("cancelled")

async def main(service):
    environment = SystemEnvironment()
    stop = Stop(environment)
    with signals(stop):
        await run_all(stop, service, environment=environment, events=Events(), grace=timedelta(hours=1))
    say("done")

try:
    asyncio.run(main(globals()[sys.argv[1]]()))
except asyncio.CancelledError:
    sys.exit(130)
"""

REACH = """
import asyncio
from mainspring.environment import SystemEnvironment

async def main():
    environment = SystemEnvironment()
    for time in range(1, 6):
        await environment.reach("fire.lock")
        print(time, flush=True)
        await environment.reach("fire.commit")

try:
    asyncio.run(main())
finally:
    print("cleaned up", flush=True)
"""


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.send = process.send_signal

    async def says(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def ends(self) -> tuple[int, list[str]]:
        """Return the exit status, and the lines nobody has read yet."""
        rest, _ = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, rest.decode().split("\n")[:-1]


@asynccontextmanager
async def child(script: str, *arguments: str, **variables: str) -> AsyncIterator[Child]:
    environ = {**os.environ, "PYTHONPATH": str(SRC), **variables}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, stdout=asyncio.subprocess.PIPE, env=environ
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_and_the_process_ends_well(number: signal.Signals) -> None:
    async def main() -> None:
        async with child(SERVE, "Polite") as process:
            assert await process.says() == "ready"

            process.send(number)

            assert await process.ends() == (0, ["asked", "done"])

    asyncio.run(main())


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_cancels_at_once(second: signal.Signals) -> None:
    async def main() -> None:
        async with child(SERVE, "Stubborn") as process:
            assert await process.says() == "ready"
            process.send(signal.SIGTERM)
            assert await process.says() == "asked"

            process.send(second)

            assert await process.ends() == (130, ["cancelled"])

    asyncio.run(main())


def test_a_third_signal_ends_even_a_process_that_hangs_in_its_cancellation() -> None:
    async def main() -> None:
        async with child(SERVE, "Stuck") as process:
            assert await process.says() == "ready"
            process.send(signal.SIGTERM)
            assert await process.says() == "asked"
            process.send(signal.SIGTERM)
            assert await process.says() == "cancelled"

            process.send(signal.SIGTERM)

            assert await process.ends() == (-signal.SIGTERM, [])

    asyncio.run(main())


@pytest.mark.parametrize(("crash_at", "said"), [("fire.commit:3", ["1", "2", "3"]), ("fire.lock", [])])
def test_a_crash_point_kills_the_process_without_a_word(crash_at: str, said: list[str]) -> None:
    async def main() -> None:
        async with child(REACH, MAINSPRING_TESTING="1", MAINSPRING_CRASH_AT=crash_at) as process:
            assert await process.ends() == (-signal.SIGKILL, said)

    asyncio.run(main())


def test_without_testing_a_crash_point_is_passed() -> None:
    async def main() -> None:
        async with child(REACH, MAINSPRING_TESTING="", MAINSPRING_CRASH_AT="fire.commit:3") as process:
            assert await process.ends() == (0, ["1", "2", "3", "4", "5", "cleaned up"])

    asyncio.run(main())
