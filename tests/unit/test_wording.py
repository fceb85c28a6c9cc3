"""Explanations: each shape word for word, and a reader who knows no cron arrives at the same times."""

from __future__ import annotations

import calendar
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import product

import pytest

from mainspring.domain import cron
from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.fields import Dialect, Expression
from mainspring.domain.schedule import EPOCH, At, Cron, Every, RRule, Schedule, Spec
from mainspring.domain.timetable import Dst, DstGap, DstOverlap
from mainspring.insight.wording import MONTHS, WEEKDAYS, explain, listed, ordinal

LONDON = "Europe/London"
KEY = "reports/nightly"

UNIX = [
    # times
    ("30 2 * * *", "At 02:30 every day, UTC."),
    ("@daily", "At 00:00 every day, UTC."),
    ("* * * * *", "Every minute, UTC."),
    ("*/1 * * * *", "Every minute, UTC."),
    ("0 * * * *", "Every hour, on the hour, UTC."),
    ("@hourly", "Every hour, on the hour, UTC."),
    ("7 * * * *", "At 7 minutes past every hour, UTC."),
    ("1 * * * *", "At 1 minute past every hour, UTC."),
    ("15,45 * * * *", "At minutes 15 and 45 past every hour, UTC."),
    ("0-2,20,40 * * * *", "At minutes 0 to 2, 20 and 40 past every hour, UTC."),
    ("*/15 * * * *", "Every 15 minutes, UTC."),
    ("0-59/15 * * * *", "Every 15 minutes, UTC."),
    ("0,30 * * * *", "Every 30 minutes, UTC."),
    ("5/15 * * * *", "Every 15 minutes from minute 5 to 50 of each hour, UTC."),
    ("*/7 * * * *", "Every 7 minutes from minute 0 to 56 of each hour, UTC."),
    ("0-30 * * * *", "Every minute from minute 0 to 30 of each hour, UTC."),
    ("*/90 * * * *", "Every hour, on the hour, UTC."),
    ("0 9-17 * * 1-5", "Every hour from 09:00 to 17:00, Monday to Friday, UTC."),
    ("*/15 9-17 * * *", "Every 15 minutes from 09:00 to 17:45, every day, UTC."),
    ("*/15 9 * * *", "Every 15 minutes from 09:00 to 09:45, every day, UTC."),
    ("*/15 9,17 * * *", "Every 15 minutes from 09:00 to 09:45 and from 17:00 to 17:45, every day, UTC."),
    ("* 9 * * *", "Every minute from 09:00 to 09:59, every day, UTC."),
    ("30 */2 * * *", "Every 2 hours from 00:30 to 22:30, every day, UTC."),
    ("0 */5 * * *", "Every 5 hours from 00:00 to 20:00, every day, UTC."),
    ("0 */8 * * *", "At 00:00, 08:00 and 16:00 every day, UTC."),
    ("0 0-23 * * *", "Every hour from 00:00 to 23:00, every day, UTC."),
    ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30 every day, UTC."),
    ("0 9-12,14-17 * * *", "Every hour from 09:00 to 12:00 and from 14:00 to 17:00, every day, UTC."),
    ("0 3,8-15 * * *", "Every hour from 08:00 to 15:00 and at 03:00, every day, UTC."),
    ("*/7 9-17 * * *", "Every 7 minutes from minute 0 to 56 of hours 9 to 17, every day, UTC."),
    ("* */2 * * *", "Every minute of every 2nd hour from hour 0 to 22, every day, UTC."),
    ("5,20 9-17 * * *", "At minutes 5 and 20 past hours 9 to 17 every day, UTC."),
    ("0 0-3,7,9,15,20 * * *", "At 0 minutes past hours 0 to 3, 7, 9, 15 and 20 every day, UTC."),
    # seconds
    ("* * * * * *", "Every second, UTC."),
    ("*/10 * * * * *", "Every 10 seconds, UTC."),
    ("*/7 * * * * *", "Every 7 seconds from second 0 to 56 of every minute, UTC."),
    ("0 */5 * * * *", "Every 5 minutes, UTC."),
    ("15 30 2 * * *", "At 02:30:15 every day, UTC."),
    ("15 * * * * *", "At second 15 of every minute, UTC."),
    ("15 */5 * * * *", "At second 15 of every 5th minute from minute 0 to 55 of every hour, UTC."),
    ("*/10 * 9-17 * * *", "Every 10 seconds from 09:00:00 to 17:59:50, every day, UTC."),
    ("5,20 * 9-17 * * *", "At seconds 5 and 20 of every minute of hours 9 to 17 every day, UTC."),
    ("0,30 5,10,15 9-17 * * *", "At seconds 0 and 30 of minutes 5, 10 and 15 past hours 9 to 17 every day, UTC."),
    # days of the month
    ("0 0 1 * *", "At 00:00 on day 1 of the month, UTC."),
    ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month, UTC."),
    ("0 0 1-7 * *", "At 00:00 on days 1 to 7 of the month, UTC."),
    ("0 0 */2 * *", "At 00:00 on every 2nd day of the month from day 1 to 31, UTC."),
    ("0 0 L * *", "At 00:00 on the last day of the month, UTC."),
    ("0 0 L-3 * *", "At 00:00, 3 days before the last day of the month, UTC."),
    ("0 0 L-29 * *", "At 00:00, 29 days before the last day of the month, within the month, UTC."),
    ("0 0 15W * *", "At 00:00 on the weekday (Monday to Friday) nearest day 15 of the month, UTC."),
    ("0 0 1W * *", "At 00:00 on the weekday (Monday to Friday) nearest day 1, within the month, UTC."),
    ("0 0 31W * *", "At 00:00 on the weekday (Monday to Friday) nearest day 31, within months that have it, UTC."),
    ("0 0 LW * *", "At 00:00 on the last weekday (Monday to Friday) of the month, UTC."),
    ("0 0 1,L * *", "At 00:00 on day 1 of the month and on the last day of the month, UTC."),
    ("*/15 * 1 * *", "Every 15 minutes, on day 1 of the month, UTC."),
    # days of the week
    ("0 0 * * 0", "At 00:00 on Sunday, UTC."),
    ("0 0 * * 7", "At 00:00 on Sunday, UTC."),
    ("0 0 * * 0,6", "At 00:00 on Saturday and Sunday, UTC."),
    ("0 0 * * 1,3,5", "At 00:00 on Monday, Wednesday and Friday, UTC."),
    ("0 0 * * 1-5", "At 00:00, Monday to Friday, UTC."),
    ("0 0 * * 5-7", "At 00:00, Friday to Sunday, UTC."),
    ("0 0 * * FRI-MON", "At 00:00, Friday to Monday, UTC."),
    ("0 0 * * 0-7", "At 00:00 every day, UTC."),
    ("0 0 * * 5L", "At 00:00 on the last Friday of the month, UTC."),
    ("0 0 * * FRI#3", "At 00:00 on the third Friday of the month, UTC."),
    ("0 0 * * 1,5L", "At 00:00 on Monday and on the last Friday of the month, UTC."),
    ("*/15 * * * 1-5", "Every 15 minutes, Monday to Friday, UTC."),
    # both
    ("0 0 13 * 5", "At 00:00 on day 13 of the month or on Friday, UTC."),
    ("0 0 13 * 1-5", "At 00:00 on day 13 of the month or on any day from Monday to Friday, UTC."),
    ("0 0 1,L * 5", "At 00:00 on day 1 of the month, on the last day of the month or on Friday, UTC."),
    ("0 0 1-31 * 5", "At 00:00 every day, UTC."),
    ("0 0 */2 * 1", "At 00:00 on every 2nd day of the month from day 1 to 31, if it is a Monday, UTC."),
    ("0 0 L * */3", "At 00:00 on the last day of the month, if it is a Wednesday, Saturday or Sunday, UTC."),
    # months
    ("0 0 1 1 *", "At 00:00 on day 1 of January, UTC."),
    ("0 0 1 */3 *", "At 00:00 on day 1 of the month in January, April, July and October, UTC."),
    ("0 0 * NOV-FEB *", "At 00:00 every day in November to February, UTC."),
    ("0 0 * 1 1-5", "At 00:00, Monday to Friday, in January, UTC."),
    (
        "0 0 9,1W 1 *",
        (
            "At 00:00 on day 9 of the month and on the weekday (Monday to Friday) nearest day 1, within the month,"
            " in January, UTC."
        ),
    ),
    ("0 0 13 6 5", "At 00:00 on day 13 of the month or on Friday, in June, UTC."),
    ("*/15 * * 1 *", "Every 15 minutes, in January, UTC."),
    ("7 * * 1 *", "At 7 minutes past every hour, in January, UTC."),
]
QUARTZ = [
    ("0 0 12 * * ?", "At 12:00 every day, UTC."),
    ("0 0/15 * * * ?", "Every 15 minutes, UTC."),
    ("0 0 22-2 * * ?", "At 00:00, 01:00, 02:00, 22:00 and 23:00 every day, UTC."),
    ("0 0 9 ? * 2-6", "At 09:00, Monday to Friday, UTC."),
    ("0 0 9 ? * L", "At 09:00 on Saturday, UTC."),
    ("0 0 9 ? * 6L", "At 09:00 on the last Friday of the month, UTC."),
    ("0 0 9 ? * 6#3", "At 09:00 on the third Friday of the month, UTC."),
    ("0 0 9 25-5 * ?", "At 09:00 on days 1 to 5 and 25 to 31 of the month, UTC."),
    ("0 0 9 25 12 ? 2026-2030", "At 09:00 on day 25 of December in 2026 to 2030, UTC."),
    ("0 0 9 ? 11-2 MON 2026,2027", "At 09:00 on Monday in November to February, in 2026 and 2027, UTC."),
    ("0 0 9 L * ? 2026/2", "At 09:00 on the last day of the month in every 2nd year from year 2026 to 2098, UTC."),
    ("0 0 9 L-1 * ? 2026", "At 09:00, 1 day before the last day of the month, in 2026, UTC."),
    (
        "0 0 9 L-3W * ?",
        "At 09:00 on the weekday (Monday to Friday) nearest the day 3 days before the last day of the month, UTC.",
    ),
]
ROWS = [(text, Dialect.UNIX, "UTC", said) for text, said in UNIX] + [
    *((text, Dialect.QUARTZ, "UTC", said) for text, said in QUARTZ),
    ("30 2 * * *", Dialect.UNIX, LONDON, "At 02:30 every day, Europe/London time."),
    ("0 9-17 * * 1-5", Dialect.UNIX, LONDON, "Every hour from 09:00 to 17:00, Monday to Friday, Europe/London time."),
    ("0 * * * *", Dialect.UNIX, "Asia/Tokyo", "Every hour, on the hour, Asia/Tokyo time."),
]


