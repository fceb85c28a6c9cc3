"""Identities. A run's id follows from its job, kind and key alone: anyone can recompute it after any loss."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NewType
from uuid import UUID

JobId = NewType("JobId", UUID)
RunId = NewType("RunId", UUID)
NodeId = NewType("NodeId", UUID)
TenantId = NewType("TenantId", str)
ShardId = NewType("ShardId", int)

SHARDS: Final = 1024  # fixed for ever: nodes share them out, jobs never move between them


class Kind(StrEnum):
    """Why a run exists; with the key it makes the run's identity."""

    SCHEDULE = "schedule"  # key: the slot, in UTC
    BACKFILL = "backfill"  # key: the slot and the request
    MANUAL = "manual"  # key: the caller's idempotency key
    REPLAY = "replay"  # key: the dead run it repeats, and which time
    NODE = "node"  # key: <workflow run>:<node>


def run_id(job: JobId, kind: Kind, key: str, *, at: datetime) -> RunId:
    """Return the only id this fire can ever have.

    Two engines that both think the job is due, a message delivered twice, a database that lost its
    last second, an auditor a year later: all arrive at the same run. The slot's milliseconds come
    first, so that new keys land at the end of the index.
    """
    return _derived(job, f"{kind}/{key}", _high(at))


def scheduled_run_id(job: JobId, slot: datetime) -> RunId:
    return scheduled_run_ids((job,), slot)[0]


def scheduled_run_ids(jobs: Iterable[JobId], slot: datetime) -> list[RunId]:
    """Return the runs of one slot that many jobs share; what they have in common is worked out once."""
    name, high = f"{Kind.SCHEDULE}/{slot_text(slot)}", _high(slot)
    return [_derived(job, name, high) for job in jobs]


def slot_text(slot: datetime) -> str:
    """Write a slot in its one canonical form: UTC, to the millisecond."""
    return slot.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shard_of(job: JobId) -> ShardId:
    return ShardId(int.from_bytes(blake2b(job.bytes, digest_size=2).digest(), "big") % SHARDS)


def _derived(job: JobId, name: str, high: int) -> RunId:
    """RFC 9562 version 8: 48 bits of time, then 74 bits of a digest around version and variant."""
    bits = int.from_bytes(blake2b(f"{job}/{name}".encode(), digest_size=10).digest(), "big")
    return RunId(UUID(int=(high | bits >> 68) << 64 | _VARIANT | bits & _LOW))


def _high(at: datetime) -> int:
    since = at - _EPOCH
    milliseconds = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    return milliseconds << 16 | 8 << 12


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARIANT: Final = 0b10 << 62
_LOW: Final = (1 << 62) - 1
