"""The worker in figures: a run in each execution mode, HTTP runs, the pickup of an immediate run, submitting.

One Postgres of our own with durable commits. Client, worker and HTTP sink are processes of their own, and share the
cores with the database. Every figure is checked: each run succeeded at its first attempt, or the benchmark fails.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench import tasks
from bench.ours import ENVIRONMENT, PATIENCE, Tally
from bench.server import Ready, Span, Work, WrongResult, alone, calm, commit_takes, connected, create, drop, together
from mainspring import Client, embedded, http
from mainspring.roles import NodeSettings, Targets, open_ledger, run_node
from mainspring.sdk.client import request_of
from mainspring.service import Stop, run
from mainspring.tasks.loading import Registry, load
from mainspring.tasks.task import Task
from mainspring.telemetry.events import Events
from mainspring.worker.pool import PoolConfig
from mainspring.worker.targets.http import HttpConfig

MODES: dict[str, tuple[Task[..., Any], int, int]] = {  # with the runs for it, and how many are at work at once
    "inline": (tasks.inline, 40_000, 1000),
    "thread": (tasks.thread, 10_000, 100),
    "process": (tasks.process, 5_000, 8),
    "isolated": (tasks.isolated, 500, 4),
}
QUICK = 10  # the ordinary sizes divided by this


def work(dsn: str, runs: int, concurrency: int, ready: Ready) -> Span:
    """Run a worker until it has settled so many runs."""
    settings = NodeSettings(
        engine=None,
        pools=(PoolConfig(concurrency=concurrency),),
        targets=Targets(http=HttpConfig(allow_networks=(ip_network("127.0.0.0/8"),))),
    )
    tally = Tally(enough=lambda seen: seen.settled >= runs)
    return run(_work(dsn, settings, tally, load(["bench.tasks"]), ready))


async def _work(dsn: str, settings: NodeSettings, tally: Tally, registry: Registry, ready: Ready) -> Span:
    stop = Stop(ENVIRONMENT)
    async with open_ledger(dsn) as db:
        ready()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            node = run_node(settings, stop, db=db, env=ENVIRONMENT, events=Events(tally), registry=registry)
            group.create_task(node)
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await tally.reached.wait()
            stop.request()
    return Span(began, tally.reached_at)


def submit_one_by_one(dsn: str, runs: int, at_once: int, ready: Ready) -> Span:
    """Submit runs singly, from so many callers at once."""

    async def submit() -> Span:
        async with Client(dsn) as client:
            await client.submit(tasks.inline, 0)

            async def caller() -> None:
                for number in range(runs // at_once):
                    await client.submit(tasks.inline, number)

            ready()
            began = time.perf_counter()
            await asyncio.gather(*(caller() for _ in range(at_once)))
            return Span(began, time.perf_counter())

    return run(submit())


def submit_many(dsn: str, runs: int, ready: Ready) -> Span:
    async def submit() -> Span:
        async with Client(dsn) as client:
            await client.submit(tasks.inline, 0)
            ready()
            began = time.perf_counter()
            await client.submit_many(tasks.inline.calls((number,) for number in range(runs)))
            return Span(began, time.perf_counter())

    return run(submit())


def pickups(dsn: str, runs: int, ready: Ready) -> list[float]:
    """Return for each of some immediate runs how long after the call of ``submit`` its task began."""

    async def submit() -> list[float]:
        took = []
        async with Client(dsn) as client:
            ready()
            await (await client.submit(tasks.now)).result(timeout=30)
            for number in range(runs):
                await asyncio.sleep(0.013 + number % 7 * 0.009)  # as users do: at no particular moment
                asked = time.monotonic()
                began = await (await client.submit(tasks.now)).result(timeout=10)
                took.append(began - asked)
        return took

    return run(submit())


class Bench:
    """One server, and the figures so far."""

    def __init__(self, server: str, *, quick: bool) -> None:
        self._server = server
        self._share = QUICK if quick else 1
        self.figures: dict[str, list[float]] = {}

    def round(self) -> None:
        for mode, (task, runs, concurrency) in MODES.items():
            self._mode(mode, task, runs // self._share, concurrency)
        self._http(20_000 // self._share)
        self._pickup(300 // self._share)
        self._submitting(80_000 // self._share)

    def _mode(self, mode: str, task: Task[..., Any], runs: int, concurrency: int) -> None:
        async def fill(client: Client) -> None:
            await client.submit_many(task.calls((number,) for number in range(runs)))

        with self._filled(fill) as dsn:
            span = alone(partial(work, dsn, runs, concurrency))
            asyncio.run(_check(dsn, runs))
        self._note(f"{mode}: runs/s", runs / _length([span]))
        self._note(f"{mode}: ms per run", _length([span]) / runs * 1000)

    def _http(self, runs: int) -> None:
        with sink() as port:
            call = http.post(f"http://127.0.0.1:{port}/hook", json={"number": 1})

            async def fill(client: Client) -> None:
                job = await client.jobs.put("hook", None, call, overlap=tasks.inline.job().overlap)
                asked = [request_of(tasks.inline.call(1))._replace(payload=None)] * runs
                await client.backend.submit_many(job.view.definition, asked)

            with self._filled(fill) as dsn:
                span = alone(partial(work, dsn, runs, 200))
                asyncio.run(_check(dsn, runs))
        self._note("HTTP: runs/s", runs / _length([span]))

    def _pickup(self, runs: int) -> None:
        with self._filled(_nothing) as dsn:
            works: Work[Any] = partial(work, dsn, runs + 1, 100)
            took = sorted(together(works, partial(pickups, dsn, runs))[1])
        for name, place in (("p50", len(took) // 2), ("p99", len(took) * 99 // 100)):
            self._note(f"pickup: ms, {name}", took[place] * 1000)

    def _submitting(self, runs: int) -> None:
        with self._filled(_nothing) as dsn:
            self._note("submit_many: runs/s", runs / _length([alone(partial(submit_many, dsn, runs))]))
        for at_once in (1, 20):
            with self._filled(_nothing) as dsn:
                spans = [alone(partial(submit_one_by_one, dsn, runs // 20, at_once))]
            self._note(f"submit, {at_once} at once: runs/s", runs // 20 / _length(spans))

    @contextmanager
    def _filled(self, fill: Callable[[Client], Any]) -> Iterator[str]:
        dsn = create(self._server, "measured")

        async def prepare() -> None:
            async with open_ledger(dsn), Client(dsn) as client:
                await fill(client)
            await calm(dsn)

        run(prepare())
        yield dsn
        drop(self._server, "measured")

    def _note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)
        print(f"{name:32} {value:12,.2f}", file=sys.stderr, flush=True)


async def _nothing(client: Client) -> None:
    del client


def _length(spans: Sequence[Span]) -> float:
    return max(span.ended for span in spans) - min(span.began for span in spans)


async def _check(dsn: str, runs: int) -> None:
    async with connected(dsn) as connection:
        query = "SELECT count(*), bool_and(state = 'succeeded' AND attempt = 1) FROM audit_runs"
        found = tuple(await connection.fetchrow(query))
    if found != (runs, True):
        raise WrongResult(f"expected {runs} runs that succeeded at once, not {found}")


@contextmanager
def sink() -> Iterator[int]:
    """Run the sink; yield its port."""
    command = [sys.executable, str(Path(__file__).with_name("sink.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="rounds; each measures everything once (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, one round")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with embedded.running() as server:
        commit = commit_takes(server.dsn)
        bench = Bench(server.dsn, quick=options.quick)
        for _ in range(1 if options.quick else options.repeats):
            bench.round()
    title = f"{os.cpu_count()} cores, Postgres {embedded.find().version}, a durable commit {commit:.2f} ms"
    table = Table(title=f"{title}; median of {1 if options.quick else options.repeats} (least–most)")
    table.add_column("")
    table.add_column("", justify="right")
    for name, values in bench.figures.items():
        table.add_row(name, f"{statistics.median(values):,.2f} ({min(values):,.2f}–{max(values):,.2f})")
    console = Console(width=100)
    console.print(table)
    console.print("- ms per run: with the concurrency of the mode, all the way through claim, task and settle.")
    console.print("- pickup: from the call of submit in one process to the task's first line in another.")
    if load_before > (os.cpu_count() or 1) / 4:
        console.print(f"- The machine was busy before we began (load {load_before:.2f}): measure again.")


if __name__ == "__main__":
    try:
        main()
    except WrongResult as wrong:
        sys.exit(f"no figures: {wrong}")
