"""The core's figures as a table for people."""

import argparse
import statistics
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

Figures: TypeAlias = dict[str, list[float]]  # what was measured, once per round

PEERS = ("PgQueuer", "Procrastinate")
DEFINITIONS = ("jobs", "job_versions", "job_cursors")


def ratios(figures: Figures) -> dict[str, float]:
    """Return how many times as fast as a peer we drain: round by round, as the machine drifts; of these the median."""
    pairs = {peer: zip(figures.get("drained", ()), figures.get(f"drained {peer}", ()), strict=True) for peer in PEERS}
    times = {peer: [mine / theirs for mine, theirs in rounds] for peer, rounds in pairs.items()}
    return {peer: round(statistics.median(found), 2) for peer, found in times.items() if found}


def show(figures: Figures, options: argparse.Namespace, machine: Mapping[str, Any], chosen: Mapping[str, str]) -> None:
    console = Console(width=max(Console().width, 124))
    told = f"Postgres {machine['postgres']}, {machine['cpus']} cores, a durable commit {machine['commit ms']} ms"
    table = Table(title=f"{options.jobs:,} jobs on {told}; median of {options.repeats} (least–most)")
    for column in ("", "Mainspring", *(column for peer in PEERS for column in (peer, "ours /"))):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row in _rows(figures, options):
        table.add_row(*row)
    console.print(table)
    for note in _notes(figures, options, machine, chosen):
        console.print(f"- {note}", highlight=False)


def _rows(figures: Figures, options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    if "fires" in figures:
        yield "fires/s", _told(figures["fires"])
    if best := _best("recurring", figures):
        yield "recurring jobs/s, end to end", _told(figures[best])
    if times := ratios(figures):
        theirs = ((_told(figures[f"drained {peer}"]), f"{times[peer]:,.2f}x") for peer in PEERS)
        yield "one-off jobs drained/s", _told(figures["drained"]), *chain.from_iterable(theirs)
        theirs = ((_told(figures[f"enqueued {peer}"]), "") for peer in PEERS)
        yield "jobs written or enqueued/s", _told(figures["written"]), *chain.from_iterable(theirs)
    if best := _best("herd", figures):
        yield f"herd of {options.herd:,}: s to the last", _told(figures[best])
    for name in ("p50", "p99", "max"):
        if f"lag {name}" in figures:
            yield f"start lag when idle, ms: {name}", _told(figures[f"lag {name}"])
    if "bytes jobs" in figures:  # bytes of one are megabytes of a million
        yield "MB/million jobs, definitions", _told([_each(figures, *DEFINITIONS)])
        yield "MB/million runs, history", _told([_each(figures, "run_history")])


def _notes(
    figures: Figures, options: argparse.Namespace, machine: Mapping[str, Any], chosen: Mapping[str, str]
) -> Iterator[str]:
    yield f"Mainspring fires {options.batch} jobs at once, with {options.concurrency} runs at work; its lag: defaults."
    yield "End to end: fired, claimed, run and settled, all due at the start. Herd: from the instant they fall due."
    for measure, named in (("recurring", "End to end"), ("herd", "Herd")):
        if best := _best(measure, figures):
            others = [name for name in figures if name.startswith(f"{measure} in ") and name != best]
            also = "".join(f"; in {name[-1]}: {_told(figures[name])}" for name in others)
            yield f"{named}: scheduler and worker in {best[-1]} process(es){also}."
    if chosen:
        tuned = "; ".join(f"{peer} {machine[peer.lower()]} with {setting}" for peer, setting in chosen.items())
        how = "the best of its settings" if options.repeats > 1 else "as it came out best elsewhere"
        yield f"{tuned}: {how}; one process. Procrastinate has fewer jobs to drain."
        yield (
            "Not in the peers' figures, as it is not their trade: a stored, versioned schedule for every job, a "
            "decision for every due instant, a ledger of both to audit."
        )
    if machine["load before"] > machine["cpus"] / 4:
        yield f"The machine was busy before we began (load {machine['load before']}): measure again."


def _best(measure: str, figures: Figures) -> str:
    """Return the better composition's figure, or nothing if none was measured."""
    better = min if measure == "herd" else max
    found = [name for name in figures if name.startswith(f"{measure} in ")]
    return better(found, key=lambda name: statistics.median(figures[name]), default="")


def _each(figures: Figures, *tables: str) -> float:
    return sum(statistics.median(figures[f"bytes {table}"]) for table in tables)


def _told(values: list[float]) -> str:
    median, least, most = statistics.median(values), min(values), max(values)
    digits = 0 if median >= 100 else 2
    told = f"{median:,.{digits}f}"
    return told if len(values) == 1 else f"{told} ({least:,.{digits}f}–{most:,.{digits}f})"
