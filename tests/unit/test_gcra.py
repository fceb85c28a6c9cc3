"""The leaky bucket, against one that is filled by hand with fractions."""

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.gcra import MOST, Bucket, Rate, take

SECOND = 1_000_000
RATES = st.builds(
    Rate, st.integers(1, 50) | st.sampled_from([3, 7, 1000, 999_983, MOST]), st.integers(1, 40) | st.just(MOST)
)


class TokenBucket:
    """The other way to say it: tokens drip in one by one, and a request takes some out. Slow, exact, and obvious."""

    def __init__(self, rate: Rate) -> None:
        self.rate, self.tokens, self.at = rate, Fraction(rate.burst), 0

    def take(self, cost: int, now: int) -> bool:
        self.tokens = min(
            Fraction(self.rate.burst), self.tokens + Fraction((now - self.at) * self.rate.per_second, SECOND)
        )
        self.at = now
        if self.tokens < min(cost, self.rate.burst):
            return False
        self.tokens -= cost
        return True


@st.composite
def requests(draw: st.DrawFn) -> tuple[Rate, list[tuple[int, int]]]:
    rate = draw(RATES)
    # Steps around what one item takes, where mistakes of one microsecond would show.
    one = -(-SECOND // rate.per_second)
    step = st.integers(0, 3 * one) | st.sampled_from([0, 1, one - 1, one, one + 1, 60 * SECOND])
    cost = st.integers(1, rate.burst) | st.sampled_from([1, rate.burst]) | st.integers(1, min(MOST, rate.burst * 3))
    return rate, draw(st.lists(st.tuples(step, cost), max_size=60))


@given(requests())
def test_it_decides_as_a_token_bucket_does(drawn: tuple[Rate, list[tuple[int, int]]]) -> None:
    rate, steps = drawn
    bucket, oracle, now = None, TokenBucket(rate), 0

    for step, cost in steps:
        now += step
        bucket, verdict = take(bucket, rate, cost, now=now)

        assert verdict.allowed == oracle.take(cost, now)
        assert verdict.remaining == max(0, oracle.tokens // 1)
        assert bucket.owed < 1 << 53  # so that Lua comes to the same


@given(requests())
def test_what_it_says_about_later_is_true_to_the_microsecond(drawn: tuple[Rate, list[tuple[int, int]]]) -> None:
    rate, steps = drawn
    bucket, now = None, 0

    for step, cost in steps:
        now += step
        bucket, verdict = take(bucket, rate, cost, now=now)
        retry, reset = (each // timedelta(microseconds=1) for each in (verdict.retry_after, verdict.reset_after))

        assert (retry == 0) == verdict.allowed
        if not verdict.allowed:
            assert take(bucket, rate, cost, now=now + retry)[1].allowed
            assert not take(bucket, rate, cost, now=now + retry - 1)[1].allowed
        assert take(bucket, rate, 0, now=now + reset)[1].remaining == rate.burst
        assert reset == 0 or take(bucket, rate, 0, now=now + reset - 1)[0].owed > 0


@given(requests())
def test_never_more_than_the_burst_and_the_rate_over_any_stretch(drawn: tuple[Rate, list[tuple[int, int]]]) -> None:
    rate, steps = drawn
    bucket, now, passed = None, 0, list[tuple[int, int]]()
    for step, cost in steps:
        now += step
        bucket, verdict = take(bucket, rate, min(cost, rate.burst), now=now)
        if verdict.allowed:
            passed.append((now, min(cost, rate.burst)))

    for first, (began, _) in enumerate(passed):
        taken = 0
        for at, cost in passed[first:]:
            taken += cost
            assert taken <= rate.burst + Fraction((at - began) * rate.per_second, SECOND)


def test_a_batch_larger_than_the_burst_waits_for_an_empty_bucket_and_owes_all_of_it() -> None:
    rate = Rate(per_second=10, burst=20)

    bucket, first = take(None, rate, 100, now=0)
    _, soon = take(bucket, rate, 1, now=8 * SECOND - 1)
    bucket, paid = take(bucket, rate, 1, now=8 * SECOND + SECOND // 10)
    _, again = take(bucket, rate, 100, now=9 * SECOND)

    assert (first.allowed, first.remaining, first.reset_after) == (True, 0, timedelta(seconds=10))
    assert not soon.allowed
    assert paid.allowed
    assert not again.allowed


def test_a_refusal_costs_nothing() -> None:
    rate = Rate(per_second=1, burst=1)
    bucket, _ = take(None, rate, 1, now=0)

    for _ in range(1000):
        bucket, verdict = take(bucket, rate, 1, now=SECOND - 1)
        assert not verdict.allowed

    assert take(bucket, rate, 1, now=SECOND)[1].allowed


def test_a_clock_that_goes_back_pays_nothing_twice() -> None:
    rate = Rate(per_second=1, burst=2)
    bucket, _ = take(None, rate, 2, now=10 * SECOND)

    bucket, back = take(bucket, rate, 1, now=0)
    bucket, same = take(bucket, rate, 1, now=10 * SECOND)
    bucket, later = take(bucket, rate, 1, now=11 * SECOND)

    assert [back.allowed, same.allowed, later.allowed] == [False, False, True]
    assert bucket == Bucket(at=11 * SECOND, owed=2 * SECOND)


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    rate = Rate(per_second=1, burst=2)
    bucket, _ = take(None, rate, 1, now=10 * SECOND)

    bucket, back = take(bucket, rate, 1, now=0)

    assert (back.allowed, bucket) == (True, Bucket(at=10 * SECOND, owed=2 * SECOND))


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (1, 0), (-1, 1), (MOST + 1, 1), (1, MOST + 1)])
def test_what_is_no_rate(per_second: int, burst: int) -> None:
    with pytest.raises(InvalidRequest, match="is no rate"):
        Rate(per_second, burst)


@pytest.mark.parametrize("cost", [-1, MOST + 1])
def test_what_is_no_cost(cost: int) -> None:
    with pytest.raises(InvalidRequest, match="is no cost"):
        take(None, Rate(1, 1), cost, now=0)
