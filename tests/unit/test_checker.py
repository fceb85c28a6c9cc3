"""The judge against cases worked out by hand, with a calendar and a clock, and against ``zoneinfo``."""

from __future__ import annotations

import ast
import calendar
import random
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import checker
from checker.cron import Dialect, Gap, Overlap, Window, occurrences, parse, scan, transitions, zone_info, zones

ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Antarctica/Vostok",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Etc/GMT+12",
    "Europe/Dublin",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Chatham",
    "UTC",
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def wall(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute)


def fires(
    expression: str,
    tz: str,
    start: str,
    end: str,
    *,
    gap: Gap = "debian",
    overlap: Overlap = "debian",
    dialect: Dialect = "unix",
) -> list[str]:
    """Scan, and write the slots as ``day hour:minute`` in UTC."""
    slots = scan(expression, dialect=dialect, tz=tz, start=utc(start), end=utc(end), gap=gap, overlap=overlap)
    return [slot.strftime("%d %H:%M") for slot in slots]


def days(expression: str, month: str, dialect: Dialect = "unix") -> list[int]:
    """List the days of a month whose midnight matches."""
    year, number = map(int, month.split("-"))
    parsed = parse(expression, dialect)
    length = calendar.monthrange(year, number)[1]
    return [day for day in range(1, length + 1) if parsed.matches(wall(year, number, day))]


def values(expression: str, dialect: Dialect = "unix") -> list[int]:
    """List the minutes of one hour that match."""
    parsed = parse(expression, dialect)
    return [minute for minute in range(60) if parsed.matches(wall(2025, 6, 2, 12, minute))]


# New York: 2025-03-09 02:00 EST becomes 03:00 EDT at 07:00 UTC; 2025-11-02 02:00 EDT becomes 01:00 EST at 06:00 UTC.
SPRING = ("America/New_York", "2025-03-09T05:00", "2025-03-09T09:00")
AUTUMN = ("America/New_York", "2025-11-02T04:00", "2025-11-02T09:00")


def test_a_fixed_time_in_the_gap_fires_once_at_the_first_instant_after_it() -> None:
    assert fires("30 2 * * *", *SPRING) == ["09 07:00"]
    assert fires("0,15,30,45 2 * * *", *SPRING) == ["09 07:00"]
    assert fires("0-59/15 1-3 * * *", *SPRING) == [
        *("09 06:00", "09 06:15", "09 06:30", "09 06:45"),
        *("09 07:00", "09 07:15", "09 07:30", "09 07:45"),
    ]


def test_a_fixed_time_is_moved_on_the_day_of_the_gap_only() -> None:
    expected = ["08 07:30", "09 07:00", "10 06:30"]
    assert fires("30 2 * * *", "America/New_York", "2025-03-08T00:00", "2025-03-11T00:00") == expected


def test_a_wildcard_passes_over_the_gap_with_the_clock() -> None:
    assert fires("0 * * * *", *SPRING) == ["09 05:00", "09 06:00", "09 07:00", "09 08:00"]
    assert fires("* 2 * * *", *SPRING) == []
    assert fires("30 */2 * * *", *SPRING) == ["09 05:30", "09 08:30"]


def test_a_fixed_time_in_the_overlap_fires_in_its_first_pass() -> None:
    assert fires("30 1 * * *", *AUTUMN) == ["02 05:30"]
    assert fires("0 1-3 * * *", *AUTUMN) == ["02 05:00", "02 07:00", "02 08:00"]
    assert fires("5/30 1 * * *", *AUTUMN) == ["02 05:05", "02 05:35"]


def test_a_wildcard_fires_in_both_passes() -> None:
    assert fires("0 * * * *", *AUTUMN) == [f"02 0{hour}:00" for hour in range(4, 9)]
    assert len(fires("*/15 * * * *", *AUTUMN)) == 20
    assert fires("*/30 1 * * *", *AUTUMN) == ["02 05:00", "02 05:30", "02 06:00", "02 06:30"]


