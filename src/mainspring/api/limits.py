"""Limits: how much a tenant may ask of us, counted in this process or by all processes in Redis.

Promise. Requests are counted against the tenant that the key or token names, and against nothing a client can vary: no
address, no header, no spelling of a path. A batch is one request; how large it may be
is a quota of its own.

Failures.
  Redis away      each process counts for itself, from an empty bucket: up to one burst more per process, never a 500.
                  One request in a few seconds tries Redis again
  Redis slow      the same, after a quarter of a second
  Redis restarts  buckets are empty again: up to one burst more
  caller gone     the call to Redis is waited for all the same: a connection given back halfway through a call would
                  hand its answer to the next one
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files
from typing import Any, Final, Protocol, cast

from mainspring.domain.access import Principal
from mainspring.domain.errors import InvalidRequest, RateLimited
from mainspring.domain.gcra import Bucket, Rate, Verdict, leaked, take
from mainspring.environment import Environment
from mainspring.service import shielded
from mainspring.telemetry.events import Events, ServiceInterrupted, ServiceStarted

MOST_BUCKETS: Final = 100_000
ANSWER_WITHIN: Final = timedelta(milliseconds=250)
AGAIN_IN: Final = timedelta(seconds=5)
_CONNECTIONS: Final = 16
_SECOND: Final = timedelta(seconds=1)
_PREFIX: Final = "mainspring:limit:"
_SCRIPT: Final = files("mainspring.api").joinpath("take.lua").read_text("utf-8")


class Limiter(Protocol):
    async def take(self, name: str, rate: Rate, cost: int) -> Verdict:
        """Ask for ``cost`` items in the name of whoever pays for them."""


def payer(principal: Principal) -> str:
    """Return whose budget a request is charged to: the tenant's, however many keys and tokens it has.

    One of the whole cluster chooses its tenant by a header; so it has a budget of its own.
    """
    return f"cluster/{principal.subject}" if principal.cluster else f"tenant/{principal.tenant}"


def refusal(answer: Verdict) -> RateLimited:
    seconds = _seconds(answer.retry_after)
    return RateLimited(
        f"too many requests: up to {answer.limit} at once; try again in {seconds} s", retry_after=answer.retry_after
    )


def limit_headers(answer: Verdict) -> dict[str, str]:
    """Return what every answer tells about the limit, and a refusal besides. Seconds are whole, and never too few."""
    headers = {
        "RateLimit-Limit": str(answer.limit),
        "RateLimit-Remaining": str(answer.remaining),
        "RateLimit-Reset": str(_seconds(answer.reset_after)),
    }
    return headers if answer.allowed else headers | {"Retry-After": str(max(1, _seconds(answer.retry_after)))}


class MemoryLimiter:
    """Buckets of this process. Beyond ``most`` it forgets those that are empty, then those that owe least."""

    def __init__(self, environment: Environment, *, most: int = MOST_BUCKETS) -> None:
        self._environment = environment
        self._most = most
        self._buckets: dict[str, tuple[Bucket, Rate]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    async def take(self, name: str, rate: Rate, cost: int) -> Verdict:
        now = int(self._environment.monotonic() * 1_000_000)
        bucket, _ = self._buckets.get(name, (None, rate))
        after, answer = take(bucket, rate, cost, now=now)
        if after.owed > 0:
            if name not in self._buckets and len(self._buckets) >= self._most:
                self._forget(now)
            self._buckets[name] = (after, rate)
        else:
            self._buckets.pop(name, None)
        return answer

    def _forget(self, now: int) -> None:
        left = {name: (leaked(bucket, rate, now=now), rate) for name, (bucket, rate) in self._buckets.items()}
        owing = sorted(((bucket.owed / rate.burst, name) for name, (bucket, rate) in left.items() if bucket.owed > 0))
        # A tenth at a time, or each new name would go through all of them.
        kept = owing[max(0, len(owing) - self._most * 9 // 10) :]
        self._buckets = {name: left[name] for _, name in kept}


class RedisLimiter:
    """Buckets that all processes share, one call each, by the clock of the Redis."""

    def __init__(
        self, call: Callable[..., Awaitable[object]], *, fallback: Limiter, environment: Environment, events: Events
    ) -> None:
        self._call = call  # the script, as redis-py registers it
        self._fallback = fallback
        self._environment = environment
        self._events = events
        self._away = False
        self._again_at = 0.0

    async def take(self, name: str, rate: Rate, cost: int) -> Verdict:
        if self._away:
            now = self._environment.monotonic()
            if now < self._again_at:
                return await self._fallback.take(name, rate, cost)
            self._again_at = now + AGAIN_IN.total_seconds()  # the others go on without, until this one knows
        try:
            answer = await shielded(self._asked(name, rate, cost))
        except _unreachable() as error:
            self._lost(error)
            return await self._fallback.take(name, rate, cost)
        if self._away:
            self._away = False
            self._events.emit(ServiceStarted(service="RedisLimiter"))
        return answer

    async def _asked(self, name: str, rate: Rate, cost: int) -> Verdict:
        answered = await self._call(keys=[_PREFIX + name], args=[rate.per_second, rate.burst, cost])
        allowed, owed, too_much = cast("list[int]", answered)
        return Verdict(bool(allowed), rate, owed, too_much)

    def _lost(self, error: Exception) -> None:
        told, self._away = self._away, True
        self._again_at = self._environment.monotonic() + AGAIN_IN.total_seconds()
        if not told:  # once per outage, though many were waiting
            described = f"{type(error).__name__}: limits are counted by each process alone"  # it may name the address
            self._events.emit(ServiceInterrupted(service="RedisLimiter", error=described, again_in=AGAIN_IN))


@asynccontextmanager
async def redis_limiter(
    url: str, *, environment: Environment, events: Events, answer_within: timedelta = ANSWER_WITHIN
) -> AsyncIterator[RedisLimiter]:
    """Open a limiter over the Redis at ``url``. It need not be there yet, nor all the time.

    Raises:
        InvalidRequest: the package that speaks to it is not installed.
    """
    try:
        from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - optional
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
    except ImportError as error:
        allowed = "install mainspring[redis], or leave redis.url out"
        raise InvalidRequest("redis is not installed", field="redis.url", value="***", allowed=allowed) from error

    within = answer_within.total_seconds()
    pool = BlockingConnectionPool.from_url(
        url,
        protocol=2,
        max_connections=_CONNECTIONS,
        timeout=within,
        socket_timeout=within,
        socket_connect_timeout=within,
        retry=Retry(NoBackoff(), 0),  # a call whose answer was lost may have been counted; the next one is another
    )
    client: Any = Redis.from_pool(pool)
    try:
        fallback = MemoryLimiter(environment)
        yield RedisLimiter(client.register_script(_SCRIPT), fallback=fallback, environment=environment, events=events)
    finally:
        await client.aclose()


def _unreachable() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError  # noqa: PLC0415 - optional

    return (RedisError, OSError, TimeoutError)


def _seconds(length: timedelta) -> int:
    return -(-length // _SECOND)
