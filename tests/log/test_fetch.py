"""Reads: what is visible, what is hidden, and where to go on."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from coordinator_protocol.batch import payload_of
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.snapshots import SnapshotFilter
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import CommitGroup, Family
from partition_log import codec, reading
from partition_log.requests import Fetch, FetchItem
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    COMMITTED,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    code,
    offsets_of,
    transactional,
)

TX = transactional()


def test_a_fetch_returns_whole_batches_from_the_one_that_holds_the_offset(driven: DrivenLog) -> None:
    for _ in range(3):
        driven.append(Batch(count=10))
    result = driven.read(fetch_offset=14)
    assert [header.base_offset for header, _ in result.batches] == [10, 20]
    assert (result.next_offset, result.head) == (30, driven.head())


def test_the_payload_comes_back_as_it_was_sent(driven: DrivenLog) -> None:
    driven.append(Batch(payload=b"one"))
    driven.append(Batch(payload=b"two"))
    assert [bytes(payload_of(encoded)) for _, encoded in driven.read().batches] == [b"one", b"two"]


def test_an_empty_partition_is_read_to_its_end(driven: DrivenLog) -> None:
    result = driven.read()
    assert (result.next_offset, result.batches, result.error) == (0, (), None)


@pytest.mark.parametrize("offset", [-1, 4, 1_000])
def test_an_offset_outside_the_log_is_out_of_range_and_the_positions_say_what_is_inside(
    driven: DrivenLog, offset: int
) -> None:
    driven.append(Batch(count=3))
    result = driven.read(fetch_offset=offset)
    assert (code(result), result.next_offset, result.head) == (ErrorCode.OFFSET_OUT_OF_RANGE, offset, driven.head())


def test_the_end_of_the_log_is_in_range(driven: DrivenLog) -> None:
    driven.append(Batch(count=3))
    assert driven.read(fetch_offset=3).error is None


def test_an_offset_between_the_last_stable_one_and_the_end_is_in_range_and_empty(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 5))
    result = driven.read(fetch_offset=3)
    assert (result.error, result.next_offset, result.batches) == (None, 3, ())


def test_an_unknown_partition_is_refused_alone(driven: DrivenLog) -> None:
    driven.append(Batch())
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (5, 0))
    missing, found = driven.log.fetch(Fetch(items, wait_ms_max=1_000), CONTEXT).result()
    assert (code(missing), offsets_of(found)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [0])


# Isolation


def test_open_transactions_are_seen_by_uncommitted_readers_only(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.append(Batch(TX, 0, 2))
    driven.append(Batch())
    assert driven.read_all(COMMITTED) == [0]
    assert driven.read_all(UNCOMMITTED) == [0, 1, 2, 3]


def test_committed_records_are_seen_and_markers_are_not(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 2))
    driven.end(TX, COMMIT)
    driven.append(Batch())
    result = driven.read()
    assert (offsets_of(result), result.control_records_hidden, result.aborted_records_hidden) == ([0, 1, 3], 1, 0)


def test_aborted_records_are_hidden_and_counted(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 4))
    driven.append(Batch(count=2))
    driven.end(TX, ABORT)
    result = driven.read()
    assert (offsets_of(result), result.next_offset) == ([4, 5], 7)
    assert (result.aborted_records_hidden, result.control_records_hidden) == (4, 1)
    assert driven.read_all(UNCOMMITTED) == [0, 1, 2, 3, 4, 5]


def test_counts_are_of_records_at_or_after_the_offset(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 4))
    driven.end(TX, ABORT)
    assert driven.read(fetch_offset=3).aborted_records_hidden == 1
    assert driven.read(fetch_offset=1, end_offset=3).aborted_records_hidden == 2


def test_a_producer_that_aborts_and_commits_in_turn_shows_every_second_transaction(driven: DrivenLog) -> None:
    visible = []
    for epoch in range(6):
        producer = TX.at(epoch)
        base_offset = driven.append(Batch(producer, 0, 2)).base_offset
        driven.end(producer, COMMIT if epoch % 2 else ABORT)
        visible += [base_offset, base_offset + 1] if epoch % 2 else []
    assert driven.read_all() == visible
    assert driven.read_all(fetch_offset=7) == [offset for offset in visible if offset >= 7 or offset == 6]


def test_a_client_of_version_1_that_aborts_and_commits_at_one_epoch_is_told_apart(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT, next_epoch=0)
    driven.append(Batch(TX, 1))
    driven.end(TX, COMMIT, next_epoch=0)
    driven.append(Batch(TX, 2))
    driven.end(TX, ABORT, next_epoch=0)
    assert driven.read_all() == [2]


def test_overlapping_transactions_are_told_apart(driven: DrivenLog) -> None:
    one, two = transactional(1), transactional(2)
    for sequence in range(3):
        driven.append(Batch(one, sequence))
        driven.append(Batch(two, sequence))
    driven.end(one, ABORT)
    driven.end(two, COMMIT)
    assert driven.read_all() == [1, 3, 5]


def test_a_reader_behind_the_last_abort_is_not_told_of_it(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT)
    driven.append(Batch(TX.at(1), 0))
    driven.end(TX.at(1), COMMIT)
    assert driven.read_all(fetch_offset=2) == [2]


# Raw reads


def test_a_raw_read_shows_everything_up_to_its_bound_and_says_what_was_aborted(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 2))
    driven.append(Batch())
    driven.end(TX, ABORT)
    driven.append(Batch(transactional(8), 0))
    result = driven.read(is_raw=True)
    assert offsets_of(result) == [0, 1, 2, 3]
    assert [(ended.producer_id, ended.first_offset, ended.marker_offset) for ended in result.aborted] == [(7, 0, 3)]
    assert (result.aborted_records_hidden, result.control_records_hidden) == (0, 0)
    assert offsets_of(driven.read(is_raw=True, isolation=UNCOMMITTED)) == [0, 1, 2, 3, 4]


def test_a_raw_read_lists_a_transaction_only_when_its_marker_is_durable(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.runtime.write(driven.markers.partition_marker(driven.ordinal(), driven.marker(TX, ABORT)), is_urgent=True)
    driven.runtime.groups.seal()
    # The store has the row before the runtime learns that it is durable.
    driven.store.write(driven.driver.handed_over)
    assert driven.read(is_raw=True, isolation=UNCOMMITTED).aborted == ()


def test_a_raw_read_lists_only_transactions_of_its_range(driven: DrivenLog) -> None:
    for epoch in range(3):
        driven.append(Batch(TX.at(epoch), 0))
        driven.end(TX.at(epoch), ABORT)
    result = driven.read(is_raw=True, fetch_offset=2, end_offset=4)
    assert [ended.first_offset for ended in result.aborted] == [2]


def test_rows_that_are_written_and_not_durable_are_not_read(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.send(Batch())
    driven.runtime.groups.seal()
    driven.store.write(driven.driver.handed_over)
    assert offsets_of(driven.read()) == [0]


# Limits


def test_a_read_stops_at_its_limit_and_goes_on_from_there(driven: DrivenLog) -> None:
    for _ in range(10):
        driven.append(Batch(payload=b"x" * 1_000))
    result = driven.read(bytes_max=2_500)
    assert (offsets_of(result), result.next_offset) == ([0, 1], 2)
    assert driven.read_all(bytes_max=2_500) == list(range(10))


def test_the_first_batch_is_returned_even_if_it_is_too_large(driven: DrivenLog) -> None:
    driven.append(Batch(payload=b"x" * 1_000))
    driven.append(Batch(payload=b"x" * 1_000))
    assert offsets_of(driven.read(bytes_max=10)) == [0]


def test_the_limit_of_a_partition_leaves_room_for_the_others(driven: DrivenLog) -> None:
    for partition in (0, 1):
        for _ in range(5):
            driven.append(Batch(payload=b"x" * 1_000), partition=partition)
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0, partition_bytes_max=2_500) for partition in (0, 1))
    first, second = driven.fetch(Fetch(items)).result()
    assert (offsets_of(first), offsets_of(second)) == ([0, 1], [0, 1])


def test_the_limit_of_the_answer_is_shared_by_its_partitions(driven: DrivenLog) -> None:
    for partition in (0, 1):
        driven.append(Batch(payload=b"x" * 1_000), partition=partition)
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    first, second = driven.fetch(Fetch(items, bytes_max=1_500)).result()
    assert (offsets_of(first), offsets_of(second), second.next_offset) == ([0], [], 0)


def test_an_end_offset_stops_the_read_and_is_where_it_goes_on(driven: DrivenLog) -> None:
    for _ in range(4):
        driven.append(Batch(count=5))
    result = driven.read(end_offset=10)
    assert ([header.base_offset for header, _ in result.batches], result.next_offset) == ([0, 5], 10)
    inside = driven.read(end_offset=12)
    assert ([header.base_offset for header, _ in inside.batches], inside.next_offset) == ([0, 5, 10], 12)
    assert driven.read(fetch_offset=10, end_offset=10).next_offset == 10


def test_a_long_aborted_range_is_passed_in_bounded_steps(driven: DrivenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCHES_READ_MAX", 10)
    for sequence in range(40):
        driven.send(Batch(TX, sequence))
    driven.flush()
    driven.end(TX, ABORT)
    driven.append(Batch())
    result = driven.read(wait_ms_max=1_000)
    assert 0 < result.next_offset <= 10
    assert (result.batches, result.aborted_records_hidden) == ((), result.next_offset)
    assert driven.read_all() == [41]


def test_a_partition_that_the_work_did_not_reach_is_answered_where_it_was(
    driven: DrivenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCHES_READ_MAX", 8)
    for partition in (0, 1):
        for _ in range(6):
            driven.append(Batch(), partition=partition)
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    first, second = driven.fetch(Fetch(items, wait_ms_max=1_000)).result()
    assert (offsets_of(first), second.next_offset, second.error) == ([0, 1, 2, 3], 0, None)


# Damage


def overwrite(driven: DrivenLog, last_offset: int, stored: bytes) -> None:
    key = codec.log_key(driven.ordinal(), last_offset)
    driven.store.write([CommitGroup(driven.store.version() + 1, [(Family.LOG, key, stored)])])


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 70])
def test_a_stored_batch_that_was_cut_is_reported_and_not_shown(driven: DrivenLog, cut: int) -> None:
    driven.append(Batch())
    stored = driven.read().batches[0][1]
    overwrite(driven, 0, stored[:cut])
    result = driven.read()
    assert (code(result), result.batches) == (ErrorCode.CORRUPT_MESSAGE, ())


@pytest.mark.parametrize(("place", "what"), [(16, "magic"), (57, "record count"), (61, "encoding"), (62, "version")])
def test_a_damaged_header_is_reported(driven: DrivenLog, place: int, what: str) -> None:
    driven.append(Batch())
    stored = bytearray(driven.read().batches[0][1])
    struct.pack_into(">B", stored, place, 0x7F)
    overwrite(driven, 0, bytes(stored))
    assert code(driven.read()) is ErrorCode.CORRUPT_MESSAGE, what


def test_damage_in_one_partition_leaves_the_others_readable(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.append(Batch(), partition=1)
    overwrite(driven, 0, b"")
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    bad, good = driven.fetch(Fetch(items)).result()
    assert (code(bad), offsets_of(good)) == (ErrorCode.CORRUPT_MESSAGE, [0])


@pytest.mark.parametrize("left", [{"read_bytes": 1}, {"batches": reading.SEEK_COST_BATCHES + 1}])
def test_hidden_batches_cost_of_what_a_turn_may_read(driven: DrivenLog, left: dict[str, Any]) -> None:
    driven.append(Batch(count=2))
    for sequence in range(3):
        driven.append(Batch(transactional(), sequence))
    driven.end(transactional(), COMMIT)
    hides_all = SnapshotFilter(only={})
    read = reading.PartitionRead(
        driven.store,
        driven.ordinal(),
        fetch_offset=0,
        end_offset=None,
        bytes_max=1_000,
        visibility=(COMMITTED, False, hides_all),
    )
    read.advance(driven.head(), reading.ReadBudget(1_000, **left))
    assert (read.batches, read.next_offset, read.is_cut) == ([], 2, True)
