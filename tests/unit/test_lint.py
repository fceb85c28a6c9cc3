"""Each warning, by name, with the dates it is about."""

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Cron, Dialect, Dst, DstGap, DstOverlap, Every, RRule, Schedule, lint

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def names(text: str, dialect: Dialect = Dialect.UNIX, tz: str = "UTC") -> list[str]:
    return [finding.name for finding in lint(Schedule(specs=(Cron(text, dialect),), timezone=tz), now=NOW)]


@pytest.mark.parametrize(
    ("text", "dialect", "tz", "expected"),
    [
        ("0 9 * * 1-5", Dialect.UNIX, "Europe/London", []),
        ("*/15 * * * *", Dialect.UNIX, "America/New_York", []),
        ("0 * * * *", Dialect.UNIX, "Australia/Lord_Howe", []),
        ("30 2 * * *", Dialect.UNIX, "America/New_York", ["dst-gap"]),
        ("30 1 * * *", Dialect.UNIX, "America/New_York", ["dst-overlap"]),
        ("*/15 1 * * *", Dialect.UNIX, "Europe/London", ["dst-gap", "dst-overlap"]),
        ("30 2 * * *", Dialect.UNIX, "Asia/Kolkata", []),
        ("30 2 * * 1", Dialect.UNIX, "America/New_York", []),
        ("0 0 13 * 5", Dialect.UNIX, "UTC", ["day-or-weekday"]),
        ("0 0 */2 * 1", Dialect.UNIX, "UTC", ["day-or-weekday", "uneven-step"]),
        ("*/7 * * * *", Dialect.UNIX, "UTC", ["uneven-step"]),
        ("*/20 * * * *", Dialect.UNIX, "UTC", []),
        ("0 */5 * * *", Dialect.UNIX, "UTC", ["uneven-step"]),
        ("0 0 1 */5 *", Dialect.UNIX, "UTC", ["uneven-step"]),
        ("0-30/7 * * * *", Dialect.UNIX, "UTC", []),
        ("*/90 * * * *", Dialect.UNIX, "UTC", ["step-beyond-field"]),
        ("0 0 29 2 *", Dialect.UNIX, "UTC", ["leap-day"]),
        ("0 0 31 * *", Dialect.UNIX, "UTC", ["short-months"]),
        ("0 0 30 4 *", Dialect.UNIX, "UTC", []),
        ("0 0 L * *", Dialect.UNIX, "UTC", []),
        ("0 0 9 * * *", Dialect.UNIX, "UTC", ["seconds-field"]),
        ("* 0 9 * * *", Dialect.UNIX, "UTC", ["seconds-field", "too-frequent"]),
        ("0 0 9 * * 5", Dialect.UNIX, "UTC", ["weekday-numbering", "seconds-field"]),
        ("0 0 9 ? * 2-6", Dialect.QUARTZ, "UTC", ["weekday-numbering"]),
        ("0 0 9 ? * MON-FRI", Dialect.QUARTZ, "UTC", []),
        ("0 0 9 1 1 ? 2020", Dialect.QUARTZ, "UTC", ["never-fires"]),
        ("*/10 * * * * *", Dialect.UNIX, "UTC", ["seconds-field", "too-frequent"]),
    ],
)
def test_what_deserves_a_look_is_named_and_nothing_else(
    text: str, dialect: Dialect, tz: str, expected: list[str]
) -> None:
    assert names(text, dialect, tz) == expected


def test_a_gap_is_dated_and_says_what_will_happen() -> None:
    (finding,) = lint(Schedule(specs=(Cron("30 2 * * *"),), timezone="America/New_York"), now=NOW)

    assert finding.dates == (datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2028, 3, 12, 7, tzinfo=UTC))
    assert "02:30 does not exist on 2027-03-14" in finding.reason
    assert "runs once at 03:00" in finding.reason


@pytest.mark.parametrize(
    ("dst", "word"),
    [
        (Dst(gap=DstGap.SKIP), "does not run"),
        (Dst(gap=DstGap.SHIFT), "later"),
        (Dst(overlap=DstOverlap.BOTH), "both times"),
        (Dst(overlap=DstOverlap.SECOND), "second time"),
        (Dst(overlap=DstOverlap.FIRST), "first time"),
    ],
)
def test_the_chosen_rule_is_what_the_warning_announces(dst: Dst, word: str) -> None:
    gap = dst.gap is not DstGap.DEBIAN
    schedule = Schedule(specs=(Cron("30 2 * * *" if gap else "30 1 * * *"),), timezone="America/New_York", dst=dst)

    (finding,) = lint(schedule, now=NOW)

    assert word in finding.reason


def test_changes_of_different_outcome_are_told_apart() -> None:
    schedule = Schedule(specs=(Cron("0 1-3 * * *"),), timezone="Pacific/Apia")

    found = lint(schedule, now=datetime(2011, 6, 1, tzinfo=UTC))

    lost_day, summer = (finding for finding in found if finding.name == "dst-gap")
    assert lost_day.dates == (datetime(2011, 12, 30, 10, tzinfo=UTC),)
    assert "does not run" in lost_day.reason
    assert "runs once at 04:00" in summer.reason


def test_a_clock_set_back_by_seven_hours_is_a_correction() -> None:
    schedule = Schedule(specs=(Cron("0 20 * * *"),), timezone="Antarctica/Vostok")

    (finding,) = lint(schedule, now=datetime(1993, 6, 1, tzinfo=UTC))

    assert "both times" in finding.reason
    assert schedule.count(datetime(1994, 1, 31, tzinfo=UTC), datetime(1994, 2, 1, tzinfo=UTC)) == 2


def test_recurrence_rules_meet_clock_changes_too() -> None:
    rule = RRule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0", datetime(2026, 1, 1, tzinfo=UTC))

    (finding,) = lint(Schedule(specs=(rule,), timezone="America/New_York"), now=NOW)

    assert finding.name == "dst-gap"


def test_a_schedule_without_a_slot_left_is_said_to_never_fire() -> None:
    schedule = Schedule(specs=(Cron("0 9 * * *"),), exclude=(Cron("* * * * *"),))

    assert [finding.name for finding in lint(schedule, now=NOW)] == ["never-fires"]


def test_a_step_that_nothing_follows_is_not_uneven() -> None:
    assert names("*/7 2 * * *") == []


def test_the_limit_on_frequency_is_the_callers() -> None:
    schedule = Schedule(specs=(Every(timedelta(minutes=5)),))

    assert lint(schedule, now=NOW) == []
    (finding,) = lint(schedule, now=NOW, at_least_apart=timedelta(minutes=10))
    assert finding.name == "too-frequent"
    assert "5m" in finding.reason


def test_weekday_numbers_are_spelled_out() -> None:
    (finding,) = lint(Schedule(specs=(Cron("0 0 9 ? * 1-5", Dialect.QUARTZ),)), now=NOW)

    assert "Sunday, Monday, Tuesday, Wednesday and Thursday" in finding.reason