@pytest.mark.parametrize(("text", "dialect", "zone", "said"), ROWS)
def test_an_expression_is_said_in_these_words(text: str, dialect: Dialect, zone: str, said: str) -> None:
    assert explain(Schedule(specs=(Cron(text, dialect),), timezone=zone)) == said


def test_hashed_fields_are_said_by_the_values_they_stand_for() -> None:
    minute, hour = (cron.parse("H H * * *", key=KEY).minute.mask, cron.parse("H H * * *", key=KEY).hour.mask)
    time = f"{hour.bit_length() - 1:02}:{minute.bit_length() - 1:02}"
    first = (cron.parse("H/15 * * * *", key=KEY).minute.mask & 0x7FFF).bit_length() - 1

    assert explain(Schedule(specs=(Cron("H H * * *"),), key=KEY)) == f"At {time} every day, UTC."
    stretch = f" from minute {first} to {first + 45} of each hour" if first else ""
    assert explain(Schedule(specs=(Cron("H/15 * * * *"),), key=KEY)) == f"Every 15 minutes{stretch}, UTC."


@pytest.mark.parametrize(("text", "dialect", "zone", "said"), [row for row in ROWS if re.match(r"At \d\d:", row[3])])
def test_the_clock_times_said_are_those_of_a_matching_day(text: str, dialect: Dialect, zone: str, said: str) -> None:
    schedule = Schedule(specs=(Cron(text, dialect),), timezone=zone)
    first = schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC))
    assert first is not None
    day = first.astimezone(schedule.zone.info).replace(hour=0, minute=0, second=0)

    slots = schedule.between(day, day + timedelta(days=1), 100)

    length = 8 if "02:30:15" in said else 5
    walls = [slot.astimezone(schedule.zone.info).time().isoformat()[:length] for slot in slots]
    assert walls == re.findall(r"\d\d:\d\d(?::\d\d)?", said)


