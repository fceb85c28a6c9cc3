"""The environment: all that differs between two runs of the same code.

Wall time, monotonic time, sleeping, randomness, new ids and crash points come from one object, handed in
by whoever composes the process. Nothing else asks the machine for them, so a test moves time by hand,
draws the same numbers twice, and stops a process between two writes.

What is due and what has expired is not decided here but by the database clock. Wall time is for ids and
for people, monotonic time for trust that ends early; sleeping only sets the rhythm.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeAlias
from uuid import UUID, uuid4  # noqa: TID251 - the one place that makes them

from mainspring.domain.errors import InvalidRequest

CRASH_AT: Final = "MAINSPRING_CRASH_AT"  # "fire.commit:3": kill this process the third time it gets there
TESTING: Final = "MAINSPRING_TESTING"  # without "1" here the above is ignored: no stray variable kills a server

Hook: TypeAlias = Callable[[str], Awaitable[None]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Environment(Protocol):
    """What a process may ask of the world around it, besides its database."""

    def now(self) -> datetime:
        """Return the wall time in UTC. It may step, also backwards."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Sleep at least this long; zero or less gives way once."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    def token(self) -> UUID:
        """Return an id that nobody can guess: a lease token."""

    def new_id(self) -> UUID:
        """Return a new id that sorts by the time it was made, to the millisecond."""

    def new_ids(self, number: int) -> list[UUID]:
        """Return many at once, at a third of the cost."""

    async def reach(self, point: str) -> None:
        """Pass a crash point: a name for this spot between two writes, such as ``fire.commit``."""


class SystemEnvironment:
    """The real thing. ``on_reach`` lets a test crash or hold code that runs in real time."""

    def __init__(self, *, variables: Mapping[str, str] = os.environ, on_reach: Hook | None = None) -> None:
        """Read ``MAINSPRING_CRASH_AT`` once, if ``MAINSPRING_TESTING=1``.

        Raises:
            InvalidRequest: it does not have the form ``point`` or ``point:times``.
        """
        crash_at = variables.get(CRASH_AT) if variables.get(TESTING) == "1" else None
        self._on_reach = _killing(crash_at) if crash_at else on_reach

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - the one place that reads the wall clock

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self) -> float:
        return secrets.randbits(53) / (1 << 53)  # from the system: a forked child draws its own numbers

    def token(self) -> UUID:
        return uuid4()

    def new_id(self) -> UUID:
        return uuid7(self.now(), secrets.randbits(74))

    def new_ids(self, number: int) -> list[UUID]:
        first, noise = uuid7(self.now(), 0).int, secrets.token_bytes(10 * number)
        chance = (int.from_bytes(noise[at : at + 10], "big") for at in range(0, 10 * number, 10))
        return [UUID(int=first | (bits & 0xFFF) << 64 | bits >> 18) for bits in chance]

    async def reach(self, point: str) -> None:
        if self._on_reach is not None:
            await self._on_reach(point)


def uuid7(at: datetime, randomness: int) -> UUID:
    """Return the UUIDv7 of RFC 9562: 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = (at - _EPOCH) // _MILLISECOND
    high, low = randomness >> 62 & 0xFFF, randomness & (1 << 62) - 1
    return UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)


def _killing(crash_at: str) -> Hook:
    point, _, times = crash_at.partition(":")
    if not point or not (times or "1").isdecimal() or int(times or "1") < 1:
        raise InvalidRequest("not a crash point", field=CRASH_AT, value=crash_at, allowed='write "fire.commit:3"')
    left = int(times or "1")

    async def reach(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # no cleanup, no flush: as the kernel or the cable would do it

    return reach
