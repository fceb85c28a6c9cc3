"""Cron engines side by side: next()/s, and how many of 72 DST cases each gets right.

One run, every engine in turn within each round, best of the rounds: machines are noisy, so read the
ratios. The judge of the DST cases is ``checker/``, a scan of the wall clock that shares no code with
any of the engines.
"""

import argparse
import json
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).parents[1]))

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim
from rich.console import Console
from rich.table import Table

from checker.cron import scan
from mainspring import Cron, Schedule

START = datetime(2026, 1, 1, tzinfo=UTC)
EXPRESSIONS = {
    "*/15 * * * *": "common",
    "0 * * * *": "common",
    "30 2 * * *": "common",
    "0 9 * * 1-5": "common",
    "0 0 1 * *": "rare",
    "0 0 29 2 *": "rare",
}
ZONES = ("UTC", "America/New_York")

Engine = Callable[[str, str, datetime], Iterator[datetime]]


def local(instant: datetime, tz: str) -> datetime:
    """Give each library its quickest tzinfo: the stdlib's own UTC is twice as fast as a ZoneInfo of that name."""
    return instant if tz == "UTC" else instant.astimezone(ZoneInfo(tz))


def mainspring(expression: str, tz: str, start: datetime) -> Iterator[datetime]:
    schedule = Schedule(specs=(Cron(expression),), timezone=tz)
    slot = schedule.next_after(start)
    while slot is not None:
        yield slot
        slot = schedule.next_after(slot)


def with_croniter(expression: str, tz: str, start: datetime) -> Iterator[datetime]:
    slots = croniter(expression, local(start, tz))
    while True:
        yield slots.get_next(datetime)


def with_cronsim(expression: str, tz: str, start: datetime) -> Iterator[datetime]:
    slots: Iterator[datetime] = CronSim(expression, local(start, tz))
    return slots


def with_apscheduler(expression: str, tz: str, start: datetime) -> Iterator[datetime]:
    trigger = CronTrigger.from_crontab(expression, timezone=tz)
    now = local(start, tz) + timedelta(microseconds=1)
    slot = trigger.get_next_fire_time(None, now)
    while slot is not None:
        yield slot
        slot = trigger.get_next_fire_time(slot, slot)


ENGINES: dict[str, Engine] = {
    "mainspring": mainspring,
    "cronsim": with_cronsim,
    "croniter": with_croniter,
    "APScheduler": with_apscheduler,
}

# Days on which a clock changes, as UTC dates around which slots are compared, and shapes aimed at those hours.
CHANGES = (
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2027-11-07"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Australia/Lord_Howe", "2027-04-03"),
    ("America/Santiago", "2026-09-06"),
    ("America/Santiago", "2027-04-04"),
    ("Antarctica/Troll", "2027-03-28"),
    ("Africa/Casablanca", "2027-02-07"),
)
SHAPES = (
    "30 2 * * *",
    "30 1 * * *",
    "0 * * * *",
    "*/15 * * * *",
    "0 1-3 * * *",
    "0 */2 * * *",
    "15 0 * * *",
    "15 2 * * *",
    "45 1 * * *",
)


@dataclass(frozen=True, slots=True)
class Wrong:
    expression: str
    tz: str
    day: str
    expected: list[str]
    found: list[str]


def speed(engine: Engine, expression: str, tz: str, seconds: float) -> float:
    """Return next()/s over a stretch of time, the engine built outside of it."""
    slots = engine(expression, tz, START)
    next(slots)
    done, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        taken = deque(islice(slots, 100), maxlen=1)  # consumed in C, so that the loop weighs on nobody's figure
        if not taken:  # the end of the calendar: begin again
            slots = engine(expression, tz, START)
        done += 100
    return done / passed


def speeds(rounds: int, seconds: float) -> dict[tuple[str, str], dict[str, float]]:
    best: dict[tuple[str, str], dict[str, float]] = {}
    for number in range(rounds):
        for expression in EXPRESSIONS:
            for tz in ZONES:
                print(f"\rround {number + 1}/{rounds}  {expression:15} {tz:20}", end="", file=sys.stderr, flush=True)
                row = best.setdefault((expression, tz), dict.fromkeys(ENGINES, 0.0))
                for name, engine in ENGINES.items():
                    row[name] = max(row[name], speed(engine, expression, tz, seconds))
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    return best


def wrong_cases(engine: Engine) -> list[Wrong]:
    wrong = []
    for tz, day in CHANGES:
        start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1)
        end = start + timedelta(days=3)
        for shape in SHAPES:
            expected = scan(shape, dialect="unix", tz=tz, start=start, end=end)
            found: list[datetime] = []
            for slot in engine(shape, tz, start - timedelta(seconds=1)):
                if slot >= end or len(found) > 1000:
                    break
                found.append(slot.astimezone(UTC))
            if found != expected:
                wrong.append(Wrong(shape, tz, day, [f"{at:%H:%M}" for at in expected], [f"{at:%H:%M}" for at in found]))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.04, help="per engine, expression, zone and round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = speeds(options.rounds, options.seconds)
    wrong = {name: wrong_cases(engine) for name, engine in ENGINES.items()}
    if options.json:
        figures = [
            {"expression": expression, "tz": tz, "per_second": {name: round(rate) for name, rate in row.items()}}
            for (expression, tz), row in measured.items()
        ]
        print(json.dumps({"next": figures, "dst_wrong": {name: len(cases) for name, cases in wrong.items()}}, indent=2))
        return
    show(measured, wrong)


def show(measured: dict[tuple[str, str], dict[str, float]], wrong: dict[str, list[Wrong]]) -> None:
    console = Console(width=max(Console().width, 110))
    table = Table(title=f"next() per second, Python {platform.python_version()}, best of the rounds")
    for column in ("expression", "zone", *ENGINES, "ours / cronsim"):
        table.add_column(column, justify="left" if column in ("expression", "zone") else "right")
    for (expression, tz), row in measured.items():
        rates = [f"{rate:,.0f}" for rate in row.values()]
        table.add_row(expression, tz, *rates, f"{row['mainspring'] / row['cronsim']:.1f}x")
    console.print(table)
    score = Table(title=f"DST: wrong of {len(CHANGES) * len(SHAPES)} cases, judged by a scan of the wall clock")
    for column in ("engine", "wrong", "for example"):
        score.add_column(column)
    for name, cases in wrong.items():
        example = f"{cases[0].expression} in {cases[0].tz} around {cases[0].day}" if cases else ""
        score.add_row(name, str(len(cases)), example)
    console.print(score)
    common = [
        row["mainspring"] / row["cronsim"] for (text, _), row in measured.items() if EXPRESSIONS[text] == "common"
    ]
    console.print(
        f"common expressions: at least {min(common):.1f} times cronsim; DST cases wrong: {len(wrong['mainspring'])}"
    )


if __name__ == "__main__":
    main()
