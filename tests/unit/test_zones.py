"""Pieces of a zone against what zoneinfo and the zone files say."""

from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest

from checker import cron as checker
from mainspring import UnknownZone
from mainspring.domain.zones import DAY, Pass, zone, zone_names

ODD = ("America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Troll", "Africa/Casablanca", "Asia/Gaza")


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_every_change_since_1970_is_found() -> None:
    for key in ODD:
        expected = [int(change.at.timestamp()) for change in checker.transitions(key, 1970, 2199)]

        found = [change.at for year in range(1970, 2200) for change in zone(key).changes(year)]

        assert found == expected, key


@pytest.mark.long
def test_every_change_of_every_zone_is_found() -> None:
    for key in sorted(zone_names()):
        expected = [int(change.at.timestamp()) for change in checker.transitions(key, 1970, 2240)]

        assert [change.at for year in range(1970, 2241) for change in zone(key).changes(year)] == expected, key


def test_no_two_changes_are_as_near_as_the_sampling() -> None:
    for key in zone_names():
        changes = checker.transitions(key, 1970, 2100)
        distances = [(later.at - earlier.at).total_seconds() for earlier, later in pairwise(changes)]

        assert all(distance > 5 * DAY for distance in distances), key


@pytest.mark.parametrize("key", ODD)
def test_offsets_agree_with_zoneinfo_up_to_the_last_year(key: str) -> None:
    draw = Random(key)
    for _ in range(300):
        instant = draw.randrange(0, seconds("9999-12-01"))
        expected = datetime.fromtimestamp(instant, checker.zone_info(key)).utcoffset()

        assert expected is not None
        assert zone(key).piece_at(instant).offset == expected.total_seconds()


def test_pieces_cover_the_line_without_a_seam() -> None:
    lord_howe = zone("Australia/Lord_Howe")
    at = seconds("2026-01-01")
    while at < seconds("2029-01-01"):
        piece = lord_howe.piece_at(at)
        assert piece.start <= at < piece.end
        assert lord_howe.piece_at(piece.end - 1) == piece
        at = piece.end


def test_a_clock_going_back_shows_two_passes_and_going_forward_leaves_a_gap() -> None:
    new_york = zone("America/New_York")

    first, second = new_york.piece_at(seconds("2027-11-07T05:00")), new_york.piece_at(seconds("2027-11-07T06:00"))
    after_gap = new_york.piece_at(seconds("2027-03-14T07:00"))

    assert (first.shown, second.shown) == (Pass.FIRST, Pass.SECOND)
    assert (first.end, second.start) == (seconds("2027-11-07T06:00"),) * 2
    assert (after_gap.gap, after_gap.shift, after_gap.correction) == (3600, -5 * 3600, False)
    assert zone("Pacific/Apia").piece_at(seconds("2011-12-30T10:00")).correction


@pytest.mark.parametrize(
    ("asked", "hint"), [("Europe/Pariss", "Europe/Paris"), ("tokyo", "Asia/Tokyo"), ("new york", "America/New_York")]
)
def test_an_unknown_zone_is_refused_with_a_hint(asked: str, hint: str) -> None:
    with pytest.raises(UnknownZone, match=hint):
        zone(asked)