def test_lord_howe_moves_by_half_an_hour() -> None:
    # 2025-10-05 02:00 becomes 02:30 at 15:30 UTC of the 4th; 2025-04-06 02:00 becomes 01:30 at 15:00 UTC of the 5th.
    spring = ("Australia/Lord_Howe", "2025-10-04T13:00", "2025-10-04T18:00")
    autumn = ("Australia/Lord_Howe", "2025-04-05T13:00", "2025-04-05T18:00")

    assert fires("15 2 * * *", *spring) == ["04 15:30"]
    assert fires("15 2 * * *", *spring, gap="shift") == ["04 15:45"]
    assert fires("0 * * * *", *spring) == ["04 13:30", "04 14:30", "04 16:00", "04 17:00"]
    assert fires("0 */2 * * *", *autumn) == ["05 13:00", "05 15:30", "05 17:30"]
    assert fires("45 1 * * *", *autumn) == ["05 14:45"]
    assert fires("45 1 * * *", *autumn, overlap="second") == ["05 15:15"]
    assert fires("0 2 * * *", *autumn) == ["05 15:30"]


def test_santiago_has_a_day_without_midnight() -> None:
    # 2025-09-07 00:00 becomes 01:00 at 04:00 UTC.
    window = ("America/Santiago", "2025-09-06T00:00", "2025-09-08T12:00")

    assert fires("0 0 * * *", *window) == ["06 04:00", "07 04:00", "08 03:00"]
    assert fires("@daily", *window, gap="skip") == ["06 04:00", "08 03:00"]
    assert fires("30 0 7 9 *", *window) == ["07 04:00"]
    assert fires("0 * 7 9 *", *window)[:2] == ["07 04:00", "07 05:00"]


def test_apia_lost_the_thirtieth_of_december() -> None:
    # 2011-12-29 24:00 at -10 is 2011-12-31 00:00 at +14: 10:00 UTC of the 30th.
    window = ("Pacific/Apia", "2011-12-29T12:00", "2011-12-31T12:00")

    assert fires("0 12 * * *", *window) == ["29 22:00", "30 22:00"]
    assert fires("0 12 30 12 *", *window) == []
    assert fires("0 12 30 12 *", *window, gap="skip") == []
    assert fires("0 12 30 12 *", *window, gap="first_after") == ["30 10:00"]
    assert fires("0 12 30 12 *", *window, gap="shift") == ["30 22:00"]
    assert fires("0 */12 30 12 *", *window, gap="shift") == ["30 10:00", "30 22:00"]


def test_troll_moves_by_two_hours() -> None:
    # 2025-03-30 01:00 becomes 03:00, and 2025-10-26 03:00 becomes 01:00, both at 01:00 UTC.
    spring = ("Antarctica/Troll", "2025-03-30T00:00", "2025-03-30T04:00")
    autumn = ("Antarctica/Troll", "2025-10-25T22:00", "2025-10-26T04:00")

    assert fires("30 1,2 * * *", *spring) == ["30 01:00"]
    assert fires("30 1,2 * * *", *spring, gap="shift") == ["30 01:30", "30 02:30"]
    assert fires("30 1,2 * * *", *autumn) == ["25 23:30", "26 00:30"]
    assert fires("30 1,2 * * *", *autumn, overlap="second") == ["26 01:30", "26 02:30"]


def test_exactly_three_hours_still_count_as_dst() -> None:
    # Casey: 2011-10-28 02:00 becomes 05:00 at 18:00 UTC; 2012-02-22 04:00 becomes 01:00 at 17:00 UTC.
    assert fires("30 3 * * *", "Antarctica/Casey", "2011-10-27T12:00", "2011-10-28T00:00") == ["27 18:00"]
    assert fires("30 2 * * *", "Antarctica/Casey", "2012-02-21T12:00", "2012-02-22T00:00") == ["21 15:30"]


