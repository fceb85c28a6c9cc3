"""Wording: a schedule as one English sentence, for people who do not read cron.

Promise. The sentence is right before it is short: it names exactly the wall times and days that the
schedule names, and says "every 7 minutes" only together with the stretch on which that holds.

By what. It reads the values of the parsed fields, not the text, so that ``*/15``, ``0-59/15`` and
``0,15,30,45`` say the same and wrapped ranges, weekday 7 and ``H`` need no case of their own. Plain
"every hour" is kept for expressions that follow real time; fixed ones name their first and last wall
time, because a clock going back shows an hour twice and they answer to it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product
from typing import Final, assert_never

from mainspring.domain import cron, fields, rrule
from mainspring.domain.fields import Expression, Field, Item, LastDay, LastOfWeekday, NearestWeekday, NthWeekday, Span
from mainspring.domain.rrule import Frequency, Rule
from mainspring.domain.schedule import EPOCH, At, Cron, Every, OnDemand, RRule, Schedule, Spec
from mainspring.domain.timetable import DstGap, DstOverlap

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NTH: Final = ("first", "second", "third", "fourth", "fifth")
_WORKDAY: Final = "weekday (Monday to Friday)"
_EVERY_DAY: Final = "every day"
_EVEN_FROM: Final = 4  # "every 15 minutes from …" is shorter than a list from this many values on
_MOST_STRETCHES: Final = 3
_MOST_LISTED: Final = 6
_PERIODS: Final = {Frequency.SECONDLY: 1, Frequency.MINUTELY: 60, Frequency.HOURLY: 3600}  # in seconds
_GAPS: Final = {
    DstGap.FIRST_AFTER: "a time skipped by the clock is run at the first moment after the gap",
    DstGap.SHIFT: "a time skipped by the clock is run later, by as much as the clock was moved",
    DstGap.SKIP: "a time skipped by the clock is not run",
}
_OVERLAPS: Final = {
    DstOverlap.FIRST: "a time shown twice by the clock is run the first time only",
    DstOverlap.SECOND: "a time shown twice by the clock is run the second time only",
    DstOverlap.BOTH: "a time shown twice by the clock is run both times",
}


def explain(schedule: Schedule) -> str:
    """Say in one sentence when a schedule is due.

    Instants are given by the schedule's own clock, which is always named, or in UTC.

    >>> from mainspring import Cron, Schedule
    >>> explain(Schedule(specs=(Cron("0 9 LW * *"),), timezone="Europe/Paris"))
    'At 09:00 on the last weekday (Monday to Friday) of the month, Europe/Paris time.'
    """
    several = len(schedule.specs) > 1
    one_clock = all(_by_wall(spec) for spec in schedule.specs)
    own_zone = "" if one_clock else f", {_zone(schedule)}"
    said = "; and ".join(_phrase(spec, schedule) + (own_zone if _by_wall(spec) else "") for spec in schedule.specs)
    limits = _limits(schedule, own_zone)
    if one_clock:
        said += f", {'all in ' * several}{_zone(schedule)}"
    elif limits and several:  # what follows must not seem to belong to the last spec only
        said += "; all of this"
        limits = limits.removeprefix(",")
    said += limits + _clock_changes(schedule)
    return said[0].upper() + said[1:] + "."


def ordinal(number: int) -> str:
    """Write 1 as 1st, 2 as 2nd, 12 as 12th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def listed(words: Iterable[str], last: str = "and") -> str:
    """Join words as prose does: "a, b and c"."""
    *most, final = words
    return f"{', '.join(most)} {last} {final}" if most else final


def _zone(schedule: Schedule) -> str:
    return "UTC" if schedule.timezone == "UTC" else f"{schedule.timezone} time"


def _by_wall(spec: Spec | date) -> bool:
    return isinstance(spec, Cron | RRule)


def _limits(schedule: Schedule, own_zone: str) -> str:
    """Say what is left out, the window, and how often at most, each with a comma in front."""
    said = ""
    left_out = []
    if dates := sorted({day for day in schedule.exclude if isinstance(day, date)}):
        left_out.append(f"on {_dates(dates)}{own_zone}")
    for spec in schedule.exclude:
        if not isinstance(spec, date):
            phrase = _phrase(spec, schedule).removeprefix("once, ")
            left_out.append(phrase + (own_zone if _by_wall(spec) else ""))
    if left_out:
        said += f", except {', and except '.join(left_out)}"
    if schedule.start is not None:
        said += f", from {_offset_time(schedule.start, schedule)}" + (" on" if schedule.end is None else "")
    if schedule.end is not None:
        said += f"{',' if schedule.start is None else ''} until just before {_offset_time(schedule.end, schedule)}"
    if schedule.max_fires is not None:
        said += ", at most " + ("once" if schedule.max_fires == 1 else f"{schedule.max_fires} times")
        said += " in all" if len(schedule.specs) > 1 else ""
    return said


