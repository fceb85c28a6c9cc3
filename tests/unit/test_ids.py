"""A run's identity: the same for everyone, for ever."""

from datetime import UTC, datetime, timedelta, timezone
from inspect import signature
from uuid import UUID

import pytest

from mainspring.domain.ids import SHARDS, JobId, Kind, run_id, scheduled_run_id, shard_of, slot_text

JOB = JobId(UUID("018f3c2e-1111-7000-8000-000000000001"))
SLOT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)


@pytest.mark.covers("D06", "F123")
def test_the_same_slot_has_the_same_id_in_any_zone_and_at_any_time() -> None:
    there = SLOT.astimezone(timezone(timedelta(hours=5, minutes=45)))

    assert scheduled_run_id(JOB, SLOT) == scheduled_run_id(JOB, there)
    assert str(scheduled_run_id(JOB, SLOT)) == "01a1de8a-c9c0-83a4-aa47-a4057fdafa43"  # written down: may never change


@pytest.mark.covers("D19", "F39")
def test_slots_kinds_and_jobs_have_ids_of_their_own() -> None:
    other = JobId(UUID(int=9))
    ids = {
        scheduled_run_id(JOB, SLOT),
        scheduled_run_id(JOB, SLOT + timedelta(seconds=1)),
        scheduled_run_id(other, SLOT),
        run_id(JOB, Kind.BACKFILL, slot_text(SLOT), at=SLOT),
        run_id(JOB, Kind.MANUAL, "key-1", at=SLOT),
        run_id(JOB, Kind.MANUAL, "key-2", at=SLOT),
    }

    assert len(ids) == 6


def test_ids_are_version_8_and_sort_by_slot() -> None:
    ids = [scheduled_run_id(JOB, SLOT + timedelta(seconds=second)) for second in range(100)]

    assert ids == sorted(ids)
    assert {identity.version for identity in ids} == {8}


def test_jobs_spread_over_the_shards() -> None:
    shards = {shard_of(JobId(UUID(int=number))) for number in range(20_000)}

    assert shards == set(range(SHARDS))


@pytest.mark.covers("D15")
@pytest.mark.parametrize(
    ("job", "shard"),
    [
        ("00000000-0000-0000-0000-000000000000", 132),
        ("01890a5d-ac96-774b-bcce-b302099a8057", 169),
        ("12345678-1234-5678-1234-567812345678", 695),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", 349),
    ],
)
def test_a_job_stays_in_its_shard_for_ever(job: str, shard: int) -> None:
    assert shard_of(JobId(UUID(job))) == shard  # written down: may never change
    assert SHARDS == 1024


@pytest.mark.covers("D15")
def test_a_shard_that_counts_nodes_would_move_nearly_every_job_when_one_joins() -> None:
    jobs = [JobId(UUID(int=number)) for number in range(10_000)]
    naive = sum(hash(job) % 4 != hash(job) % 5 for job in jobs)

    assert naive > 0.7 * len(jobs)
    assert list(signature(shard_of).parameters) == ["job"]  # ours knows of nothing but the job