def test_more_than_three_hours_are_a_correction() -> None:
    # Vostok: 1994-02-01 00:00 becomes 17:00 of the day before at 17:00 UTC; 1994-11-01 00:00 becomes 07:00.
    back = ("Antarctica/Vostok", "1994-01-31T12:00", "1994-02-01T00:00")
    forward = ("Antarctica/Vostok", "1994-10-31T20:00", "1994-11-01T06:00")

    assert fires("0 20 * * *", *back) == ["31 13:00", "31 20:00"]
    assert fires("0 20 * * *", *back, overlap="first") == ["31 13:00"]
    assert fires("0 20 * * *", *back, overlap="second") == ["31 20:00"]
    assert fires("0 3 * * *", *forward) == []
    assert fires("0 3 * * *", *forward, gap="first_after") == ["01 00:00"]


def test_a_change_counts_whatever_its_cause() -> None:
    # Caracas: 2016-05-01 02:30 becomes 03:00 at 07:00 UTC, without any summer time.
    assert fires("45 2 * * *", "America/Caracas", "2016-05-01T05:00", "2016-05-01T09:00") == ["01 07:00"]


@pytest.mark.parametrize("expression", ["30 2 * * *", "30 2,2 * * *", "*/30 2 * * *", "0 30 2 ? * *"])
def test_an_explicit_gap_policy_holds_for_fixed_and_wildcard(expression: str) -> None:
    dialect: Dialect = "quartz" if "?" in expression else "unix"
    full_hour = ["09 07:00"] if expression.startswith("*") else []

    assert fires(expression, *SPRING, gap="first_after", dialect=dialect) == ["09 07:00"]
    assert fires(expression, *SPRING, gap="shift", dialect=dialect) == [*full_hour, "09 07:30"]
    assert fires(expression, *SPRING, gap="skip", dialect=dialect) == []


@pytest.mark.parametrize("expression", ["30 1 * * *", "30 */1 1-30 * *"])
def test_an_explicit_overlap_policy_holds_for_fixed_and_wildcard(expression: str) -> None:
    window = ("America/New_York", "2025-11-02T05:00", "2025-11-02T07:00")

    assert fires(expression, *window, overlap="first") == ["02 05:30"]
    assert fires(expression, *window, overlap="second") == ["02 06:30"]
    assert fires(expression, *window, overlap="both") == ["02 05:30", "02 06:30"]


def test_one_policy_may_be_chosen_and_the_other_left_to_debian() -> None:
    assert fires("0 * * * *", *AUTUMN, gap="shift") == fires("0 * * * *", *AUTUMN)
    assert fires("30 1 * * *", *AUTUMN, gap="skip") == ["02 05:30"]
    assert fires("30 2 * * *", *SPRING, overlap="second") == ["09 07:00"]


def test_walls_that_land_on_one_instant_are_one_slot() -> None:
    assert fires("30 2,3 * * *", *SPRING, gap="shift") == ["09 07:30"]
    assert fires("0 2,3 * * *", *SPRING, gap="first_after") == ["09 07:00"]


def test_a_window_knows_what_happened_just_outside_it() -> None:
    ny = "America/New_York"
    assert fires("30 1 * * *", ny, "2025-11-02T06:00", "2025-11-02T09:00") == []
    assert fires("30 1 * * *", ny, "2025-11-02T06:30", "2025-11-02T06:31", overlap="second") == ["02 06:30"]
    assert fires("30 1 * * *", ny, "2025-11-02T05:30", "2025-11-02T05:31", overlap="second") == []
    assert fires("30 2 * * *", ny, "2025-03-09T07:00", "2025-03-09T07:01") == ["09 07:00"]
    assert fires("30 2 * * *", ny, "2025-03-09T07:30", "2025-03-09T07:31", gap="shift") == ["09 07:30"]
    assert fires("30 2 * * *", ny, "2025-03-09T06:00", "2025-03-09T07:00") == []
    assert fires("0 23 30 12 *", "Pacific/Apia", "2011-12-31T09:00", "2011-12-31T10:00", gap="shift") == ["31 09:00"]