START = datetime(2026, 1, 7, 9, 30, tzinfo=UTC)  # a Wednesday
OTHERS: list[tuple[tuple[Spec, ...], str, str]] = [
    ((Every(timedelta(seconds=90)),), "UTC", "Every 90 seconds, counted from 1970-01-01 00:00:00 UTC."),
    ((Every(timedelta(hours=1)),), LONDON, "Every hour, counted from 1970-01-01 00:00:00 UTC."),
    ((Every(timedelta(minutes=90)),), "UTC", "Every 1 hour 30 minutes, counted from 1970-01-01 00:00:00 UTC."),
    ((Every(timedelta(days=1)),), "UTC", "Every 24 hours, counted from 1970-01-01 00:00:00 UTC."),
    (
        (Every(timedelta(days=2), EPOCH, timedelta(hours=3)),),
        "UTC",
        "Every 2 days, counted from 1970-01-01 03:00:00 UTC.",
    ),
    (
        (Every(timedelta(minutes=5), START, timedelta(seconds=7)),),
        "UTC",
        "Every 5 minutes, counted forwards and backwards from 2026-01-07 09:30:07 UTC.",
    ),
    ((At(START),), "UTC", "Once, at 2026-01-07 09:30:00 UTC."),
    (
        (At(datetime(2026, 7, 1, 8, tzinfo=UTC)),),
        LONDON,
        "Once, at 2026-07-01 09:00:00 Europe/London time (2026-07-01 08:00:00 UTC).",
    ),
    ((At(START + timedelta(microseconds=1500)),), "UTC", "Once, at 2026-01-07 09:30:00.002 UTC."),
    ((At(datetime(9999, 12, 31, 23, tzinfo=UTC)),), "Asia/Tokyo", "Once, at 9999-12-31 23:00:00 UTC."),
    (
        (Cron("30 2 * * *"), Cron("0 9 * * 6")),
        LONDON,
        "At 02:30 every day; and at 09:00 on Saturday, all in Europe/London time.",
    ),
    (
        (Cron("30 2 * * *"), Every(timedelta(hours=5))),
        LONDON,
        "At 02:30 every day, Europe/London time; and every 5 hours, counted from 1970-01-01 00:00:00 UTC.",
    ),
]


