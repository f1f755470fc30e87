"""Q. Share groups: the records of a share partition, below sessions and RPCs.

Acquired ranges and acknowledgements go to the shard of share partitions as the data plane sends them.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_api.storage.v1 import share_pb2
from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from group_coordinator.share_partitions.acquiring import Terms
from group_coordinator.share_partitions.codec import share_codec
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged
from group_coordinator.share_partitions.state import SharePartition, deliveries_of, restored, state_of
from tests.conformance.groups.cases import case
from tests.groups.share_partitions.pictures import fresh, picture, taken, told
from tests.harness.share_partitions import Shares, share_world

OK, NOT_HELD = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE
ACCEPT, RELEASE, GAP = 1, 2, 0


def shares(*lengths: int, start: int = 0, **terms: int) -> Shares:
    """A group that begins at an offset of a partition with batches of so many records."""
    found = Shares(share_world(), terms=Terms(**terms))
    found.produce(*lengths)
    found.begin(start)
    return found


@case(289)
def test_the_limit_of_records_rounds_up_to_the_batch() -> None:
    found = shares(5, 5)
    assert found.acquire("m1", 2) == [0, 1, 2, 3, 4]
    assert found.acquire("m1", 6) == [5, 6, 7, 8, 9]


@case(290)
def test_what_all_is_accepted_is_passed() -> None:
    found = shares(5, 10, 5, start=5)
    assert found.acquire("m1", 1) == [*range(5, 15)]
    assert found.acknowledge("m1", (5, 14, [ACCEPT])) is OK
    assert found.state.start_offset == 15
    assert found.acknowledge("m1", (5, 14, [ACCEPT])) is NOT_HELD
    found.world.crash()
    assert found.state.start_offset == 15


@case(291)
def test_gaps_are_archived_and_the_next_fetch_begins_at_the_first_available() -> None:
    found = shares(5, 5, 9, start=5)
    assert found.acquire("m1") == [*range(5, 19)]
    types = [RELEASE] * 5 + [GAP] * 3 + [ACCEPT]
    assert found.acknowledge("m1", (5, 9, [RELEASE]), (10, 18, types)) is OK
    assert picture(found.state) == "5: .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 x1 x1 x1 +1"
    assert found.acquire("m2") == [*range(5, 15)]


@case(293)
def test_another_member_may_not_acknowledge() -> None:
    found = shares(5, 5, start=5)
    assert found.acquire("m1") == [*range(5, 10)]
    assert found.acknowledge("m2", (5, 9, [ACCEPT])) is NOT_HELD
    assert found.acknowledge("m1", (5, 9, [ACCEPT])) is OK


@case(294)
def test_an_acknowledgement_is_all_or_nothing() -> None:
    found = shares(5, 5, 5, 5, start=5)
    found.acquire("m1", 10)
    found.acquire("m2", 5)
    before = found.state
    assert found.acknowledge("m1", (5, 9, [ACCEPT]), (10, 14, [ACCEPT]), (15, 19, [ACCEPT])) is NOT_HELD
    assert found.state == before
    assert found.acknowledge("m1", (5, 9, [ACCEPT]), (10, 14, [ACCEPT])) is OK
    assert found.acknowledge("m2", (15, 19, [ACCEPT])) is OK


@case(295)
def test_released_records_are_acquired_again_with_the_next_count() -> None:
    found = shares(10, 5, start=10)
    assert found.acquire("m1") == [*range(10, 15)]
    assert found.acknowledge("m1", (12, 13, [RELEASE])) is OK
    assert found.state.first_available(found.terms.in_flight_max) == 12
    assert found.acquire("m1") == [12, 13]
    assert picture(found.state) == "10: m11 m11 m12 m12 m11"


@case(297)
def test_records_at_the_limit_are_archived() -> None:
    by_release, by_time = shares(5, delivery_count_limit=2), shares(5, delivery_count_limit=2)
    for _delivery in range(2):
        assert by_release.acquire("m1") == by_time.acquire("m1") == [0, 1, 2, 3, 4]
        assert by_release.acknowledge("m1", (0, 4, [RELEASE])) is OK
        by_time.world.pass_time(by_time.terms.lock_duration_ms)
    assert picture(by_release.state) == picture(by_time.state) == "5:"


@case(298)
def test_the_start_offset_passes_no_open_record() -> None:
    found = shares(21)
    found.acquire("m1")
    assert found.acknowledge("m1", (10, 14, [ACCEPT])) is OK
    assert found.state.start_offset == 0


@case(299)
def test_the_start_offset_follows_the_log_start() -> None:
    found = shares(2, 5, 5, 5, 5, start=2)
    found.acquire("m1", 10)
    found.acquire("m2", 10)
    assert found.acknowledge("m1", (7, 11, [RELEASE])) is OK
    found.trim(20)
    found.move_log_start()
    assert found.state.start_offset == 20
    held = [f"{at}m11" for at in range(2, 7)] + [f"{at}m21" for at in range(12, 20)]
    assert picture(found.state) == " ".join([*held, "20: m21 m21"])
    found.end_member("m1")
    found.end_member("m2")
    assert picture(found.state) == "20: .1 .1"


@case(301, differs="design 10: a store that fails ends the process; the next start releases what was held")
def test_a_store_that_fails_releases_what_was_held() -> None:
    found = shares(5)
    found.acquire("m1")
    asked = found.acknowledging("m1", (0, 4, [ACCEPT]))
    found.world.fail_disk()
    with pytest.raises(UnknownOutcome):
        asked.result()
    assert picture(found.state) == "0:"
    assert found.acquire("m2") == [0, 1, 2, 3, 4]


@case(302)
def test_a_member_that_ends_releases_the_rest_at_once() -> None:
    found = shares(5, 10, start=5)
    found.acquire("m1")
    assert found.acknowledge("m1", (5, 6, [ACCEPT])) is OK
    found.end_member("m1")
    assert found.acquire("m2") == [*range(7, 15)]


outcomes = st.lists(st.tuples(st.integers(0, 19), st.sampled_from("1223")), min_size=1, max_size=40)


@case(305)
@given(outcomes)
@settings(deadline=None)
def test_rows_are_sorted_disjoint_and_joined_and_the_maximum_wins(outcomes: list[tuple[int, str]]) -> None:
    """A row replaces the one before it, so nothing is merged. What merging finds in Kafka is in the newest row."""
    partition = taken(fresh(), "m1", 5, 5, 5, 5)
    most = dict.fromkeys(range(20), (0, 0))
    for offset, kind in outcomes:
        with suppress(Refused):
            partition = told(partition, "m1", (offset, offset, kind))
        form = partition.durable_form
        assert read_back(partition) == restored(form), "what is read is what was written, cut at the start offset"
        for at, cell in enumerate(form.cells, form.start_offset):
            found = deliveries_of(cell), state_of(cell)
            most[at] = max(most[at], found)
            assert found == most[at]
        partition = taken(partition, "m1", 20, first_offset=0)


def read_back(partition: SharePartition) -> SharePartition:
    """Write a row and read it, and look at its runs on the way."""
    codec = share_codec()
    row = codec.encode(SharePartitionChanged(ShareKey("g", 7), partition, is_stored=True))
    assert row is not None
    assert row.value is not None
    stored = share_pb2.SharePartitionValue.FromString(row.value)
    assert all(stored.run_lengths), "no run is empty"
    assert sum(stored.run_lengths) == len(partition.durable_form.cells), "the runs follow each other"
    assert all(one != other for one, other in pairwise(stored.run_cells)), "equal neighbours are joined"
    read = codec.decode(row.record_type, row.key, row.value)
    assert isinstance(read, SharePartitionChanged)
    return read.partition


@case(306)
def test_a_restart_keeps_what_was_told_and_forgets_who_holds_what() -> None:
    found = shares(5, 5)
    found.acquire("m1")
    assert found.acknowledge("m1", (0, 9, [RELEASE])) is OK
    found.acquire("m1")
    assert found.acknowledge("m1", (2, 4, [ACCEPT]), (5, 6, [RELEASE])) is OK
    assert picture(found.state) == "0: m12 m12 +2 +2 +2 .2 .2 m12 m12 m12"
    found.world.crash()
    assert picture(found.state) == "0: .1 .1 +2 +2 +2 .2 .2 .1 .1 .1"
    assert found.acquire("m2") == [0, 1, *range(5, 10)]
    found.world.check_replay()