def test_a_window_is_half_open_and_begins_with_the_next_whole_step() -> None:
    assert fires("* * * * *", "UTC", "2025-01-01T00:00:01", "2025-01-01T00:02") == ["01 00:01"]
    assert fires("* * * * *", "UTC", "2025-01-01T00:00", "2025-01-01T00:01:00.5") == ["01 00:00", "01 00:01"]
    assert fires("* * * * *", "UTC", "1969-12-31T23:58", "1970-01-01T00:01") == ["01 00:00"]


def test_seconds_are_walked_one_by_one() -> None:
    slots = scan(
        "*/20 30 2 * * *", dialect="unix", tz="UTC", start=utc("2025-01-01T02:00"), end=utc("2025-01-01T03:00")
    )

    assert slots == [utc("2025-01-01T02:30:00"), utc("2025-01-01T02:30:20"), utc("2025-01-01T02:30:40")]
    # The star is in the seconds: minute and hour are fixed, so the gap gives one slot.
    assert fires("* 30 2 * * *", "America/New_York", "2025-03-09T06:50", "2025-03-09T07:10") == ["09 07:00"]
    assert parse("*/20 30 2 * * *", "unix").step == 1
    assert parse("0 30 2 * * *", "unix").step == parse("30 2 * * *", "unix").step == 60


def test_a_window_of_minutes_refuses_an_expression_with_seconds() -> None:
    window = Window("UTC", utc("2025-01-01"), utc("2025-01-02"), 60)

    with pytest.raises(ValueError, match="second by second"):
        occurrences(parse("30 0 0 * * *", "unix"), window)


def test_an_offset_with_seconds_is_refused_minute_by_minute() -> None:
    day = ("Africa/Monrovia", utc("1972-01-07T00:44"), utc("1972-01-07T00:46"))

    with pytest.raises(ValueError, match="second by second"):
        Window(*day, 60)
    assert occurrences(parse("0 0 0 * * *", "unix"), Window(*day, 1)) == [utc("1972-01-07T00:44:30")]


