"""Limits: per tenant, shared by all processes over a real Redis, and never a reason for a 500."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis as Client

from mainspring.api.limits import (
    AGAIN_IN,
    MemoryLimiter,
    RedisLimiter,
    limit_headers,
    payer,
    redis_limiter,
    refusal,
)
from mainspring.domain.access import Principal, Role
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.gcra import ITEM, Bucket, Rate, Verdict, take
from mainspring.environment import SystemEnvironment
from mainspring.telemetry.events import AnyEvent, Events, ServiceInterrupted, ServiceStarted
from mainspring.testing.clock import ManualEnvironment
from tests.redis import Redis, running_redis

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.covers("F105")]

SLOW = Rate(per_second=1, burst=10)
PATIENCE = timedelta(seconds=30)  # a busy machine is no Redis that is away


def principal(tenant: str = "shop", *, subject: str = "ci", cluster: bool = False) -> Principal:
    return Principal(subject=subject, tenant=tenant, role=Role.EDITOR, cluster=cluster)


@pytest_asyncio.fixture(loop_scope="session")
async def client(redis_server: Redis) -> AsyncIterator[Client]:
    async with Client.from_url(redis_server.url, protocol=2) as opened:
        await opened.flushdb()
        yield opened


async def opened(stack: AsyncExitStack, server: Redis, *watch: list[AnyEvent]) -> RedisLimiter:
    events = Events(*(each.append for each in watch))
    limiter = redis_limiter(server.url, environment=SystemEnvironment(), events=events, answer_within=PATIENCE)
    return await stack.enter_async_context(limiter)


async def test_whoever_asks_for_a_tenant_asks_from_one_budget() -> None:
    limiter, rate = MemoryLimiter(ManualEnvironment()), Rate(per_second=1, burst=6)

    by_keys = [await limiter.take(payer(principal(subject=f"key-{number}")), rate, 1) for number in range(8)]
    other = await limiter.take(payer(principal("other")), rate, 1)

    assert [each.allowed for each in by_keys] == [True] * 6 + [False] * 2
    assert other.allowed


async def test_a_batch_costs_as_many_as_it_has_items() -> None:
    limiter, rate = MemoryLimiter(ManualEnvironment()), Rate(per_second=1, burst=10)

    answers = [await limiter.take(payer(principal()), rate, 4) for _ in range(3)]

    assert [(each.allowed, each.remaining) for each in answers] == [(True, 6), (True, 2), (False, 2)]


async def test_the_cluster_cannot_change_its_budget_by_the_tenant_it_names() -> None:
    operator = principal("default", subject="ops", cluster=True)

    assert payer(operator) == payer(operator.acting_for("a")) == payer(operator.acting_for("b")) == "cluster/ops"
    assert payer(principal("ops")) == "tenant/ops"


async def test_a_budget_comes_back_with_time() -> None:
    environment = ManualEnvironment()
    limiter, rate = MemoryLimiter(environment), Rate(per_second=2, burst=4)
    await limiter.take("a", rate, 4)

    refused = await limiter.take("a", rate, 1)
    await environment.advance(refused.retry_after)
    answer = await limiter.take("a", rate, 1)

    assert (refused.allowed, refused.retry_after, answer.allowed) == (False, timedelta(milliseconds=500), True)


async def test_buckets_in_memory_are_bounded_and_those_in_debt_are_kept() -> None:
    environment = ManualEnvironment()
    limiter, rate = MemoryLimiter(environment, most=100), Rate(per_second=1, burst=10)
    await limiter.take("in debt", rate, 10)

    for number in range(1000):
        await limiter.take(f"tenant/{number}", rate, 1)
        assert len(limiter) <= 100

    assert not (await limiter.take("in debt", rate, 1)).allowed
    await environment.advance(timedelta(seconds=10))
    await limiter.take("in debt", rate, 0)
    for number in range(200):
        await limiter.take(f"later/{number}", rate, 1)
    assert len(limiter) <= 100


async def test_two_processes_share_one_budget(redis_server: Redis, client: Client) -> None:
    del client
    async with AsyncExitStack() as stack:
        one, two = await opened(stack, redis_server), await opened(stack, redis_server)

        answers = await asyncio.gather(*(each.take("shared", SLOW, 1) for each in [one, two] * 40))

    assert sum(each.allowed for each in answers) == SLOW.burst
    assert sorted(each.remaining for each in answers if each.allowed) == list(range(SLOW.burst))
    assert {each.remaining for each in answers if not each.allowed} == {0}


async def test_redis_does_the_same_sum(redis_server: Redis, client: Client) -> None:
    """One bucket there, the same one here by the instant it was written; the verdicts are equal."""
    script = (Path(__file__).parents[2] / "src/mainspring/api/take.lua").read_text()
    del redis_server
    rates = [Rate(1, 10), Rate(3, 7), Rate(999_983, 5000), Rate(100_000_000, 100_000_000), Rate(1000, 2000)]
    for rate in rates:
        for cost in (0, 1, rate.burst, 1, rate.burst * 2 if rate.burst < 10_000 else 1, 3, 1):
            before = await client.get("same")
            bucket = Bucket(*map(int, before.split())) if before else None

            allowed, owed, too_much = await client.eval(script, 1, "same", rate.per_second, rate.burst, cost)

            after = await client.get("same")
            if allowed and cost:
                assert after is not None
                at = int(after.split()[0])
                mirrored, verdict = take(bucket, rate, cost, now=at)
                assert (verdict.allowed, mirrored.owed) == (True, owed)
                assert int(after.split()[1]) == owed
                assert await client.pttl("same") * 1000 >= verdict.reset_after // timedelta(microseconds=1)
            else:
                assert after == before
                assert bool(allowed) == (cost == 0)
                assert cost == 0 or too_much > 0
        await client.delete("same")


async def test_a_bucket_goes_away_when_nothing_is_owed(redis_server: Redis, client: Client) -> None:
    async with AsyncExitStack() as stack:
        limiter = await opened(stack, redis_server)
        await limiter.take("gone", Rate(per_second=1, burst=10), 3)

    (name,) = await client.keys("*")
    assert name == b"mainspring:limit:gone"
    assert 3000 < await client.pttl(name) <= 4000


async def test_what_somebody_else_wrote_there_is_an_empty_bucket(redis_server: Redis, client: Client) -> None:
    await client.set("mainspring:limit:odd", "nonsense")
    seen: list[AnyEvent] = []
    async with AsyncExitStack() as stack:
        limiter = await opened(stack, redis_server, seen)

        answer = await limiter.take("odd", SLOW, 1)

    assert (answer.allowed, answer.remaining, seen) == (True, 9, [])


async def test_while_redis_is_away_each_process_counts_for_itself(tmp_path: Path) -> None:
    seen: list[AnyEvent] = []
    environment = ManualEnvironment()
    with running_redis(tmp_path) as server:
        events = Events(seen.append)
        async with redis_limiter(server.url, environment=environment, events=events, answer_within=PATIENCE) as limiter:
            shared = [await limiter.take("a", SLOW, 1) for _ in range(3)]

            server.stop()
            alone = await asyncio.gather(*(limiter.take("a", SLOW, 1) for _ in range(30)))
            told = list(seen)
            await environment.advance(AGAIN_IN)
            still_away = await limiter.take("a", SLOW, 1)

            server.start()
            before_it_looks = await limiter.take("b", SLOW, 10)
            await environment.advance(AGAIN_IN)
            back = await limiter.take("b", SLOW, 1)

    assert [each.remaining for each in shared] == [9, 8, 7]
    assert sum(each.allowed for each in alone) == SLOW.burst  # limited all the same
    assert [type(event) for event in told] == [ServiceInterrupted]  # once, though thirty were waiting
    assert still_away.limit == SLOW.burst
    assert before_it_looks.allowed
    assert (back.allowed, back.remaining) == (True, 9)  # Redis knows nothing of those ten
    assert [type(event) for event in seen] == [ServiceInterrupted, ServiceStarted]
    assert not any(str(server.port) in str(event) for event in seen)


async def test_one_that_hangs_is_not_waited_for() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # takes everything, answers nothing
        writer.close()

    silent = await asyncio.start_server(never, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    seen: list[AnyEvent] = []
    async with (
        silent,
        redis_limiter(f"redis://127.0.0.1:{port}/0", environment=SystemEnvironment(), events=Events(seen.append)) as it,
    ):
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*(it.take("a", SLOW, 1) for _ in range(20)))

    assert sum(each.allowed for each in answers) == SLOW.burst
    assert len(seen) == 1


async def test_a_caller_that_gives_up_does_not_mix_up_the_answers(redis_server: Redis, client: Client) -> None:
    """Each name has its own limit, so an answer to another's question would show."""
    del client
    rates = {f"name-{number}": Rate(per_second=1, burst=100 + number) for number in range(40)}
    async with AsyncExitStack() as stack:
        limiter = await opened(stack, redis_server)
        await limiter.take("warm", SLOW, 1)

        for _ in range(5):
            going = [asyncio.create_task(limiter.take(name, rate, 1)) for name, rate in rates.items()]
            await asyncio.sleep(0)
            for task in going[::2]:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)

        answers = {name: await limiter.take(name, rate, 0) for name, rate in rates.items()}

    # All five were counted, also for those who did not wait: the call had been made.
    assert {name: rates[name].burst - answer.remaining for name, answer in answers.items()} == dict.fromkeys(rates, 5)


async def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)

    with pytest.raises(InvalidRequest, match=r"install mainspring\[redis\]"):
        async with redis_limiter("redis://127.0.0.1:1/0", environment=SystemEnvironment(), events=Events()):
            pytest.fail("it was opened")


def verdict(*, allowed: bool, retry: float = 0, reset: float = 0) -> Verdict:
    return Verdict(allowed, Rate(per_second=10, burst=20), int(reset * 10 * ITEM), int(retry * 10 * ITEM))


async def test_headers() -> None:
    assert limit_headers(verdict(allowed=True, reset=1.2)) == {
        "RateLimit-Limit": "20",
        "RateLimit-Remaining": "8",
        "RateLimit-Reset": "2",
    }
    assert limit_headers(verdict(allowed=False, retry=0.001))["Retry-After"] == "1"
    assert limit_headers(verdict(allowed=False, retry=2.5))["Retry-After"] == "3"


async def test_the_refusal_says_when_to_come_back() -> None:
    error = refusal(verdict(allowed=False, retry=2.5))

    assert str(error) == "too many requests: up to 20 at once; try again in 3 s"
    assert error.retry_after == timedelta(seconds=2.5)
