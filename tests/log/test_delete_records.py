"""DeleteRecords: the log start goes ahead, durably, as far as it may, and readers before it are refused."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.ports import PartitionName
from partition_log.requests import DeleteRecords, DeleteRecordsResult, RecordsToDelete
from partition_log.state import HIGH_WATERMARK
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    code,
    transactional,
)

TX = transactional()
PLAIN = Producer(PLAIN_PRODUCER_IDS_FROM)


def delete(driven: DrivenLog, offset: int, partition: int = 0) -> DeleteRecordsResult:
    wanted = RecordsToDelete(PartitionName(TOPIC, b"", partition), offset)
    deleted = driven.log.delete_records(DeleteRecords([wanted]), CONTEXT)
    driven.flush()
    (result,) = deleted.result()
    return result


def filled(driven: DrivenLog, count: int = 5) -> None:
    for number in range(count):
        assert driven.append(Batch(PLAIN, number)).error is None


def test_the_log_begins_at_the_offset_and_readers_before_it_are_told(driven: DrivenLog) -> None:
    filled(driven)
    assert delete(driven, 3) == DeleteRecordsResult(driven.catalog.place(TOPIC, b"", 0).name, 3)
    assert code(driven.read(fetch_offset=2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert driven.read_all(fetch_offset=3) == [3, 4]
    assert [found.offset for found in (*driven.offsets(-2), *driven.offsets(0))] == [3, 3]


@pytest.mark.parametrize("wanted", [HIGH_WATERMARK, 5])
def test_all_that_there_is_can_be_deleted_and_offsets_go_on(driven: DrivenLog, wanted: int) -> None:
    filled(driven)
    assert delete(driven, wanted).low_watermark == 5
    assert driven.read_all(fetch_offset=5) == []
    assert driven.append(Batch(PLAIN, 5)).base_offset == 5
    assert driven.crash().read_all(fetch_offset=5) == [5]


@pytest.mark.parametrize("wanted", [6, -2, 2**63 - 1, -(2**63)])
def test_what_is_not_in_the_log_cannot_be_deleted(driven: DrivenLog, wanted: int) -> None:
    filled(driven)
    refused = delete(driven, wanted)
    assert code(refused) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "from 0 to the high watermark 5" in str(refused.error)
    assert driven.head().log_start_offset == 0


def test_the_log_start_never_goes_back(driven: DrivenLog) -> None:
    filled(driven)
    delete(driven, 4)
    assert (delete(driven, 2).low_watermark, delete(driven, 2).held_back) == (4, "")
    assert driven.head().log_start_offset == 4


def test_what_is_staged_and_not_durable_is_not_deleted(driven: DrivenLog) -> None:
    filled(driven, 2)
    driven.send(Batch(PLAIN, 2))
    assert delete(driven, HIGH_WATERMARK).low_watermark == 2
    assert driven.read_all(fetch_offset=2) == [2]


def test_an_open_transaction_keeps_its_records_and_the_answer_says_so(driven: DrivenLog) -> None:
    filled(driven, 2)
    driven.append(Batch(TX, 0))
    assert driven.append(Batch(PLAIN, 2)).base_offset == 3
    held = delete(driven, HIGH_WATERMARK)
    assert held.low_watermark == 2
    assert "a transaction that began at offset 2 is open" in held.held_back
    driven.end(TX, COMMIT)
    assert delete(driven, HIGH_WATERMARK).held_back == ""
    assert driven.head().log_start_offset == 5


def test_a_lease_keeps_what_its_holder_reads(driven: DrivenLog) -> None:
    filled(driven)
    driven.leases[driven.ordinal()] = 1
    held = delete(driven, 4)
    assert (held.low_watermark, "from offset 1 on" in held.held_back) == (1, True)
    del driven.leases[driven.ordinal()]
    assert delete(driven, 4).low_watermark == 4


def test_no_answer_comes_before_it_is_durable(driven: DrivenLog) -> None:
    filled(driven)
    wanted = RecordsToDelete(PartitionName(TOPIC, b"", 0), 3)
    deleted = driven.log.delete_records(DeleteRecords([wanted]), CONTEXT)
    driven.runtime.groups.seal()
    assert not deleted.is_settled
    assert driven.read_all() == [0, 1, 2, 3, 4]
    assert driven.crash().read_all() == [0, 1, 2, 3, 4]


def test_it_outlives_a_crash(driven: DrivenLog) -> None:
    filled(driven)
    delete(driven, 3)
    after = driven.crash()
    assert after.head().log_start_offset == 3
    assert code(after.read()) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_each_partition_is_served_or_refused_by_itself(driven: DrivenLog) -> None:
    filled(driven)
    wanted = [
        RecordsToDelete(PartitionName(TOPIC, b"", 0), 3),
        RecordsToDelete(PartitionName(TOPIC, b"", 7), 0),
        RecordsToDelete(PartitionName("nowhere", b"", 0), 0),
    ]
    deleted = driven.log.delete_records(DeleteRecords(wanted), CONTEXT)
    driven.flush()
    assert [code(result) for result in deleted.result()] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_the_producer_goes_on_behind_what_was_deleted(driven: DrivenLog) -> None:
    filled(driven)
    delete(driven, HIGH_WATERMARK)
    assert driven.append(Batch(PLAIN, 4)).is_duplicate
    assert driven.append(Batch(PLAIN, 5)).base_offset == 5


def test_an_aborted_transaction_that_began_below_the_log_start_stays_hidden(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    filled(driven, 2)
    driven.append(Batch(TX, 1))
    driven.end(TX, ABORT)
    delete(driven, 2)
    assert driven.read_all(fetch_offset=2) == [2]
    assert driven.read_all(UNCOMMITTED, fetch_offset=2) == [2, 3]