# August 2025 begins on a Friday and ends on a Sunday.
@pytest.mark.parametrize(
    ("expression", "month", "expected"),
    [
        ("0 0 13 * 5", "2025-08", [1, 8, 13, 15, 22, 29]),  # Vixie: either
        ("0 0 */2 * 1", "2025-08", [11, 25]),  # begins with a star: both
        ("0 0 1-31/2 * 1", "2025-08", sorted({*range(1, 32, 2), 4, 18})),
        ("0 0 13 * *", "2025-08", [13]),
        ("0 0 ? * 5", "2025-08", [1, 8, 15, 22, 29]),
        ("0 0 13 * ?", "2025-08", [13]),
        ("0 0 1,* * 5", "2025-08", list(range(1, 32))),
        ("0 0 *,1 * 5", "2025-08", [1, 8, 15, 22, 29]),
        ("0 0 L * *", "2025-08", [31]),
        ("0 0 L * *", "2024-02", [29]),
        ("0 0 l * *", "2025-02", [28]),
        ("0 0 L-3 * *", "2025-04", [27]),
        ("0 0 L-30 * *", "2025-08", [1]),
        ("0 0 L-30 * *", "2025-04", []),
        ("0 0 15W * *", "2025-08", [15]),  # Friday
        ("0 0 15W * *", "2025-02", [14]),  # Saturday
        ("0 0 15W * *", "2025-06", [16]),  # Sunday
        ("0 0 1W * *", "2025-03", [3]),  # Saturday, but never into February
        ("0 0 1W * *", "2025-06", [2]),  # Sunday
        ("0 0 31W * *", "2025-08", [29]),  # Sunday, but never into September
        ("0 0 31W * *", "2025-05", [30]),  # Saturday
        ("0 0 31W * *", "2025-06", []),
        ("0 0 30W * *", "2025-11", [28]),  # Sunday
        ("0 0 LW * *", "2025-08", [29]),
        ("0 0 LW * *", "2025-05", [30]),
        ("0 0 LW * *", "2025-02", [28]),
        ("0 0 1,15W,L * *", "2025-08", [1, 15, 31]),
        ("0 0 L * 5", "2025-08", [1, 8, 15, 22, 29, 31]),
        ("0 0 * * 5L", "2025-08", [29]),
        ("0 0 * * friL", "2025-02", [28]),
        ("0 0 * * 0L", "2025-08", [31]),
        ("0 0 * * 7L", "2025-08", [31]),
        ("0 0 * * 5#3", "2025-08", [15]),
        ("0 0 * * FRI#1,SUN#5", "2025-08", [1, 31]),
        ("0 0 * * 5#5", "2025-09", []),
        ("0 0 * * 7", "2025-08", [3, 10, 17, 24, 31]),
        ("0 0 * * 5-7", "2025-09", [5, 6, 7, 12, 13, 14, 19, 20, 21, 26, 27, 28]),
        ("0 0 * * 0-7", "2025-08", list(range(1, 32))),
        ("0 0 * * FRI-MON", "2025-09", [1, 5, 6, 7, 8, 12, 13, 14, 15, 19, 20, 21, 22, 26, 27, 28, 29]),
        ("0 0 * * FRI-MON/2", "2025-09", [5, 7, 12, 14, 19, 21, 26, 28]),
        ("0 0 * * SAT-SUN", "2025-09", [6, 7, 13, 14, 20, 21, 27, 28]),
        ("0 0 1 NOV-FEB *", "2025-01", [1]),
        ("0 0 1 NOV-FEB *", "2025-03", []),
        ("0 0 1 NOV-FEB/2 *", "2025-01", [1]),
        ("0 0 1 NOV-FEB/2 *", "2025-12", []),
        ("0 0 */40 * *", "2025-08", [1]),
        ("@monthly", "2025-08", [1]),
        ("@weekly", "2025-08", [3, 10, 17, 24, 31]),
        ("@Yearly", "2025-08", []),
        ("@annually", "2025-01", [1]),
    ],
)
def test_unix_days_agree_with_the_calendar(expression: str, month: str, expected: list[int]) -> None:
    assert days(expression, month) == expected


@pytest.mark.parametrize(
    ("expression", "month", "expected"),
    [
        ("0 0 0 ? * 6", "2025-08", [1, 8, 15, 22, 29]),
        ("0 0 0 ? * 1", "2025-08", [3, 10, 17, 24, 31]),
        ("0 0 0 ? * L", "2025-08", [2, 9, 16, 23, 30]),
        ("0 0 0 ? * 6L", "2025-08", [29]),
        ("0 0 0 ? * FRI#3", "2025-08", [15]),
        ("0 0 0 ? * 6-2", "2025-09", [1, 5, 6, 7, 8, 12, 13, 14, 15, 19, 20, 21, 22, 26, 27, 28, 29]),
        ("0 0 0 28-2 * ?", "2025-08", [1, 2, 28, 29, 30, 31]),
        ("0 0 0 L-3 * ?", "2025-04", [27]),
        ("0 0 0 L-3W * ?", "2025-08", [28]),
        ("0 0 0 L-3W * ?", "2025-09", [26]),  # the 27th is a Saturday
        ("0 0 0 L-29W * ?", "2025-11", [3]),  # the 1st is a Saturday
        ("0 0 0 L-29W * ?", "2025-02", []),
        ("0 0 0 LW * ?", "2025-08", [29]),
        ("0 0 0 1 11-2 ?", "2025-01", [1]),
        ("0 0 0 1 * ? 2024-2026", "2025-08", [1]),
        ("0 0 0 1 * ? 2024/2", "2025-08", []),
        ("0 0 22-2 1 * ?", "2025-08", [1]),
    ],
)
def test_quartz_days_agree_with_the_calendar(expression: str, month: str, expected: list[int]) -> None:
    assert days(expression, month, "quartz") == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("5", [5]),
        ("05", [5]),
        ("1,3,1", [1, 3]),
        ("10-13", [10, 11, 12, 13]),
        ("*/20", [0, 20, 40]),
        ("50/4", [50, 54, 58]),
        ("10-20/5", [10, 15, 20]),
        ("*/90", [0]),
        ("7/90", [7]),
        ("1,*/30", [0, 1, 30]),
    ],
)
def test_values_lists_ranges_and_steps(field: str, expected: list[int]) -> None:
    assert values(f"{field} * * * *") == expected


