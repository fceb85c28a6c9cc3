"""Tenants: whose jobs they are, whether they may work, and how much of everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from mainspring.domain import gcra
from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidRequest
from mainspring.domain.job import Json

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_HIGHEST: Final = 1_000_000_000


class TenantState(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"  # may look, and change nothing; its jobs go on
    DELETED = "deleted"  # has no jobs, and no key of it is good any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """How much a tenant may have and ask for.

    >>> Quotas(jobs=100).batch
    10000
    """

    jobs: int = 1_000_000  # at most, deleted ones not counted
    shortest_interval: timedelta = timedelta(seconds=1)  # between two slots of a job
    requests_per_second: int = 1000
    burst: int = 2000  # requests at once, after a quiet while
    batch: int = 10_000  # jobs or runs in one request
    payload_bytes: int = 256_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "shortest_interval":
                if not isinstance(value, timedelta) or value <= timedelta(0):
                    raise _refused(field.name, value, "use a length of time, such as 30s")
                continue
            least, most = _LEAST.get(field.name, 1), _MOST.get(field.name, _HIGHEST)
            if type(value) is not int or not least <= value <= most:
                raise _refused(field.name, value, f"use a whole number from {least} to {most}")


_LEAST: Final = {"jobs": 0, "payload_bytes": 0}  # none at all makes sense for these
_MOST: Final = {"requests_per_second": gcra.MOST, "burst": gcra.MOST}  # what a limiter can count


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    name: str
    state: TenantState
    quotas: Quotas
    created_at: datetime
    changed_at: datetime
    note: str


def check_tenant(name: object, *, field: str = "tenant") -> str:
    """Return the name if a new tenant can have it. Tenants that were there before may be called otherwise.

    Raises:
        InvalidRequest: it cannot.

    >>> check_tenant("team-a.eu")
    'team-a.eu'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        allowed = "use 1 to 63 of a-z, 0-9, dot, dash and underscore, a letter or digit first"
        raise InvalidRequest(f"{str(name)[:40]!r} is no name for a tenant", field=field, value=name, allowed=allowed)
    return name


def quotas_to_json(quotas: Quotas) -> dict[str, Json]:
    """Write the quotas that differ from the defaults, so that a tenant without its own follows those.

    >>> quotas_to_json(Quotas(burst=10, shortest_interval=timedelta(minutes=1)))
    {'shortest_interval': '1m', 'burst': 10}
    """
    usual = Quotas()
    changed = {field.name: getattr(quotas, field.name) for field in fields(quotas)}
    return {
        name: format_duration(value) if isinstance(value, timedelta) else value
        for name, value in changed.items()
        if value != getattr(usual, name)
    }


def quotas_from_json(document: object, *, base: Quotas | None = None) -> Quotas:
    """Read quotas; what is not named is as in ``base``, or the default.

    Raises:
        InvalidRequest: a quota is unknown, or has no value that it can have.

    >>> quotas_from_json({"shortest_interval": "1m"}).shortest_interval
    datetime.timedelta(seconds=60)
    """
    if not isinstance(document, Mapping):
        raise _refused("", document, 'use an object such as {"jobs": 100}')
    base = base or Quotas()
    known = {field.name: getattr(base, field.name) for field in fields(Quotas)}
    read: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            raise InvalidRequest(
                f'there is no quota "{str(name)[:40]}"', field="quotas", value=name, allowed=f"use {', '.join(known)}"
            )
        if name == "shortest_interval" and isinstance(value, str):
            read[name] = parse_duration(value, field=f"quotas.{name}")
        else:
            read[name] = value
    return Quotas(**{**known, **read})


def _refused(name: str, value: object, allowed: str) -> InvalidRequest:
    field = f"quotas.{name}" if name else "quotas"
    return InvalidRequest(f"{str(value)[:40]!r} cannot be a quota", field=field, value=value, allowed=allowed)
