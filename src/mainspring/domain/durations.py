"""Durations as people write them: ``90s``, ``1h30m``, ``2d``; and instants that lie one of them later.

None that is given to us is longer than ten years: what is meant to last longer is meant to last for ever, and is left
out instead. A definition from before there was a bound may hold more, so that sums end with the calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.domain.errors import InvalidRequest

_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
LONGEST: Final = timedelta(days=3650)
LAST_INSTANT: Final = datetime(9999, 12, 31, tzinfo=UTC)  # the last day that every zone can show
_CALENDAR: Final = timedelta(days=10_000 * 366)
_MILLISECOND: Final = timedelta(milliseconds=1)
_ALLOWED: Final = "use numbers with w, d, h, m, s or ms, largest first, such as 1h30m or 90s"


def parse_duration(text: str, *, field: str) -> timedelta:
    """Read a duration.

    Raises:
        InvalidRequest: not a duration, or longer than ten years.
    """
    length = read_duration(text, field=field)
    if length > LONGEST:
        raise _too_long(f'"{text[:40]}"', field, text)
    return length


def read_duration(text: str, *, field: str) -> timedelta:
    """Read a duration that is stored, which may be of a time when they could be longer.

    Raises:
        InvalidRequest: not a duration, or longer than the calendar.
    """
    total, rest = 0, text.strip().lower()
    units = iter(_UNITS.items())
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        name = rest[digits:][: len(rest[digits:]) - len(rest[digits:].lstrip("abcdefghijklmnopqrstuvwxyz"))]
        worth = next((worth for unit, worth in units if unit == name), None)
        if not 0 < digits <= 15 or worth is None:
            raise InvalidRequest(f'"{text[:40]}" is not a duration', field=field, value=text, allowed=_ALLOWED)
        total += int(rest[:digits]) * worth
        rest = rest[digits + len(name) :]
    if total > _CALENDAR // _MILLISECOND:
        raise _too_long(f'"{text[:40]}"', field, text)
    if total <= 0:
        raise InvalidRequest(f'"{text[:40]}" is no length of time', field=field, value=text, allowed=_ALLOWED)
    return timedelta(milliseconds=total)


def check_duration(length: timedelta | None, *, field: str, least: timedelta = _MILLISECOND) -> None:
    """Refuse a duration that is out of bounds; None, for none at all, is not.

    Raises:
        InvalidRequest: it is shorter than ``least``, or longer than ten years.
    """
    if length is None or least <= length <= LONGEST:
        return
    if length > LONGEST:
        raise _too_long(f"{length.days}d", field, str(length))
    allowed = f"use {format_duration(least)} to {LONGEST.days}d"
    raise InvalidRequest(f"{length} is no length of time", field=field, value=str(length), allowed=allowed)


def later(instant: datetime, length: timedelta) -> datetime:
    """Return the instant that is so much later, or the last one there is."""
    try:
        return min(instant + length, LAST_INSTANT)
    except OverflowError:
        return LAST_INSTANT


def format_duration(length: timedelta) -> str:
    """Write a duration so that :func:`parse_duration` reads it back: ``1h30m``."""
    rest, written = length // timedelta(milliseconds=1), ""
    for unit, worth in _UNITS.items():
        amount, rest = divmod(rest, worth)
        written += f"{amount}{unit}" if amount else ""
    return written or "0s"


def rough_duration(length: timedelta) -> str:
    """Write a duration for a glance: milliseconds up to ten seconds, then hours, minutes and seconds."""
    if length < timedelta(seconds=10):
        return f"{length / timedelta(milliseconds=1):.0f} ms"
    return str(length).split(".", maxsplit=1)[0]


def _too_long(shown: str, field: str, value: str) -> InvalidRequest:
    allowed = f"use up to {LONGEST.days}d"
    return InvalidRequest(f"{shown} is too long", field=field, value=value, allowed=allowed)
