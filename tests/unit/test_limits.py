"""Hostile and hopeless expressions: refused at once, with the field named."""

import pytest

from mainspring import Cron, Dialect, InvalidSchedule, Schedule
from tests.linear import in_linear_time

REFUSED = {
    "0 0 30 2 *": "day-of-month",
    "0 0 31 4,6,9,11 *": "day-of-month",
    "0 0 31W 2 *": "day-of-month",
    "0 0 L-30 2 *": "day-of-month",
    "0 0 */31 2 5#5": None,  # the 1st is never a fifth Friday
    "*/0 * * * *": "minute",
    "61 * * * *": "minute",
    "* 24 * * *": "hour",
    "* * 0 * *": "day-of-month",
    "* * * 13 *": "month",
    "* * * * 8": "day-of-week",
    "60 * * * * *": "second",
    "R * * * *": "minute",
    "5-1 * * * *": "minute",
    "1,,2 * * * *": "minute",
    "-5 * * * *": "minute",
    "1-2-3 * * * *": "minute",
    "1/2/3 * * * *": "minute",
    "** * * * *": "minute",
    "*5 * * * *": "minute",
    "5_0 * * * *": "minute",
    "+5 * * * *": "minute",
    "1e1 * * * *": "minute",
    "0x5 * * * *": "minute",
    "1.5 * * * *": "minute",
    "? * * * *": "minute",
    "0 0 * * L": "day-of-week",
    "0 0 * * 5#6": "day-of-week",
    "0 0 * * 5#0": "day-of-week",
    "0 0 L-31 * *": "day-of-month",
    "0 0 32W * *": "day-of-month",
    "0 0 W * *": "day-of-month",
    "H * * * *": "minute",
    "* * * *": "expression",
    "* * * * * * *": "expression",
    "": "expression",
    "   ": "expression",
    "@reboot": "expression",
    "@fortnightly": "expression",
    "* * * * *\n* * * * *": "expression",
    "\u0663 * * * *": "expression",
    "\uff15 * * * *": "expression",
    "* * * * \u00b2": "expression",
    "1" * 10_000: "expression",
    ",".join(["1"] * 5000) + " * * * *": "expression",
    "9" * 200 + " * * * *": "minute",
    "*" + "/1" * 100 + " * * * *": "minute",
    "0-" * 100 + "1 * * * *": "minute",
}


@pytest.mark.covers("F109")
@pytest.mark.parametrize(("text", "field"), REFUSED.items(), ids=[text[:30] for text in REFUSED])
def test_it_is_refused_with_its_field(text: str, field: str | None) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        Schedule(specs=(Cron(text),))

    assert field is None or refusal.value.field == field
    assert len(str(refusal.value)) < 400


@pytest.mark.covers("F109")
@pytest.mark.parametrize(
    ("text", "field"),
    {
        "0 0 12 * * *": "day-of-week",
        "0 0 12 ? * ?": "day-of-week",
        "0 0 12 * *": "expression",
        "0 0 12 30 2 ?": "day-of-month",
        "0 0 12 29 2 ? 2027": "day-of-month",
        "0 0 12 ? 2 1#5 2033-2059": "day-of-week",
        "0 0 12 1 1 ? 2100": "year",
        "0 0 12 1 1 ? 2030-2020": "year",
        "0 0 12 ? * 0": "day-of-week",
        "0 0/60 * * * ?": "minute",
        "@daily": "expression",
    }.items(),
)
def test_quartz_is_refused_with_its_field(text: str, field: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        Schedule(specs=(Cron(text, Dialect.QUARTZ),))

    assert refusal.value.field == field


@pytest.mark.covers("F109")
def test_refusing_takes_no_search() -> None:
    """To search for a day that never comes would be the days of four hundred years."""
    for text in REFUSED:
        with in_linear_time():
            for _ in range(100):
                with pytest.raises(InvalidSchedule):
                    Schedule(specs=(Cron(text),))
