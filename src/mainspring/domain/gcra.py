"""Rate limits: a bucket that leaks evenly, by whole numbers only.

GCRA, the generic cell rate algorithm, kept as what is owed instead of the theoretical arrival time: the two differ by
a factor, and this one has no fractions. One item weighs a million; a microsecond pays off as many as the rate has items
per second. So ``RedisLimiter`` can do the same sum in Lua, whose numbers are exact up to 2**53, and come to the same
answer.

Promise. Over any stretch of time a name gets at most ``burst + rate * time`` items, and what is refused costs nothing.
A request for more than the burst is not hopeless: it waits for an empty bucket and then owes all of it, so that the
promise holds but for that one request.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from mainspring.domain.errors import InvalidRequest

ITEM: Final = 1_000_000  # what one item weighs: the microseconds of a second
MOST: Final = 100_000_000  # items in a burst, a second or a request: keeps every product below 2**53
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many items a second in the long run, and how many at once."""

    per_second: int
    burst: int

    def __post_init__(self) -> None:
        for field, value in (("per_second", self.per_second), ("burst", self.burst)):
            if not 1 <= value <= MOST:
                raise InvalidRequest(f"{value} is no rate", field=field, value=value, allowed=f"use 1 to {MOST}")


class Bucket(NamedTuple):
    """What a name owes, as of an instant on whichever clock."""

    at: int  # microseconds
    owed: int  # in millionths of an item


class Verdict(NamedTuple):
    """Whether a request may pass, and what to tell the caller about the next one."""

    allowed: bool
    rate: Rate
    owed: int  # after it
    too_much: int  # by how much it was, in millionths of an item

    @property
    def limit(self) -> int:
        """The burst."""
        return self.rate.burst

    @property
    def remaining(self) -> int:
        """Items that would pass right now."""
        return max(0, self.rate.burst * ITEM - self.owed) // ITEM

    @property
    def reset_after(self) -> timedelta:
        """Until the whole burst is there again."""
        return _paid_in(self.owed, self.rate)

    @property
    def retry_after(self) -> timedelta:
        """Until this request would pass; zero if it did."""
        return timedelta(0) if self.allowed else _paid_in(self.too_much, self.rate)


def take(bucket: Bucket | None, rate: Rate, cost: int, *, now: int) -> tuple[Bucket, Verdict]:
    """Ask for ``cost`` items at ``now``, in microseconds; return the bucket as it is afterwards, and the verdict.

    A clock that went back pays nothing off and takes nothing away. Asking for 0 only looks.
    """
    if not 0 <= cost <= MOST:
        raise InvalidRequest(f"{cost} is no cost", field="cost", value=cost, allowed=f"use 0 to {MOST}")
    left = leaked(bucket, rate, now=now)
    too_much = left.owed + (min(cost, rate.burst) - rate.burst) * ITEM
    allowed = cost == 0 or too_much <= 0
    after = Bucket(left.at, left.owed + cost * ITEM) if allowed else left
    return after, Verdict(allowed, rate, after.owed, too_much)


def leaked(bucket: Bucket | None, rate: Rate, *, now: int) -> Bucket:
    """Return the bucket after what has been paid off since; None is a bucket nobody has used."""
    if bucket is None:
        return Bucket(at=now, owed=0)
    elapsed = max(0, now - bucket.at)
    return Bucket(at=bucket.at + elapsed, owed=max(0, bucket.owed - elapsed * rate.per_second))


def _paid_in(owed: int, rate: Rate) -> timedelta:
    return -(-owed // rate.per_second) * _MICROSECOND  # rounded up: at that microsecond it is paid
