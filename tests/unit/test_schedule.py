"""What a schedule promises, case by case."""

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from mainspring import (
    At,
    Cron,
    Dialect,
    Dst,
    DstGap,
    DstOverlap,
    Every,
    InvalidRequest,
    InvalidSchedule,
    RRule,
    Schedule,
    jitter,
    parse_spec,
)
from mainspring.domain.schedule import RULES, Spec
from mainspring.domain.zones import TZDATA_VERSION

WEST = timezone(timedelta(hours=-12))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(
    text: str, tz: str = "UTC", *, gap: DstGap = DstGap.DEBIAN, overlap: DstOverlap = DstOverlap.DEBIAN
) -> Schedule:
    return Schedule(specs=(Cron(text),), timezone=tz, dst=Dst(gap=gap, overlap=overlap))


def local(schedule: Schedule, day: str, days: int = 1) -> list[str]:
    """Return the slots of some local days as wall times with their offset."""
    zone = ZoneInfo(schedule.timezone)
    start = datetime.fromisoformat(day).replace(tzinfo=zone)
    end = (datetime.fromisoformat(day) + timedelta(days=days)).replace(tzinfo=zone)
    return [f"{slot.astimezone(zone):%H:%M%z}" for slot in schedule.between(start, end, 200)]


@pytest.mark.covers("F23", "F24", "F25")
@pytest.mark.parametrize(
    ("expression", "tz", "day", "expected"),
    [
        ("30 2 * * *", "America/New_York", "2027-03-14", ["03:00-0400"]),
        ("15,30 2 * * *", "America/New_York", "2027-03-14", ["03:00-0400"]),
        ("0,30 2-3 * * *", "America/New_York", "2027-03-14", ["03:00-0400", "03:30-0400"]),
        ("*/30 2 * * *", "America/New_York", "2027-03-14", []),
        ("30 1 * * *", "America/New_York", "2027-11-07", ["01:30-0400"]),
        ("*/30 1 * * *", "America/New_York", "2027-11-07", ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"]),
        ("0 1-3 * * *", "America/New_York", "2027-11-07", ["01:00-0400", "02:00-0500", "03:00-0500"]),
        ("0 0-3 * * *", "America/New_York", "2027-03-14", ["00:00-0500", "01:00-0500", "03:00-0400"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["02:30+1100"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2027-04-04", ["01:45+1100"]),
        ("0 0-5/2 * * *", "Australia/Lord_Howe", "2027-04-04", ["00:00+1100", "02:00+1030", "04:00+1030"]),
        (
            "0 */2 * * *",
            "Australia/Lord_Howe",
            "2027-04-04",
            [f"{hour:02}:00{'+1100' if hour < 2 else '+1030'}" for hour in range(0, 24, 2)],
        ),
        ("0 0 * * *", "America/Santiago", "2026-09-06", ["01:00-0300"]),
        ("30 23 * * *", "America/Santiago", "2027-04-03", ["23:30-0300"]),
        ("0 9 * * *", "Pacific/Apia", "2011-12-31", ["09:00+1400"]),
        ("30 1,2 * * *", "Antarctica/Troll", "2027-03-28", ["03:00+0200"]),
        ("30 1,2 * * *", "Antarctica/Troll", "2027-10-31", ["01:30+0200", "02:30+0200"]),
        ("30 2 * * *", "Africa/Casablanca", "2025-04-06", ["03:00+0100"]),
        ("30 2 * * *", "Africa/Casablanca", "2025-02-23", ["02:30+0100"]),
        ("0 0 * * *", "Asia/Kathmandu", "1986-01-01", ["00:15+0545"]),
        ("30 0 * * *", "Asia/Tehran", "2022-03-22", ["01:00+0430"]),
        ("30 23 * * *", "Asia/Tehran", "2022-09-21", ["23:30+0430"]),
    ],
)
def test_debians_rule_holds_where_clocks_change(expression: str, tz: str, day: str, expected: list[str]) -> None:
    assert local(cron(expression, tz), day) == expected


def test_a_day_that_was_left_out_has_no_slots() -> None:
    schedule = cron("0 9 * * *", "Pacific/Apia")

    assert local(schedule, "2011-12-29") == ["09:00-1000"]
    assert schedule.next_after(utc("2011-12-29T19:00")) == utc("2011-12-30T19:00")  # 09:00 on the 31st, local


@pytest.mark.parametrize(
    ("gap", "expected"),
    [(DstGap.FIRST_AFTER, ["03:00-0400"]), (DstGap.SHIFT, ["03:30-0400"]), (DstGap.SKIP, [])],
)
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/60,30 2 * * *"])
def test_a_chosen_gap_rule_applies_to_fixed_and_wildcard_alike(
    expression: str, gap: DstGap, expected: list[str]
) -> None:
    if "*/60" in expression and gap is DstGap.SHIFT:
        expected = ["03:00-0400", *expected]  # 02:00 as well

    assert local(cron(expression, "America/New_York", gap=gap), "2027-03-14") == expected


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (DstOverlap.FIRST, ["01:30-0400"]),
        (DstOverlap.SECOND, ["01:30-0500"]),
        (DstOverlap.BOTH, ["01:30-0400", "01:30-0500"]),
    ],
)
@pytest.mark.parametrize("expression", ["30 1 * * *", "30 1-1,*/23 * * *"])
def test_a_chosen_overlap_rule_picks_the_pass(expression: str, overlap: DstOverlap, expected: list[str]) -> None:
    found = local(cron(expression, "America/New_York", overlap=overlap), "2027-11-07")

    assert [slot for slot in found if slot.startswith("01:30")] == expected


@pytest.mark.covers("D22", "F123")
def test_slots_are_the_same_whatever_zone_they_are_asked_in() -> None:
    schedule = cron("0 9 * * 1-5", "Europe/London")
    asked = utc("2026-11-15T23:59:59.999999")

    slots = {schedule.next_after(asked.astimezone(ZoneInfo(tz))) for tz in ("UTC", "Asia/Tokyo", "America/New_York")}

    assert slots == {utc("2026-11-16T09:00")}


def test_a_next_slot_is_strictly_later_to_the_microsecond() -> None:
    schedule = cron("0 9 * * *")

    assert schedule.next_after(utc("2026-11-15T08:59:59.999999")) == utc("2026-11-15T09:00")
    assert schedule.next_after(utc("2026-11-15T09:00")) == utc("2026-11-16T09:00")
    assert schedule.next_after(utc("2026-11-15T09:00:00.000001")) == utc("2026-11-16T09:00")
    assert schedule.previous_before(utc("2026-11-15T09:00")) == utc("2026-11-14T09:00")
    assert schedule.previous_before(utc("2026-11-15T09:00:00.000001")) == utc("2026-11-15T09:00")


def test_between_is_half_open_and_limited() -> None:
    schedule = cron("0 * * * *")
    start, end = utc("2026-11-15T09:00"), utc("2026-11-15T12:00")

    assert [slot.hour for slot in schedule.between(start, end, 100)] == [9, 10, 11]
    assert [slot.hour for slot in schedule.between(start, end, 2)] == [9, 10]
    assert schedule.count(start, end) == 3


def test_several_specs_name_each_instant_once() -> None:
    schedule = Schedule(specs=(Cron("0 9 * * *"), Cron("0 */3 * * *"), At(utc("2026-11-15T10:00:00.250"))))
    start, end = utc("2026-11-15T08:00"), utc("2026-11-15T13:00")

    slots = schedule.between(start, end, 100)

    assert slots == [utc("2026-11-15T09:00"), utc("2026-11-15T10:00:00.250"), utc("2026-11-15T12:00")]
    assert schedule.count(start, end) == 3
    assert schedule.previous_before(end) == slots[-1]


def test_exclusions_leave_out_specs_instants_and_local_days() -> None:
    schedule = Schedule(
        specs=(Cron("0 9 * * *"),),
        timezone="Asia/Tokyo",
        exclude=(date(2026, 11, 16), Cron("* * * * SAT"), At(utc("2026-11-18T00:00"))),
    )
    start, end = utc("2026-11-15T00:00"), utc("2026-11-23T00:00")

    slots = schedule.between(start, end, 100)

    assert [slot.day for slot in slots] == [15, 17, 19, 20, 22]  # 09:00 in Tokyo is midnight UTC
    assert schedule.count(start, end) == len(slots)
    assert schedule.previous_before(utc("2026-11-19T00:00")) == utc("2026-11-17T00:00")


def test_a_long_exclusion_is_stepped_over_in_one_go() -> None:
    schedule = Schedule(specs=(Cron("* * * * *"),), exclude=(Cron("* * * 12 *"),))

    assert schedule.next_after(utc("2026-11-30T23:59")) == utc("2027-01-01T00:00")
    assert schedule.previous_before(utc("2027-01-01T00:00")) == utc("2026-11-30T23:59")
    assert schedule.count(utc("2026-01-01T00:00"), utc("2027-01-01T00:00")) == (365 - 31) * 1440


def test_an_exclusion_of_everything_is_refused_not_searched_for_ever() -> None:
    schedule = Schedule(specs=(Cron("* * * * * *"),), exclude=(Every(timedelta(seconds=1)),))

    with pytest.raises(InvalidSchedule) as refusal:
        schedule.next_after(utc("2026-11-15T00:00"))

    assert refusal.value.field == "exclude"


def test_an_anchor_and_a_phase_may_meet_past_the_calendar() -> None:
    far = Every(timedelta(hours=1), utc("9999-12-31T00:30"), phase=timedelta(days=3_650_000))

    assert Schedule(specs=(far,)).next_after(utc("2026-11-15T00:00")) == utc("2026-11-15T00:30")


@pytest.mark.parametrize("crons", [1, 20])
def test_the_last_day_of_the_calendar_is_no_trouble_to_exclusions(crons: int) -> None:
    exclude: tuple[Spec | date, ...] = (date(9999, 12, 30), *(Cron(f"{minute} * * * *") for minute in range(crons)))
    last = At(utc("9999-12-31T23:59"))

    assert Schedule(specs=(last,), timezone="Pacific/Apia", exclude=exclude).next_after(utc("2026-01-01")) is not None
    assert Schedule(specs=(Cron("* * * * *"),), exclude=exclude).next_after(utc("9999-12-31T12:00")) is None


def test_the_window_bounds_both_directions() -> None:
    schedule = Schedule(specs=(Cron("0 * * * *"),), start=utc("2026-11-15T09:00"), end=utc("2026-11-15T12:00"))

    assert schedule.next_after(utc("2020-01-01T00:00")) == utc("2026-11-15T09:00")
    assert schedule.next_after(utc("2026-11-15T11:00")) is None
    assert schedule.previous_before(utc("2030-01-01T00:00")) == utc("2026-11-15T11:00")
    assert schedule.previous_before(utc("2026-11-15T09:00")) is None
    assert schedule.count(utc("2020-01-01T00:00"), utc("2030-01-01T00:00")) == 3


def test_fires_are_counted_against_the_maximum() -> None:
    schedule = Schedule(specs=(Cron("0 * * * *"),), max_fires=3)
    start, end = utc("2026-11-15T00:00"), utc("2026-11-16T00:00")

    assert len(schedule.between(start, end, 100)) == 3
    assert len(schedule.between(start, end, 100, fired=2)) == 1
    assert schedule.count(start, end, fired=1) == 2
    assert schedule.next_after(start, fired=3) is None


def test_every_keeps_elapsed_time_through_a_clock_change() -> None:
    schedule = Schedule(specs=(Every(timedelta(hours=6), utc("2027-03-13T17:00")),), timezone="America/New_York")

    slots = schedule.between(utc("2027-03-13T17:00"), utc("2027-03-14T18:00"), 10)

    assert [slot.hour for slot in slots] == [17, 23, 5, 11, 17]


def test_an_rrule_follows_the_schedules_zone_and_dst_rule() -> None:
    start = datetime(2027, 3, 1, 2, 30, tzinfo=ZoneInfo("America/New_York"))
    schedule = Schedule(specs=(RRule("FREQ=DAILY", start),), timezone="America/New_York")

    assert local(schedule, "2027-03-13", days=3) == ["02:30-0500", "03:00-0400", "02:30-0400"]
    assert schedule.next_after(utc("1990-01-01T00:00")) == start


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("@every 90s", Every(timedelta(seconds=90))),
        ("@EVERY 1h30m", Every(timedelta(minutes=90))),
        ("0 9 * * *", Cron("0 9 * * *")),
        ("FREQ=DAILY", RRule("FREQ=DAILY", datetime(1970, 1, 1, tzinfo=UTC))),
    ],
)
def test_a_spec_is_read_from_text(text: str, spec: object) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Schedule(specs=()), "specs"),
        (lambda: Schedule(specs=(Cron("* * * * *"),) * 51), "specs"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), timezone="Mars/Olympus"), "timezone"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), timezone="../etc/passwd"), "timezone"),
        (lambda: Schedule(specs=("0 9 * * *",)), "specs"),  # type: ignore[arg-type]
        (lambda: Schedule(specs=(Cron("* * * * *"),), exclude=("2026-01-01",)), "exclude"),  # type: ignore[arg-type]
        (lambda: Cron("* * * * *", "aws"), "dialect"),  # type: ignore[arg-type]
        (lambda: Dst(overlap="third"), "dst.overlap"),  # type: ignore[arg-type]
        (lambda: cron("* * * * *").next_after(datetime(2026, 1, 1)), "instant"),
        (lambda: cron("* * * * *").count(datetime(2026, 1, 1), utc("2026-01-02")), "instant"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), max_fires=0), "max_fires"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), rules=RULES + 1), "rules"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), start=datetime(2026, 1, 1)), "start"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), start=utc("2026-01-02"), end=utc("2026-01-02")), "end"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), exclude=(utc("2026-01-02"),)), "exclude"),
        (lambda: Schedule(specs=(Every(timedelta(milliseconds=1500)),)), "interval"),
        (lambda: Schedule(specs=(Every(timedelta(0)),)), "interval"),
        (lambda: Schedule(specs=(Every(timedelta(hours=1), utc("2026-01-01T00:00:00.5")),)), "anchor"),
        (lambda: Schedule(specs=(Every(timedelta(hours=1), phase=timedelta(seconds=-1)),)), "phase"),
        (lambda: Schedule(specs=(At(utc("9999-12-31T23:59:59.9995")),)), "at"),
        (lambda: Schedule(specs=(Cron("* * * * *"),), end=datetime(9999, 12, 31, 20, tzinfo=WEST)), "end"),
        (lambda: Schedule(specs=(At(datetime(2026, 1, 1)),)), "at"),
        (lambda: Schedule(specs=(At(utc("1969-01-01")),)), "at"),
        (lambda: Schedule(specs=(RRule("FREQ=DAILY;BYDAY=XX", utc("2026-01-01")),)), "BYDAY"),
        (lambda: parse_spec("@every soon"), "@every"),
        (lambda: parse_spec("@every 3651d"), "@every"),
        (lambda: jitter("job", utc("2026-01-01"), timedelta(seconds=-1)), "jitter"),
    ],
)
def test_a_bad_schedule_is_refused_with_its_field(build: object, field: str) -> None:
    assert callable(build)
    with pytest.raises(InvalidRequest) as refusal:
        build()

    assert refusal.value.field == field
    assert refusal.value.allowed


