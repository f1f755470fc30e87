"""DeleteRecords: the log start goes ahead, durably, as far as it may, and readers before it are told."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.ports import PartitionName
from partition_log.requests import DeleteRecords, DeleteRecordsResult, RecordsToDelete
from partition_log.state import HIGH_WATERMARK
from tests.log.log_room import ABORT, COMMIT, CONTEXT, TOPIC, UNCOMMITTED, Batch, LogRoom, Producer, code, transactional

TX = transactional()
PLAIN = Producer(PLAIN_PRODUCER_IDS_FROM)


def delete(room: LogRoom, offset: int, partition: int = 0) -> DeleteRecordsResult:
    wanted = RecordsToDelete(PartitionName(TOPIC, b"", partition), offset)
    deleted = room.log.delete_records(DeleteRecords([wanted]), CONTEXT)
    room.flush()
    (result,) = deleted.result()
    return result


def filled(room: LogRoom, count: int = 5) -> None:
    for number in range(count):
        assert room.append(Batch(PLAIN, number)).error is None


def test_the_log_begins_at_the_offset_and_readers_before_it_are_told(room: LogRoom) -> None:
    filled(room)
    assert delete(room, 3) == DeleteRecordsResult(room.catalog.place(TOPIC, b"", 0).name, 3)
    assert code(room.read(fetch_offset=2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert room.read_all(fetch_offset=3) == [3, 4]
    assert [found.offset for found in (*room.offsets(-2), *room.offsets(0))] == [3, 3]


@pytest.mark.parametrize("wanted", [HIGH_WATERMARK, 5])
def test_all_that_there_is_can_be_deleted_and_offsets_go_on(room: LogRoom, wanted: int) -> None:
    filled(room)
    assert delete(room, wanted).low_watermark == 5
    assert room.read_all(fetch_offset=5) == []
    assert room.append(Batch(PLAIN, 5)).base_offset == 5
    assert room.crash().read_all(fetch_offset=5) == [5]


@pytest.mark.parametrize("wanted", [6, -2, 2**63 - 1, -(2**63)])
def test_what_is_not_in_the_log_cannot_be_deleted(room: LogRoom, wanted: int) -> None:
    filled(room)
    refused = delete(room, wanted)
    assert code(refused) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "from 0 to the high watermark 5" in str(refused.error)
    assert room.head().log_start_offset == 0


def test_the_log_start_never_goes_back(room: LogRoom) -> None:
    filled(room)
    delete(room, 4)
    assert (delete(room, 2).low_watermark, delete(room, 2).held_back) == (4, "")
    assert room.head().log_start_offset == 4


def test_what_is_staged_and_not_durable_is_not_deleted(room: LogRoom) -> None:
    filled(room, 2)
    room.send(Batch(PLAIN, 2))
    assert delete(room, HIGH_WATERMARK).low_watermark == 2
    assert room.read_all(fetch_offset=2) == [2]


def test_an_open_transaction_keeps_its_records_and_the_answer_says_so(room: LogRoom) -> None:
    filled(room, 2)
    room.append(Batch(TX, 0))
    assert room.append(Batch(PLAIN, 2)).base_offset == 3
    held = delete(room, HIGH_WATERMARK)
    assert held.low_watermark == 2
    assert "a transaction that began at offset 2 is open" in held.held_back
    room.end(TX, COMMIT)
    assert delete(room, HIGH_WATERMARK).held_back == ""
    assert room.head().log_start_offset == 5


def test_a_lease_keeps_what_its_holder_reads(room: LogRoom) -> None:
    filled(room)
    room.leases[room.ordinal()] = 1
    held = delete(room, 4)
    assert (held.low_watermark, "from offset 1 on" in held.held_back) == (1, True)
    del room.leases[room.ordinal()]
    assert delete(room, 4).low_watermark == 4


def test_nobody_is_told_before_it_is_durable(room: LogRoom) -> None:
    filled(room)
    wanted = RecordsToDelete(PartitionName(TOPIC, b"", 0), 3)
    deleted = room.log.delete_records(DeleteRecords([wanted]), CONTEXT)
    room.runtime.groups.seal()
    assert not deleted.is_settled
    assert room.read_all() == [0, 1, 2, 3, 4]
    assert room.crash().read_all() == [0, 1, 2, 3, 4]


def test_it_outlives_a_crash(room: LogRoom) -> None:
    filled(room)
    delete(room, 3)
    after = room.crash()
    assert after.head().log_start_offset == 3
    assert code(after.read()) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_each_partition_is_served_or_refused_by_itself(room: LogRoom) -> None:
    filled(room)
    wanted = [
        RecordsToDelete(PartitionName(TOPIC, b"", 0), 3),
        RecordsToDelete(PartitionName(TOPIC, b"", 7), 0),
        RecordsToDelete(PartitionName("nowhere", b"", 0), 0),
    ]
    deleted = room.log.delete_records(DeleteRecords(wanted), CONTEXT)
    room.flush()
    assert [code(result) for result in deleted.result()] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_the_producer_goes_on_behind_what_was_deleted(room: LogRoom) -> None:
    filled(room)
    delete(room, HIGH_WATERMARK)
    assert room.append(Batch(PLAIN, 4)).is_duplicate
    assert room.append(Batch(PLAIN, 5)).base_offset == 5


def test_an_aborted_transaction_that_began_below_the_log_start_stays_hidden(room: LogRoom) -> None:
    room.append(Batch(TX, 0))
    filled(room, 2)
    room.append(Batch(TX, 1))
    room.end(TX, ABORT)
    delete(room, 2)
    assert room.read_all(fetch_offset=2) == [2]
    assert room.read_all(UNCOMMITTED, fetch_offset=2) == [2, 3]