@pytest.mark.parametrize(("specs", "zone", "said"), OTHERS)
def test_other_specs_are_said_in_these_words(specs: tuple[Spec, ...], zone: str, said: str) -> None:
    assert explain(Schedule(specs=specs, timezone=zone)) == said


SINCE = "starting 2026-01-07 09:30:00, UTC."
RULES = [
    ("FREQ=DAILY", f"At 09:30 every day, {SINCE}"),
    ("FREQ=DAILY;INTERVAL=3", f"At 09:30, on every 3rd day from 2026-01-07 on, {SINCE}"),
    ("FREQ=WEEKLY;BYDAY=MO,FR", f"At 09:30 on Monday and Friday, {SINCE}"),
    (
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU",
        f"At 09:30 on Wednesday, in every 2nd week (Sunday to Saturday) from that of 2026-01-07 on, {SINCE}",
    ),
    ("FREQ=MONTHLY", f"At 09:30 on day 7 of the month, {SINCE}"),
    ("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9,17", f"At 09:30 and 17:30 on the last Friday of the month, {SINCE}"),
    (
        "FREQ=MONTHLY;BYDAY=2TU;INTERVAL=3",
        f"At 09:30 on the second Tuesday of the month, in every 3rd month from January 2026 on, {SINCE}",
    ),
    ("FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", f"At 09:30 on day 13 of the month, if it is a Friday, {SINCE}"),
    ("FREQ=MONTHLY;BYMONTHDAY=-1", f"At 09:30 on the last day of the month, {SINCE}"),
    ("FREQ=YEARLY;INTERVAL=4", f"At 09:30 on day 7 of January, in every 4th year from 2026 on, {SINCE}"),
    ("FREQ=HOURLY", f"At 30 minutes past every hour, {SINCE}"),
    ("FREQ=HOURLY;INTERVAL=5", f"Every 5 hours by the wall clock, {SINCE}"),
    (
        "FREQ=DAILY;UNTIL=20260131",
        "At 09:30 every day, starting 2026-01-07 09:30:00, until 2026-01-31 23:59:59 inclusive, UTC.",
    ),
    ("FREQ=DAILY;COUNT=9", "At 09:30 every day, starting 2026-01-07 09:30:00, the first 9 times only, UTC."),
    ("rrule:freq=yearly;byyearday=100", f"By the rule FREQ=YEARLY;BYYEARDAY=100, {SINCE}"),
    ("FREQ=YEARLY;BYDAY=20MO", f"By the rule FREQ=YEARLY;BYDAY=20MO, {SINCE}"),
]


