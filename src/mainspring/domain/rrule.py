"""RFC 5545 recurrence rules: the grammar and nothing else. ``recurrence.py`` finds what a rule names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from mainspring.domain.errors import InvalidSchedule

MAX_LENGTH: Final = 256
MAX_COUNT: Final = 10_000
MAX_INTERVAL: Final = 1_000_000_000
WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = {  # lowest, highest, and whether -n counts from the end
    "INTERVAL": (1, MAX_INTERVAL, False),
    "COUNT": (1, MAX_COUNT, False),
    "BYSECOND": (0, 59, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYDAY": (1, 53, True),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
_PARTS: Final = ("FREQ", *_NUMBERS, "UNTIL", "WKST")


class Frequency(StrEnum):
    SECONDLY = "SECONDLY"
    MINUTELY = "MINUTELY"
    HOURLY = "HOURLY"
    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


class Weekday(NamedTuple):
    """``-1FR``: the last Friday of the month or year; ``nth`` 0 is every one. Monday is 0."""

    day: int
    nth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A parsed RRULE. An empty ``by_…`` was not written; lists are sorted and without repetition."""

    text: str
    freq: Frequency
    interval: int
    count: int | None
    until: int | None  # in seconds as written, inclusive; a plain date is its last second
    until_utc: bool  # UNTIL ended in Z; else it is wall time
    by_second: tuple[int, ...]
    by_minute: tuple[int, ...]
    by_hour: tuple[int, ...]
    by_day: tuple[Weekday, ...]
    by_month_day: tuple[int, ...]
    by_year_day: tuple[int, ...]
    by_week_no: tuple[int, ...]
    by_month: tuple[int, ...]
    by_set_pos: tuple[int, ...]
    week_start: int  # Monday is 0

    @property
    def names_days(self) -> bool:
        return bool(self.by_day or self.by_month_day or self.by_year_day or self.by_week_no)


@lru_cache(maxsize=4096)
def parse(text: str) -> Rule:
    """Read an RRULE, with or without its name in front.

    Raises:
        InvalidSchedule: malformed, out of range, or combining parts that RFC 5545 keeps apart.
    """
    parts = _split(text)
    until, until_utc = _until(parts["UNTIL"]) if "UNTIL" in parts else (None, False)
    rule = Rule(
        text=text,
        freq=_frequency(parts),
        interval=_number("INTERVAL", parts.get("INTERVAL", "1")),
        count=_number("COUNT", parts["COUNT"]) if "COUNT" in parts else None,
        until=until,
        until_utc=until_utc,
        by_second=_numbers("BYSECOND", parts),
        by_minute=_numbers("BYMINUTE", parts),
        by_hour=_numbers("BYHOUR", parts),
        by_day=tuple(sorted({_weekday("BYDAY", item) for item in _items("BYDAY", parts)})),
        by_month_day=_numbers("BYMONTHDAY", parts),
        by_year_day=_numbers("BYYEARDAY", parts),
        by_week_no=_numbers("BYWEEKNO", parts),
        by_month=_numbers("BYMONTH", parts),
        by_set_pos=_numbers("BYSETPOS", parts),
        week_start=_weekday("WKST", parts.get("WKST", "MO")).day,
    )
    _check_together(rule, parts)
    return rule


def until_wall(rule: Rule, offset_of: Callable[[int], int]) -> int | None:
    """Return UNTIL as the last wall second allowed; ``offset_of`` gives a zone's offset at a UTC second.

    An UNTIL in UTC within an hour that the clock shows twice allows that wall time in both showings.
    """
    if rule.until is None or not rule.until_utc:
        return rule.until
    return rule.until + offset_of(rule.until)


def _split(text: str) -> dict[str, str]:
    if len(text) > MAX_LENGTH or not text.isascii():
        raise refusal("RRULE", text, "is too long or not ASCII", f"a rule has at most {MAX_LENGTH} ASCII characters")
    parts: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").split(";"):
        name, equals, value = part.partition("=")
        if not equals:
            raise refusal("RRULE", part, "is not a part", "use parts such as FREQ=DAILY;INTERVAL=2")
        if name not in _PARTS:
            raise refusal(name[:40] or "RRULE", part, "is not a part of RFC 5545", f"use {', '.join(_PARTS)}")
        if name in parts:
            raise refusal(name, value, "comes a second time", f"write {name} once, with a list if it takes one")
        parts[name] = value
    return parts


