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
from tests.log.log_room import (
    ABORT,
    COMMIT,
    COMMITTED,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    LogRoom,
    code,
    offsets_of,
    transactional,
)

TX = transactional()


def test_a_fetch_returns_whole_batches_from_the_one_that_holds_the_offset(room: LogRoom) -> None:
    for _ in range(3):
        room.append(Batch(count=10))
    result = room.read(fetch_offset=14)
    assert [header.base_offset for header, _ in result.batches] == [10, 20]
    assert (result.next_offset, result.head) == (30, room.head())


def test_the_payload_comes_back_as_it_was_sent(room: LogRoom) -> None:
    room.append(Batch(payload=b"one"))
    room.append(Batch(payload=b"two"))
    assert [bytes(payload_of(encoded)) for _, encoded in room.read().batches] == [b"one", b"two"]


def test_an_empty_partition_is_read_to_its_end(room: LogRoom) -> None:
    result = room.read()
    assert (result.next_offset, result.batches, result.error) == (0, (), None)


@pytest.mark.parametrize("offset", [-1, 4, 1_000])
def test_an_offset_outside_the_log_is_out_of_range_and_the_positions_say_what_is_inside(
    room: LogRoom, offset: int
) -> None:
    room.append(Batch(count=3))
    result = room.read(fetch_offset=offset)
    assert (code(result), result.next_offset, result.head) == (ErrorCode.OFFSET_OUT_OF_RANGE, offset, room.head())


def test_the_end_of_the_log_is_in_range(room: LogRoom) -> None:
    room.append(Batch(count=3))
    assert room.read(fetch_offset=3).error is None


def test_an_offset_between_the_last_stable_one_and_the_end_is_in_range_and_empty(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 5))
    result = room.read(fetch_offset=3)
    assert (result.error, result.next_offset, result.batches) == (None, 3, ())


def test_an_unknown_partition_is_refused_alone(room: LogRoom) -> None:
    room.append(Batch())
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (5, 0))
    missing, found = room.log.fetch(Fetch(items, wait_ms_max=1_000), CONTEXT).result()
    assert (code(missing), offsets_of(found)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [0])


# Isolation


def test_open_transactions_are_seen_by_uncommitted_readers_only(room: LogRoom) -> None:
    room.append(Batch())
    room.append(Batch(TX, 0, 2))
    room.append(Batch())
    assert room.read_all(COMMITTED) == [0]
    assert room.read_all(UNCOMMITTED) == [0, 1, 2, 3]


def test_committed_records_are_seen_and_markers_are_not(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 2))
    room.end(TX, COMMIT)
    room.append(Batch())
    result = room.read()
    assert (offsets_of(result), result.control_records_hidden, result.aborted_records_hidden) == ([0, 1, 3], 1, 0)


def test_aborted_records_are_hidden_and_counted(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 4))
    room.append(Batch(count=2))
    room.end(TX, ABORT)
    result = room.read()
    assert (offsets_of(result), result.next_offset) == ([4, 5], 7)
    assert (result.aborted_records_hidden, result.control_records_hidden) == (4, 1)
    assert room.read_all(UNCOMMITTED) == [0, 1, 2, 3, 4, 5]


def test_counts_are_of_records_at_or_after_the_offset(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 4))
    room.end(TX, ABORT)
    assert room.read(fetch_offset=3).aborted_records_hidden == 1
    assert room.read(fetch_offset=1, end_offset=3).aborted_records_hidden == 2


def test_a_producer_that_aborts_and_commits_in_turn_shows_every_second_transaction(room: LogRoom) -> None:
    visible = []
    for epoch in range(6):
        producer = TX.at(epoch)
        base_offset = room.append(Batch(producer, 0, 2)).base_offset
        room.end(producer, COMMIT if epoch % 2 else ABORT)
        visible += [base_offset, base_offset + 1] if epoch % 2 else []
    assert room.read_all() == visible
    assert room.read_all(fetch_offset=7) == [offset for offset in visible if offset >= 7 or offset == 6]


