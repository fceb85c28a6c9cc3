"""Commands from the operator's list: real processes, real signals."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidRequest
from mainspring.worker.targets.shell import ShellTarget

from .attempts import JOB, RUN, Told, attempt, error, reason, result

pytestmark = pytest.mark.asyncio(loop_scope="session")

SRC = Path(__file__).parents[2] / "src"
TARGET = ShellTarget(
    {
        "sh": ["/bin/sh", "-c"],  # for the tests' own scripts; no operator would
        "args": [sys.executable, "-I", "-c", "import sys; [print(repr(each)) for each in sys.argv[1:]]"],
        "cat": ["cat"],
        "env": ["env"],
        "nowhere": ["/nowhere/to/be/found"],
    },
    grace=timedelta(milliseconds=300),
)


def sh(script: str) -> dict[str, object]:
    return {"command": "sh", "args": [script]}


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def until_gone(pid: int, within: float = 10) -> None:
    deadline = time.monotonic() + within
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} is still there"
        await asyncio.sleep(0.01)


class Said(Told):
    """Wakes whoever waits for a line."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()

    def line(self, text: str, *, stream: str, **_: object) -> None:
        super().line(text, stream=stream)
        self.arrived.set()

    async def first(self, number: int = 1) -> list[str]:
        async with asyncio.timeout(10):
            while len(self.lines) < number:
                self.arrived.clear()
                await self.arrived.wait()
        return [text for _, text in self.lines[:number]]


async def test_a_command_that_succeeds_says_so_line_by_line() -> None:
    told = Told()

    outcome = await TARGET.run(attempt(sh("echo one; echo two >&2; printf three"), output=told))

    assert result(outcome) == {"exit": 0}
    assert told.of("stdout") == ["one", "three"]
    assert told.of("stderr") == ["two"]


async def test_another_status_is_a_failure_of_that_type_with_its_last_words() -> None:
    kind, message = error(await TARGET.run(attempt(sh("echo the disk is full >&2; exit 3"))))

    assert kind == "exit_3"
    assert message == '"sh" exited with status 3: the disk is full'


@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM", "40"])
async def test_a_killed_command_crashed(name: str) -> None:
    kind, message = error(await TARGET.run(attempt(sh(f"kill -{name} $$"))))

    assert kind == "crashed"
    assert ("signal 40" if name == "40" else f"SIG{name}") in message


@pytest.mark.covers("F106")
@pytest.mark.parametrize(
    "argument", ["; touch /tmp/x", "$(id)", "`id`", "a b", "&& id", "\n id", "'", '"', "*", "", "-x", "é\t"]
)
async def test_an_argument_is_nothing_but_text(argument: str) -> None:
    told = Told()

    outcome = await TARGET.run(attempt({"command": "args", "args": [argument, "next"]}, output=told))

    assert result(outcome) == {"exit": 0}
    assert told.of("stdout") == [repr(argument), repr("next")]


async def test_its_input_is_what_the_job_says() -> None:
    told, text = Told(), "a line\nand äöü\n" * 20_000

    outcome = await TARGET.run(attempt({"command": "cat", "stdin": text}, output=told))

    assert result(outcome) == {"exit": 0}
    assert "\n".join(told.of("stdout")) + "\n" == text
    assert result(await TARGET.run(attempt({"command": "cat"}))) == {"exit": 0}  # nothing to read is an end, not a wait


@pytest.mark.covers("F58", "F103")
async def test_it_sees_its_run_and_nothing_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "0451")
    told = Told()

    await TARGET.run(attempt({"command": "env"}, number=7, output=told))

    seen = dict(line.split("=", 1) for line in told.of("stdout"))
    assert seen.pop("PATH")
    assert seen == {
        "MAINSPRING_RUN_ID": str(RUN),
        "MAINSPRING_JOB_ID": str(JOB),
        "MAINSPRING_SLOT": "2027-03-14T07:30:00.000Z",
        "MAINSPRING_ATTEMPT": "7",
        "MAINSPRING_FENCE": "1.7",
    }


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, "command"),
        ("ls", "command"),
        ({"command": "rm"}, "command"),
        ({"command": "/bin/sh"}, "command"),
        ({"command": ["sh"]}, "command"),
        ({"command": "cat", "shell": True}, "shell"),
        ({"command": "cat", "args": "a b"}, "args"),
        ({"command": "cat", "args": [1]}, "args"),
        ({"command": "cat", "args": ["a\0b"]}, "args"),
        ({"command": "cat", "args": ["\ud800"]}, "args"),
        ({"command": "cat", "args": ["x"] * 101}, "args"),
        ({"command": "cat", "args": ["x" * 4_001]}, "args"),
        ({"command": "cat", "stdin": 1}, "stdin"),
        ({"command": "cat", "stdin": "\ud800"}, "stdin"),
    ],
)
async def test_what_is_not_on_the_list_or_no_request_is_refused(payload: object, field: str) -> None:
    assert reason(await TARGET.run(attempt(payload))).startswith(f"payload.{field}: ")


