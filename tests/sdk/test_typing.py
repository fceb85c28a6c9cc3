"""What a type checker says about calls: nothing about right ones, and exactly this about wrong ones."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CALLS = """
from typing import assert_type
from mainspring import Client, Context, cron, every, http, task
from mainspring.sdk.handles import JobHandle, Run
from mainspring.sdk.sync import SyncRun
from mainspring.testing import World

@task
async def welcome(user_id: int, template: str = "hello") -> str:
    return template

@task(pool="long", memory="512MB", isolate=True, on_loss="fail")
def build(ctx: Context, day: str) -> dict[str, int]:
    return {day: ctx.attempt}

@task(schedule=cron("30 2 * * *", tz="Europe/London", overlap="skip", misfire="latest"))
async def nightly(ctx: Context) -> None: ...

@task
def plain(number: int) -> int:
    return number

async def right(ms: Client, ctx: Context, world: World) -> None:
    run = await ms.submit(welcome, 7, template="vip")
    assert_type(run, Run[str])
    assert_type(await run.result(timeout=30), str)
    assert_type(await (await ms.submit(build, "2026-11-16")).result(), dict[str, int])
    assert_type(await ms.submit(nightly), Run[None])
    assert_type(await welcome(7), str)
    assert_type(build(ctx, "today"), dict[str, int])
    assert_type(plain(3), int)
    await ms.submit(welcome.options(delay="10m", priority=9, key="welcome:7"), 7)
    assert_type(await ms.submit_many(welcome.calls((user,) for user in range(3))), list[Run[str]])
    ping = await ms.jobs.put("ping", every("1h", jitter="2m"), http.post("https://api.example.com/ping"))
    assert_type(ping, JobHandle)
    assert_type(Client.sync().submit(plain, 3), SyncRun[int])
    assert_type(await (await world.submit(plain, 3)).result(), int)
    assert_type(await ms.using(object()).submit(plain, 3), Run[int])

async def wrong(ms: Client, ctx: Context) -> None:
    await ms.submit(welcome, "seven")  # E: arg-type
    await ms.submit(welcome)  # E: call-arg
    await ms.submit(welcome, 7, templte="vip")  # E: call-arg
    await ms.submit(welcome, 7, "vip", 1)  # E: call-arg
    await ms.submit(build, 3)  # E: arg-type
    await ms.submit(build, ctx, "today")  # E: call-arg, arg-type
    await ms.submit(print, 1)  # E: arg-type
    welcome("seven")  # E: arg-type, unused-coroutine
    build("today")  # E: call-arg, arg-type
    Client.sync().submit(plain, "3")  # E: arg-type
    welcome.options(dealy="10m")  # E: call-arg
    welcome.call(None)  # E: arg-type
    number: int = await (await ms.submit(welcome, 7)).result()  # E: assignment
    await ms.jobs.put("ping", "every hour", welcome)  # E: arg-type

@task(retries=3)  # E: call-overload, untyped-decorator
async def misspelled() -> None: ...
"""


def test_mypy_accepts_right_calls_and_refuses_wrong_ones_for_the_right_reason(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    expected = {
        number: sorted(found[1].split(", "))
        for number, line in enumerate(CALLS.splitlines(), start=1)
        if (found := re.search(r"# E: (.*)$", line))
    }

    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes", str(file)]
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    checked = subprocess.run([*command, *config], capture_output=True, text=True, check=False, cwd=ROOT)

    said: dict[int, list[str]] = {}
    for line, code in re.findall(r"calls\.py:(\d+): error: .*\[([a-z-]+)\]$", checked.stdout, re.MULTILINE):
        said.setdefault(int(line), []).append(code)
    assert {line: sorted(codes) for line, codes in said.items()} == expected, checked.stdout + checked.stderr
