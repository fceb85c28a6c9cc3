"""Hypothesis strategies for cron expressions that both the engine and the checker accept."""

from hypothesis import strategies as st

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def spans(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    step = st.integers(1, high - low + 1)
    return st.one_of(
        st.just("*"),
        value.map(str),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, step).map(lambda drawn: f"{drawn[0][0]}-{drawn[0][1]}/{drawn[1]}"),
        step.map(lambda every: f"*/{every}"),
        st.tuples(value, step).map(lambda drawn: f"{drawn[0]}/{drawn[1]}"),
    )


def fields(low: int, high: int, *more: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(spans(low, high), *more), min_size=1, max_size=3).map(",".join)


def wrapping(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    name = st.sampled_from(names)
    return st.one_of(name, st.tuples(name, name).map("-".join))


SECONDS = fields(0, 59)
MINUTES = fields(0, 59)
HOURS = fields(0, 23)
MONTH_FIELDS = fields(1, 12, wrapping(MONTHS))
DAYS = fields(
    1,
    31,
    st.just("L"),
    st.just("LW"),
    st.integers(0, 30).map(lambda before: f"L-{before}"),
    st.integers(1, 31).map(lambda day: f"{day}W"),
)
UNIX_WEEKDAYS = fields(
    0,
    7,
    wrapping(WEEKDAYS),
    st.integers(0, 7).map(lambda day: f"{day}L"),
    st.tuples(st.integers(0, 7), st.integers(1, 5)).map(lambda drawn: f"{drawn[0]}#{drawn[1]}"),
)
QUARTZ_WEEKDAYS = fields(
    1,
    7,
    wrapping(WEEKDAYS),
    st.integers(1, 7).map(lambda day: f"{day}L"),
    st.tuples(st.integers(1, 7), st.integers(1, 5)).map(lambda drawn: f"{drawn[0]}#{drawn[1]}"),
)


def unix_days() -> st.SearchStrategy[str]:
    """Expressions at midnight: only the day fields vary."""
    return st.tuples(DAYS, MONTH_FIELDS, UNIX_WEEKDAYS).map(lambda drawn: "0 0 " + " ".join(drawn))


def quartz_days() -> st.SearchStrategy[str]:
    by_day = st.tuples(DAYS, MONTH_FIELDS).map(lambda drawn: f"0 0 0 {drawn[0]} {drawn[1]} ?")
    by_weekday = st.tuples(MONTH_FIELDS, st.one_of(QUARTZ_WEEKDAYS, st.just("L"))).map(
        lambda drawn: f"0 0 0 ? {drawn[0]} {drawn[1]}"
    )
    return st.one_of(by_day, by_weekday)


def clock_times() -> st.SearchStrategy[str]:
    """Expressions for every day: only the time of day varies."""
    return st.tuples(SECONDS, MINUTES, HOURS).map(lambda drawn: " ".join(drawn) + " * * *")


def expressions() -> st.SearchStrategy[str]:
    return st.tuples(SECONDS, MINUTES, HOURS, DAYS, MONTH_FIELDS, UNIX_WEEKDAYS).map(" ".join)
