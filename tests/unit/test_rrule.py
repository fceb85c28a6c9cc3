"""RFC 5545 rules: the RFC's own examples, what is derived from DTSTART, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.recurrence import RRuleWalls
from mainspring.domain.rrule import Frequency, Weekday, parse, until_wall
from mainspring.domain.timetable import Walls
from mainspring.domain.zones import zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400
NINE_TO_FOUR = "9,10,11,12,13,14,15,16"
JANUARIES = [f"{year}-01-{day:02}" for year in (1998, 1999, 2000) for day in range(1, 32)]
TWENTY_MINUTES = [
    f"1997-09-{day:02} {hour:02}:{minute:02}" for day in (2, 3) for hour in range(9, 17) for minute in (0, 20, 40)
]


def wall(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


def shown(second: int) -> str:
    return f"{EPOCH + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}"


def walls(text: str, start: str) -> RRuleWalls:
    rule = parse(text)
    return RRuleWalls(rule, wall(start), until_wall(rule, zone("America/New_York").offset_at))


def first(found: Walls, number: int) -> list[str]:
    def each() -> Iterator[str]:
        at = found.at_or_after(0)
        while at is not None:
            yield shown(at)
            at = found.at_or_after(at + 1)

    return list(islice(each(), number))


def on(*months: str, at: str = "09:00") -> list[str]:
    """Spell out ``"1997-09 2 4"`` as two dates."""
    split = [month.split() for month in months]
    return [f"{month}-{int(day):02} {at}" for month, *days in split for day in days]


# The examples of section 3.8.5.3, in its order. New York's wall times are plain wall times here.
RFC_5545 = [
    ("FREQ=DAILY;COUNT=10", "1997-09-02", on("1997-09 2 3 4 5 6 7 8 9 10 11")),
    (
        "FREQ=DAILY;UNTIL=19971224T000000Z",
        "1997-09-02",
        [f"{datetime(1997, 9, 2, tzinfo=UTC) + timedelta(days=day):%Y-%m-%d}" for day in range(113)],
    ),
    (
        "FREQ=DAILY;INTERVAL=2",
        "1997-09-02",
        on("1997-09 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30", "1997-10 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30")
        + on("1997-11 1 3 5 7 9 11 13 15 17 19 21 23 25 27 29", "1997-12 1 3"),
    ),
    ("FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09-02", on("1997-09 2 12 22", "1997-10 2 12")),
    ("FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA", "1998-01-01", JANUARIES),
    ("FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "1998-01-01", JANUARIES),
    ("FREQ=WEEKLY;COUNT=10", "1997-09-02", on("1997-09 2 9 16 23 30", "1997-10 7 14 21 28", "1997-11 4")),
    (
        "FREQ=WEEKLY;UNTIL=19971224T000000Z",
        "1997-09-02",
        on("1997-09 2 9 16 23 30", "1997-10 7 14 21 28", "1997-11 4 11 18 25", "1997-12 2 9 16 23"),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU",
        "1997-09-02",
        on("1997-09 2 16 30", "1997-10 14 28", "1997-11 11 25", "1997-12 9 23", "1998-01 6 20", "1998-02 3 17"),
    ),
    (
        "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
        "1997-09-02",
        on("1997-09 2 4 9 11 16 18 23 25 30", "1997-10 2"),
    ),
    (
        "FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH",
        "1997-09-02",
        on("1997-09 2 4 9 11 16 18 23 25 30", "1997-10 2"),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        "1997-09-01",
        on("1997-09 1 3 5 15 17 19 29", "1997-10 1 3 13 15 17 27 29 31")
        + on("1997-11 10 12 14 24 26 28", "1997-12 8 10 12 22"),
    ),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH", "1997-09-02", on("1997-09 2 4 16 18 30", "1997-10 2 14 16")),
    (
        "FREQ=MONTHLY;COUNT=10;BYDAY=1FR",
        "1997-09-05",
        on("1997-09 5", "1997-10 3", "1997-11 7", "1997-12 5", "1998-01 2")
        + on("1998-02 6", "1998-03 6", "1998-04 3", "1998-05 1", "1998-06 5"),
    ),
    (
        "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR",
        "1997-09-05",
        on("1997-09 5", "1997-10 3", "1997-11 7", "1997-12 5"),
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        "1997-09-07",
        on("1997-09 7 28", "1997-11 2 30", "1998-01 4 25", "1998-03 1 29", "1998-05 3 31"),
    ),
    (
        "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO",
        "1997-09-22",
        on("1997-09 22", "1997-10 20", "1997-11 17", "1997-12 22", "1998-01 19", "1998-02 16"),
    ),
    (
        "FREQ=MONTHLY;BYMONTHDAY=-3",
        "1997-09-28",
        on("1997-09 28", "1997-10 29", "1997-11 28", "1997-12 29", "1998-01 29", "1998-02 26"),
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15",
        "1997-09-02",
        on("1997-09 2 15", "1997-10 2 15", "1997-11 2 15", "1997-12 2 15", "1998-01 2 15"),
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
        "1997-09-30",
        on("1997-09 30", "1997-10 1 31", "1997-11 1 30", "1997-12 1 31", "1998-01 1 31", "1998-02 1"),
    ),
    (
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        "1997-09-10",
        on("1997-09 10 11 12 13 14 15", "1999-03 10 11 12 13"),
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
        "1997-09-02",
        on("1997-09 2 9 16 23 30", "1997-11 4 11 18 25", "1998-01 6 13 20 27", "1998-03 3 10 17 24 31"),
    ),
    (
        "FREQ=YEARLY;COUNT=10;BYMONTH=6,7",
        "1997-06-10",
        [f"{year}-{month}-10" for year in range(1997, 2002) for month in ("06", "07")],
    ),
    (
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        "1997-03-10",
        ["1997-03-10", *(f"{year}-{month}-10" for year in (1999, 2001, 2003) for month in ("01", "02", "03"))],
    ),
    (
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        "1997-01-01",
        on("1997-01 1", "1997-04 10", "1997-07 19", "2000-01 1", "2000-04 9", "2000-07 18")
        + on("2003-01 1", "2003-04 10", "2003-07 19", "2006-01 1"),
    ),
    ("FREQ=YEARLY;BYDAY=20MO", "1997-05-19", on("1997-05 19", "1998-05 18", "1999-05 17")),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1997-05-12", on("1997-05 12", "1998-05 11", "1999-05 17")),
    (
        "FREQ=YEARLY;BYMONTH=3;BYDAY=TH",
        "1997-03-13",
        on("1997-03 13 20 27", "1998-03 5 12 19 26", "1999-03 4 11 18 25"),
    ),
    (
        "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8",
        "1997-06-05",
        on("1997-06 5 12 19 26", "1997-07 3 10 17 24 31", "1997-08 7 14 21 28")
        + on("1998-06 4 11 18 25", "1998-07 2 9 16 23 30", "1998-08 6 13 20 27")
        + on("1999-06 3 10 17 24", "1999-07 1 8 15 22 29", "1999-08 5 12 19 26"),
    ),
    (
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",  # the RFC excludes DTSTART by EXDATE; here it never matched
        "1997-09-02",
        on("1998-02 13", "1998-03 13", "1998-11 13", "1999-08 13", "2000-10 13"),
    ),
    (
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        "1997-09-13",
        on("1997-09 13", "1997-10 11", "1997-11 8", "1997-12 13", "1998-01 10")
        + on("1998-02 7", "1998-03 7", "1998-04 11", "1998-05 9", "1998-06 13"),
    ),
    (
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        "1996-11-05",
        on("1996-11 5", "2000-11 7", "2004-11 2"),
    ),
    (
        "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3",
        "1997-09-04",
        on("1997-09 4", "1997-10 7", "1997-11 6"),
    ),
    (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        "1997-09-29",
        on("1997-09 29", "1997-10 30", "1997-11 27", "1997-12 30", "1998-01 29", "1998-02 26", "1998-03 30"),
    ),
    (
        "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T210000Z",  # the RFC prints 17:00Z, against its own list of dates
        "1997-09-02",
        ["1997-09-02 09:00", "1997-09-02 12:00", "1997-09-02 15:00"],
    ),
    (
        "FREQ=MINUTELY;INTERVAL=15;COUNT=6",
        "1997-09-02",
        [f"1997-09-02 {time}" for time in ("09:00", "09:15", "09:30", "09:45", "10:00", "10:15")],
    ),
    (
        "FREQ=MINUTELY;INTERVAL=90;COUNT=4",
        "1997-09-02",
        [f"1997-09-02 {time}" for time in ("09:00", "10:30", "12:00", "13:30")],
    ),
    (f"FREQ=DAILY;BYHOUR={NINE_TO_FOUR};BYMINUTE=0,20,40", "1997-09-02", TWENTY_MINUTES),
    (f"FREQ=MINUTELY;INTERVAL=20;BYHOUR={NINE_TO_FOUR}", "1997-09-02", TWENTY_MINUTES),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997-08-05", on("1997-08 5 10 19 24")),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997-08-05", on("1997-08 5 17 19 31")),
    ("FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5", "2007-01-15", on("2007-01 15 30", "2007-02 15", "2007-03 15 30")),
]


@pytest.mark.parametrize(("text", "start", "expected"), RFC_5545)
def test_the_examples_of_rfc_5545_give_its_dates(text: str, start: str, expected: list[str]) -> None:
    found = walls(text, f"{start} 09:00")
    ends = "COUNT" in text or "UNTIL" in text

    dates = first(found, len(expected) + ends)  # one more, which must not come

    assert dates == [shown(wall(date if ":" in date else f"{date} 09:00")) for date in expected]


@pytest.mark.parametrize(("text", "start", "expected"), RFC_5545)
def test_the_examples_are_the_same_backwards_and_counted(text: str, start: str, expected: list[str]) -> None:
    found = walls(text, f"{start} 09:00")
    dates = [wall(date if ":" in date else f"{date} 09:00") for date in expected]

    assert [found.upto(date) for date in dates] == dates
    assert [found.upto(date - 1) for date in dates] == [None, *dates[:-1]]
    assert found.count(0, dates[-1] + 1) == len(dates)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("FREQ=MONTHLY", "2026-01-31 08:30", on("2026-01 31", "2026-03 31", "2026-05 31", at="08:30")),
        ("FREQ=YEARLY", "2024-02-29 08:30", on("2024-02 29", "2028-02 29", "2032-02 29", at="08:30")),
        ("FREQ=YEARLY;BYMONTH=4", "2026-01-30 08:30", on("2026-04 30", "2027-04 30", at="08:30")),
        ("FREQ=YEARLY;BYWEEKNO=1", "2026-02-04 08:30", on("2027-01 6", "2028-01 5", "2029-01 3", at="08:30")),
        ("FREQ=WEEKLY;BYHOUR=7", "2026-02-04 08:30", on("2026-02 11 18", at="07:30")),
        ("FREQ=HOURLY;BYMINUTE=5", "2026-02-04 08:30", ["2026-02-04 09:05", "2026-02-04 10:05"]),
    ],
)
def test_what_the_rule_leaves_open_comes_from_dtstart(text: str, start: str, expected: list[str]) -> None:
    dates = first(walls(text, start), len(expected))

    assert dates == [shown(wall(date)) for date in expected]


def test_dtstart_that_the_rule_does_not_match_is_no_instance() -> None:
    found = walls("FREQ=WEEKLY;BYDAY=MO;COUNT=2", "2026-01-07 09:00")  # a Wednesday

    assert first(found, 9) == ["2026-01-12 09:00:00", "2026-01-19 09:00:00"]


def test_ordinals_and_plain_weekdays_of_one_list_are_united() -> None:
    found = walls("FREQ=MONTHLY;BYDAY=MO,1TU", "2026-01-01 00:00")

    assert [date[:10] for date in first(found, 6)] == [
        *("2026-01-05", "2026-01-06", "2026-01-12", "2026-01-19", "2026-01-26", "2026-02-02")
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", ["2026-11-26", "2027-11-25"]),
        ("FREQ=YEARLY;BYMONTH=3,10;BYDAY=-1SU", ["2026-03-29", "2026-10-25"]),
        ("FREQ=YEARLY;BYDAY=-1SU", ["2026-12-27", "2027-12-26"]),
    ],
)
def test_ordinals_count_in_the_months_named_and_otherwise_in_the_year(text: str, expected: list[str]) -> None:
    assert [date[:10] for date in first(walls(text, "2026-01-01 00:00"), 2)] == expected


def test_a_week_belongs_to_the_year_that_holds_four_of_its_days() -> None:
    found = walls("FREQ=YEARLY;BYWEEKNO=53;BYDAY=FR,SA", "2020-01-01 00:00")

    assert [date[:10] for date in first(found, 6)] == [
        *("2021-01-01", "2021-01-02", "2027-01-01", "2027-01-02", "2032-12-31", "2033-01-01")
    ]


def test_week_minus_one_is_the_last_week_also_where_it_ends_in_january() -> None:
    found = walls("FREQ=YEARLY;BYWEEKNO=-1;BYDAY=SU", "2020-01-06 00:00")

    assert [date[:10] for date in first(found, 3)] == ["2021-01-03", "2022-01-02", "2023-01-01"]


def test_bysetpos_counts_in_the_whole_week_that_dtstart_is_in() -> None:
    found = walls("FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=2", "2026-01-08 00:00")  # the Thursday after its 2nd

    assert [date[:10] for date in first(found, 2)] == ["2026-01-14", "2026-01-21"]


def test_bysetpos_reaches_over_new_year_with_its_week() -> None:
    found = walls("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1,-1", "2025-12-22 00:00")

    assert [date[:10] for date in first(found, 4)] == ["2025-12-22", "2025-12-26", "2025-12-29", "2026-01-02"]


def test_bysetpos_chooses_among_times_of_day_too() -> None:
    found = walls("FREQ=MONTHLY;BYMONTHDAY=1,2;BYHOUR=8,20;BYSETPOS=2,3", "2026-01-01 00:00")

    assert first(found, 4) == [
        *("2026-01-01 20:00:00", "2026-01-02 08:00:00", "2026-02-01 20:00:00", "2026-02-02 08:00:00")
    ]
    assert found.count(wall("2026-01-02"), wall("2026-02-02")) == 2


def test_a_search_far_from_dtstart_lands_on_its_interval() -> None:
    found = walls("FREQ=DAILY;INTERVAL=7", "1970-01-01 06:00")

    assert shown(found.at_or_after(wall("2026-01-01")) or 0) == "2026-01-01 06:00:00"  # a Thursday, like the epoch
    assert shown(found.upto(wall("9999-12-31")) or 0) == "9999-12-30 06:00:00"


def test_the_last_match_is_in_the_year_9999() -> None:
    found = walls("FREQ=DAILY", "1970-01-01 06:00")
    last = wall("9999-12-31 06:00:00")

    assert found.upto(1 << 60) == last
    assert found.at_or_after(last) == last
    assert found.at_or_after(last + 1) is None
    assert found.count(0, 1 << 60) == last // DAY + 1


@pytest.mark.parametrize(
    ("text", "start", "follows_real_time", "whole_minutes"),
    [
        ("FREQ=DAILY", "2026-01-01 09:00:00", False, True),
        ("FREQ=DAILY", "2026-01-01 09:00:01", False, False),
        ("FREQ=DAILY;BYSECOND=0,30;BYSETPOS=1", "2026-01-01 09:00:01", False, True),
        ("FREQ=HOURLY", "2026-01-01 09:00:00", True, True),
        ("FREQ=MINUTELY;BYSECOND=30", "2026-01-01 09:00:00", True, False),
        ("FREQ=SECONDLY", "2026-01-01 09:00:00", True, False),
        ("FREQ=SECONDLY;INTERVAL=120", "2026-01-01 09:00:00", True, True),
        ("FREQ=SECONDLY;INTERVAL=20;BYSECOND=0,10", "2026-01-01 09:00:00", True, True),
    ],
)
def test_walls_tell_what_dst_and_exclusions_need(
    text: str, start: str, *, follows_real_time: bool, whole_minutes: bool
) -> None:
    found = walls(text, start)

    assert (found.follows_real_time, found.whole_minutes) == (follows_real_time, whole_minutes)
    assert found.full_stretch(whole_minutes=True) == 1


def test_a_rule_is_read_with_its_name_in_any_case_and_without_repetitions() -> None:
    rule = parse("rrule:freq=monthly;byday=-1fr,+2MO,2mo;wkst=su;byhour=9,8")

    assert rule.freq is Frequency.MONTHLY
    assert rule.by_day == (Weekday(0, 2), Weekday(4, -1))
    assert rule.by_hour == (8, 9)
    assert rule.week_start == 6
    assert (rule.interval, rule.count, rule.until) == (1, None, None)


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("20260704", "2026-07-04 23:59:59"),
        ("20260704T120000", "2026-07-04 12:00:00"),
        ("20260704T120000Z", "2026-07-04 08:00:00"),
        ("20261224T000000Z", "2026-12-23 19:00:00"),
    ],
)
def test_until_becomes_a_wall_time(until: str, expected: str) -> None:
    rule = parse(f"FREQ=DAILY;UNTIL={until}")

    assert shown(until_wall(rule, zone("America/New_York").offset_at) or 0) == expected
    assert rule.until_utc == until.endswith("Z")


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("", "RRULE", "is not a part"),
        ("DAILY", "RRULE", "is not a part"),
        ("FREQ=DAILY;", "RRULE", "is not a part"),
        ("FREQ=DAILY;BYHOUR=" + "9," * 130 + "9", "RRULE", "256"),
        ("FREQ=DAILY;BYDAY=ＭＯ", "RRULE", "ASCII"),  # wide letters, which upper() leaves alone
        ("INTERVAL=2", "FREQ", "is missing"),
        ("FREQ=FORTNIGHTLY", "FREQ", "WEEKLY"),
        ("FREQ=DAILY;BYEASTER=0", "BYEASTER", "not a part of RFC 5545"),
        ("FREQ=DAILY;BYHOUR=9;BYHOUR=10", "BYHOUR", "second time"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20300101", "COUNT", "UNTIL"),
        ("FREQ=DAILY;COUNT=0", "COUNT", "1 to 10000"),
        ("FREQ=DAILY;COUNT=10001", "COUNT", "1 to 10000"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL", "out of range"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL", "not a number"),
        ("FREQ=DAILY;INTERVAL=", "INTERVAL", "not a number"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND", "leap second"),
        ("FREQ=DAILY;BYSECOND=61", "BYSECOND", "0 to 59"),
        ("FREQ=DAILY;BYMINUTE=60", "BYMINUTE", "0 to 59"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR", "0 to 23"),
        ("FREQ=DAILY;BYHOUR=9,,10", "BYHOUR", "not a number"),
        ("FREQ=DAILY;BYHOUR=+9", "BYHOUR", "not a number"),
        ("FREQ=DAILY;BYDAY=XX", "BYDAY", "MO, TU"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY", "1 to 53"),
        ("FREQ=YEARLY;BYDAY=54MO", "BYDAY", "1 to 53"),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY", "1 to 31"),
        ("FREQ=DAILY;BYMONTHDAY=-32", "BYMONTHDAY", "-31 to -1"),
        ("FREQ=YEARLY;BYYEARDAY=367", "BYYEARDAY", "366"),
        ("FREQ=YEARLY;BYWEEKNO=54", "BYWEEKNO", "53"),
        ("FREQ=DAILY;BYMONTH=13", "BYMONTH", "1 to 12"),
        ("FREQ=DAILY;BYHOUR=1;BYSETPOS=0", "BYSETPOS", "366"),
        ("FREQ=DAILY;WKST=1MO", "WKST", "MO, TU"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL", "20301231T235959Z"),
        ("FREQ=DAILY;UNTIL=20300230", "UNTIL", "a date that exists"),
        ("FREQ=DAILY;UNTIL=2030111", "UNTIL", "a date that exists"),
        ("FREQ=DAILY;UNTIL=20300101Z", "UNTIL", "a date that exists"),
        ("FREQ=DAILY;UNTIL=20300101T", "UNTIL", "a date that exists"),
        ("FREQ=DAILY;UNTIL=20300101T235960", "UNTIL", "a date that exists"),
        ("FREQ=DAILY;UNTIL=19691231", "UNTIL", "from 1970 on"),
        ("FREQ=MONTHLY;BYWEEKNO=20", "BYWEEKNO", "FREQ=YEARLY"),
        ("FREQ=DAILY;BYYEARDAY=1", "BYYEARDAY", "FREQ=DAILY"),
        ("FREQ=WEEKLY;BYYEARDAY=1", "BYYEARDAY", "FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY", "FREQ=MONTHLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY", "FREQ=WEEKLY"),
        ("FREQ=WEEKLY;BYDAY=1MO", "BYDAY", "ordinal"),
        ("FREQ=HOURLY;BYDAY=-1MO", "BYDAY", "ordinal"),
        ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "BYDAY", "BYWEEKNO"),
        ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS", "another BY part"),
    ],
)
def test_a_refusal_names_the_part_and_what_would_be_right(text: str, field: str, said: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse(text)

    assert refused.value.field == field
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;BYMONTH=1;BYYEARDAY=200",
        "FREQ=YEARLY;BYWEEKNO=20;BYMONTH=1",
        "FREQ=YEARLY;INTERVAL=2;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=YEARLY;BYDAY=1MO,-1SU;BYSETPOS=3",
        "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6",
        "FREQ=MONTHLY;BYDAY=6MO",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTH=8",
        "FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=-3",
        "FREQ=DAILY;INTERVAL=7;BYDAY=MO",
        "FREQ=DAILY;BYHOUR=8,9;BYSETPOS=3",
        "FREQ=HOURLY;INTERVAL=2;BYHOUR=0",
        "FREQ=HOURLY;INTERVAL=48;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MINUTELY;INTERVAL=60;BYMINUTE=1",
        "FREQ=MINUTELY;INTERVAL=10080;BYDAY=MO",
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;INTERVAL=604801;BYDAY=MO;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12",  # in 11,000 years
        "FREQ=SECONDLY;INTERVAL=999999937;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;BYSECOND=0;BYSETPOS=2",
    ],
)
def test_a_rule_that_never_comes_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="never comes") as refused:
        walls(text, "1997-09-02 09:00")  # a Tuesday in an odd year, at an odd hour

    assert refused.value.field == "RRULE"


def test_an_until_before_the_first_match_is_refused_by_name() -> None:
    with pytest.raises(InvalidSchedule, match="never comes") as refused:
        walls("FREQ=WEEKLY;BYDAY=MO;UNTIL=19970907", "1997-09-02 09:00")

    assert refused.value.field == "UNTIL"


def test_count_used_up_with_the_year_leaves_nothing_for_new_year() -> None:
    found = walls("FREQ=DAILY;COUNT=2", "2026-12-30 00:00")

    assert first(found, 3) == ["2026-12-30 00:00:00", "2026-12-31 00:00:00"]


def test_count_beyond_the_year_9999_ends_there() -> None:
    found = walls("FREQ=YEARLY;COUNT=10000", "1997-09-02 09:00")

    assert found.count(0, 1 << 60) == 9999 - 1997 + 1