def _dates(dates: Sequence[date]) -> str:
    """Name dates, three or more in a row by the first and the last."""
    return listed(_ranges([day.toordinal() for day in dates], lambda day: date.fromordinal(day).isoformat()))


def _clock_changes(schedule: Schedule) -> str:
    """Say what was chosen for changes of the clock, where a choice was made and can matter."""
    if schedule.timezone == "UTC" or not any(_by_wall(spec) for spec in schedule.specs):
        return ""
    chosen = [_GAPS.get(schedule.dst.gap), _OVERLAPS.get(schedule.dst.overlap)]
    said = ", and ".join(choice for choice in chosen if choice is not None)
    return f"; {said}" if said else ""


def _phrase(spec: Spec, schedule: Schedule) -> str:
    match spec:
        case Cron(expression, dialect):
            return _cron(cron.parse(expression, dialect, schedule.key))
        case Every(interval, anchor, phase):
            return _every(interval, anchor + phase)
        case OnDemand():
            return "only when asked for"
        case At(instant):
            here, there = _local(instant, schedule), f"{_stamp(instant.astimezone(UTC))} UTC"
            return f"once, at {there if here.tzinfo is UTC else f'{_stamp(here)} {_zone(schedule)} ({there})'}"
        case RRule(rule, start):
            return _rrule(rrule.parse(rule), _local(start, schedule).replace(microsecond=0))
        case _:
            assert_never(spec)


def _every(interval: timedelta, origin: datetime) -> str:
    # Slots lie on both sides of the anchor; only an anchor at the very beginning has none before it.
    counted = "counted" if origin - EPOCH < interval else "counted forwards and backwards"
    return f"every {_period(interval // timedelta(seconds=1))}, {counted} from {_stamp(origin.astimezone(UTC))} UTC"


