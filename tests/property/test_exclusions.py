"""Schedules that leave out a lot, against filtering slot by slot; and the work that they may cost."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import At, Cron, Dst, DstGap, Every, RRule, Schedule
from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.schedule import Spec

DAY = timedelta(days=1)
ZONES = ("UTC", "Europe/Paris", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia")
FROM = (
    datetime(2027, 3, 27, 20, tzinfo=UTC),  # Paris goes forward
    datetime(2027, 10, 30, 20, tzinfo=UTC),  # and back
    datetime(2027, 10, 2, tzinfo=UTC),  # half an hour, on Lord Howe
    datetime(2011, 12, 29, 3, tzinfo=UTC),  # Apia leaves out a day
    datetime(2028, 2, 28, 23, tzinfo=UTC),
)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    listed = st.lists(value, min_size=1, max_size=3, unique=True).map(lambda found: ",".join(map(str, sorted(found))))
    spans = st.tuples(value, value).map(lambda ends: f"{min(ends)}-{max(ends)}")
    return st.one_of(st.just("*"), st.just("*"), listed, spans, st.integers(2, 7).map(lambda step: f"*/{step}"))


crons = st.tuples(
    st.sampled_from(["0", "*/20", "15,45"]), field(0, 59), field(0, 23), st.sampled_from(["*", "27-30", "L"])
).map(lambda parts: Cron(f"{' '.join(parts)} * *"))
everys = st.tuples(st.sampled_from([20, 60, 90, 420, 3600, 100_000]), st.integers(0, 7)).map(
    lambda found: Every(timedelta(seconds=found[0]), phase=timedelta(seconds=found[1] * 20))
)
rules = st.sampled_from(
    ["FREQ=MINUTELY;INTERVAL=7", "FREQ=HOURLY;BYMINUTE=0,20,40", "FREQ=SECONDLY;INTERVAL=140", "FREQ=DAILY;BYHOUR=2,3"]
).map(lambda rule: RRule(rule, datetime(2011, 1, 1, tzinfo=UTC)))
odd = st.sampled_from(FROM).map(lambda at: At(at + timedelta(hours=7, milliseconds=250)))
specs = st.one_of(crons, everys, rules, odd)
excluded = st.lists(st.one_of(specs, st.sampled_from([at.date() for at in FROM])), min_size=1, max_size=14)


@settings(max_examples=60)
@given(
    st.lists(specs, min_size=1, max_size=3),
    excluded,
    st.sampled_from(ZONES),
    st.sampled_from(DstGap),
    st.sampled_from(FROM),
)
def test_what_is_left_is_what_no_exclusion_names(
    wanted: list[Spec], left_out: list[Spec | date], tz: str, gap: DstGap, start: datetime
) -> None:
    dst, end = Dst(gap=gap), start + 1.5 * DAY
    schedule = Schedule(specs=tuple(wanted), exclude=tuple(left_out), timezone=tz, dst=dst)
    named = [Schedule(specs=(spec,), timezone=tz, dst=dst).between(start, end, 200_000) for spec in wanted]
    gone = set[datetime]()
    for one in left_out:
        if not isinstance(one, date):
            gone |= set(Schedule(specs=(one,), timezone=tz, dst=dst).between(start, end, 200_000))
    days = {one for one in left_out if isinstance(one, date)}
    zone = ZoneInfo(tz)

    expected = [slot for slot in sorted(set().union(*named) - gone) if slot.astimezone(zone).date() not in days]

    assert Schedule(specs=tuple(wanted), timezone=tz, dst=dst).count(start, end) == len(set().union(*named))
    try:
        assert schedule.between(start, end, 200_000) == expected
        assert schedule.count(start, end) == len(expected)
        assert schedule.previous_before(end) == expected[-1] if expected else True
        backwards, at = list[datetime](), end
        for _ in expected[-50:]:
            found = schedule.previous_before(at)
            assert found is not None
            backwards.append(found)
            at = found
        assert backwards[::-1] == expected[-50:]
    except InvalidSchedule as refused:  # nothing is left for years
        assert refused.field == "exclude"
        assert len(expected) < 10


def crowded() -> tuple[Cron, ...]:
    """Leave one second of an hour, by 118 expressions."""
    return (
        *(Cron(f"{second} * * * * *") for second in range(1, 60)),
        *(Cron(f"* {minute} * * * *") for minute in range(1, 60)),
    )


def work_of(schedule: Schedule) -> int:
    without = schedule._walk.without
    assert without is not None
    return without.work


EVERY_SECOND = Every(timedelta(seconds=1))


@pytest.mark.parametrize(
    ("spec", "exclude", "most"),
    [
        (EVERY_SECOND, crowded(), 150),
        (EVERY_SECOND, tuple(Every(timedelta(minutes=1), phase=timedelta(seconds=k)) for k in range(1, 60)), 150),
        (Cron("* * * * * *"), crowded(), 150),
        (EVERY_SECOND, (*crowded()[:59], *(Cron(f"{minute} * * * *") for minute in range(1, 60))), 150),
        (Cron("0 0 * * *"), tuple(Cron(f"* * {day} * *") for day in range(2, 32)), 150),
        (Every(timedelta(minutes=1)), (Cron("* 0-7,18-23 * * *"), Cron("* * * * SAT,SUN")), 5),
        (Cron("* * * * *"), (Cron("* 0-7,18-23 * * *"), Cron("* * * * SAT,SUN"), date(2027, 1, 1)), 10),
        (Cron("*/5 * * * *"), tuple(Cron(f"* 2-3 {day} {month} *") for day in (1, 15) for month in range(1, 13)), 10),
    ],
)
def test_five_hundred_slots_cost_little_work_each(spec: Spec, exclude: tuple[Cron, ...], most: int) -> None:
    schedule = Schedule(specs=(spec,), exclude=exclude)
    at = datetime(2026, 11, 16, tzinfo=UTC)
    before = work_of(schedule)

    for _ in range(500):
        found = schedule.next_after(at)
        assert found is not None
        at = found

    assert (work_of(schedule) - before) / 500 <= most


def test_ten_days_of_a_crowded_schedule_are_counted_by_the_day() -> None:
    start = datetime(2026, 11, 16, tzinfo=UTC)
    doubled = Schedule(specs=(EVERY_SECOND, Cron("*/2 * * * * *"), Cron("*/3 * * * * *")))
    halved = Schedule(specs=(EVERY_SECOND,), exclude=(Every(timedelta(seconds=2)),))

    assert doubled.count(start, start + 10 * DAY) == 864_000
    assert halved.count(start, start + 10 * DAY) == 432_000
    assert work_of(halved) < 1_000


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(specs=(EVERY_SECOND,), exclude=(EVERY_SECOND,)),
        Schedule(specs=(Cron("* * * * * *"),), exclude=(*crowded(), Cron("0 0 * * * *"))),
        Schedule(specs=(Cron("0 0 * * *"),), exclude=tuple(Cron(f"* {hour} * * *") for hour in range(24))),
    ],
)
def test_nothing_left_is_said_after_bounded_work_both_ways(schedule: Schedule) -> None:
    at, before = datetime(2026, 11, 16, tzinfo=UTC), work_of(schedule)

    with pytest.raises(InvalidSchedule, match="exclude"):
        schedule.next_after(at)
    with pytest.raises(InvalidSchedule, match="exclude"):
        schedule.previous_before(at)

    assert work_of(schedule) - before < 60_000  # two searches


def test_a_list_that_costs_too_much_is_refused_with_what_to_do() -> None:
    # every 200 days, by 199 intervals that cannot be read together
    phases = tuple(Every(200 * DAY, phase=phase * DAY) for phase in range(1, 120))
    schedule = Schedule(specs=(Every(DAY),), exclude=phases)

    with pytest.raises(InvalidSchedule, match="fewer"):
        schedule.between(datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC), 100_000)
