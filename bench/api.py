"""The API in figures: status reads and creates at a fixed rate on one process, with 500 fires a second beside it.

One Postgres of our own with durable commits. API, scheduler, and the load are processes of their own, and share the
cores with the database; once the runs are left to workers elsewhere, once the scheduler's process is their worker too.
All 500 fire in the same instant of each second, as slots are whole seconds. Every request carries an API key. Every
answer is checked: the wrong status, or none of ours, and the benchmark fails. Latency counts from when a request was
due. The first seconds, in which connections are made and statements prepared, are not counted. The peer is what one
would write by hand (``bench/plain.py``), asked by turns with ours; what it does not answer took for ever.

What a machine under this one takes from its cores, it takes in pieces of 10 to 40 ms: one in a hundred is the p99 of
anything. A round in which it took more than a little is therefore asked again, a few times, and the least disturbed
one counts, for ours and the peer alike; all are printed.
"""

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import count, product
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.load import Measured, get, load, post
from bench.ours import ENVIRONMENT
from bench.plain import TABLE
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
RATES = {"status reads": 3_000, "creates": 1_000}  # a second
STATUSES = {"status reads": 200, "creates": 201}
BARS = {"status reads": 8.0, "creates": 50.0}  # p99, in milliseconds
BESIDE = {"scheduler": "ours", "scheduler,worker": "ours, a worker beside it"}
PLAIN = "Starlette, by hand"
CONFIGURED = ("--config", "bench/api.toml")
WARM_UP = 3.0  # seconds
QUIET = 0.003  # of the cores, that others may have in a round
TRIES = 4  # at a quiet round
_rounds = count()  # no two make jobs of the same names
Found: TypeAlias = dict[tuple[str, str], list[Measured]]  # by what was asked and of whom, once per round


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
    """Run a process beside the measurement."""
    started = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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


class Server(NamedTuple):
    """Something that is asked, and what it is to be told with every request."""

    name: str
    where: SplitResult
    given: str = ""

    def ask(self, what: str, names: Sequence[str], *, round_: int, seconds: float) -> Measured:
        """Ask it for so long, and check every answer."""
        rate, total = RATES[what], int(RATES[what] * seconds)
        if what == "creates":
            requests = [post("/api/v1/jobs", definition(at, round_), self.given) for at in range(total)]
        else:
            requests = [get(f"/api/v1/jobs/{name}/status", self.given) for name in names]
        asked = load(
            self.where.hostname or "",
            self.where.port or 0,
            lambda at: requests[at % len(requests)],
            rate=rate,
            seconds=seconds,
        )
        if set(asked.statuses) != {STATUSES[what]} or (asked.unanswered and self.name != PLAIN):
            raise WrongResult(f"{self.name}, {what}: answers were {asked.statuses}, {asked.unanswered} did not come")
        return asked


@contextmanager
def ours(dsn: str, key: str, roles: str) -> Iterator[Server]:
    """Run one API process, and another of ours beside it."""
    with (
        process("-m", "mainspring", "serve", "--roles", roles, "--dsn", dsn, *CONFIGURED) as node,
        process("-m", "mainspring", "serve", "--roles", "api", "--port", "0", "--dsn", dsn, *CONFIGURED) as api,
    ):
        heard(node, "node registered")
        where = urlsplit(heard(api, "listening").partition("url=")[2].split()[0])
        yield Server(BESIDE[roles], where, f"Authorization: Bearer {key}\r\n")


@contextmanager
def plain(dsn: str, names: Sequence[str]) -> Iterator[Server]:
    """Run the peer, on a table of its own in the same database."""
    asyncio.run(_fill(dsn, names))
    with process("bench/plain.py", "--dsn", dsn) as started:
        where = urlsplit(heard(started, "running on").partition("running on ")[2].split()[0])
        yield Server(PLAIN, where)