@pytest.mark.parametrize(("rule", "said"), RULES)
def test_a_recurrence_rule_is_said_like_cron_or_quoted(rule: str, said: str) -> None:
    assert explain(Schedule(specs=(RRule(rule, START),))) == said


def test_exclusions_window_and_limit_follow_the_zone() -> None:
    schedule = Schedule(
        specs=(Cron("0 9 * * *"),),
        timezone=LONDON,
        exclude=(date(2026, 12, 25), *(date(2027, 1, day) for day in (1, 3, 2)), Cron("* * * * 0"), At(START)),
        start=datetime(2026, 6, 1, tzinfo=UTC),
        end=datetime(2027, 6, 1, tzinfo=UTC),
        max_fires=10,
    )

    assert explain(schedule) == (
        "At 09:00 every day, Europe/London time, except on 2026-12-25 and 2027-01-01 to 2027-01-03,"
        " and except every minute, on Sunday,"
        " and except at 2026-01-07 09:30:00 Europe/London time (2026-01-07 09:30:00 UTC),"
        " from 2026-06-01 01:00:00+01:00 until just before 2027-06-01 01:00:00+01:00, at most 10 times."
    )


def test_an_open_window_is_said_from_its_one_end() -> None:
    daily = (Cron("@daily"),)

    assert explain(Schedule(specs=daily, start=START)) == "At 00:00 every day, UTC, from 2026-01-07 09:30:00 UTC on."
    assert (
        explain(Schedule(specs=daily, end=START, max_fires=1))
        == "At 00:00 every day, UTC, until just before 2026-01-07 09:30:00 UTC, at most once."
    )


def test_the_ends_of_the_calendar_can_be_said() -> None:
    for_ever = datetime.max.replace(tzinfo=UTC)
    ages = timedelta(days=3_000_000)

    for zone in ("UTC", "Asia/Tokyo", "America/New_York", "Africa/Monrovia"):
        assert explain(Schedule(specs=(Cron("@daily"),), timezone=zone, start=EPOCH, end=for_ever)).endswith(".")
        assert explain(Schedule(specs=(Every(ages, START),), timezone=zone)).startswith(
            "Every 3000000 days, counted from"
        )


def test_limits_of_a_mixture_are_said_of_all_its_parts() -> None:
    mixture = (Cron("@daily"), Every(timedelta(hours=5)))

    assert explain(Schedule(specs=mixture, timezone=LONDON, exclude=(date(2026, 12, 25),), max_fires=3)) == (
        "At 00:00 every day, Europe/London time; and every 5 hours, counted from 1970-01-01 00:00:00 UTC;"
        " all of this except on 2026-12-25, Europe/London time, at most 3 times in all."
    )


@pytest.mark.parametrize(
    ("dst", "said"),
    [
        (Dst(), ""),
        (Dst(gap=DstGap.SKIP), "; a time skipped by the clock is not run"),
        (Dst(gap=DstGap.SHIFT), "; a time skipped by the clock is run later, by as much as the clock was moved"),
        (Dst(overlap=DstOverlap.SECOND), "; a time shown twice by the clock is run the second time only"),
        (Dst(gap=DstGap.FIRST_AFTER), "; a time skipped by the clock is run at the first moment after the gap"),
        (
            Dst(gap=DstGap.SKIP, overlap=DstOverlap.BOTH),
            "; a time skipped by the clock is not run, and a time shown twice by the clock is run both times",
        ),
    ],
)
def test_a_choice_about_clock_changes_is_said_where_it_can_matter(dst: Dst, said: str) -> None:
    daily = (Cron("30 2 * * *"),)

    assert explain(Schedule(specs=daily, timezone=LONDON, dst=dst)) == f"At 02:30 every day, Europe/London time{said}."
    assert explain(Schedule(specs=daily, dst=dst)) == "At 02:30 every day, UTC."


def test_small_words() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th")
    ]
    assert [listed("a"), listed("ab"), listed("abc")] == ["a", "a and b", "a, b and c"]
    assert listed("abc", "or") == "a, b or c"


# A reader of the sentences, who knows English and a calendar, and nothing of fields and masks.

MONTH = "|".join(MONTHS)
CLOCK = r"\d\d:\d\d(?::\d\d)?"
SIXTY = range(60)
Days = Callable[[date], bool]