def test_a_dialect_given_as_text_is_the_dialect() -> None:
    """The text equals the member, so a cache keyed by it would serve both: it must mean the same."""
    as_text = Schedule(specs=(Cron("0 0 12 ? * 6", "quartz"),))  # type: ignore[arg-type]  # what a careless caller does
    as_member = Schedule(specs=(Cron("0 0 12 ? * 6", Dialect.QUARTZ),))

    assert as_text.next_after(utc("2026-11-15")) == as_member.next_after(utc("2026-11-15")) == utc("2026-11-20T12:00")
    assert Dst(gap="skip") == Dst(gap=DstGap.SKIP)  # type: ignore[arg-type]
    assert isinstance(Dst(gap="skip").gap, DstGap)  # type: ignore[arg-type]


def test_lists_of_specs_are_taken_as_they_are_meant() -> None:
    schedule = Schedule(specs=[Cron("0 9 * * *")], exclude=[date(2026, 11, 15)])  # type: ignore[arg-type]

    assert schedule.next_after(utc("2026-11-15")) == utc("2026-11-16T09:00")
    assert hash(schedule)


def test_h_spreads_by_the_jobs_key_and_stays_put() -> None:
    def slots(key: str) -> list[datetime]:
        return Schedule(specs=(Cron("H H * * *"),), key=key).between(utc("2026-11-15"), utc("2026-11-17"), 5)

    assert slots("a") == slots("a")
    assert len({slots(f"job-{number}")[0] for number in range(200)}) > 150
    assert slots("a")[1] - slots("a")[0] == timedelta(days=1)