def _frequency(parts: dict[str, str]) -> Frequency:
    value = parts.get("FREQ", "")
    if value not in Frequency.__members__:
        reason = "is not a frequency" if "FREQ" in parts else "is missing"
        raise refusal("FREQ", value, reason, f"use FREQ={', '.join(Frequency)}")
    return Frequency(value)


def _items(name: str, parts: dict[str, str]) -> list[str]:
    return parts[name].split(",") if name in parts else []


def _numbers(name: str, parts: dict[str, str]) -> tuple[int, ...]:
    return tuple(sorted({_number(name, item) for item in _items(name, parts)}))


def _number(name: str, text: str) -> int:
    low, high, signed = _NUMBERS[name]
    allowed = f"use {low} to {high}" + (f", or -{high} to -{low} from the end" if signed else "")
    digits = text[1:] if signed and text.startswith(("+", "-")) else text
    if not digits.isdigit():
        raise refusal(name, text, "is not a number", allowed)
    if not low <= int(digits) <= high:
        if name == "BYSECOND" and int(digits) == 60:
            allowed += "; second 60 is a leap second, which UTC as computers keep it does not show"
        raise refusal(name, text, "is out of range", allowed)
    return int(text)


def _weekday(name: str, text: str) -> Weekday:
    nth, day = text[:-2], text[-2:]
    if day not in WEEKDAYS or (nth and name == "WKST"):
        allowed = f"use {', '.join(WEEKDAYS)}" + (", or one with an ordinal, such as -1FR" if name == "BYDAY" else "")
        raise refusal(name, text, "is not a weekday", allowed)
    return Weekday(WEEKDAYS.index(day), _number(name, nth) if nth else 0)


def _until(text: str) -> tuple[int, bool]:
    """Return the last second allowed, and whether it is UTC."""
    utc = text.endswith("Z")
    written = text.removesuffix("Z") if "T" in text else text + "T235959"
    try:
        # strptime alone would read 2030111 too; what it read must look like what was written
        at = datetime.strptime(written, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        seconds = (at - _EPOCH) // timedelta(seconds=1) if f"{at:%Y%m%dT%H%M%S}" == written else -1
    except ValueError:
        seconds = -1
    if seconds < 0:
        allowed = "use a date that exists, from 1970 on: 20301231, 20301231T235959, or with Z for UTC 20301231T235959Z"
        raise refusal("UNTIL", text, "is not a date or date-time", allowed)
    return seconds, utc


def _check_together(rule: Rule, parts: dict[str, str]) -> None:
    """Refuse what the table in RFC 5545, section 3.3.10, marks as not to be used together."""
    freq = rule.freq
    monthly = freq in (Frequency.MONTHLY, Frequency.YEARLY)
    ordinals = any(weekday.nth for weekday in rule.by_day)
    others = any(name.startswith("BY") and name != "BYSETPOS" for name in parts)
    for name, wrong, reason, allowed in (
        ("COUNT", {"COUNT", "UNTIL"} <= parts.keys(), "cannot go with UNTIL", "use one of the two"),
        ("BYWEEKNO", freq is not Frequency.YEARLY, f"cannot go with FREQ={freq}", "use FREQ=YEARLY"),
        ("BYYEARDAY", freq in ("DAILY", "WEEKLY", "MONTHLY"), f"cannot go with FREQ={freq}", "use FREQ=YEARLY"),
        ("BYMONTHDAY", freq is Frequency.WEEKLY, "cannot go with FREQ=WEEKLY", "use FREQ=MONTHLY or DAILY"),
        (
            "BYDAY",
            ordinals and not monthly,
            f"has an ordinal with FREQ={freq}",
            "use MONTHLY or YEARLY",
        ),
        ("BYDAY", ordinals and rule.by_week_no, "has an ordinal with BYWEEKNO", "use weekdays without ordinals"),
        ("BYSETPOS", not others, "has no set to choose from", "add another BY part"),
    ):
        if name in parts and wrong:
            raise refusal(name, parts[name], reason, allowed)


def refusal(field: str, value: str, reason: str, allowed: str) -> InvalidSchedule:
    shown = value if len(value) <= 40 else value[:37] + "..."
    return InvalidSchedule(f'"{shown}" {reason}', field=field, value=value, allowed=allowed)