def test_quartz_ranges_go_round_the_dial() -> None:
    assert values("0 58-2 * * * ?", "quartz") == [0, 1, 2, 58, 59]
    assert values("0 55-5/4 * * * ?", "quartz") == [3, 55, 59]


@pytest.mark.parametrize(
    ("expression", "dialect", "wildcard"),
    [
        ("*/5 1 * * *", "unix", True),
        ("5 * * * *", "unix", True),
        ("0,*/15 1 * * *", "unix", True),
        ("0 1,*/6 * * *", "unix", True),
        ("@hourly", "unix", True),
        ("@daily", "unix", False),
        ("0-59/15 0-23 * * *", "unix", False),
        ("5/15 1 * * *", "unix", False),
        ("* 0 1 * * *", "unix", False),
        ("0 0/5 * ? * *", "quartz", True),
        ("* 0/5 1 ? * *", "quartz", False),
    ],
)
def test_a_star_in_minute_or_hour_makes_a_wildcard(expression: str, dialect: Dialect, *, wildcard: bool) -> None:
    assert parse(expression, dialect).wildcard is wildcard


UNIX_REFUSED = [
    *("", "* * * *", "* * * * * * *", "@reboot", "@every 90s", "@daily 1", "0 0 1 1 * 2025 1"),
    *("60 * * * *", "61 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *", "* * * * 8"),
    *("*/0 * * * *", "5-1 * * * *", "* 22-2 * * *", "* * * * 7-2", "* * * * 5-MON", "* * * * FRI-1", "-1 * * * *"),
    *("? * * * *", "* ? * * *", "* * * ? *", "* * ?/2 * *", "* * * * L", "* * W * *", "* * 0W * *", "* * 32W * *"),
    *("* * L-31 * *", "* * L-3W * *", "* * 1-5W * *", "* * L/2 * *", "* * * * 5#0", "* * * * 5#6", "* * * * 8L"),
    *("1,,2 * * * *", ",1 * * * *", "1, * * * *", "1- * * * *", "*/ * * * *", "*-5 * * * *", "1-5-7 * * * *"),
    *("1/2/3 * * * *", "*5 * * * *", "H * * * *", "R * * * *", "1~5 * * * *", "\u0663 * * * *", "1.5 * * * *"),
    *("* * * JANUARY *", "* * * * FRIDAY", "* * * FRI *", "JAN * * * *", "*\n* * * *", "0 0 1 1 *\n", "0" * 257),
]