def test_h_with_a_step_keeps_the_step_and_a_range_is_kept_to() -> None:
    schedule = Schedule(specs=(Cron("H(0-29)/10 H(1-3) * * *"),), key="backup")

    slots = schedule.between(utc("2026-11-15"), utc("2026-11-16"), 10)

    assert len(slots) == 3
    assert all(1 <= slot.hour <= 3 and slot.minute < 30 for slot in slots)
    assert slots[1] - slots[0] == timedelta(minutes=10)


@pytest.mark.parametrize("dialect", Dialect)
def test_equal_schedules_share_one_timetable(dialect: Dialect) -> None:
    text = "0 9 * * *" if dialect is Dialect.UNIX else "0 0 9 * * ?"
    first, second = (Schedule(specs=(Cron(text, dialect),), timezone="Europe/Paris", key=key) for key in ("a", "b"))

    assert first._walk is second._walk
    assert first != second  # the key is part of the value, though nothing in it is hashed


def test_a_fifth_sunday_in_february_is_found_however_far() -> None:
    schedule = Schedule(specs=(Cron("0 0 0 ? 2 1#5", Dialect.QUARTZ),))

    slots = list(islice(iter(schedule.between(utc("2080-01-01"), utc("2200-01-01"), 10)), 3))

    assert [slot.year for slot in slots] == [
        2088,
        2128,
        2156,
    ]  # 2100 is no leap year: forty years between the first two


def test_the_search_ends_with_the_calendar() -> None:
    schedule = cron("0 0 * * *")

    assert schedule.next_after(datetime(9999, 12, 30, 12, tzinfo=UTC)) is None
    assert schedule.previous_before(datetime(1970, 1, 1, tzinfo=UTC)) is None
    assert schedule.next_after(datetime(1900, 1, 1, tzinfo=UTC)) == datetime(1970, 1, 1, tzinfo=UTC)


def test_ten_days_of_seconds_are_counted_without_walking_them() -> None:
    schedule = Schedule(specs=(Cron("* * * * * *"),), timezone="America/New_York")

    assert schedule.count(utc("2026-11-05"), utc("2026-11-15")) == 864_000


def test_the_zone_data_has_a_version() -> None:
    assert TZDATA_VERSION >= "2026a"