def _period(seconds: int) -> str:
    """Write a length after "every": "hour", "15 minutes", "1 hour 30 minutes", "90 seconds"."""
    if seconds < 120 and seconds % 60:
        amounts = {"second": seconds}
    elif seconds == 86_400:  # elapsed time, which a day of the wall clock is not always
        amounts = {"hour": 24}
    else:
        minutes, rest = divmod(seconds, 60)
        amounts = {"day": minutes // 1440, "hour": minutes // 60 % 24, "minute": minutes % 60, "second": rest}
    words = [f"{amount} {unit}{'s' * (amount > 1)}" for unit, amount in amounts.items() if amount]
    return words[0].removeprefix("1 ") if len(words) == 1 else " ".join(words)


def _local(instant: datetime, schedule: Schedule) -> datetime:
    try:
        return instant.astimezone(UTC if schedule.timezone == "UTC" else schedule.zone.info)
    except OverflowError:  # the last hours of 9999 are past the calendar east of Greenwich
        return instant.astimezone(UTC)


def _offset_time(instant: datetime, schedule: Schedule) -> str:
    local = _local(instant, schedule)
    offset = local.isoformat().removeprefix(local.replace(tzinfo=None).isoformat())
    return f"{_stamp(local)}{' UTC' if local.tzinfo is UTC else offset}"


def _stamp(moment: datetime) -> str:
    """Write date and time without a zone; what is finer than a millisecond counts as the next one."""
    try:
        whole = moment + timedelta(microseconds=-moment.microsecond % 1000)
    except OverflowError:  # datetime.max, written for "for ever": there is no next one
        whole = moment.replace(microsecond=999_000)
    return whole.replace(tzinfo=None).isoformat(" ", "milliseconds" if whole.microsecond else "seconds")


def _rrule(rule: Rule, start: datetime) -> str:
    """Say a rule as the cron expression it amounts to, else quote it; ``start`` is on the wall clock."""
    starting = f", starting {_stamp(start)}"
    narrowed = rule.names_days or rule.by_month or rule.by_hour or rule.by_minute or rule.by_second or rule.by_set_pos
    if rule.freq in _PERIODS and rule.interval > 1 and not narrowed:
        said = f"every {_period(_PERIODS[rule.freq] * rule.interval)} by the wall clock"
    elif (expression := _as_cron(rule, start)) is not None:
        said = _cron(expression)
        if rule.interval > 1:
            plain = f" {_EVERY_DAY}" if rule.freq is Frequency.DAILY else ""
            said = f"{said.removesuffix(plain).removesuffix(',')}, {_every_nth(rule, start)}"
        elif start == EPOCH:  # as early as slots can be
            starting = ""
    else:
        return f"by the rule {rule.text.strip().upper().removeprefix('RRULE:')}{starting}"
    if rule.until is not None:
        starting += f", until {_stamp(EPOCH + timedelta(seconds=rule.until))}{' UTC' * rule.until_utc} inclusive"
    if rule.count is not None:
        starting += f", the first {rule.count} times only" if rule.count > 1 else ", the first time only"
    return said + starting


def _as_cron(rule: Rule, start: datetime) -> Expression | None:
    """Return the expression with the same times and days, INTERVAL aside; None: there is none.

    What the rule leaves open comes from its start, as RFC 5545 has it.
    """
    unit = _PERIODS.get(rule.freq, 86_400)
    nths = [weekday for weekday in rule.by_day if weekday.nth]
    by_year = rule.freq is Frequency.YEARLY and not rule.by_month
    if rule.by_set_pos or rule.by_year_day or rule.by_week_no or (rule.interval > 1 and rule.freq in _PERIODS):
        return None
    if nths and (by_year or any(not -1 <= weekday.nth <= 5 for weekday in nths)):
        return None
    days, months = rule.by_month_day, rule.by_month
    weekdays = [(weekday.day + 1) % 7 for weekday in rule.by_day if not weekday.nth]
    if not rule.names_days and rule.freq is Frequency.WEEKLY:
        weekdays = [start.isoweekday() % 7]
    elif not rule.names_days and rule.freq in (Frequency.MONTHLY, Frequency.YEARLY):
        days, months = (start.day,), (start.month,) if by_year else months
    last_days = tuple(LastDay(-1 - day) for day in days if day < 0)
    special = tuple(LastOfWeekday((day + 1) % 7) if nth < 0 else NthWeekday((day + 1) % 7, nth) for day, nth in nths)
    return Expression(
        rule.text,
        fields.Dialect.UNIX,
        second=_field(fields.SECOND, rule.by_second or (range(60) if unit == 1 else [start.second])),
        minute=_field(fields.MINUTE, rule.by_minute or (range(60) if unit <= 60 else [start.minute])),
        hour=_field(fields.HOUR, rule.by_hour or (range(24) if unit <= 3600 else [start.hour]), star=unit <= 3600),
        day=_field(fields.DAY, [day for day in days if day > 0] if days else range(1, 32), last_days),
        month=_field(fields.MONTH, months or range(1, 13)),
        weekday=_field(fields.WEEKDAY, weekdays if weekdays or special else range(7), special),
        year=None,
        written_seconds=True,
    )


def _field(unit: fields.Unit, values: Iterable[int], special: tuple[Item, ...] = (), *, star: bool = False) -> Field:
    whole = (Span(unit.low, unit.high, star=True),) if star else ()
    return Field(unit, "*", whole + special, sum(1 << value for value in values))


def _every_nth(rule: Rule, start: datetime) -> str:
    nth = ordinal(rule.interval)
    match rule.freq:
        case Frequency.YEARLY:
            return f"in every {nth} year from {start.year} on"
        case Frequency.MONTHLY:
            return f"in every {nth} month from {MONTHS[start.month - 1]} {start.year} on"
        case Frequency.WEEKLY:
            first, last = WEEKDAYS[rule.week_start], WEEKDAYS[rule.week_start - 1]
            return f"in every {nth} week ({first} to {last}) from that of {start.date()} on"
        case _:
            return f"on every {nth} day from {start.date()} on"


def _cron(expression: Expression) -> str:
    times, any_hour = _times(expression)
    days = _days(expression)
    months, years = _values(expression.month), _values(expression.year) if expression.year else []
    said = listed(days, "or" if expression.either_day else "and")
    if len(months) == 1 and all("of the month" in part and "within" not in part for part in days):
        said = said.replace("of the month", f"of {MONTHS[months[0] - 1]}")
        months = []
    close = " " if len(days) == 1 and said.startswith(("on ", "every ")) and "," not in said else ", "
    if any_hour and said == _EVERY_DAY:
        said, close = times, ", "
    else:
        said = f"{times}{' ' if times.startswith('at ') and said[0].islower() else ', '}{said}"
    if 0 < len(months) < 12:
        said += f"{close}in {_named([month - 1 for month in months], MONTHS)}"
        close = ", "
    if years:
        said += f"{close}in {_counted(years, 'year').removeprefix('years ').removeprefix('year ')}"
    return said


def _days(expression: Expression) -> list[str]:
    """Return the days as phrases, any of which is enough."""
    day, weekday = expression.day, expression.weekday
    any_day, any_weekday = len(_values(day)) == 31, len(_values(weekday)) == 7
    if (any_day or any_weekday) if expression.either_day else (any_day and any_weekday):
        return [_EVERY_DAY]
    by_day = [] if any_day else _month_days(day)
    by_weekday = [] if any_weekday else _week_days(weekday)
    if by_day and by_weekday and not expression.either_day:
        return [f"{listed(by_day)}, if it is {_condition(weekday)}"]
    if len(by_weekday) == 1 and not by_day:
        return [by_weekday[0].removeprefix("on any day from ")]
    return by_day + by_weekday


def _month_days(day: Field) -> list[str]:
    parts = []
    if values := _values(day):
        step = _even_step(values)
        if step > 1:
            parts.append(f"on every {ordinal(step)} day of the month from day {values[0]} to {values[-1]}")
        else:
            parts.append(f"on {_counted(values, 'day')} of the month")
    return parts + _specials(day)


def _week_days(weekday: Field) -> list[str]:
    parts = []
    if values := _from_monday(weekday):
        named = _named(values, WEEKDAYS)
        parts.append(f"on any day from {named}" if " to " in named else f"on {named}")
    return parts + _specials(weekday)


def _condition(weekday: Field) -> str:
    plain = [f"a {WEEKDAYS[value]}" for value in _from_monday(weekday)]
    special = [phrase.removeprefix("on ") for phrase in _specials(weekday)]
    return listed(plain[:1] + [word.removeprefix("a ") for word in plain[1:]] + special, "or")


def _specials(field: Field) -> list[str]:
    return list(dict.fromkeys(_special(item) for item in field.items if not isinstance(item, Span)))


def _special(item: LastDay | NearestWeekday | LastOfWeekday | NthWeekday) -> str:
    match item:
        case LastDay(0, weekday):
            return f"on the last {_WORKDAY if weekday else 'day'} of the month"
        case LastDay(before, weekday):
            said = f"{before} day{'s' * (before > 1)} before the last day of the month"
            within = ", within the month" if before + weekday >= 28 else ""  # February ends the count earlier
            return f"on the {_WORKDAY} nearest the day {said}{within}" if weekday else f"{said}{within}"
        case NearestWeekday(day):
            # At either end of a month the nearest one could lie in another month, and does not count.
            within = {1: ", within the month", 28: ", within the month"}.get(day, " of the month")
            return f"on the {_WORKDAY} nearest day {day}" + (", within months that have it" if day > 28 else within)
        case LastOfWeekday(weekday):
            return f"on the last {WEEKDAYS[weekday - 1]} of the month"
        case NthWeekday(weekday, nth):
            return f"on the {_NTH[nth - 1]} {WEEKDAYS[weekday - 1]} of the month"
        case _:
            assert_never(item)


def _times(expression: Expression) -> tuple[str, bool]:
    """Return the times of day, and whether they are the same in every hour of every day."""
    seconds, minutes, hours = _values(expression.second), _values(expression.minute), _values(expression.hour)
    any_hour = expression.wildcard and len(hours) == 24
    if not any_hour:
        clock = [hour * 3600 + minute * 60 + second for hour, minute, second in product(hours, minutes, seconds)]
        return _clock_times(clock) or _parts_of_hours(seconds, minutes, _counted(hours, "hour")), False
    if seconds == minutes == [0]:
        return "every hour, on the hour", True
    if seconds == [0] and _divides(minutes):
        return f"every {_period(3600 // len(minutes))}", True
    if len(minutes) == 60 and _divides(seconds):
        return f"every {_period(60 // len(seconds))}", True
    return _parts_of_hours(seconds, minutes, "every hour"), True


def _clock_times(clock: Sequence[int]) -> str | None:
    """Name times of day (in seconds) as a few even stretches or a short list; None: there are too many."""
    shown = 8 if any(time % 60 for time in clock) else 5  # letters of 09:00:15, of 09:00

    def show(time: int) -> str:
        return f"{time // 3600:02}:{time // 60 % 60:02}:{time % 60:02}"[:shown]

    if not _even_step(clock) and len(clock) <= _MOST_LISTED:
        return f"at {listed(map(show, clock))}"
    step = min(later - earlier for earlier, later in pairwise(clock))
    stretches = _runs(clock, step)
    if len(stretches) > _MOST_STRETCHES:
        return None
    stretches.sort(key=lambda times: len(times) == 1)  # "every hour" belongs to what follows it
    ends = [(show(times[0]), show(times[-1])) for times in stretches]
    said = listed(f"at {first}" if first == last else f"from {first} to {last}" for first, last in ends)
    return f"every {_period(step)} {said}"


def _parts_of_hours(seconds: Sequence[int], minutes: Sequence[int], hours: str) -> str:
    """Say it field by field: not elegant, but right for any mixture."""
    if seconds == [0]:
        if len(minutes) == 60:
            return f"every minute of {hours}"
        if step := _even_step(minutes):
            said = f"every {_period(step * 60)} from minute {minutes[0]} to {minutes[-1]}"
            return f"{said} of {'each hour' if hours == 'every hour' else hours}"
        one = f"{minutes[0]} minute{'s' * (minutes[0] != 1)}"
        return f"at {one if len(minutes) == 1 else _counted(minutes, 'minute')} past {hours}"
    said = f"at {_counted(seconds, 'second')}"
    if step := _even_step(seconds):
        stretch = "" if len(seconds) == 60 else f" from second {seconds[0]} to {seconds[-1]}"
        said = f"every {_period(step)}{stretch}"
    if len(minutes) == 60:
        return f"{said} of every minute" + ("" if hours == "every hour" else f" of {hours}")
    which = _counted(minutes, "minute")
    return f"{said} of {which} {'of' if which.startswith('every') else 'past'} {hours}"


def _counted(values: Sequence[int], unit: str) -> str:
    """Number what is meant: "hour 9", "hours 9 to 12 and 14", "every 2nd hour from hour 0 to 22"."""
    if (step := _even_step(values)) > 1:
        return f"every {ordinal(step)} {unit} from {unit} {values[0]} to {values[-1]}"
    return f"{unit}{'s' * (len(values) > 1)} {listed(_ranges(values, str))}"


def _ranges(values: Sequence[int], show: Callable[[int], str]) -> list[str]:
    """Show rising values, three or more in a row as "first to last"."""
    words: list[str] = []
    for run in _runs(values, 1):
        words += [f"{show(run[0])} to {show(run[-1])}"] if len(run) > 2 else map(show, run)
    return words


def _runs(values: Sequence[int], step: int) -> list[list[int]]:
    runs = [[values[0]]]
    for earlier, later in pairwise(values):
        if later - earlier == step:
            runs[-1].append(later)
        else:
            runs.append([later])
    return runs


def _named(values: Sequence[int], names: Sequence[str]) -> str:
    """Name places in a cycle, a single stretch of three or more by its ends, also across the turn."""
    firsts = [value for value in values if (value - 1) % len(names) not in values]
    if len(firsts) == 1 and len(values) > 2:
        return f"{names[firsts[0]]} to {names[(firsts[0] + len(values) - 1) % len(names)]}"
    return listed(names[value] for value in values)


def _even_step(values: Sequence[int]) -> int:
    """Return the distance between neighbours; 0 where it varies or a list says it as well."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 and len(values) >= _EVEN_FROM else 0


def _divides(values: Sequence[int]) -> bool:
    """Say whether values of a sixty are evenly spaced from 0, and stay so from one sixty to the next."""
    return len(values) > 1 and list(values) == list(range(0, 60, 60 // len(values)))


def _from_monday(weekday: Field) -> list[int]:
    return sorted((value - 1) % 7 for value in _values(weekday))


def _values(field: Field) -> list[int]:
    base = fields.FIRST_YEAR if field.unit is fields.YEAR else 0
    return [base + bit for bit in range(field.mask.bit_length()) if field.mask >> bit & 1]
