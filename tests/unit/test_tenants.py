"""Tenants: what they can be called, and how much they may have."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidRequest
from mainspring.domain.tenants import Quotas, check_tenant, quotas_from_json, quotas_to_json


@pytest.mark.parametrize("name", ["a", "0", "team-a", "a.b_c-d", "x" * 63])
def test_names(name: str) -> None:
    assert check_tenant(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 64, "A", "-a", ".a", "_a", "a b", "a/b", "a\n", "ä", "a'b", "a%", "\u0661", None, 7, b"a"]
)
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(InvalidRequest, match="is no name for a tenant; use 1 to 63 of a-z") as refused:
        check_tenant(name, field="name")

    assert (refused.value.field, refused.value.value) == ("name", name)


NUMBERS = [field.name for field in fields(Quotas) if field.name != "shortest_interval"]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{name: st.integers(1, 100_000_000) for name in NUMBERS},
            "shortest_interval": st.integers(1, 10**9).map(lambda ms: timedelta(milliseconds=ms)),
        },
    )
)
def test_quotas_are_read_as_they_were_written(given_quotas: dict[str, Any]) -> None:
    quotas = Quotas(**given_quotas)

    assert quotas_from_json(quotas_to_json(quotas)) == quotas


def test_only_what_differs_is_written() -> None:
    assert quotas_to_json(Quotas()) == {}
    assert quotas_to_json(Quotas(jobs=5)) == {"jobs": 5}
    assert quotas_from_json({}) == Quotas()


def test_what_is_not_named_is_as_before() -> None:
    before = Quotas(jobs=5, batch=7)

    assert quotas_from_json({"batch": 9}, base=before) == Quotas(jobs=5, batch=9)


@pytest.mark.parametrize(
    ("document", "field", "because"),
    [
        ({"jobs": -1}, "quotas.jobs", "use a whole number from 0 to"),
        ({"jobs": "5"}, "quotas.jobs", "use a whole number from 0 to"),
        ({"jobs": True}, "quotas.jobs", "use a whole number from 0 to"),
        ({"jobs": 1.5}, "quotas.jobs", "use a whole number from 0 to"),
        ({"jobs": None}, "quotas.jobs", "use a whole number from 0 to"),
        ({"jobs": 10**30}, "quotas.jobs", "use a whole number from 0 to"),
        ({"burst": 0}, "quotas.burst", "use a whole number from 1 to"),
        ({"batch": 0}, "quotas.batch", "use a whole number from 1 to"),
        ({"requests_per_second": 0}, "quotas.requests_per_second", "use a whole number from 1 to"),
        ({"shortest_interval": "often"}, "quotas.shortest_interval", "is not a duration"),
        ({"shortest_interval": 5}, "quotas.shortest_interval", "use a length of time"),
        ({"shortest_interval": "0s"}, "quotas.shortest_interval", "no length of time"),
        ({"runs": 5}, "quotas", 'there is no quota "runs"; use jobs, shortest_interval'),
        ([], "quotas", 'use an object such as {"jobs": 100}'),
        ("jobs", "quotas", "use an object"),
    ],
)
def test_what_is_no_quota(document: object, field: str, because: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        quotas_from_json(document)

    assert refused.value.field == field
    assert because in str(refused.value)


@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1), 5, None])
def test_no_interval_is_empty(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="use a length of time"):
        Quotas(shortest_interval=value)


def test_zero_jobs_make_sense() -> None:
    assert Quotas(jobs=0, payload_bytes=0).jobs == 0
