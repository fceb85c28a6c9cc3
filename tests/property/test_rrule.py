"""RFC 5545 rules nobody thought of, against python-dateutil and against a calendar leafed through day by day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from dateutil.rrule import rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.recurrence import RRuleWalls
from mainspring.domain.rrule import parse

EPOCH = datetime(1970, 1, 1)
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
DAY = 86_400
SLOT = {"SECONDLY": 1, "MINUTELY": 60, "HOURLY": 3600, "DAILY": DAY}
LATEST = 2_932_897 * DAY  # the year 10000
Parts = dict[str, list[int] | list[str]]  # BY parts only

starts = st.integers(0, 120 * 365 * DAY)  # 1970 to 2089
intervals = st.one_of(st.just(1), st.integers(1, 5), st.integers(1, 40))


def some(low: int, high: int, most: int = 4) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(low, high), min_size=1, max_size=most, unique=True)


def signed(low: int, high: int) -> st.SearchStrategy[list[int]]:
    numbers = st.integers(low, high)
    return st.lists(st.one_of(numbers, numbers.map(lambda n: -n)), min_size=1, max_size=4, unique=True)


weekdays = st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=5, unique=True)


def numbers(parts: Parts, name: str) -> list[int]:
    return [int(value) for value in parts.get(name, [])]


def written(freq: str, interval: int, parts: Parts) -> str:
    lists = [f"{name}={','.join(map(str, values))}" for name, values in parts.items()]
    return ";".join([f"FREQ={freq}", f"INTERVAL={interval}", *lists])


def every(walls: RRuleWalls, start: int) -> Iterator[int]:
    found = walls.at_or_after(start)
    while found is not None:
        yield found
        found = walls.at_or_after(found + 1)


def moment(wall: int) -> datetime:
    return EPOCH + timedelta(seconds=wall)


# -- against python-dateutil: rules that surely come, because it would search for the others until the year 9999


@st.composite
def day_parts(draw: st.DrawFn, freq: str, weekday: str) -> Parts:
    parts: Parts = {}
    days = {
        "SECONDLY": ["BYDAY", "BYMONTHDAY"],
        "MINUTELY": ["BYDAY", "BYMONTHDAY"],
        "HOURLY": ["BYDAY", "BYMONTHDAY", "BYYEARDAY"],
        "DAILY": ["BYDAY", "BYMONTHDAY", "BYMONTH"],
        "WEEKLY": ["BYDAY", "BYMONTH"],
        "MONTHLY": ["BYDAY", "BYMONTHDAY", "NTH"],
        "YEARLY": ["BYDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "NTH", "BYMONTH"],
    }[freq]
    match draw(st.sampled_from(["", *days])):
        case "BYDAY":
            parts["BYDAY"] = sorted({*draw(weekdays), weekday})
        case "BYMONTHDAY":
            parts["BYMONTHDAY"] = draw(signed(1, 28))
        case "BYYEARDAY":
            parts["BYYEARDAY"] = draw(signed(1, 365))
        case "BYWEEKNO":
            parts["BYWEEKNO"] = draw(signed(2, 51))
            parts["BYDAY"] = draw(weekdays)
        case "NTH":
            nth = st.tuples(st.sampled_from([1, 2, 3, 4, -1, -2, -3, -4]), st.sampled_from(WEEKDAYS))
            parts["BYDAY"] = draw(st.lists(nth.map(lambda each: f"{each[0]}{each[1]}"), min_size=1, max_size=3))
            if freq == "YEARLY" and draw(st.booleans()):
                parts["BYMONTH"] = draw(some(1, 12))
        case "BYMONTH":
            parts["BYMONTH"] = draw(some(1, 12))
            parts["BYDAY"] = sorted({*draw(weekdays), weekday})
        case _:
            pass
    return parts


@st.composite
def common_rules(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a rule and a DTSTART on which python-dateutil can be believed.

    Left to the other oracle: weekdays with and without ordinals in one list, of which it takes the
    intersection; BYWEEKNO at the ends of the year, and without BYDAY. And it cuts BYSETPOS's first
    week off at DTSTART, so such a week begins on DTSTART here. Lists hold DTSTART's own weekday and
    time, so that INTERVAL reaches one of their values.
    """
    freq = draw(st.sampled_from(["SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    start = draw(starts)
    at = moment(start)
    parts = draw(day_parts(freq, WEEKDAYS[at.weekday()]))
    for name, high, here in (("BYHOUR", 23, at.hour), ("BYMINUTE", 59, at.minute), ("BYSECOND", 59, at.second)):
        if draw(st.booleans()):
            parts[name] = sorted({*draw(some(0, high, 3)), here})
    if draw(st.booleans()) and parts:
        parts["BYSETPOS"] = draw(st.sampled_from([[1], [-1], [1, -1], [1, 2], [-2, 1]]))
    text = written(freq, draw(intervals if freq != "MONTHLY" else st.integers(1, 13)), parts)
    week_start = (
        draw(st.sampled_from(WEEKDAYS)) if freq != "WEEKLY" or "BYSETPOS" not in parts else WEEKDAYS[at.weekday()]
    )
    return f"{text};WKST={week_start}", start


@settings(max_examples=400, deadline=None)
@given(common_rules())
def test_rules_name_the_instants_that_dateutil_names(case: tuple[str, int]) -> None:
    text, start = case
    walls = RRuleWalls(parse(text), start, None)

    theirs = islice(rrulestr(text, dtstart=moment(start)), 25)

    assert [moment(wall) for wall in islice(every(walls, 0), 25)] == list(theirs)


@settings(max_examples=150, deadline=None)
@given(common_rules(), st.integers(1, 40))
def test_count_ends_a_rule_where_dateutil_ends_it(case: tuple[str, int], number: int) -> None:
    text, start = f"{case[0]};COUNT={number}", case[1]
    walls = RRuleWalls(parse(text), start, None)

    theirs = list(rrulestr(text, dtstart=moment(start)))

    assert [moment(wall) for wall in every(walls, 0)] == theirs
    assert walls.count(0, LATEST) == len(theirs)
    assert moment(walls.upto(LATEST) or 0) == theirs[-1]


# -- against brute force: any rule without BYSETPOS, also those that never come, looked at far from DTSTART


@st.composite
def any_rules(draw: st.DrawFn) -> tuple[str, int, Parts, int]:
    """Draw a frequency, INTERVAL, BY parts and DTSTART from everything that RFC 5545 lets go together."""
    freq = draw(st.sampled_from(["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    nth = st.tuples(st.sampled_from(["", "", "1", "2", "5", "-1", "-5", "20", "-53"]), st.sampled_from(WEEKDAYS))
    allowed: dict[str, st.SearchStrategy[list[int] | list[str]]] = {
        "BYMONTH": some(1, 12),
        "BYDAY": weekdays,
        "BYHOUR": some(0, 23),
        "BYMINUTE": some(0, 59),
        "BYSECOND": some(0, 59, 2),
    }
    if freq != "WEEKLY":
        allowed["BYMONTHDAY"] = signed(1, 31)
    if freq in ("MINUTELY", "HOURLY", "YEARLY"):
        allowed["BYYEARDAY"] = signed(1, 366)
    if freq in ("MONTHLY", "YEARLY"):
        allowed["BYDAY"] = st.lists(nth.map("".join), min_size=1, max_size=4, unique=True)
    chosen = draw(st.lists(st.sampled_from(sorted(allowed)), max_size=4, unique=True))
    parts: Parts = {name: draw(allowed[name]) for name in chosen}
    if freq == "YEARLY" and draw(st.booleans()):
        parts["BYWEEKNO"] = draw(st.one_of(signed(1, 53), signed(51, 53)))
        parts["BYDAY"] = draw(weekdays)
    interval = draw(intervals if freq in ("MONTHLY", "YEARLY") else st.one_of(intervals, st.integers(1, 5000)))
    return freq, interval, parts, draw(starts)


def agreed(freq: str, parts: Parts, day: datetime, week_start: int) -> bool:
    """Say whether every BY part about days, and what DTSTART stands in for, lets this day through."""
    year_length = (datetime(day.year + 1, 1, 1) - datetime(day.year, 1, 1)).days
    month_length = ((day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)).day
    year_day = day.timetuple().tm_yday
    tests = {
        "BYMONTH": lambda: {day.month},
        "BYMONTHDAY": lambda: {day.day, day.day - month_length - 1},
        "BYYEARDAY": lambda: {year_day, year_day - year_length - 1},
        "BYWEEKNO": lambda: week_numbers(day, week_start),
    }
    if any(name in parts and not tests[name]() & set(parts[name]) for name in tests):
        return False
    if "BYDAY" not in parts:
        return True
    name = WEEKDAYS[day.weekday()]
    at, length = (day.day, month_length) if freq == "MONTHLY" or "BYMONTH" in parts else (year_day, year_length)
    names = {name, f"{(at - 1) // 7 + 1}{name}", f"-{(length - at) // 7 + 1}{name}"}
    return bool(names & set(parts["BYDAY"]))


def week_numbers(day: datetime, week_start: int) -> set[int]:
    """Return the number of a day's week from the front and from the back: its fourth day says of which year."""
    fourth = day - timedelta(days=(day.weekday() - week_start) % 7 - 3)
    number = (fourth.timetuple().tm_yday - 1) // 7 + 1
    after = (datetime(fourth.year, 12, 31) - fourth.replace(hour=0, minute=0, second=0)).days // 7
    return {number, -after - 1}


def leafed_through(case: tuple[str, int, Parts, int], week_start: int, first: int, last: int) -> list[int]:
    """Return the matches in ``[first, last)`` by looking at every period there is."""
    freq, interval, parts, start = case
    at = moment(start)
    parts = dict(parts)
    if freq in ("WEEKLY", "MONTHLY", "YEARLY") and not {"BYDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO"} & parts.keys():
        if freq == "WEEKLY":
            parts["BYDAY"] = [WEEKDAYS[at.weekday()]]
        else:
            parts["BYMONTHDAY"] = [at.day]
            if freq == "YEARLY":
                parts.setdefault("BYMONTH", [at.month])
    slot = SLOT.get(freq, DAY)
    origin = start // slot * slot
    step = slot * interval if freq in SLOT else DAY
    hours = numbers(parts, "BYHOUR") or ([at.hour] if slot > 3600 else range(24))
    minutes = numbers(parts, "BYMINUTE") or ([at.minute] if slot > 60 else range(60))
    seconds = numbers(parts, "BYSECOND") or [at.second]
    days = range(first // DAY * DAY - DAY, last + DAY, DAY)
    matching = {
        day
        for day in days
        if agreed(freq, parts, moment(day), week_start) and aligned(freq, interval, at, moment(day), week_start)
    }
    found = []
    for period in range(origin + max((first - origin) // step, 0) * step, last, step):
        day = period // DAY * DAY
        if day in matching:
            in_hours = hours if slot == DAY else {period // 3600 % 24} & set(hours)
            in_minutes = minutes if slot > 60 else {period // 60 % 60} & set(minutes)
            found += [day + h * 3600 + m * 60 + s for h in in_hours for m in in_minutes for s in seconds]
    return sorted(wall for wall in found if max(first, start) <= wall < last)


def aligned(freq: str, interval: int, start: datetime, day: datetime, week_start: int) -> bool:
    monday = start.replace(hour=0, minute=0, second=0) - timedelta(days=(start.weekday() - week_start) % 7)
    periods = {
        "YEARLY": day.year - start.year,
        "MONTHLY": (day.year - start.year) * 12 + day.month - start.month,
        "WEEKLY": (day - monday).days // 7,
    }
    return periods.get(freq, 0) % interval == 0


@settings(max_examples=250, deadline=None)
@given(any_rules(), st.integers(0, 6), st.integers(0, 400 * 365), st.integers(0, DAY - 1))
def test_any_window_holds_what_leafing_through_it_finds(
    case: tuple[str, int, Parts, int], week_start: int, later: int, second: int
) -> None:
    freq, interval, parts, start = case
    text = f"{written(freq, interval, parts)};WKST={WEEKDAYS[week_start]}"
    first = start // DAY * DAY + (0 if later % 3 == 0 else later) * DAY + second
    last = first + (20 if freq == "MINUTELY" and interval < 200 else 400) * DAY

    expected = leafed_through(case, week_start, first, last)

    try:
        walls = RRuleWalls(parse(text), start, None)
    except InvalidSchedule as refused:
        assert "never comes" in str(refused)
        assert expected == []
        return
    found = [wall for wall in islice(every(walls, first), len(expected) + 1) if wall < last]
    assert found == expected
    assert walls.count(first, last) == len(expected)
    if expected:
        assert walls.upto(last - 1) == expected[-1]


# -- of itself


@st.composite
def odd_rules(draw: st.DrawFn) -> tuple[RRuleWalls, int]:
    """Draw walls of any kind: with BYSETPOS, by the second, with an end."""
    freq, interval, parts, start = draw(any_rules())
    freq = draw(st.sampled_from([freq, "SECONDLY" if "BYWEEKNO" not in parts and freq == "MINUTELY" else freq]))
    if draw(st.booleans()) and parts:
        parts["BYSETPOS"] = draw(signed(1, 5))
    end = draw(st.sampled_from(["", ";COUNT=1", ";COUNT=7", ";COUNT=500"]))
    until = draw(st.one_of(st.none(), st.integers(start, start + 30 * 365 * DAY)))
    try:
        return RRuleWalls(parse(written(freq, interval, parts) + end), start, until), start
    except InvalidSchedule:
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
@given(odd_rules(), st.integers(-400 * DAY, 60 * 365 * DAY))
def test_forwards_backwards_and_counted_agree(case: tuple[RRuleWalls, int], later: int) -> None:
    walls, start = case
    asked = start + later

    ahead = list(islice(every(walls, asked), 30))

    assert all(wall >= max(asked, start) for wall in ahead)
    assert ahead == sorted(set(ahead))
    assert [walls.upto(wall) for wall in ahead] == ahead
    assert [walls.upto(wall - 1) for wall in ahead[1:]] == ahead[:-1]
    if ahead:
        assert walls.count(asked, ahead[-1] + 1) == len(ahead)
        assert walls.count(asked, ahead[-1]) == len(ahead) - 1
    behind = walls.upto(asked)
    if behind is not None:
        assert start <= behind <= asked
        assert walls.at_or_after(behind) == behind
        assert walls.at_or_after(behind + 1) == next((wall for wall in ahead if wall > behind), None)


@settings(max_examples=200, deadline=None)
@given(odd_rules(), st.integers(0, 60 * 365 * DAY), st.integers(0, 90 * DAY), st.integers(0, 90 * DAY))
def test_counts_of_neighbouring_windows_add_up(case: tuple[RRuleWalls, int], later: int, one: int, two: int) -> None:
    walls, start = case
    first = start + later
    middle, last = first + one, first + one + two

    assert walls.count(first, middle) + walls.count(middle, last) == walls.count(first, last)
    assert walls.count(last, first) == 0


@settings(max_examples=300, deadline=None)
@given(st.text("FREQ=DAILYBOUSNTM;,0123456789-+:TZ", max_size=60), st.sampled_from(["", "FREQ=DAILY;"]))
def test_any_text_is_read_or_refused(text: str, opening: str) -> None:
    try:
        rule = parse(opening + text)
    except InvalidSchedule as refused:
        assert refused.field
        assert refused.allowed
    else:
        assert rule.interval >= 1
