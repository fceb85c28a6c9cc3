"""The seconds of a day as the bits of one integer, bit 0 for midnight.

Where slots are crowded, a day of them is combined, searched and counted at once, by a few operations on
eleven kilobytes, instead of slot by slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mainspring.domain.zones import DAY

EVERY_SECOND: Final = (1 << DAY) - 1


@lru_cache(maxsize=256)
def comb(interval: int) -> int:
    """Return every so manieth second of a day, from its first on."""
    mask, width = 1, interval
    while width < DAY:
        mask |= mask << width
        width *= 2
    return mask & EVERY_SECOND


@lru_cache(maxsize=512)
def times(seconds: int, minutes: int, hours: int) -> int:
    """Return the seconds of a day that the fields of a cron expression name."""
    return seconds * spread(minutes, 60) * spread(hours, 3600)


def spread(mask: int, apart: int) -> int:
    """Return a mask whose bits stand so far apart."""
    return mask if apart == 1 else int(("0" * (apart - 1)).join(f"{mask:b}"), 2)


def marked(seconds: Iterable[int]) -> int:
    line = bytearray(b"0") * DAY
    for second in seconds:
        line[-1 - second] = ord("1")
    return int(line, 2)


def stretch(start: int, end: int) -> int:
    return (1 << end) - (1 << start)


def first_from(mask: int, second: int) -> int:
    """Return the first second of a mask not before this one, or -1."""
    mask >>= second
    return second + (mask & -mask).bit_length() - 1 if mask else -1


def last_upto(mask: int, second: int) -> int:
    """Return the last second of a mask not after this one, or -1."""
    return (mask & (2 << second) - 1).bit_length() - 1
