"""The audit's judgement: each kind of damage is found and named, and a true ledger has none."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import Cron, Every, Schedule
from mainspring.domain.ids import JobId, scheduled_run_id
from mainspring.domain.job import JobState
from mainspring.insight.audit import audit
from mainspring.insight.report import AuditReport, Fault
from mainspring.store.audit import Cursor, Decided, JobRecord, Version

JOB = JobId(UUID(int=7))
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
START = datetime(2026, 3, 2, 10, tzinfo=UTC)
END = START + 10 * MINUTE
EVERY_MINUTE = Schedule(specs=(Every(MINUTE),))
EVERY_SECOND = Schedule(specs=(Every(SECOND),))


def minute(number: float) -> datetime:
    return START + number * MINUTE


def fired(slot: datetime, *, late: timedelta = SECOND, **changes: Any) -> Decided:
    at = slot + late
    given = Decided(slot, slot, 1, "fired", 1, at, scheduled_run_id(JOB, slot), at + SECOND)
    return given._replace(**changes)


def skipped(first: datetime, slot: datetime | None = None, covers: int = 1, reason: str = "coalesced") -> Decided:
    slot = slot or first
    return Decided(first, slot, covers, reason, 1, slot + SECOND)


def version(number: int = 1, *, since: datetime = START - MINUTE, **changes: Any) -> Version:
    given = Version(number=number, state=JobState.ACTIVE, schedule=EVERY_MINUTE, effective_at=since)
    return replace(given, **changes)


def cursor(next_fire_at: datetime | None = END, **changes: Any) -> Cursor:
    last_slot = None if next_fire_at is None else next_fire_at - MINUTE
    return replace(Cursor(state=JobState.ACTIVE, next_fire_at=next_fire_at, last_slot=last_slot, fired=10), **changes)


def job(decisions: Iterable[Decided], *versions: Version, **changes: Any) -> JobRecord:
    in_order = sorted(decisions, key=lambda decided: (decided.first, decided.slot))
    given = JobRecord(id=JOB, name="report", tenant="default", versions=versions or (version(),), cursor=cursor())
    return replace(given, decisions=in_order, **changes)


def judged(*jobs: JobRecord, end: datetime = END, judged_at: datetime | None = None) -> AuditReport:
    return audit(jobs, start=START, end=end, judged_at=judged_at or end)


def found(report: AuditReport) -> list[tuple[Fault, datetime, int]]:
    return [(finding.fault, finding.slot, finding.count) for finding in report.findings]


ALL = [fired(minute(number)) for number in range(10)]


def without(number: int) -> list[Decided]:
    return ALL[:number] + ALL[number + 1 :]


def test_a_true_ledger_has_nothing_wrong() -> None:
    report = judged(job(ALL))

    assert (report.jobs, report.expected, report.fired, report.skipped) == (1, 10, 10, {})
    assert report.findings == ()
    assert report.exit_status == 0
    assert report.late.p50 == report.late.p99 == report.late.max == SECOND


def test_the_records_of_one_job_may_come_in_pieces() -> None:
    assert judged(job(ALL[:4]), job(ALL[4:])) == judged(job(ALL))


def test_a_removed_slot_is_missed() -> None:
    report = judged(job(without(4)))

    assert found(report) == [(Fault.MISSED, minute(4), 1)]
    assert (report.findings[0].name, report.findings[0].why) == ("report", "the cursor has passed it")
    assert (report.expected, report.fired) == (10, 9)
    assert report.exit_status == 1


def test_a_job_without_any_decision_misses_all_in_one_finding() -> None:
    report = judged(job([]))

    assert found(report) == [(Fault.MISSED, minute(0), 10)]
    assert report.findings[0].last == minute(9)


@pytest.mark.parametrize(
    "second",
    [
        skipped(minute(4), reason="skipped_misfire"),
        fired(minute(4)),
        fired(minute(4), run_id=UUID(int=1)),
        skipped(minute(4), covers=1, reason="skipped_overlap"),
    ],
)
def test_a_slot_answered_for_twice_is_doubled(second: Decided) -> None:
    report = judged(job([*ALL, second]))

    assert found(report) == [(Fault.DOUBLED, minute(4), 1)]


def test_a_stretch_over_a_fired_slot_is_doubled() -> None:
    report = judged(job([*ALL[:2], skipped(minute(2), minute(5), 4), *ALL[4:]]))

    assert found(report) == [(Fault.DOUBLED, minute(4), 1), (Fault.DOUBLED, minute(5), 1)]


def test_stretches_that_overlap_are_doubled_by_as_many_slots() -> None:
    report = judged(job([skipped(minute(0), minute(5), 6), skipped(minute(4), minute(9), 6)]))

    assert found(report) == [(Fault.DOUBLED, minute(4), 2)]
    assert report.findings[0].last == minute(5)


@pytest.mark.parametrize(
    ("decided", "why"),
    [
        (fired(minute(4.5)), "version 1 does not name it"),
        (skipped(minute(4.5)), "version 1 does not name it"),
    ],
)
def test_an_invented_instant_is_a_phantom(decided: Decided, why: str) -> None:
    report = judged(job([*ALL, decided]))

    assert found(report) == [(Fault.PHANTOM, minute(4.5), 1)]
    assert report.findings[0].why == why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"run_id": UUID(int=1)}, "another id"),
        ({"decided_at": minute(4) - SECOND}, "before its time"),
        ({"version": 2}, "decided under version 2, when version 1 was in force"),
    ],
)
def test_a_fire_that_is_not_as_it_must_be_is_a_phantom(changes: dict[str, Any], why: str) -> None:
    report = judged(job([*without(4), fired(minute(4), **changes)]))

    assert found(report) == [(Fault.PHANTOM, minute(4), 1)]
    assert why in report.findings[0].why


def test_a_moved_slot_is_a_phantom_and_leaves_a_missed_one() -> None:
    report = judged(job([*without(4), fired(minute(4))._replace(first=minute(4) + SECOND, slot=minute(4) + SECOND)]))

    assert found(report) == [(Fault.MISSED, minute(4), 1), (Fault.PHANTOM, minute(4) + SECOND, 1)]


def test_decisions_of_an_unknown_job_are_phantoms() -> None:
    report = judged(JobRecord(id=JOB, name="", tenant="", decisions=ALL[:2]))

    assert found(report) == [(Fault.PHANTOM, minute(0), 1), (Fault.PHANTOM, minute(1), 1)]
    assert report.findings[0].why == "there is no such job"


def test_lateness_is_reported_and_is_no_fault() -> None:
    report = judged(job([*without(4), fired(minute(4), late=timedelta(seconds=1234.5678))]))

    assert report.exit_status == 0
    assert (report.late.p50, report.late.p99) == (SECOND, timedelta(seconds=1230))
    assert report.late.max == timedelta(seconds=1234.5678)


@pytest.mark.parametrize(("covers", "expected"), [(4, []), (3, [(Fault.MISSED, 1)]), (6, [(Fault.PHANTOM, 2)])])
def test_a_stretch_answers_for_as_many_slots_as_there_are(covers: int, expected: list[tuple[Fault, int]]) -> None:
    report = judged(job([*ALL[:2], skipped(minute(2), minute(5), covers), *ALL[6:]]))

    assert [(finding.fault, finding.count) for finding in report.findings] == expected
    assert (report.expected, report.skipped) == (10, {"coalesced": covers})


def test_a_stretch_must_begin_and_end_with_a_slot() -> None:
    report = judged(job([*ALL[:2], skipped(minute(1.5), minute(5), 4), *ALL[6:]]))

    assert found(report) == [(Fault.PHANTOM, minute(1.5), 4)]


def test_a_stretch_across_the_edges_of_the_window_counts_for_what_is_inside() -> None:
    report = judged(job([skipped(minute(-1), minute(14), 16)], version(since=minute(-5))), judged_at=minute(15))

    assert report.findings == ()
    assert (report.expected, report.skipped) == (10, {"coalesced": 10})


def test_a_stretch_is_counted_without_listing_it() -> None:
    days = START + timedelta(days=10)
    stretch = skipped(START, days - SECOND, 864_000)
    given = job([stretch], version(schedule=EVERY_SECOND), cursor=cursor(days))

    report = judged(given, end=days)

    assert (report.expected, report.findings) == (864_000, ())


def test_slots_the_cursor_has_not_passed_are_pending() -> None:
    report = judged(job(ALL[:6], cursor=cursor(minute(6))))

    assert report.findings == ()
    assert (report.pending, report.oldest_pending, report.expected) == (4, minute(6), 10)
    assert report.exit_status == 0


def test_what_is_missed_and_what_is_pending_are_told_apart() -> None:
    report = judged(job(ALL[:4], cursor=cursor(minute(6))))

    assert found(report) == [(Fault.MISSED, minute(4), 2)]
    assert (report.findings[0].last, report.pending) == (minute(5), 4)


def test_slots_in_the_future_are_not_expected() -> None:
    report = judged(job(ALL[:6], cursor=cursor(minute(6))), judged_at=minute(5.5))

    assert (report.expected, report.pending, report.findings) == (6, 0, ())


def test_a_slot_decided_before_the_present_is_a_phantom() -> None:
    report = judged(job(ALL[:7], cursor=cursor(minute(6))), judged_at=minute(5.5))

    assert found(report) == [(Fault.PHANTOM, minute(6), 1)]


def test_slots_of_a_quarantined_job_are_quarantined_from_its_cursor_on() -> None:
    report = judged(job(without(2)[:5], cursor=cursor(minute(6), state=JobState.QUARANTINED)))

    assert found(report) == [(Fault.MISSED, minute(2), 1)]
    assert (report.quarantined, report.pending) == (4, 0)


def test_a_job_is_not_expected_to_fire_after_its_last_fire() -> None:
    schedule = replace(EVERY_MINUTE, max_fires=3)
    finished = Cursor(state=JobState.FINISHED, next_fire_at=None, last_slot=minute(2), fired=3)

    assert judged(job(ALL[:3], version(schedule=schedule), cursor=finished)).findings == ()
    assert judged(job(ALL[:3], version(schedule=schedule), cursor=finished)).expected == 3
    one_more = judged(job(ALL[:4], version(schedule=schedule), cursor=finished))
    assert found(one_more) == [(Fault.PHANTOM, minute(3), 1)]
    one_less = judged(job(ALL[:2], version(schedule=schedule), cursor=finished))
    assert found(one_less) == [(Fault.MISSED, minute(2), 1)]


def test_a_job_deleted_after_its_last_fire_has_missed_nothing() -> None:
    schedule = replace(EVERY_MINUTE, max_fires=3)
    deleted = Cursor(state=JobState.DELETED, next_fire_at=None, last_slot=minute(2), fired=3)
    versions = version(schedule=schedule), version(2, since=minute(7), state=JobState.DELETED)

    assert judged(job(ALL[:3], *versions, cursor=deleted)).findings == ()


def test_a_job_that_may_fire_again_has_missed_nothing_between() -> None:
    schedule = replace(EVERY_MINUTE, max_fires=3)
    more = version(2, since=minute(6.5), schedule=replace(EVERY_MINUTE, max_fires=6))
    finished = Cursor(state=JobState.FINISHED, next_fire_at=None, last_slot=minute(9), fired=6)
    decisions = [*ALL[:3], *(decided._replace(version=2) for decided in ALL[7:])]

    assert judged(job(decisions, version(schedule=schedule), more, cursor=finished)).findings == ()


def test_a_job_that_finished_early_has_missed_the_rest() -> None:
    finished = Cursor(state=JobState.FINISHED, next_fire_at=None, last_slot=minute(5), fired=6)

    assert found(judged(job(ALL[:6], cursor=finished))) == [(Fault.MISSED, minute(6), 4)]


def test_a_version_is_in_force_after_its_own_instant_up_to_that_of_the_next() -> None:
    half = Schedule(specs=(Every(timedelta(seconds=30)),))
    versions = version(since=minute(2)), version(2, since=minute(5), schedule=half)
    decisions = [*ALL[3:6], *(fired(minute(5 + number / 2), version=2) for number in range(1, 10))]
    decisions[2] = skipped(minute(5), reason="superseded")  # the edit came at this very instant, and said so

    report = judged(job(decisions, *versions))

    assert report.findings == ()
    assert (report.expected, report.fired, report.skipped) == (12, 11, {"superseded": 1})


def test_a_change_leaves_nothing_undecided_behind_it() -> None:
    versions = version(), version(2, since=minute(4.5), state=JobState.PAUSED)
    paused = cursor(None, state=JobState.PAUSED)

    assert judged(job(ALL[:5], *versions, cursor=paused)).expected == 5
    report = judged(job(ALL[:4], *versions, cursor=paused))
    assert found(report) == [(Fault.MISSED, minute(4), 1)]
    assert report.findings[0].why == "version 2 took effect, and did not say"


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.DELETED])
def test_a_fire_after_a_pause_or_delete_is_a_phantom(state: JobState) -> None:
    versions = version(), version(2, since=minute(4.5), state=state)
    changed = cursor(None, state=state)
    late = fired(minute(4), late=MINUTE)

    of_a_later_slot = judged(job(ALL[:6], *versions, cursor=changed))
    of_an_earlier_slot = judged(job([*ALL[:4], late], *versions, cursor=changed))

    assert found(of_a_later_slot) == [(Fault.PHANTOM, minute(5), 1)]
    assert of_a_later_slot.findings[0].why == f"version 2 was in force, which is {state}"
    assert found(of_an_earlier_slot) == [(Fault.PHANTOM, minute(4), 1)]
    assert f"after version 2 ({state}) took effect" in of_an_earlier_slot.findings[0].why


def test_a_slot_before_the_job_existed_is_a_phantom() -> None:
    report = judged(job(ALL, version(since=minute(1.5))))

    assert found(report) == [(Fault.PHANTOM, minute(0), 1), (Fault.PHANTOM, minute(1), 1)]
    assert report.findings[0].why == "no version was in force"


def test_a_skip_for_a_run_in_motion_is_explained_by_it() -> None:
    busy = fired(minute(3), settled_at=minute(6))
    skips = [skipped(minute(number), reason="skipped_overlap") for number in (4, 5)]

    assert judged(job([*ALL[:3], busy, *skips, *ALL[6:]])).findings == ()


def test_a_skip_for_no_run_is_unexplained() -> None:
    report = judged(job([*without(4), skipped(minute(4), reason="skipped_overlap")]))

    assert found(report) == [(Fault.UNEXPLAINED, minute(4), 1)]
    assert report.exit_status == 1


@pytest.mark.parametrize("settled_at", [None, minute(1)])
def test_a_run_from_before_the_window_or_by_hand_explains_a_skip(settled_at: datetime | None) -> None:
    given = job([skipped(minute(0), reason="skipped_overlap"), *ALL[1:]], other_runs=[(minute(-60), settled_at)])

    assert judged(given).findings == ()


def test_a_clock_that_goes_forward_moves_a_slot_and_one_that_goes_back_repeats_none() -> None:
    nightly = Schedule(specs=(Cron("30 2 * * *"),), timezone="Europe/Berlin")
    spring = [datetime(2026, 3, 28, 1, 30, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)]
    autumn = [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]
    for slots in (spring, autumn):
        start, end = slots[0] - MINUTE, slots[-1] + MINUTE
        given = job([fired(slot) for slot in slots], version(since=start, schedule=nightly), cursor=cursor(end))

        report = audit([given], start=start, end=end, judged_at=end)

        assert (report.expected, report.findings) == (2, ())


def test_the_second_showing_of_an_hour_is_a_phantom() -> None:
    nightly = Schedule(specs=(Cron("30 2 * * *"),), timezone="Europe/Berlin")
    slot = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    again = slot + 60 * MINUTE
    given = job([fired(slot), fired(again)], version(schedule=nightly), cursor=cursor(again + MINUTE))

    report = audit([given], start=slot - MINUTE, end=again + MINUTE, judged_at=again + MINUTE)

    assert found(report) == [(Fault.PHANTOM, again, 1)]


@pytest.mark.parametrize("schedule", [None, Schedule(specs=(Every(SECOND),), exclude=(Every(SECOND),))])
def test_a_schedule_that_cannot_be_recomputed_is_named_and_the_others_are_judged(schedule: Schedule | None) -> None:
    broken = replace(job(ALL, version(schedule=schedule)), id=JobId(UUID(int=6)), name="broken")

    report = judged(broken, job(without(4)))

    assert [(finding.fault, finding.name) for finding in report.findings] == [
        (Fault.UNREADABLE, "broken"),
        (Fault.MISSED, "report"),
    ]
    assert report.jobs == 2


def test_every_fault_is_counted_though_not_every_one_is_kept() -> None:
    end = minute(3000)
    odd = [fired(minute(number)) for number in range(1, 3000, 2)]

    report = judged(job(odd, cursor=cursor(end)), end=end)

    assert (report.faults[Fault.MISSED], len(report.findings)) == (1500, 1000)


def test_a_report_is_plain_json() -> None:
    document = json.loads(json.dumps(judged(job(without(4))).to_json()))

    assert (document["start"], document["expected"], document["missed"], document["doubled"]) == (
        "2026-03-02T10:00:00Z",
        10,
        1,
        0,
    )
    assert document["late"] == {"p50": 1.0, "p99": 1.0, "max": 1.0}
    (finding,) = document["findings"]
    assert (finding["fault"], finding["job"], finding["slot"]) == ("missed", str(JOB), "2026-03-02T10:04:00Z")
    assert document["exit_status"] == 1


def test_a_slot_is_explained_by_a_run_whose_end_was_stamped_and_not_yet_committed() -> None:
    decided_at = minute(0) + SECOND
    for stamped, unexplained in ((decided_at - SECOND, 0), (decided_at - 11 * SECOND, 1)):
        skip = skipped(minute(0), reason="skipped_overlap")._replace(decided_at=decided_at)

        report = judged(job([skip, *ALL[1:]], other_runs=[(minute(-60), stamped)]))

        assert report.faults[Fault.UNEXPLAINED] == unexplained
