"""Cron grammar: text in, a tree of fields out. No time is computed here.

Two dialects, stated by the caller and never guessed. ``unix`` has five fields, or six with the
seconds first; ``quartz`` has six or seven, counts weekdays from 1 = Sunday and wants exactly one
``?``. The tree keeps what was written (for ``explain`` and ``lint``) beside the bit masks that the
search uses. Every refusal names the field, its value and what would be right.

The parser walks the text once, without recursion or regular expressions, so its time is bounded
by the 256 characters it accepts.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from mainspring.domain.errors import InvalidSchedule
from mainspring.domain.fields import (
    DAY,
    FIRST_YEAR,
    HOUR,
    LAST_YEAR,
    MINUTE,
    MONTH,
    QUARTZ_WEEKDAY,
    SECOND,
    WEEKDAY,
    YEAR,
    Dialect,
    Expression,
    Field,
    Item,
    LastDay,
    LastOfWeekday,
    NearestWeekday,
    NthWeekday,
    Span,
    Unit,
    month_shape,
)

MAX_LENGTH: Final = 256

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@lru_cache(maxsize=4096)
def parse(text: str, dialect: Dialect = Dialect.UNIX, key: str | None = None) -> Expression:
    """Read an expression; ``key`` (the job's) decides what ``H`` stands for.

    Raises:
        InvalidSchedule: malformed, out of range, or naming no day that ever comes.
    """
    _check_text(text)
    words = _expand(text, dialect).split()
    expression = _quartz(text, words, key) if dialect is Dialect.QUARTZ else _unix(text, words, key)
    _refuse_never(expression)
    return expression


def _check_text(text: str) -> None:
    whole = "an expression has at most 256 ASCII characters: digits, names, blanks and * , - / ? # @"
    if len(text) > MAX_LENGTH:
        raise InvalidSchedule(f"is {len(text)} characters long", field="expression", value=text, allowed=whole)
    if not text.isascii() or not all(character.isprintable() or character == "\t" for character in text):
        raise InvalidSchedule(f"{text!a} has characters outside ASCII", field="expression", value=text, allowed=whole)
    if not text.strip():
        raise InvalidSchedule(
            "is empty", field="expression", value=text, allowed='use five fields, such as "0 9 * * 1"'
        )


def _expand(text: str, dialect: Dialect) -> str:
    bare = text.strip().lower()
    if not bare.startswith("@"):
        return text
    if dialect is Dialect.QUARTZ:
        raise InvalidSchedule(
            f'"{bare}" belongs to the unix dialect', field="expression", value=text, allowed="state --dialect unix"
        )
    if bare in NICKNAMES:
        return NICKNAMES[bare]
    raise InvalidSchedule(
        f'"{bare}" is not a nickname',
        field="expression",
        value=text,
        allowed=f"use {', '.join(NICKNAMES)} or @every 90s",
    )


def _unix(text: str, words: list[str], key: str | None) -> Expression:
    if len(words) not in (5, 6):
        allowed = "the unix dialect has 5 (minute hour day-of-month month day-of-week), or 6 with seconds first"
        if len(words) == 7:
            allowed += "; years belong to the quartz dialect"
        raise InvalidSchedule(f"has {len(words)} fields", field="expression", value=text, allowed=allowed)
    written_seconds = len(words) == 6
    seconds = words.pop(0) if written_seconds else "0"
    read = _Reader(Dialect.UNIX, key)
    return Expression(
        text,
        Dialect.UNIX,
        second=read.field(seconds, SECOND),
        minute=read.field(words[0], MINUTE),
        hour=read.field(words[1], HOUR),
        day=read.field(words[2], DAY),
        month=read.field(words[3], MONTH),
        weekday=read.field(words[4], WEEKDAY),
        year=None,
        written_seconds=written_seconds,
    )


def _quartz(text: str, words: list[str], key: str | None) -> Expression:
    if len(words) not in (6, 7):
        allowed = (
            "the quartz dialect has 6 (second minute hour day-of-month month day-of-week), or 7 with the year last"
        )
        raise InvalidSchedule(f"has {len(words)} fields", field="expression", value=text, allowed=allowed)
    if (words[3] == "?") == (words[5] == "?"):
        raise InvalidSchedule(
            f'"{words[5]}" stands beside "{words[3]}" in day-of-month',
            field="day-of-week",
            value=words[5],
            allowed='the quartz dialect wants "?" in exactly one of the two',
        )
    read = _Reader(Dialect.QUARTZ, key)
    return Expression(
        text,
        Dialect.QUARTZ,
        second=read.field(words[0], SECOND),
        minute=read.field(words[1], MINUTE),
        hour=read.field(words[2], HOUR),
        day=read.field(words[3], DAY),
        month=read.field(words[4], MONTH),
        weekday=read.field(words[5], QUARTZ_WEEKDAY),
        year=read.field(words[6], YEAR) if len(words) == 7 and words[6] != "*" else None,
        written_seconds=True,
    )


class _Reader:
    """Reads fields, item by item. Knows the dialect, and the key that ``H`` is hashed from."""

    def __init__(self, dialect: Dialect, key: str | None) -> None:
        self._quartz = dialect is Dialect.QUARTZ
        self._key = key

    def field(self, text: str, unit: Unit) -> Field:
        items = tuple(self._item(part, text, unit) for part in text.upper().split(","))
        mask = 0
        for item in items:
            if isinstance(item, Span):
                mask |= _span_mask(item, unit)
        return Field(unit, text, items, mask)

    def _item(self, part: str, text: str, unit: Unit) -> Item:
        if not part:
            raise self._refuse(unit, text, "has an empty list item", "write values between the commas")
        if part == "?":
            if unit.name not in (DAY.name, WEEKDAY.name) or text != "?":
                raise self._refuse(unit, text, 'cannot hold "?"', '"?" stands alone in day-of-month or day-of-week')
            return self._whole(unit)
        if part == "L" and unit is QUARTZ_WEEKDAY and text.upper() != "L":
            raise self._refuse(unit, text, 'has "L" in a list', '"L" stands alone for Saturday; write 7 or SAT')
        special = self._special(part, unit)
        return special if special is not None else self._span(part, unit)

    def _special(self, part: str, unit: Unit) -> Item | None:
        if unit is DAY and (part.startswith("L") or part.endswith("W")):
            return self._special_day(part)
        if unit.name == WEEKDAY.name and ("#" in part or part.endswith("L")):
            return self._special_weekday(part, unit)
        return None

    def _special_day(self, part: str) -> Item:
        weekday = part.endswith("W")
        bare = part[:-1] if weekday else part
        if bare == "L":
            return LastDay(weekday=weekday)
        if bare.startswith("L-"):
            if weekday and not self._quartz:
                raise self._refuse(DAY, part, "is a form of the quartz dialect", "use LW or L-n")
            return LastDay(self._number(bare[2:], Unit(DAY.name, 0, 30), part), weekday)
        if weekday:
            return NearestWeekday(self._number(bare, DAY, part))
        raise self._refuse(DAY, part, "is not a day", "use L, LW, L-3, 15W or 1-31")

    def _special_weekday(self, part: str, unit: Unit) -> Item:
        day, hash_mark, nth = part.partition("#")
        if hash_mark:
            return NthWeekday(self._weekday(day, unit, part), self._number(nth, Unit(unit.name, 1, 5), part))
        if part == "L":
            if self._quartz:
                return Span(6, 6)  # Quartz: L alone is the last day of its week, Saturday
            raise self._refuse(unit, part, "does not say which weekday", "use 5L for the last Friday of the month")
        return LastOfWeekday(self._weekday(part[:-1], unit, part))

    def _weekday(self, text: str, unit: Unit, part: str) -> int:
        return self._from_sunday(self._value(text, unit, part)) % 7

    def _span(self, part: str, unit: Unit) -> Span:
        base, slash, step_text = part.partition("/")
        step = self._step(step_text, unit, part) if slash else 1
        if base == "*":
            whole = self._whole(unit)
            return Span(whole.first, whole.last, step, star=True)
        if base.startswith("H"):
            return self._hashed(base, step if slash else None, unit, part)
        first_text, dash, last_text = base.partition("-")
        first = self._value(first_text, unit, part)
        last = self._value(last_text, unit, part) if dash else (unit.high if slash else first)
        if dash and first > last:
            self._check_reversed(first_text, last_text, unit, part)
        if unit is QUARTZ_WEEKDAY:
            return Span(first - 1, last - 1, step)
        return Span(first, last, step)

    def _whole(self, unit: Unit) -> Span:
        if unit.name == WEEKDAY.name:
            return Span(0, 6, star=True)
        return Span(unit.low, unit.high, star=True)

    def _from_sunday(self, weekday: int) -> int:
        return weekday - 1 if self._quartz else weekday

    def _check_reversed(self, first: str, last: str, unit: Unit, part: str) -> None:
        if unit is YEAR:
            raise self._refuse(unit, part, "runs backwards", "put the smaller year first")
        if self._quartz or not (first.isdigit() or last.isdigit()):
            return
        example = f"split it in two: {first}-{unit.high},{unit.low}-{last}"
        if unit.names:
            example += f"; or use names, which may wrap: {unit.names[-2]}-{unit.names[1]}"
        raise self._refuse(unit, part, "runs backwards", example)

    def _step(self, text: str, unit: Unit, part: str) -> int:
        step = self._number(text, Unit(unit.name, 1, 9999), part, what="step")
        if self._quartz and step > max(unit.high, 1):
            raise self._refuse(unit, part, f"has a step of {step}", f"the field ends at {unit.high}")
        return step

    def _hashed(self, base: str, step: int | None, unit: Unit, part: str) -> Span:
        """``H`` is one value, ``H/15`` every 15 from a hashed start; ``H(0-29)`` stays in a range."""
        if self._key is None:
            raise self._refuse(unit, part, "is spread by the job's key, and there is none", "give a key, or a number")
        first, last = unit.low, unit.high
        if unit is DAY:
            last = 28  # every month has it
        elif unit.name == WEEKDAY.name:
            first, last = 0, 6
        if base != "H":
            if not (base.startswith("H(") and base.endswith(")") and "-" in base):
                raise self._refuse(unit, part, "is not a form of H", "use H, H/15, H(0-29) or H(0-29)/10")
            first_text, _, last_text = base[2:-1].partition("-")
            first, last = self._value(first_text, unit, part), self._value(last_text, unit, part)
            if unit.name == WEEKDAY.name:
                first, last = self._from_sunday(first), self._from_sunday(last)
            if first > last:
                raise self._refuse(unit, part, "runs backwards", "put the smaller value first")
        choices = min(last - first + 1, step or MAX_LENGTH)
        digest = blake2b(f"{self._key}/{unit.name}".encode(), digest_size=8).digest()
        chosen = first + int.from_bytes(digest, "big") % choices
        return Span(chosen, chosen) if step is None else Span(chosen, last, step, star=True)

    def _value(self, text: str, unit: Unit, part: str) -> int:
        if text in unit.names:
            return unit.names.index(text) + (0 if unit is WEEKDAY else 1)
        return self._number(text, unit, part)

    def _number(self, text: str, unit: Unit, part: str, what: str = "") -> int:
        if not text.isdigit():
            wanted = what or "value"
            reason = (
                f"is not a {wanted}"
                if text == part
                else f'has "{text}" for a {wanted}'
                if text
                else f"lacks a {wanted}"
            )
            raise self._refuse(unit, part, reason, unit.allowed)
        number = int(text)
        if not unit.low <= number <= unit.high:
            named = f"{what} {number}" if what else str(number)
            raise self._refuse(
                unit, part, f"is out of range ({named})" if part != text else "is out of range", unit.allowed
            )
        return number

    @staticmethod
    def _refuse(unit: Unit, value: str, reason: str, allowed: str) -> InvalidSchedule:
        shown = value if len(value) <= 40 else value[:37] + "..."
        return InvalidSchedule(f'"{shown}" {reason}', field=unit.name, value=value, allowed=allowed)


def _span_mask(span: Span, unit: Unit) -> int:
    """Set a bit per value: years count from 1970, weekdays from Sunday = 0 with 7 folded onto it."""
    base = FIRST_YEAR if unit is YEAR else 0
    mask = 0
    last = span.last
    if span.first > last:  # wraps: FRI-MON, NOV-FEB, in quartz 22-2 as well
        last += 7 if unit.name == WEEKDAY.name else unit.high - unit.low + 1
    for value in range(span.first, last + 1, span.step):
        if unit.name == WEEKDAY.name:
            mask |= 1 << value % 7
        elif value > unit.high:
            mask |= 1 << value - unit.high - 1 + unit.low
        else:
            mask |= 1 << value - base
    return mask


def _refuse_never(expression: Expression) -> None:
    """Refuse what matches no date of the 400-year Gregorian cycle, which has every month in every shape."""
    if expression.year is None:
        for month in range(1, 13):
            if expression.month.mask >> month & 1:
                lengths = (28, 29) if month == 2 else (30 if month in (4, 6, 9, 11) else 31,)
                if any(expression.day_mask(length, first) for length in lengths for first in range(7)):
                    return
    elif any(_year_has_day(expression, year) for year in range(FIRST_YEAR, LAST_YEAR + 1)):
        return
    within = f'month "{expression.month.text}"' + (f' of "{expression.year.text}"' if expression.year else "")
    culprit = expression.day if not expression.day.everything else expression.weekday
    raise InvalidSchedule(
        f'"{culprit.text}" never comes in {within}',
        field=culprit.unit.name,
        value=culprit.text,
        allowed="choose a day that exists in at least one of those months",
    )


def _year_has_day(expression: Expression, year: int) -> bool:
    if expression.year is None or not expression.year.mask >> year - FIRST_YEAR & 1:
        return False
    return any(
        expression.day_mask(*month_shape(year, month)) for month in range(1, 13) if expression.month.mask >> month & 1
    )