@pytest.mark.parametrize("expression", UNIX_REFUSED)
def test_unix_refuses(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(expression, "unix")


QUARTZ_REFUSED = [
    *("* * * * *", "* * * * * *", "* * * ? * ?", "0 0 0 1 * 1", "? * * * * ?", "@daily", "0 0 0 ? * 0", "0 0 0 ? * 8"),
    *("0 0 0 1 * ? 1969", "0 0 0 1 * ? 2100", "0 0 0 1 * ? 2030-2025", "0 0/60 * * * ?", "0 0 0/24 * * ?"),
    *("0 0 0 1/32 * ?", "0 0 0 1 1/13 ?", "0 0 0 ? * 1/8", "0 0 0 L-31 * ?", "0 0 0 ? * 6#6", "0 0 0 ?,1 * *"),
]


@pytest.mark.parametrize("expression", QUARTZ_REFUSED)
def test_quartz_refuses(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(expression, "quartz")


def test_blanks_are_spaces_and_tabs() -> None:
    assert values(" 5\t*  * * * ") == [5]


@pytest.mark.parametrize("tz", ZONES)
def test_walls_agree_with_zoneinfo_at_random_instants(tz: str) -> None:
    chance = random.Random(tz)
    changes = [change.at for change in transitions(tz, 1972, 2060)] or [utc("2000-01-01")]

    for _ in range(4):
        around = chance.choice([chance.choice(changes), utc("1972-01-01") + timedelta(hours=chance.randrange(700_000))])
        window = Window(tz, around - timedelta(hours=6), around + timedelta(hours=6), 60)
        for instant in chance.sample(window.instants, 100):
            local = datetime.fromtimestamp(instant.utc, zone_info(tz))
            second, minute, hour, date = instant.wall
            assert (local.hour, local.minute, local.second) == (hour, minute, second)
            assert (local.year, local.month, local.day) == date[:3]
            assert (local.isoweekday() % 7, calendar.monthrange(local.year, local.month)[1]) == date[3:]
            assert (instant.again_after is not None) == (local.fold == 1)


@pytest.mark.parametrize("tz", ZONES)
def test_every_transition_is_a_change_that_zoneinfo_sees(tz: str) -> None:
    zone, second = zone_info(tz), timedelta(seconds=1)

    for change in transitions(tz, 1970, 2060):
        assert (change.at - second).astimezone(zone).utcoffset() == change.before
        assert change.at.astimezone(zone).utcoffset() == change.after
        assert change.change != timedelta()


@pytest.mark.parametrize("tz", ["America/New_York", "Africa/Cairo", "Europe/Dublin", "Pacific/Apia", "Asia/Gaza"])
def test_between_transitions_zoneinfo_sees_no_change(tz: str) -> None:
    changes = transitions(tz, 1970, 2060)
    instants = [change.at for change in changes]
    offsets = [changes[0].before, *(change.after for change in changes)]

    for day in range(0, 33_000, 3):
        at = utc("1970-01-01") + timedelta(days=day)
        assert at.astimezone(zone_info(tz)).utcoffset() == offsets[bisect_right(instants, at)]


def test_transitions_are_those_of_the_years_asked_for() -> None:
    hour = timedelta(hours=1)

    assert transitions("America/New_York", 2025, 2025) == [
        (utc("2025-03-09T07:00"), -5 * hour, -4 * hour),
        (utc("2025-11-02T06:00"), -4 * hour, -5 * hour),
    ]
    assert [change.at for change in transitions("Pacific/Apia", 2011, 2011)][-1] == utc("2011-12-30T10:00")
    assert transitions("Etc/GMT+5", 1970, 2060) == []


def test_zones_are_the_names_of_the_wheel() -> None:
    assert {"America/New_York", "US/Eastern", "UTC", "Etc/GMT+5", "Asia/Kolkata"} <= set(zones())
    assert not [name for name in zones() if name.startswith(("posix/", "right/"))]
    assert len(zones()) == len(set(zones())) > 500
    with pytest.raises(ValueError, match="no zone named"):
        transitions("../zones", 2025, 2025)


def test_the_judge_imports_nothing_it_judges() -> None:
    allowed = {"__future__", "calendar", "checker", "collections", "dataclasses", "datetime", "functools", "importlib"}
    allowed |= {"itertools", "re", "struct", "typing", "zoneinfo"}

    for path in Path(checker.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path
