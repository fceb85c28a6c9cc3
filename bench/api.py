"""The API in figures: status reads and creates at a fixed rate on one process, with 500 fires a second beside it.

One Postgres of our own with durable commits. API, scheduler, and the load are processes of their own, and share the
cores with the database; once the runs are left to workers elsewhere, once the scheduler's process is their worker too.
All 500 fire in the same instant of each second, as slots are whole seconds. Every request carries an API key. Every
answer is checked: the wrong status, or none, and the benchmark fails. Latency counts from when a request was due. The
first seconds, in which connections are made and statements prepared, are not counted.
"""

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.load import Measured, get, load, post
from bench.ours import ENVIRONMENT
from bench.server import WrongResult, calm, commit_takes, connected, create, drop
from mainspring import Every, Schedule, embedded
from mainspring.domain.firing import Overlap, Overlaps
from mainspring.domain.job import Job
from mainspring.domain.tenants import Quotas
from mainspring.roles import open_ledger, put_jobs
from mainspring.service import run
from mainspring.store.keys import make_key
from mainspring.store.tenants import change_tenant

FIRING = 500  # jobs that fire once a second
JOBS = 10_000  # others, to be read
STATUS_RATE, CREATE_RATE = 3_000, 1_000
BARS = {"status reads": 8.0, "creates": 50.0}  # p99, in milliseconds
BESIDE = {"left to others": "scheduler", "done beside it too": "scheduler,worker"}
WARM_UP = 3.0  # seconds


def definition(number: int, round_: int) -> bytes:
    name = f"made-{round_}-{number}"
    document = {
        "name": name,
        "task": "noop",
        "schedule": [{"cron": f"{number % 60} 3 * * *"}],
        "payload": {"number": number},
    }
    return json.dumps(document).encode()


async def prepare(dsn: str) -> tuple[str, list[str]]:
    """Fill the ledger; return a key, and the names of jobs to ask for."""
    async with open_ledger(dsn) as db:
        names = [f"job-{number:05}" for number in range(JOBS)]
        every_second = Schedule(specs=(Every(timedelta(seconds=1)),))
        firing = [
            Job(name=f"tick-{number}", task="noop", schedule=every_second, overlap=Overlap(policy=Overlaps.ALLOW))
            for number in range(FIRING)
        ]
        yearly = Schedule(specs=(Every(timedelta(days=365)),))
        for first in range(0, JOBS, 1_000):
            few = names[first : first + 1_000]
            await put_jobs(db, ENVIRONMENT, [Job(name=name, task="noop", schedule=yearly) for name in few])
        await put_jobs(db, ENVIRONMENT, firing)
        await change_tenant(db, "default", quotas=Quotas(requests_per_second=1_000_000, burst=1_000_000))
        key, _ = await make_key(db, ENVIRONMENT, tenant="default", name="bench", role="admin", created_by="bench")
    await calm(dsn)
    return key, names


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of ours beside the measurement."""
    started = subprocess.Popen(
        [sys.executable, "-m", "mainspring", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()


def heard(started: subprocess.Popen[str], word: str) -> str:
    """Return the first line that has a word in it."""
    assert started.stdout is not None
    for line in started.stdout:
        if word in line:
            Thread(target=started.stdout.read, daemon=True).start()  # or it would wait for us to read its log
            return line
    raise WrongResult(f"a process ended before it said {word}")


async def fired(dsn: str) -> int:
    async with connected(dsn) as connection:
        value: int = await connection.fetchval("SELECT sum(fired)::bigint FROM job_cursors")
        return value


def measure(dsn: str, *, beside: str, seconds: float, rounds: int) -> dict[str, list[Measured]]:
    key, names = run(prepare(dsn))
    given = f"Authorization: Bearer {key}\r\n"
    reads = [get(f"/api/v1/jobs/{name}/status", given) for name in names]
    found: dict[str, list[Measured]] = {name: [] for name in BARS}
    with (
        process("serve", "--roles", beside, "--dsn", dsn, "--config", "bench/api.toml") as node,
        process("serve", "--roles", "api", "--port", "0", "--dsn", dsn, "--config", "bench/api.toml") as api,
    ):
        heard(node, "node registered")
        where = urlsplit(heard(api, "listening").partition("url=")[2].split()[0])
        ask = partial(load, where.hostname or "", where.port or 0)
        _checked(ask(lambda at: reads[at % len(reads)], rate=STATUS_RATE, seconds=WARM_UP), 200)
        _checked(ask(lambda at: post("/api/v1/jobs", definition(at, 0), given), rate=CREATE_RATE, seconds=WARM_UP), 201)
        for number in range(1, rounds + 1):
            before, began = asyncio.run(fired(dsn)), time.perf_counter()
            asked = ask(lambda at: reads[at % len(reads)], rate=STATUS_RATE, seconds=seconds)
            found["status reads"].append(_checked(asked, 200))
            bodies = [post("/api/v1/jobs", definition(at, number), given) for at in range(int(CREATE_RATE * seconds))]
            asked = ask(bodies.__getitem__, rate=CREATE_RATE, seconds=seconds)
            found["creates"].append(_checked(asked, 201))
            rate = (asyncio.run(fired(dsn)) - before) / (time.perf_counter() - began)
            if rate < FIRING * 0.9:
                raise WrongResult(f"the scheduler beside it fired {rate:.0f} a second, not {FIRING}")
            for name, each in found.items():
                last = each[-1]
                shown = f"p50 {last.percentile(0.5):6.2f}  p99 {last.percentile(0.99):7.2f} ms"
                print(f"{name:14} {last.rate:7,.0f}/s  {shown}  beside: {beside}", file=sys.stderr, flush=True)
    return found


def _checked(measured: Measured, status: int) -> Measured:
    if set(measured.statuses) != {status} or measured.unanswered:
        raise WrongResult(f"answers were {measured.statuses}, {measured.unanswered} did not come")
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    wanted = parser.parse_args()
    table = Table(title=f"one API process; median of rounds; the scheduler beside it fires {FIRING} a second")
    for column in ("", "the runs", "asked/s", "p50 ms", "p99 ms (least–most)", "bar ms"):
        table.add_column(column, justify="left" if column in ("", "the runs") else "right")
    with embedded.running() as server:
        for what, beside in BESIDE.items():
            dsn = create(server.dsn, "measured")
            found = measure(dsn, beside=beside, seconds=3 if wanted.quick else 20, rounds=1 if wanted.quick else 3)
            drop(server.dsn, "measured")
            for name, rounds in found.items():
                p99 = sorted(each.percentile(0.99) for each in rounds)
                p50 = statistics.median(each.percentile(0.5) for each in rounds)
                rate = {"status reads": STATUS_RATE, "creates": CREATE_RATE}[name]
                shown = f"{statistics.median(p99):.2f} ({p99[0]:.2f}–{p99[-1]:.2f})"
                table.add_row(name, what, f"{rate:,}", f"{p50:.2f}", shown, f"{BARS[name]:.0f}")
        table.caption = f"a durable commit {commit_takes(server.dsn):.2f} ms"
    Console().print(table)


if __name__ == "__main__":
    main()
