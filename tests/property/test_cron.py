"""The cron engine against brute force, on expressions nobody thought of."""

import string
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from checker import cron as checker
from mainspring import Cron, Dialect, Dst, DstGap, DstOverlap, Every, InvalidSchedule, Schedule, jitter

from . import strategies as cron_strategies

ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Pacific/Apia", "Antarctica/Troll")
INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(2400, 1, 1), timezones=st.just(UTC))
DSTS = st.builds(Dst, gap=st.sampled_from(DstGap), overlap=st.sampled_from(DstOverlap))


def schedule_for(text: str, dialect: Dialect = Dialect.UNIX, tz: str = "UTC", dst: Dst | None = None) -> Schedule:
    try:
        return Schedule(specs=(Cron(text, dialect),), timezone=tz, dst=dst or Dst())
    except InvalidSchedule as error:
        assume("never comes" not in str(error))  # a legal expression for a day that does not exist
        raise


def matching_days(text: str, dialect: Dialect, first: date, days: int) -> list[datetime]:
    expression = checker.parse(text, dialect.value)
    midnights = (datetime(first.year, first.month, first.day) + timedelta(days=day) for day in range(days))
    return [midnight.replace(tzinfo=UTC) for midnight in midnights if expression.matches(midnight)]


@given(cron_strategies.unix_days(), st.dates(date(1970, 1, 1), date(2200, 1, 1)))
def test_unix_days_equal_a_scan_of_five_years(text: str, first: date) -> None:
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    schedule = schedule_for(text)

    found = schedule.between(start, start + timedelta(days=1900), 2000)

    assert found == matching_days(text, Dialect.UNIX, first, 1900)


@given(cron_strategies.quartz_days(), st.dates(date(1970, 1, 1), date(2200, 1, 1)))
def test_quartz_days_equal_a_scan_of_five_years(text: str, first: date) -> None:
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    schedule = schedule_for(text, Dialect.QUARTZ)

    found = schedule.between(start, start + timedelta(days=1900), 2000)

    assert found == matching_days(text, Dialect.QUARTZ, first, 1900)


@given(cron_strategies.clock_times(), st.integers(0, 23))
def test_times_of_day_equal_a_scan_of_every_second(text: str, hour: int) -> None:
    start = datetime(2026, 11, 14, hour, tzinfo=UTC)
    schedule, expression = schedule_for(text), checker.parse(text, "unix")

    found = schedule.between(start, start + timedelta(hours=2), 10_000)

    seconds = (start + timedelta(seconds=second) for second in range(7200))
    assert found == [at for at in seconds if expression.matches(at.replace(tzinfo=None))]


@pytest.mark.covers("F22", "F123")
@given(cron_strategies.expressions(), st.sampled_from(ZONES), DSTS, INSTANTS)
def test_the_next_slot_is_later_whole_and_the_only_one_between(text: str, tz: str, dst: Dst, instant: datetime) -> None:
    schedule = schedule_for(text, tz=tz, dst=dst)

    slot = schedule.next_after(instant)

    if slot is None:  # an hour that exists in no gap or pass this policy plays; nothing later either
        assert schedule.previous_before(datetime(9999, 12, 31, tzinfo=UTC)) is None
        return
    assert slot > instant
    assert slot.microsecond == 0
    latest = schedule.previous_before(instant + timedelta(microseconds=1))  # not after the instant
    assert schedule.previous_before(slot) == latest
    assert schedule.count(instant, slot) == int(latest == instant)
    assert schedule.between(slot, slot + timedelta(seconds=1), 5) == [slot]


@given(cron_strategies.expressions(), st.sampled_from(ZONES), DSTS, INSTANTS)
def test_slots_rise_and_are_counted_as_they_are_listed(text: str, tz: str, dst: Dst, instant: datetime) -> None:
    schedule = schedule_for(text, tz=tz, dst=dst)

    slots = schedule.between(instant, datetime(2500, 1, 1, tzinfo=UTC), 60)

    assert all(earlier < later for earlier, later in pairwise(slots))
    if slots:
        assert schedule.count(instant, slots[-1]) == len(slots) - 1
        assert schedule.previous_before(slots[-1]) == (
            slots[-2] if len(slots) > 1 else schedule.previous_before(slots[0])
        )


@pytest.mark.covers("F22")
@given(
    cron_strategies.expressions(),
    st.sampled_from(ZONES),
    INSTANTS,
    st.lists(st.integers(0, 10**9), min_size=3, max_size=3),
)
def test_neighbouring_windows_share_no_slot_and_lose_none(text: str, tz: str, start: datetime, cuts: list[int]) -> None:
    schedule = schedule_for(text, tz=tz)
    edges = [start, *(start + timedelta(milliseconds=cut) for cut in sorted(cuts))]

    parts = sum(schedule.count(earlier, later) for earlier, later in pairwise(edges))

    assert parts == schedule.count(edges[0], edges[-1])


@pytest.mark.covers("F109")
@given(st.text(alphabet=string.printable + "é٣", max_size=300), st.sampled_from(Dialect))
def test_the_parser_answers_any_text_with_a_schedule_or_one_kind_of_error(text: str, dialect: Dialect) -> None:
    try:
        schedule = Schedule(specs=(Cron(text, dialect),), key="job")
    except InvalidSchedule as error:
        assert error.field
        assert error.allowed
    else:
        assert schedule.previous_before(datetime(9999, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.covers("F109")
@given(st.lists(st.text(alphabet="0123456789*/-,?LW#HRSUNJAFMO", max_size=8), min_size=4, max_size=8).map(" ".join))
def test_near_cron_text_is_answered_too(text: str) -> None:
    for dialect in Dialect:
        try:
            schedule = Schedule(specs=(Cron(text, dialect),), key="job")
        except InvalidSchedule as error:
            assert error.field
        else:
            assert schedule.previous_before(datetime(9999, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.covers("D22")
@given(st.text(max_size=20), INSTANTS, st.integers(0, 10**8))
def test_jitter_is_fixed_for_a_job_and_slot_and_stays_in_its_window(key: str, slot: datetime, span: int) -> None:
    slot, window = slot.replace(microsecond=0), timedelta(milliseconds=span)

    delay = jitter(key, slot, window)

    assert delay == jitter(key, slot.astimezone(), window)
    assert timedelta(0) <= delay <= window
    assert delay < window or not span


@given(st.integers(1, 10**7), st.integers(0, 10**9), st.integers(0, 10**7), INSTANTS)
def test_every_counts_elapsed_time_from_its_anchor(seconds: int, anchor: int, phase: int, instant: datetime) -> None:
    interval = timedelta(seconds=seconds)
    origin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=anchor)
    schedule = Schedule(specs=(Every(interval, origin, timedelta(seconds=phase)),))

    slot = schedule.next_after(instant)

    assert slot is not None
    assert (slot - origin - timedelta(seconds=phase)) % interval == timedelta(0)
    assert timedelta(0) < slot - instant <= interval
    assert schedule.count(instant, instant + 7 * interval) == 7
