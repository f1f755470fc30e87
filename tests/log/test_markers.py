"""Markers through the whole log: control batches, the last stable offset, fences and outcomes."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator_protocol.batch import Encoding, payload_of, verify_batch
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome, decode_marker_payload
from coordinator_runtime.store import Family
from partition_log import codec, index_rows
from partition_log.requests import DeleteTopics, TopicName
from tests.log.log_room import ABORT, COMMIT, CONTEXT, TOPIC, UNCOMMITTED, Batch, LogRoom, code, transactional

TX = transactional()


def test_a_marker_is_one_control_batch_that_says_what_it_ended(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 2))
    marker = room.marker(TX, COMMIT)
    room.write_marker(marker)
    header, encoded = room.read(is_raw=True).batches[1]
    verify_batch(encoded)
    assert (header.base_offset, header.is_control, header.is_transactional) == (2, True, True)
    assert (header.encoding, header.producer_id, header.producer_epoch) == (Encoding.CONTROL, 7, 0)
    payload = decode_marker_payload(payload_of(encoded))
    assert (payload.outcome, payload.txn_epoch, payload.next_epoch, payload.csn) == (COMMIT, 0, 1, marker.csn)


def test_a_repeated_marker_is_success_and_appends_nothing(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    marker = room.marker(TX, COMMIT)
    assert room.write_marker(marker) is None
    end = room.head().log_end_offset
    assert room.write_marker(marker) is None
    assert room.head().log_end_offset == end


def test_a_repeated_marker_is_recognised_after_a_crash(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    marker = room.marker(TX, COMMIT)
    room.write_marker(marker)
    room = room.crash()
    assert room.write_marker(marker) is None
    assert room.head().log_end_offset == 2


def test_a_late_marker_does_not_end_the_next_transaction_of_the_same_epoch(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    late = room.marker(TX, ABORT, next_epoch=0)
    room.write_marker(late)
    room.append(Batch(TX, 1))
    assert room.write_marker(late) is None
    assert room.head().open_transactions == 1


def test_an_older_coordinator_is_fenced_also_after_a_crash(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.write_marker(room.marker(TX, COMMIT, coordinator_epoch=5))
    for found in (room, room.crash()):
        refusal = found.write_marker(found.marker(TX.at(1), COMMIT, coordinator_epoch=4))
        assert code(refusal) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_for_a_producer_that_never_wrote_fences_it_and_leaves_no_outcome(room: LogRoom) -> None:
    room.append(Batch())
    assert room.write_marker(room.marker(TX.at(2), ABORT)) is None
    head = room.head()
    assert (head.log_end_offset, head.last_stable_offset, head.last_abort_offset) == (2, 2, -1)
    assert list(room.store.scan(Family.ABORTED, b"", b"\xff" * 8)) == []
    assert code(room.append(Batch(TX.at(0), 0))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(room.append(Batch(TX.at(3), 17))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert room.append(Batch(TX.at(3), 0)).error is None


def test_the_end_of_an_empty_transaction_does_not_move_the_bound_of_another_one(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.write_marker(room.marker(transactional(8), COMMIT))
    head = room.head()
    assert (head.log_end_offset, head.last_stable_offset, head.open_transactions) == (2, 0, 1)


def test_an_aborted_transaction_has_a_row_and_a_committed_one_has_none(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 3))
    room.end(TX, ABORT)
    room.append(Batch(TX.at(1), 0))
    room.end(TX.at(1), COMMIT)
    ordinal = room.ordinal()
    rows = room.store.scan(Family.ABORTED, codec.partition_key(ordinal), codec.partition_key(ordinal + 1))
    found = [index_rows.decode_aborted(key, value) for key, value in rows]
    assert [(offset, aborted.txn_epoch, aborted.first_offset, aborted.marker_offset) for offset, aborted in found] == [
        (3, 0, 0, 3)
    ]
    assert room.head().last_abort_offset == 3


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(room: LogRoom) -> None:
    producers = [transactional(number) for number in (1, 2, 3)]
    for producer in producers:
        room.append(Batch(producer, 0))
    bounds = []
    for number in (0, 2, 1):
        room.end(producers[number], COMMIT)
        bounds.append(room.head().last_stable_offset)
    assert bounds == [1, 1, 6]


def test_the_bound_moves_when_the_marker_is_durable_and_not_before(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.runtime.write(room.markers.partition_marker(room.ordinal(), room.marker(TX, COMMIT)), is_urgent=True)
    assert room.head().last_stable_offset == 0
    room.flush()
    assert room.head().last_stable_offset == 2


def test_a_marker_without_its_disk_leaves_the_transaction_open(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.runtime.write(room.markers.partition_marker(room.ordinal(), room.marker(TX, COMMIT)), is_urgent=True)
    room = room.crash()
    assert (room.head().last_stable_offset, room.head().open_transactions) == (0, 1)


def test_a_marker_for_a_partition_that_was_deleted_is_success(room: LogRoom) -> None:
    operation = room.markers.partition_marker(room.ordinal(), room.marker(TX, COMMIT))
    ordinal = room.ordinal()
    deleted = room.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    assert room.perform(operation) is None
    assert deleted.result()[0].error is None
    assert room.perform(room.markers.partition_marker(ordinal, room.marker(TX, COMMIT))) is None


def test_a_marker_for_an_ordinal_that_never_was_is_success(room: LogRoom) -> None:
    assert room.perform(room.markers.partition_marker(4_000_000, room.marker(TX, COMMIT))) is None


def test_markers_renew_the_age_of_a_producer(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    room.clock.advance(60_000)
    room.end(TX, COMMIT)
    entry = room.entry()
    assert entry is not None
    assert entry.last_append_ms == room.clock.wall_ms()


def test_a_commit_may_ask_whether_the_log_holds_its_last_sequence(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 3))
    assert room.perform(room.markers.check_last_sequence(room.ordinal(), 7, 0, 2)) is None
    missing = room.perform(room.markers.check_last_sequence(room.ordinal(), 7, 0, 3))
    assert code(missing) is ErrorCode.TRANSACTION_ABORTABLE
    deleted = room.perform(room.markers.check_last_sequence(4_000_000, 7, 0, 2))
    assert code(deleted) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_producer_may_move_to_another_transaction_at_the_highest_epoch(room: LogRoom) -> None:
    last = TX.at(32_766)
    room.append(Batch(last, 0))
    room.write_marker(replace(room.marker(last, Outcome.ABORT), next_epoch=32_767))
    entry = room.entry()
    assert entry is not None
    assert entry.epoch == 32_767
    assert room.read_all(UNCOMMITTED) == [0]
