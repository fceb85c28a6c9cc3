"""Durations as people write them: ``90s``, ``1h30m``, ``2d``."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from mainspring.domain.errors import InvalidRequest

_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_LONGEST: Final = 10_000 * 366 * 86_400_000
_ALLOWED: Final = "use numbers with w, d, h, m, s or ms, largest first, such as 1h30m or 90s"


def parse_duration(text: str, *, field: str) -> timedelta:
    """Read a duration.

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
    if not 0 < total <= _LONGEST:
        raise InvalidRequest(f'"{text[:40]}" is no length of time', field=field, value=text, allowed=_ALLOWED)
    return timedelta(milliseconds=total)


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
