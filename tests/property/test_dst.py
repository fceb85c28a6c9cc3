"""Every zone, every change of the clock from 2000 to 2037, against a scan of the wall clock."""

from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random

import pytest

from checker import cron as checker
from checker.cron import Transition, Window
from mainspring import Cron, Dst, DstGap, DstOverlap, Schedule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIXED = ("30 2 * * *", "0 0 * * *", "15,45 0-3 * * *", "0-59/15 0-23 * * *", "59 23 * * *", "5/20 1,2 * * *")
WILDCARD = ("*/15 * * * *", "0 * * * *", "*/20 0-3 * * *", "0 */2 * * *", "10 */3 * * 0")
POLICIES = [(gap, overlap) for gap in DstGap for overlap in DstOverlap]


@cache
def changing_zones() -> tuple[str, ...]:
    return tuple(tz for tz in checker.zones() if checker.transitions(tz, 2000, 2037))


def shapes_at(change: Transition) -> list[str]:
    """Expressions aimed at this change: the first, the middle and the last wall minute that it moves, and its edges."""
    low, high = sorted((change.at + change.before, change.at + change.after))
    walls = [low - timedelta(minutes=1), low, low + (high - low) / 2, high - timedelta(minutes=1), high]
    fixed = [f"{wall.minute} {wall.hour} * * *" for wall in walls]
    return [*fixed, f"{low.minute},{high.minute} {low.hour},{high.hour} * * *", f"*/10 {low.hour} * * *"]


def judge(tz: str, change: Transition, shapes: list[str], policies: list[tuple[DstGap, DstOverlap]]) -> None:
    reach = abs(change.change) + timedelta(hours=3)
    start, end = change.at - reach, change.at + reach
    window = Window(tz, start, end, 60)
    for shape in shapes:
        expression = checker.parse(shape, "unix")
        for gap, overlap in policies:
            expected = checker.occurrences(expression, window, gap=gap.value, overlap=overlap.value)
            schedule = Schedule(specs=(Cron(shape),), timezone=tz, dst=Dst(gap=gap, overlap=overlap))
            about = f"{shape} in {tz} around {change.at.isoformat()}, gap {gap}, overlap {overlap}"

            assert schedule.between(start, end, 10_000) == expected, about
            assert backwards(schedule, start, end) == expected, about
            assert schedule.count(start, end) == len(expected), about


def backwards(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    slot = schedule.previous_before(end)
    while slot is not None and slot >= start:
        found.append(slot)
        slot = schedule.previous_before(slot)
    return found[::-1]


def judge_some(seed: int, size: int) -> None:
    draw = Random(seed)
    for _ in range(size):
        tz = draw.choice(changing_zones())
        change = draw.choice(checker.transitions(tz, 2000, 2037))
        policies = [(DstGap.DEBIAN, DstOverlap.DEBIAN), *draw.sample(POLICIES, 2)]
        judge(tz, change, [*shapes_at(change), *draw.sample(FIXED, 2), *draw.sample(WILDCARD, 2)], policies)


@pytest.mark.covers("F23", "F24", "F25")
@pytest.mark.parametrize("seed", range(8))
def test_a_sample_of_all_changes_equals_the_scan(seed: int) -> None:
    judge_some(seed, size=60)


@pytest.mark.covers("F25")
@pytest.mark.parametrize(
    "tz",
    [
        "Africa/Casablanca",
        "Africa/El_Aaiun",
        "America/Havana",
        "America/New_York",
        "America/Santiago",
        "America/Sao_Paulo",
        "America/St_Johns",
        "Antarctica/Casey",
        "Antarctica/Troll",
        "Asia/Amman",
        "Asia/Gaza",
        "Asia/Kathmandu",
        "Asia/Pyongyang",
        "Asia/Tehran",
        "Australia/Lord_Howe",
        "Europe/Dublin",
        "Europe/Volgograd",
        "Pacific/Apia",
        "Pacific/Chatham",
        "Pacific/Norfolk",
    ],
)
def test_the_odd_zones_equal_the_scan(tz: str) -> None:
    changes = checker.transitions(tz, 1986, 2037)
    for change in changes[:: max(len(changes) // 12, 1)]:
        judge(tz, change, shapes_at(change), POLICIES)


@pytest.mark.long
@pytest.mark.covers("F23", "F24", "F25")
@pytest.mark.parametrize("tz", changing_zones())
def test_every_change_of_a_zone_equals_the_scan(tz: str) -> None:
    for change in checker.transitions(tz, 2000, 2037):
        judge(tz, change, [*shapes_at(change), *FIXED, *WILDCARD], [(DstGap.DEBIAN, DstOverlap.DEBIAN)])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_larger_sample_with_every_policy(seed: int) -> None:
    draw = Random(seed)
    for _ in range(40):
        tz = draw.choice(changing_zones())
        change = draw.choice(checker.transitions(tz, 2000, 2037))
        judge(tz, change, [*shapes_at(change), *FIXED, *WILDCARD], POLICIES)
