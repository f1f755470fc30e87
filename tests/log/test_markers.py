"""Markers through the whole log: control batches, the last stable offset, fences and outcomes."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator_protocol.batch import Encoding, payload_of, verify_batch
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome, decode_marker_payload
from coordinator_runtime.store import Family
from partition_log import codec, index_rows
from partition_log.requests import DeleteTopics, TopicName
from tests.log.driven_log import ABORT, COMMIT, CONTEXT, TOPIC, UNCOMMITTED, Batch, DrivenLog, code, transactional

TX = transactional()


def test_a_marker_is_one_control_batch_that_says_what_it_ended(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 2))
    marker = driven.marker(TX, COMMIT)
    driven.write_marker(marker)
    header, encoded = driven.read(is_raw=True).batches[1]
    verify_batch(encoded)
    assert (header.base_offset, header.is_control, header.is_transactional) == (2, True, True)
    assert (header.encoding, header.producer_id, header.producer_epoch) == (Encoding.CONTROL, 7, 0)
    payload = decode_marker_payload(payload_of(encoded))
    assert (payload.outcome, payload.txn_epoch, payload.next_epoch, payload.csn) == (COMMIT, 0, 1, marker.csn)


def test_a_repeated_marker_is_success_and_appends_nothing(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    marker = driven.marker(TX, COMMIT)
    assert driven.write_marker(marker) is None
    end = driven.head().log_end_offset
    assert driven.write_marker(marker) is None
    assert driven.head().log_end_offset == end


def test_a_repeated_marker_is_recognised_after_a_crash(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    marker = driven.marker(TX, COMMIT)
    driven.write_marker(marker)
    driven = driven.crash()
    assert driven.write_marker(marker) is None
    assert driven.head().log_end_offset == 2


def test_a_late_marker_does_not_end_the_next_transaction_of_the_same_epoch(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    late = driven.marker(TX, ABORT, next_epoch=0)
    driven.write_marker(late)
    driven.append(Batch(TX, 1))
    assert driven.write_marker(late) is None
    assert driven.head().open_transactions == 1


def test_an_older_coordinator_is_fenced_also_after_a_crash(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.write_marker(driven.marker(TX, COMMIT, coordinator_epoch=5))
    for found in (driven, driven.crash()):
        refusal = found.write_marker(found.marker(TX.at(1), COMMIT, coordinator_epoch=4))
        assert code(refusal) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_for_a_producer_that_never_wrote_fences_it_and_leaves_no_outcome(driven: DrivenLog) -> None:
    driven.append(Batch())
    assert driven.write_marker(driven.marker(TX.at(2), ABORT)) is None
    head = driven.head()
    assert (head.log_end_offset, head.last_stable_offset, head.last_abort_offset) == (2, 2, -1)
    assert list(driven.store.scan(Family.ABORTED, b"", b"\xff" * 8)) == []
    assert code(driven.append(Batch(TX.at(0), 0))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(driven.append(Batch(TX.at(3), 17))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert driven.append(Batch(TX.at(3), 0)).error is None


def test_the_end_of_an_empty_transaction_does_not_move_the_bound_of_another_one(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.write_marker(driven.marker(transactional(8), COMMIT))
    head = driven.head()
    assert (head.log_end_offset, head.last_stable_offset, head.open_transactions) == (2, 0, 1)


def test_an_aborted_transaction_has_a_row_and_a_committed_one_has_none(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 3))
    driven.end(TX, ABORT)
    driven.append(Batch(TX.at(1), 0))
    driven.end(TX.at(1), COMMIT)
    ordinal = driven.ordinal()
    rows = driven.store.scan(Family.ABORTED, codec.partition_key(ordinal), codec.partition_key(ordinal + 1))
    found = [index_rows.decode_aborted(key, value) for key, value in rows]
    assert [(offset, aborted.txn_epoch, aborted.first_offset, aborted.marker_offset) for offset, aborted in found] == [
        (3, 0, 0, 3)
    ]
    assert driven.head().last_abort_offset == 3


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(driven: DrivenLog) -> None:
    producers = [transactional(number) for number in (1, 2, 3)]
    for producer in producers:
        driven.append(Batch(producer, 0))
    bounds = []
    for number in (0, 2, 1):
        driven.end(producers[number], COMMIT)
        bounds.append(driven.head().last_stable_offset)
    assert bounds == [1, 1, 6]


def test_the_bound_moves_when_the_marker_is_durable_and_not_before(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.runtime.write(driven.markers.partition_marker(driven.ordinal(), driven.marker(TX, COMMIT)), is_urgent=True)
    assert driven.head().last_stable_offset == 0
    driven.flush()
    assert driven.head().last_stable_offset == 2


def test_a_marker_without_its_disk_leaves_the_transaction_open(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.runtime.write(driven.markers.partition_marker(driven.ordinal(), driven.marker(TX, COMMIT)), is_urgent=True)
    driven = driven.crash()
    assert (driven.head().last_stable_offset, driven.head().open_transactions) == (0, 1)


def test_a_marker_for_a_partition_that_was_deleted_is_success(driven: DrivenLog) -> None:
    operation = driven.markers.partition_marker(driven.ordinal(), driven.marker(TX, COMMIT))
    ordinal = driven.ordinal()
    deleted = driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    assert driven.perform(operation) is None
    assert deleted.result()[0].error is None
    assert driven.perform(driven.markers.partition_marker(ordinal, driven.marker(TX, COMMIT))) is None


def test_a_marker_for_an_ordinal_that_never_was_is_success(driven: DrivenLog) -> None:
    assert driven.perform(driven.markers.partition_marker(4_000_000, driven.marker(TX, COMMIT))) is None


def test_markers_renew_the_age_of_a_producer(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.clock.advance(60_000)
    driven.end(TX, COMMIT)
    entry = driven.entry()
    assert entry is not None
    assert entry.last_append_ms == driven.clock.wall_ms()


def test_a_commit_may_ask_whether_the_log_holds_its_last_sequence(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 3))
    assert driven.perform(driven.markers.check_last_sequence(driven.ordinal(), 7, 0, 2)) is None
    missing = driven.perform(driven.markers.check_last_sequence(driven.ordinal(), 7, 0, 3))
    assert code(missing) is ErrorCode.TRANSACTION_ABORTABLE
    deleted = driven.perform(driven.markers.check_last_sequence(4_000_000, 7, 0, 2))
    assert code(deleted) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_producer_may_move_to_another_transaction_at_the_highest_epoch(driven: DrivenLog) -> None:
    last = TX.at(32_766)
    driven.append(Batch(last, 0))
    driven.write_marker(replace(driven.marker(last, Outcome.ABORT), next_epoch=32_767))
    entry = driven.entry()
    assert entry is not None
    assert entry.epoch == 32_767
    assert driven.read_all(UNCOMMITTED) == [0]
