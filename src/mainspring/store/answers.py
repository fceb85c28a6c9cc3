"""Answers to requests with an idempotency key: the same request again gets the same answer, and is not done again.

Promise. Of all requests with one key at most one has its effect.

By what. Its row, by tenant and key. Who began last holds it, and finishes it in the transaction of the effect; one that
was taken over meanwhile finds that out there, and its effect is undone with the rest. Where effect and answer are
written together, ``remember`` does all of it at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from mainspring.domain.errors import InProgress, KeyReused
from mainspring.store.database import Connection, columns
from mainspring.store.queries import queries

_SQL = queries("answers")
GIVEN_UP_AFTER: Final = timedelta(seconds=60)  # ten times what a transaction may take
_TRIES: Final = 3  # the row may be forgotten between two looks at it


@dataclass(frozen=True, slots=True)
class Begun:
    """A request that is ours to do."""

    tenant: str
    key: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said to a request."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Remembered(NamedTuple):
    """A request and its answer, for :func:`remember`. A tuple, because there may be very many."""

    tenant: str
    key: str
    fingerprint: bytes
    status: int
    answer: bytes
    headers: Mapping[str, str] = MappingProxyType({})


async def begin(tx: Connection, tenant: str, key: str, fingerprint: bytes) -> Begun | Answer:
    """Take a key for a request, or return the answer that was given to it before.

    Commit it before the work begins, if others shall be told rather than wait.

    Raises:
        KeyReused: the key came with another request.
        InProgress: somebody began it less than a minute ago, and has no answer yet.
    """
    for _ in range(_TRIES):
        started_at = await tx.fetchval(_SQL["begin"], tenant, key, fingerprint, GIVEN_UP_AFTER)
        if started_at is not None:
            return Begun(tenant, key, started_at)
        answer = await find(tx, tenant, key, fingerprint)
        if answer is not None:
            return answer
    raise _in_progress(key)


async def find(tx: Connection, tenant: str, key: str, fingerprint: bytes) -> Answer | None:
    """Return the answer to a request; None: nobody asked.

    Raises:
        KeyReused: the key came with another request.
        InProgress: it has no answer yet.
    """
    row = await tx.fetchrow(_SQL["find"], tenant, key)
    if row is None:
        return None
    if row["fingerprint"] != fingerprint:
        allowed = "use a new key for a new request"
        reason = f'"{key[:40]}" came before, with another request'
        raise KeyReused(reason, field="Idempotency-Key", value=key, allowed=allowed)
    if row["status"] is None:
        raise _in_progress(key)
    return Answer(row["status"], row["answer"] or b"", json.loads(row["headers"]))


async def known(tx: Connection, tenant: str, keys: Sequence[str]) -> set[str]:
    """Return those of the keys that came before, answered or not."""
    return {row["key"] for row in await tx.fetch(_SQL["known"], tenant, list(keys))}


async def finish(tx: Connection, begun: Begun, answer: Answer) -> None:
    """Keep the answer, in the transaction of the effect.

    Raises:
        InProgress: it took so long that another has taken it over; let the transaction fail.
    """
    written = (answer.status, answer.body, json.dumps(dict(answer.headers)))
    if await tx.fetchval(_SQL["finish"], begun.tenant, begun.key, begun.started_at, *written) is None:
        raise _in_progress(begun.key)


async def forget(tx: Connection, begun: Begun) -> None:
    """Give a key back, of a request that had no effect: the next one with it begins anew, and at once."""
    await tx.execute(_SQL["forget"], begun.tenant, begun.key, begun.started_at)


async def remember(tx: Connection, answers: Sequence[Remembered]) -> set[tuple[str, str]]:
    """Take keys and keep their answers, in the transaction of the effect; return those that were there already.

    Each key once. Those that were there must not have their effect again: :func:`find` says what was answered.
    """
    rows = [(*one[:5], json.dumps(dict(one.headers))) for one in answers]
    new = await tx.fetch(_SQL["remember"], *columns(rows, 6))
    return {(one.tenant, one.key) for one in answers} - {(row["tenant"], row["key"]) for row in new}


def _in_progress(key: str) -> InProgress:
    return InProgress(f'the request with the key "{key[:40]}" is being worked on; ask again in a moment')
