"""Facts from public suites, kept as data of our own in tests/vectors/, with every deliberate difference explained."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mainspring import Dialect, Dst, DstGap, DstOverlap, InvalidRequest, Schedule, parse_spec

VECTORS = Path(__file__).parents[1] / "vectors"
DIFFERS = ("theirs", "theirs_previous", "theirs_refused", "theirs_accepted")
LAST = datetime(9999, 12, 31, tzinfo=UTC)

Case = dict[str, Any]


def cases(*, refused: bool) -> list[Any]:
    found = []
    for path in sorted(VECTORS.glob("*.json")):
        for case in json.loads(path.read_text())["cases"]:
            if case.get("refused", False) is refused:
                label = f"{path.stem}: {case['expression'][:60]} {case.get('tz', '')} {case.get('from', '')}"
                found.append(pytest.param(case, id=label))
    return found


def schedule_of(case: Case) -> Schedule:
    dst = Dst(gap=DstGap(case.get("gap", "debian")), overlap=DstOverlap(case.get("overlap", "debian")))
    spec = parse_spec(case["expression"], Dialect(case["dialect"]))
    return Schedule(specs=(spec,), timezone=case.get("tz", "UTC"), dst=dst, key=case.get("key"))


def instants(texts: list[str]) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


@pytest.mark.parametrize("case", cases(refused=True))
def test_what_others_or_we_refuse_is_refused_with_the_field_named(case: Case) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        schedule_of(case)

    assert refusal.value.field


@pytest.mark.parametrize("case", cases(refused=False))
def test_slots_are_as_the_suite_or_our_stated_difference_says(case: Case) -> None:
    schedule = schedule_of(case)
    since = datetime.fromisoformat(case["from"])

    if "next" in case:
        expected = instants(case["next"])
        found: list[datetime] = []
        slot = schedule.next_after(since)
        while slot is not None and len(found) < len(expected):
            found.append(slot)
            slot = schedule.next_after(slot)
        assert found == expected
        assert not case.get("ends") or slot is None
    if "previous" in case:
        slot = since
        for expected_slot in instants(case["previous"]):
            slot = schedule.previous_before(slot)
            assert slot == expected_slot
    if "count" in case:
        low, high = case["count"]
        until = datetime.fromisoformat(case["until"])
        assert low <= schedule.count(since, until) <= high
    assert case.keys() & {"next", "previous", "count"}


def test_every_difference_says_why() -> None:
    for path in VECTORS.glob("*.json"):
        for case in json.loads(path.read_text())["cases"]:
            assert bool(case.keys() & set(DIFFERS)) == ("why" in case), case