@pytest.mark.parametrize("entry", ["ls -l", [], [""]])
async def test_a_list_with_no_command_in_it_is_refused(entry: list[str]) -> None:
    with pytest.raises(InvalidRequest, match=r"shell\.commands\.broken"):
        ShellTarget({"broken": entry})


async def test_a_program_that_is_not_there_fails_and_says_so() -> None:
    kind, message = error(await TARGET.run(attempt({"command": "nowhere"})))

    assert kind == "exit_127"
    assert "/nowhere/to/be/found: No such file or directory" in message


async def test_a_directory_that_is_not_there_fails_and_says_so() -> None:
    target = ShellTarget({"cat": ["cat"]}, directory=Path("/nowhere"))

    assert error(await target.run(attempt({"command": "cat"}))) == (
        "crashed",
        "no process could be started: No such file or directory",
    )


async def test_cancelled_it_may_clean_up() -> None:
    told = Said()
    work = asyncio.create_task(
        TARGET.run(attempt(sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"), output=told))
    )
    await told.first()

    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        await work
    assert told.of("stdout") == ["up", "bye"]


# Its children ignore TERM as it does; one of them has left the session, one has lost its parent as well.
STUBBORN = """
trap '' TERM
sleep 60 & echo $!
setsid sh -c 'echo $$; exec sleep 60' &
(setsid sh -c 'echo $$; exec sleep 60' &)
wait
"""


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_nothing_it_started_is_left(times: int) -> None:
    told = Said()
    work = asyncio.create_task(TARGET.run(attempt(sh(STUBBORN), output=told)))
    started = [int(line) for line in await told.first(3)]

    for _ in range(times):  # impatience changes nothing
        work.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await work
    assert not any(map(alive, started))


async def test_what_a_command_leaves_behind_ends_with_it() -> None:
    told = Told()

    outcome = await TARGET.run(
        attempt(sh("sleep 60 & echo $!; (setsid sh -c 'echo $$; exec sleep 60' &) | head -n 1"), output=told)
    )

    assert result(outcome) == {"exit": 0}
    left = [int(line) for line in told.of("stdout")]
    assert len(left) == 2
    assert not any(map(alive, left))


WORKER = """
import asyncio, sys
sys.path[:0] = [{src!r}, {tests!r}]
from mainspring.worker.targets.shell import ShellTarget
from tests.process.attempts import attempt

class Loud:
    def line(self, text, *, stream, level="", at=None):
        print(text, flush=True)

target = ShellTarget({{"sh": ["/bin/sh", "-c"]}})
asyncio.run(target.run(attempt({{"command": "sh", "args": [{script!r}]}}, output=Loud())))
"""


async def test_with_its_worker_killed_nothing_is_left() -> None:
    script = WORKER.format(src=str(SRC), tests=str(SRC.parent), script=STUBBORN)
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    async with asyncio.timeout(20):
        started = [int(await worker.stdout.readline()) for _ in range(3)]

    worker.send_signal(signal.SIGKILL)
    await worker.wait()

    for pid in started:
        await until_gone(pid)


async def test_a_flood_of_output_neither_blocks_nor_piles_up() -> None:
    told = Told()

    outcome = await TARGET.run(attempt(sh("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"), output=told))

    assert result(outcome) == {"exit": 0}
    assert len(told.of("stdout")[0]) < 10_000
    assert told.of("stdout")[-1] == "end"


async def test_many_at_once_leave_no_descriptor_open() -> None:
    await TARGET.run(attempt(sh("true")))
    before = open_files()

    outcomes = await asyncio.gather(*(TARGET.run(attempt(sh(f"exit {n % 2}"))) for n in range(20)))

    assert [outcome.word for outcome in outcomes] == ["succeeded", "failed"] * 10
    assert open_files() == before
