"""Identities. A run's id follows from its job, kind and key alone: anyone can recompute it after any loss."""

from __future__ import annotations

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
    digest = blake2b(f"{job}/{kind}/{key}".encode(), digest_size=10).digest()
    return RunId(_uuid8(_milliseconds(at), digest))


def scheduled_run_id(job: JobId, slot: datetime) -> RunId:
    return run_id(job, Kind.SCHEDULE, slot_text(slot), at=slot)


def slot_text(slot: datetime) -> str:
    """Write a slot in its one canonical form: UTC, to the millisecond."""
    return slot.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shard_of(job: JobId) -> ShardId:
    return ShardId(int.from_bytes(blake2b(job.bytes, digest_size=2).digest(), "big") % SHARDS)


def _milliseconds(at: datetime) -> int:
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _uuid8(milliseconds: int, digest: bytes) -> UUID:
    """RFC 9562 version 8: 48 bits of time, then 74 bits of the digest around version and variant."""
    bits = int.from_bytes(digest, "big")
    high = milliseconds << 16 | 8 << 12 | bits >> 68
    return UUID(int=high << 64 | 0b10 << 62 | bits & (1 << 62) - 1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