def test_a_client_of_version_1_that_aborts_and_commits_at_one_epoch_is_told_apart(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.end(TX, ABORT, next_epoch=0)
    room.append(Batch(TX, 1))
    room.end(TX, COMMIT, next_epoch=0)
    room.append(Batch(TX, 2))
    room.end(TX, ABORT, next_epoch=0)
    assert room.read_all() == [2]


def test_overlapping_transactions_are_told_apart(room: LogRoom) -> None:
    one, two = transactional(1), transactional(2)
    for sequence in range(3):
        room.append(Batch(one, sequence))
        room.append(Batch(two, sequence))
    room.end(one, ABORT)
    room.end(two, COMMIT)
    assert room.read_all() == [1, 3, 5]


def test_a_reader_behind_the_last_abort_is_not_told_of_it(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.end(TX, ABORT)
    room.append(Batch(TX.at(1), 0))
    room.end(TX.at(1), COMMIT)
    assert room.read_all(fetch_offset=2) == [2]


# Raw reads


def test_a_raw_read_shows_everything_up_to_its_bound_and_says_what_was_aborted(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 2))
    room.append(Batch())
    room.end(TX, ABORT)
    room.append(Batch(transactional(8), 0))
    result = room.read(is_raw=True)
    assert offsets_of(result) == [0, 1, 2, 3]
    assert [(ended.producer_id, ended.first_offset, ended.marker_offset) for ended in result.aborted] == [(7, 0, 3)]
    assert (result.aborted_records_hidden, result.control_records_hidden) == (0, 0)
    assert offsets_of(room.read(is_raw=True, isolation=UNCOMMITTED)) == [0, 1, 2, 3, 4]


def test_a_raw_read_lists_a_transaction_only_when_its_marker_is_durable(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.runtime.write(room.markers.partition_marker(room.ordinal(), room.marker(TX, ABORT)), is_urgent=True)
    room.runtime.groups.seal()
    # The store has the row before the runtime is told that it is durable.
    room.store.write(room.driver.handed_over)
    assert room.read(is_raw=True, isolation=UNCOMMITTED).aborted == ()


def test_a_raw_read_lists_only_transactions_of_its_range(room: LogRoom) -> None:
    for epoch in range(3):
        room.append(Batch(TX.at(epoch), 0))
        room.end(TX.at(epoch), ABORT)
    result = room.read(is_raw=True, fetch_offset=2, end_offset=4)
    assert [ended.first_offset for ended in result.aborted] == [2]


def test_rows_that_are_written_and_not_durable_are_not_read(room: LogRoom) -> None:
    room.append(Batch())
    room.send(Batch())
    room.runtime.groups.seal()
    room.store.write(room.driver.handed_over)
    assert offsets_of(room.read()) == [0]


# Limits


def test_a_read_stops_at_its_limit_and_goes_on_from_there(room: LogRoom) -> None:
    for _ in range(10):
        room.append(Batch(payload=b"x" * 1_000))
    result = room.read(bytes_max=2_500)
    assert (offsets_of(result), result.next_offset) == ([0, 1], 2)
    assert room.read_all(bytes_max=2_500) == list(range(10))


def test_the_first_batch_is_returned_even_if_it_is_too_large(room: LogRoom) -> None:
    room.append(Batch(payload=b"x" * 1_000))
    room.append(Batch(payload=b"x" * 1_000))
    assert offsets_of(room.read(bytes_max=10)) == [0]


def test_the_limit_of_a_partition_leaves_room_for_the_others(room: LogRoom) -> None:
    for partition in (0, 1):
        for _ in range(5):
            room.append(Batch(payload=b"x" * 1_000), partition=partition)
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0, partition_bytes_max=2_500) for partition in (0, 1))
    first, second = room.fetch(Fetch(items)).result()
    assert (offsets_of(first), offsets_of(second)) == ([0, 1], [0, 1])