def written(seed: int, amount: int) -> list[Expression]:
    """Write expressions of both dialects, plain and odd, and keep those that name a day."""
    rng = random.Random(seed)
    found: list[Expression] = []
    while len(found) < amount:
        quartz = rng.random() < 0.3
        text = " ".join(quartz_fields(rng) if quartz else unix_fields(rng))
        try:
            found.append(cron.parse(text, Dialect.QUARTZ if quartz else Dialect.UNIX, KEY))
        except InvalidSchedule:
            continue
    return found


def part(rng: random.Random, low: int, high: int) -> str:
    first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
    step = rng.choice((2, 3, 5, 7, 10, 15, 20, 30))
    steps = (f"*/{step}", f"{first}/{step}", f"{first}-{last}/{step}", f"H/{step}")
    return rng.choice((str(first), str(last), f"{first}-{last}", "*", "H", *steps))


def field(rng: random.Random, low: int, high: int, *special: str) -> str:
    choices = [part(rng, low, high) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    if special and rng.random() < 0.3:
        choices[rng.randrange(len(choices))] = rng.choice(special)
    return rng.choice(("*", "*", ",".join(choices), ",".join(choices)))


def unix_fields(rng: random.Random) -> list[str]:
    seconds = [field(rng, 0, 59)] if rng.random() < 0.15 else []
    times = [rng.choice((field(rng, 0, 59), "0")), field(rng, 0, 23)]
    days = [field(rng, 1, 31, "L", "L-3", "L-30", "LW", "1W", "15W", "28W", "31W"), field(rng, 1, 12, "NOV-FEB", "6")]
    return [*seconds, *times, *days, field(rng, 0, 7, "5L", "0L", "1#1", "7#5", "FRI-MON", "5-7")]


def quartz_fields(rng: random.Random) -> list[str]:
    times = [rng.choice((field(rng, 0, 59), "0", "0", "0")), field(rng, 0, 59), field(rng, 0, 23, "22-2", "20-4/2")]
    days, weekdays = field(rng, 1, 31, "25-5", "L-3W", "L-27W", "L-1"), field(rng, 1, 7, "L", "6L", "7-2", "2#4")
    days, weekdays = rng.choice(((days, "?"), ("?", weekdays)))
    return [*times, days, field(rng, 1, 12, "11-2"), weekdays, rng.choice(("*", "2026", "2025-2027", "2024/2"))]


def numbers(text: str) -> set[int]:
    """Read "5", "1, 3 and 9", "9 to 17", "every 2nd hour from hour 0 to 22"."""
    if stepped := re.fullmatch(r"every (\d+)\w\w \w+ from \w+ (\d+) to (\d+)", text):
        step, first, last = map(int, stepped.groups())
        return set(range(first, last + 1, step))
    found: set[int] = set()
    for piece in re.split(r", | and ", re.sub(r"^[a-z]+ ", "", text)):
        low, _, high = piece.partition(" to ")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def length(text: str) -> int:
    amount, unit = re.fullmatch(r"every (?:(\d+) )?(second|minute|hour)s?", text, re.IGNORECASE).groups()  # type: ignore[union-attr]
    return int(amount or 1) * {"second": 1, "minute": 60, "hour": 3600}[unit]


def clock(text: str) -> int:
    hour, minute, second = (int(number) for number in f"{text}:00"[:8].split(":"))
    return hour * 3600 + minute * 60 + second


def read_times(text: str) -> tuple[set[int], str]:
    """Return the seconds of the day that a sentence begins with, and what follows."""
    stretch = rf"(?:from {CLOCK} to {CLOCK}|at {CLOCK})"
    if found := re.match(rf"At ({CLOCK}(?:(?:, | and ){CLOCK})*)", text):
        return {clock(time) for time in re.findall(CLOCK, found[1])}, text[found.end() :]
    if found := re.match(rf"(Every [^,]*?) ({stretch}(?:(?:, | and ){stretch})*)", text):
        times: set[int] = set()
        for first, last, single in re.findall(rf"from ({CLOCK}) to ({CLOCK})|at ({CLOCK})", found[2]):
            times |= {clock(single)} if single else set(range(clock(first), clock(last) + 1, length(found[1])))
        return times, text[found.end() :]
    return read_fields(text)


def read_fields(text: str) -> tuple[set[int], str]:
    some = r"(?:every \d+\w\w {0} from {0} \d+ to \d+|{0}s? \d+(?: to \d+)?(?:(?:, | and )\d+\b(?! day)(?: to \d+)?)*)"
    hour, minute, second = (some.format(unit) for unit in ("hour", "minute", "second"))
    hours = rf"(?: (?:of|past) (?P<hours>every hour|each hour|{hour}))"
    of_minute = rf"(?P<sixtieth>At {second}|Every[\w ]*? from second \d+ to \d+|Every second)"
    minutes = rf"(?P<minutes>At \d+ minutes?|At {minute}|Every[\w ]*? from minute \d+ to \d+|Every minute)"
    for pattern in (
        r"Every hour, on the hour",
        rf"{of_minute} of (?P<minutes>every minute|{minute}){hours}?",
        rf"{minutes}{hours}",
        r"(?P<even>Every (?:\d+ )?(?:second|minute|hour)s?)",
    ):
        if found := re.match(pattern, text):
            said = {"hours": None, "minutes": "minute 0", "sixtieth": "second 0", "even": None} | found.groupdict()
            if said["even"]:
                return set(range(0, 86_400, length(said["even"]))), text[found.end() :]
            parts = (which(said["hours"], 24), which(said["minutes"], 60), which(said["sixtieth"], 60))
            return {h * 3600 + m * 60 + s for h, m, s in product(*parts)}, text[found.end() :]
    raise AssertionError(text)


def which(said: str | None, size: int) -> set[int]:
    if said is None or re.fullmatch(r"(every|each) (second|minute|hour)", said, re.IGNORECASE):
        return set(range(size))
    if stretch := re.fullmatch(r"(Every.*) from (second|minute) (\d+) to (\d+)", said):
        step = length(stretch[1]) // (60 if stretch[2] == "minute" else 1)
        return set(range(int(stretch[3]), int(stretch[4]) + 1, step))
    said = said.removeprefix("At ")
    return {int(said.split()[0])} if said[0].isdigit() else numbers(said)


def read_days(text: str) -> Days:
    """Return which dates the rest of a sentence means."""
    years, months = set(range(1970, 2100)), set(range(1, 13))
    if found := re.search(r",? in ((?:every \d+\w\w year from year )?\d{4}[^a-z]*(?:(?:to|and) \d{4})?)$", text):
        years, text = numbers(found[1]), text[: found.start()]
    if found := re.search(rf",? in ((?:{MONTH})(?:(?:, | and | to )(?:{MONTH}))*)$", text):
        months, text = {1 + at for at in names(found[1], MONTHS)}, text[: found.start()]
    if found := re.search(rf"of ({MONTH})", text):
        months, text = {1 + MONTHS.index(found[1])}, text.replace(found[0], "of the month")
    text, _, condition = text.lstrip(", ").partition(", if it is ")
    either = [read_day(one) for one in re.split(r"(?:,| and| or) (?=on |\d+ days? before)", text)]
    conditions = [read_day(f"on {one}") for one in re.split(r", | or ", condition.removeprefix("a ")) if one]
    return lambda day: (
        day.year in years
        and day.month in months
        and any(matches(day) for matches in either)
        and (not conditions or any(matches(day) for matches in conditions))
    )


def names(text: str, cycle: tuple[str, ...]) -> set[int]:
    if " to " in text:
        first, last = (cycle.index(name) for name in text.split(" to "))
        return {at % len(cycle) for at in range(first, last + 1 + (len(cycle) if last < first else 0))}
    return {cycle.index(name) for name in re.split(r", | and ", text)}


def read_day(text: str) -> Days:
    nths = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1}
    if text in ("", "every day"):
        return lambda _: True
    if found := re.fullmatch(r"on the weekday \(Monday to Friday\) nearest (?:the )?(.*)", text):
        aim = found[1]
        return lambda day: day == nearest(day, aim)
    if text == "on the last weekday (Monday to Friday) of the month":
        return lambda day: day == max(one for one in month_of(day) if one.weekday() < 5)
    if text == "on the last day of the month":
        return lambda day: day == month_of(day)[-1]
    if found := re.fullmatch(r"(\d+) days? before the last day of the month(?:, within the month)?", text):
        before = timedelta(days=int(found[1]))
        return lambda day: day + before == month_of(day)[-1]
    if found := re.fullmatch(r"on (?:the )?(first|second|third|fourth|fifth|last) (\w+day) of the month", text):
        at, weekday = nths[found[1]], WEEKDAYS.index(found[2])
        return lambda day: [day] == [one for one in month_of(day) if one.weekday() == weekday][at:][:1]
    if found := re.fullmatch(r"on (every \d+\w\w day) of the month (from .*)|on (days? .*) of the month", text):
        wanted = numbers(found[3] or f"{found[1]} {found[2]}")
        return lambda day: day.day in wanted
    wanted = names(re.sub(r"^on (any day from |the )?", "", text), WEEKDAYS)
    return lambda day: day.weekday() in wanted


