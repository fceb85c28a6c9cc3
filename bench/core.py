"""The core in figures: fires, recurring and one-off jobs per second, a herd, the lag of a start, bytes per job.

One Postgres of our own for everybody, with the same settings and durable commits; each contender in a
database and a process of its own, in turn within each round. Machines are noisy: read medians with their
spread, and ratios before rates. Every figure is checked: each job ran exactly once, or the benchmark fails.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import ours, peers
from bench.report import Figures, ratios, show
from bench.server import Span, Work, WrongResult, alone, commit_takes, create, drop, together
from mainspring import embedded

MEASURES = ("fires", "recurring", "drain", "herd", "lag")
QUICK = {"jobs": 5_000, "repeats": 1, "herd": 2_000, "lag_jobs": 60}


class Bench:
    """One server, the databases that the measured ones are copies of, and the figures so far."""

    def __init__(self, server: str, options: argparse.Namespace) -> None:
        self._server = server
        self._options = options
        self._jobs: int = options.jobs
        self._tuning = ours.Tuning(batch=options.batch, concurrency=options.concurrency)
        self._began = time.perf_counter()
        self._step = "preparing"
        self.figures: Figures = {}
        self.chosen: dict[str, peers.Peer] = {}

    def run(self) -> None:
        wanted: list[str] = self._options.only
        if {"fires", "recurring"} & set(wanted):
            dsn = create(self._server, "recurring")
            self._rate("written", self._jobs, [asyncio.run(ours.write_recurring(dsn, self._jobs))])
        if "drain" in wanted:
            dsn = create(self._server, "queued")
            self._rate("written", self._jobs, [asyncio.run(ours.write_queued(dsn, self._jobs, self._tuning))])
            self._choose()
        measures = {"fires": self._fires, "recurring": self._recurring, "drain": self._drain}
        measures |= {"herd": self._herd, "lag": self._lag}
        for number in range(1, self._options.repeats + 1):
            self._step = f"round {number}/{self._options.repeats}"
            for name in wanted:
                measures[name]()

    def _fires(self) -> None:
        with self._database(template="recurring") as dsn:
            span = alone(partial(ours.fires, dsn, self._jobs, self._tuning))
            asyncio.run(ours.check_fired(dsn, self._jobs))
        self._rate("fires", self._jobs, [span])

    def _recurring(self) -> None:
        for processes in self._options.processes:
            with self._database(template="recurring") as dsn:
                spans = together(*self._nodes(dsn, self._jobs, processes))
                asyncio.run(ours.check_succeeded(dsn, self._jobs))
                sizes = asyncio.run(ours.sizes(dsn))
            self._rate(f"recurring in {processes}", self._jobs, spans)
            for table, size in sizes.items():
                self.figures.setdefault(f"bytes {table}", []).append(size / self._jobs)

    def _drain(self) -> None:
        with self._database(template="queued") as dsn:
            span = alone(partial(ours.works, dsn, self._jobs, self._tuning, scheduler=False))
            asyncio.run(ours.check_succeeded(dsn, self._jobs))
        self._rate("drained", self._jobs, [span])
        for name, peer in self.chosen.items():
            jobs = self._jobs_for(peer)
            done = self._drained_by(peer, jobs)
            self._rate(f"enqueued {name}", jobs, [done.enqueued])
            self._rate(f"drained {name}", jobs, [done.drained])

    def _herd(self) -> None:
        for processes in self._options.processes:
            lead = timedelta(seconds=3 + self._options.herd / 4000)
            while (seconds := self._stampede(processes, lead)) is None:
                lead *= 2
            self._note(f"herd in {processes}", seconds, "s")

    def _stampede(self, processes: int, lead: timedelta) -> float | None:
        """Return the seconds from the herd's instant to the last settled; None: it came before all was ready."""
        jobs = self._options.herd
        with self._database() as dsn:
            slot = asyncio.run(ours.write_herd(dsn, jobs, lead))
            instant = time.perf_counter() + (slot - ours.ENVIRONMENT.now()).total_seconds()
            if time.perf_counter() > instant - 0.5:
                return None
            spans = together(*self._nodes(dsn, jobs, processes))
            asyncio.run(ours.check_succeeded(dsn, jobs))
        in_time = max(span.began for span in spans) < instant - 0.2  # a node needs a moment to be up
        return max(span.ended for span in spans) - instant if in_time else None

    def _lag(self) -> None:
        jobs = self._options.lag_jobs
        with self._database() as dsn:
            late = sorted(alone(partial(ours.lags, dsn, jobs, timedelta(milliseconds=self._options.spacing))))
            asyncio.run(ours.check_succeeded(dsn, jobs))
        for name, at in (("p50", jobs // 2), ("p99", jobs * 99 // 100), ("max", -1)):
            self._note(f"lag {name}", late[at] * 1000, "ms")

    def _nodes(self, dsn: str, jobs: int, processes: int) -> list[Work[Span]]:
        if processes == 1:
            return [partial(ours.works, dsn, jobs, self._tuning, scheduler=True)]
        worker = partial(ours.works, dsn, jobs, self._tuning, scheduler=False)
        return [partial(ours.fires, dsn, jobs, self._tuning), worker]

    def _choose(self) -> None:
        """Give each peer the best of its settings on this machine, by a shorter drain with each."""
        for name, (first, *others) in peers.SETTINGS.items():
            tried = {first: 0.0}
            for peer in (first, *others) if self._options.repeats > 1 else ():
                span = self._drained_by(peer, jobs := self._jobs_for(peer) // 3).drained
                tried[peer] = jobs / (span.ended - span.began)
                self._say(f"trying {name}, {peer}", f"{tried[peer]:,.0f}/s")
            self.chosen[name] = max(tried, key=lambda peer: tried[peer])

    def _jobs_for(self, peer: peers.Peer) -> int:
        return max(int(self._jobs * peer.share), 500)

    def _drained_by(self, peer: peers.Peer, jobs: int) -> peers.Drained:
        with self._database() as dsn:
            return alone(partial(peer.drain, dsn, jobs))

    @contextmanager
    def _database(self, template: str = "template1") -> Iterator[str]:
        dsn = create(self._server, "measured", template=template)
        yield dsn
        drop(self._server, "measured")  # at once: autovacuum has no business in it during the next measurement

    def _rate(self, name: str, jobs: int, spans: Sequence[Span]) -> None:
        seconds = max(span.ended for span in spans) - min(span.began for span in spans)
        self._note(name, jobs / seconds, "/s")

    def _note(self, name: str, value: float, unit: str) -> None:
        self.figures.setdefault(name, []).append(value)
        self._say(name, f"{value:,.{0 if value >= 100 else 2}f} {unit}")

    def _say(self, what: str, figure: str) -> None:
        elapsed = time.perf_counter() - self._began
        print(f"{elapsed:5.0f} s  {self._step:10}  {what:40} {figure:>12}", file=sys.stderr, flush=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60_000, help="recurring, and one-off (default: 60000)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; each measures everything once (default: 3)")
    parser.add_argument("--herd", type=int, default=10_000, help="jobs due in the same instant (default: 10000)")
    parser.add_argument("--lag-jobs", type=int, default=300, help="one-off jobs whose start is timed (default: 300)")
    parser.add_argument("--spacing", type=int, default=50, help="milliseconds between them (default: 50)")
    parser.add_argument("--batch", type=int, default=1000, help="jobs per fire (default: 1000)")
    parser.add_argument("--concurrency", type=int, default=1000, help="runs at work in one worker (default: 1000)")
    parser.add_argument(
        "--processes",
        type=int,
        nargs="+",
        choices=(1, 2),
        default=[1, 2],
        help="1: scheduler and worker in one; 2: one of each; default: both, the better is reported",
    )
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=MEASURES, help="measure nothing else")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, the peers' settings not tried")
    parser.add_argument("--data-dir", type=Path, help="a new directory for the database; default: a temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    if parser.parse_args().quick:
        parser.set_defaults(**QUICK)  # what is given by itself still wins
    return parser.parse_args()


def main() -> None:
    options = read_options()
    load = os.getloadavg()[0]
    with embedded.running(options.data_dir) as server:
        machine: dict[str, Any] = {
            "python": platform.python_version(),
            "postgres": embedded.find().version,
            "cpus": os.cpu_count(),
            "load before": round(load, 2),
            "commit ms": round(commit_takes(server.dsn), 2),
            **{name.lower(): version(name) for name in peers.SETTINGS},
        }
        bench = Bench(server.dsn, options)
        try:
            bench.run()
        except WrongResult as wrong:
            sys.exit(f"no figures: {wrong}")
    chosen = {name: str(peer) for name, peer in bench.chosen.items()}
    show(bench.figures, options, machine, chosen)
    if options.json:
        described = {"machine": machine, "options": vars(options), "peers": chosen}
        document = {**described, "figures": bench.figures, "ratios": ratios(bench.figures)}
        options.json.write_text(json.dumps(document, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