async def _fill(dsn: str, names: Sequence[str]) -> None:
    async with connected(dsn) as connection:
        await connection.execute(TABLE)
        await connection.executemany(
            "INSERT INTO plain_jobs (name, definition) VALUES ($1, '{}')", [(n,) for n in names]
        )


def measure(dsn: str, roles: str, *, seconds: float, rounds: int, with_peer: bool) -> Found:
    """Ask ours and the peer by turns, so that both have the machine at its best and at its worst."""
    key, names = run(prepare(dsn))
    found: Found = {}
    with ExitStack() as stack:
        servers = [stack.enter_context(ours(dsn, key, roles))]
        if with_peer:
            servers.append(stack.enter_context(plain(dsn, names)))
        for server, what in product(servers, RATES):
            server.ask(what, names, round_=next(_rounds), seconds=WARM_UP)
        for _ in range(rounds):
            before, began = asyncio.run(fired(dsn)), time.perf_counter()
            for what, server in product(RATES, servers):
                asked = quietly(server, what, names, seconds=seconds, tries=TRIES if rounds > 1 else 1)
                found.setdefault((what, server.name), []).append(asked)
            rate = (asyncio.run(fired(dsn)) - before) / (time.perf_counter() - began)
            if rate < FIRING * 0.9:
                raise WrongResult(f"the scheduler beside it fired {rate:.0f} a second, not {FIRING}")
    return found


def quietly(server: Server, what: str, names: Sequence[str], *, seconds: float, tries: int) -> Measured:
    """Ask until the machine is left to us for one round; return that, or the least disturbed one."""
    asked: list[Measured] = []
    while len(asked) < tries and not (asked and asked[-1].stolen <= QUIET):
        asked.append(server.ask(what, names, round_=next(_rounds), seconds=seconds))
        shown = f"p50 {asked[-1].percentile(0.5):6.2f}  p99 {asked[-1].percentile(0.99):7.2f} ms"
        stolen = f"{asked[-1].stolen:6.2%} stolen"
        print(f"{what:13} {asked[-1].rate:6,.0f}/s  {shown}  {stolen}  {server.name}", file=sys.stderr, flush=True)
    return min(asked, key=lambda each: each.stolen)


def show(found: Found, commit: float) -> None:
    table = Table(title=f"one API process, {FIRING} fires a second beside it; median of rounds")
    for column in ("", "", "answered/s", "p50 ms", "p99 ms (least–most)", "in the median second", "stolen", "bar ms"):
        table.add_column(column, justify="right" if column else "left")
    for (what, name), rounds in sorted(found.items(), key=lambda each: list(RATES).index(each[0][0])):
        p99 = sorted(each.percentile(0.99) for each in rounds)
        table.add_row(
            what,
            name,
            f"{statistics.median(each.rate for each in rounds):,.0f} of {RATES[what]:,}",
            f"{statistics.median(each.percentile(0.5) for each in rounds):.2f}",
            f"{statistics.median(p99):.2f} ({p99[0]:.2f}–{p99[-1]:.2f})",
            f"{statistics.median(each.of_the_median_second(0.99) for each in rounds):.2f}",
            f"{statistics.median(each.stolen for each in rounds):.2%}",
            "" if name == PLAIN else f"{BARS[what]:.0f}",
        )
    table.caption = (
        f"a durable commit {commit:.2f} ms; stolen: the share of the cores that other machines had meanwhile"
    )
    Console(width=max(Console().width, 124)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    quick = parser.parse_args().quick
    found: Found = {}
    with embedded.running() as server:
        for roles in BESIDE:
            dsn = create(server.dsn, "measured")
            lasting, rounds = (3, 1) if quick else (10, 5)
            found |= measure(dsn, roles, seconds=lasting, rounds=rounds, with_peer=roles == "scheduler")
            drop(server.dsn, "measured")
        commit = commit_takes(server.dsn)
    show(found, commit)


if __name__ == "__main__":
    main()