@cache
def month_of(day: date) -> list[date]:
    return [day.replace(day=number) for number in range(1, calendar.monthrange(day.year, day.month)[1] + 1)]


def nearest(day: date, wanted: str) -> date | None:
    month = month_of(day)
    number = int(re.findall(r"\d+", wanted)[0])
    at = len(month) - number if "before the last day" in wanted else number
    working = [one for one in month if one.weekday() < 5]
    return min(working, key=lambda one: abs(one.day - at)) if 1 <= at <= len(month) else None


def meant(expression: Expression, day: date) -> bool:
    years = expression.year
    lead = (day.replace(day=1).weekday() + 1) % 7
    days = expression.day_mask(calendar.monthrange(day.year, day.month)[1], lead)
    in_year = years is None or (day.year <= 2099 and bool(years.mask >> day.year - 1970 & 1))
    return in_year and bool(expression.month.mask >> day.month & 1 and days >> day.day & 1)


def test_a_reader_finds_exactly_the_times_and_days_of_thousands_of_expressions() -> None:
    dates = [date(2023, 12, 1) + timedelta(days=17 * step // 3) for step in range(0, 210, 2)]  # to early 2027
    dates += [date(2024, 2, 29), date(2026, 2, 28), date(2026, 5, 29), date(2026, 8, 31), date(2025, 6, 2)]

    for expression in written(seed=1, amount=1500):
        said = explain(Schedule(specs=(Cron(expression.text, expression.dialect),), key=KEY))
        times, rest = read_times(said.removesuffix(", UTC."))
        matches = read_days(rest)

        masks = (expression.hour.mask, expression.minute.mask, expression.second.mask)
        hours, minutes, seconds = ([value for value in SIXTY if mask >> value & 1] for mask in masks)
        assert times == {h * 3600 + m * 60 + s for h, m, s in product(hours, minutes, seconds)}, (expression.text, said)
        for day in dates:
            assert matches(day) == meant(expression, day), (expression.text, said, day)


def test_a_reader_finds_exactly_the_slots_of_recurrence_rules() -> None:
    rng = random.Random(3)
    dates = [date(2026, 1, 8) + timedelta(days=day) for day in range(0, 400, 3)]

    for _ in range(200):
        parts = [f"FREQ={rng.choice(('DAILY', 'WEEKLY', 'MONTHLY', 'YEARLY', 'HOURLY'))}"]
        parts += [f"BYDAY={rng.choice(('MO', 'MO,TU,WE', 'SA,SU', 'FR,SA,SU,MO'))}"] * rng.randrange(2)
        parts += [f"BYMONTHDAY={rng.choice(('1', '1,15', '-1', '-3,13'))}"] * rng.choice((0, "WEEKLY" not in parts[0]))
        parts += [f"BYMONTH={rng.choice(('1', '3,6', '11,12,1,2'))}"] * rng.randrange(2)
        parts += [f"BYHOUR={rng.choice(('9', '9,17', '8,9,10,11,12'))}"] * rng.randrange(2)
        parts += [f"BYMINUTE={rng.choice(('0', '0,15,30,45'))}"] * rng.randrange(2)
        schedule = Schedule(specs=(RRule(";".join(parts), START),))

        said = explain(schedule)

        times, rest = read_times(said.removesuffix(f", {SINCE}"))
        matches = read_days(rest)
        for day in dates:
            midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
            found = schedule.between(midnight, midnight + timedelta(days=1), 1000)
            assert {int((slot - midnight).total_seconds()) for slot in found} == (times if matches(day) else set()), (
                said
            )


def test_every_explanation_is_one_sentence() -> None:
    for expression in written(seed=2, amount=2000):
        schedule = Schedule(specs=(Cron(expression.text, expression.dialect),), timezone=LONDON, key=KEY)

        said = explain(schedule)

        assert re.fullmatch(r"[A-Z][^.]*, Europe/London time\.", said), (expression.text, said)
        assert not re.search(r"  | ,|,,|\b(\w+) \1\b", said), (expression.text, said)