def test_the_limit_of_the_answer_is_shared_by_its_partitions(room: LogRoom) -> None:
    for partition in (0, 1):
        room.append(Batch(payload=b"x" * 1_000), partition=partition)
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    first, second = room.fetch(Fetch(items, bytes_max=1_500)).result()
    assert (offsets_of(first), offsets_of(second), second.next_offset) == ([0], [], 0)


def test_an_end_offset_stops_the_read_and_is_where_it_goes_on(room: LogRoom) -> None:
    for _ in range(4):
        room.append(Batch(count=5))
    result = room.read(end_offset=10)
    assert ([header.base_offset for header, _ in result.batches], result.next_offset) == ([0, 5], 10)
    inside = room.read(end_offset=12)
    assert ([header.base_offset for header, _ in inside.batches], inside.next_offset) == ([0, 5, 10], 12)
    assert room.read(fetch_offset=10, end_offset=10).next_offset == 10


def test_a_long_aborted_range_is_passed_in_bounded_steps(room: LogRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCHES_READ_MAX", 10)
    for sequence in range(40):
        room.send(Batch(TX, sequence))
    room.flush()
    room.end(TX, ABORT)
    room.append(Batch())
    result = room.read(wait_ms_max=1_000)
    assert 0 < result.next_offset <= 10
    assert (result.batches, result.aborted_records_hidden) == ((), result.next_offset)
    assert room.read_all() == [41]


def test_a_partition_that_the_work_did_not_reach_is_answered_where_it_was(
    room: LogRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCHES_READ_MAX", 8)
    for partition in (0, 1):
        for _ in range(6):
            room.append(Batch(), partition=partition)
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    first, second = room.fetch(Fetch(items, wait_ms_max=1_000)).result()
    assert (offsets_of(first), second.next_offset, second.error) == ([0, 1, 2, 3], 0, None)


# Damage


def overwrite(room: LogRoom, last_offset: int, stored: bytes) -> None:
    key = codec.log_key(room.ordinal(), last_offset)
    room.store.write([CommitGroup(room.store.version() + 1, [(Family.LOG, key, stored)])])


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 70])
def test_a_stored_batch_that_was_cut_is_reported_and_not_shown(room: LogRoom, cut: int) -> None:
    room.append(Batch())
    stored = room.read().batches[0][1]
    overwrite(room, 0, stored[:cut])
    result = room.read()
    assert (code(result), result.batches) == (ErrorCode.CORRUPT_MESSAGE, ())


@pytest.mark.parametrize(("place", "what"), [(16, "magic"), (57, "record count"), (61, "encoding"), (62, "version")])
def test_a_damaged_header_is_reported(room: LogRoom, place: int, what: str) -> None:
    room.append(Batch())
    stored = bytearray(room.read().batches[0][1])
    struct.pack_into(">B", stored, place, 0x7F)
    overwrite(room, 0, bytes(stored))
    assert code(room.read()) is ErrorCode.CORRUPT_MESSAGE, what


def test_damage_in_one_partition_leaves_the_others_readable(room: LogRoom) -> None:
    room.append(Batch())
    room.append(Batch(), partition=1)
    overwrite(room, 0, b"")
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    bad, good = room.fetch(Fetch(items)).result()
    assert (code(bad), offsets_of(good)) == (ErrorCode.CORRUPT_MESSAGE, [0])


@pytest.mark.parametrize("left", [{"read_bytes": 1}, {"batches": reading.SEEK_COST_BATCHES + 1}])
def test_hidden_batches_cost_of_what_a_turn_may_read(room: LogRoom, left: dict[str, Any]) -> None:
    room.append(Batch(count=2))
    for sequence in range(3):
        room.append(Batch(transactional(), sequence))
    room.end(transactional(), COMMIT)
    hides_all = SnapshotFilter(only={})
    read = reading.PartitionRead(
        room.store,
        room.ordinal(),
        fetch_offset=0,
        end_offset=None,
        bytes_max=1_000,
        visibility=(COMMITTED, False, hides_all),
    )
    read.advance(room.head(), reading.ReadBudget(1_000, **left))
    assert (read.batches, read.next_offset, read.is_cut) == ([], 2, True)
