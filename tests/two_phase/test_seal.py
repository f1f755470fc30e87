"""A sealed producer takes no more records of its open transaction in a partition (spec transactions 10)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from partition_log import codec
from partition_log.rules.appending import AppendVerdict, judge_append, seal
from partition_log.rules.marking import entry_after_marker
from partition_log.state import CachedBatch, OpenTransaction, ProducerEntry

OPEN = ProducerEntry(5, 1, 9, (CachedBatch(0, 1, 10),), OpenTransaction(10, 9))
SEALED = replace(OPEN, is_sealed=True)


def batch(*, epoch: int = 5, sequence: int = 2, is_transactional: bool = True) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        record_count=2,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        encoding=Encoding.RECORDS_V1,
        is_transactional=is_transactional,
    )


def judge(appended: BatchHeader, *, is_admitted: bool = False) -> object:
    try:
        return judge_append(SEALED, appended, is_admitted=is_admitted, log_start_offset=0)
    except Refused as refusal:
        return refusal.code


def test_what_a_sealed_producer_is_answered() -> None:
    assert judge(batch()) is ErrorCode.INVALID_TXN_STATE
    assert judge(batch(is_transactional=False)) is AppendVerdict.ADMIT, (
        "a producer id without an owner, or one that is refused"
    )
    assert judge(batch(is_transactional=False), is_admitted=True) is ErrorCode.INVALID_TXN_STATE
    assert judge(batch(epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert judge(batch(sequence=0)) == CachedBatch(0, 1, 10), "a duplicate is in the log, whatever happened since"


def test_a_newer_epoch_is_the_coordinators_to_judge() -> None:
    """It knows whether the sealed transaction waits for its decision or for its marker."""
    assert judge(batch(epoch=6, sequence=0)) is AppendVerdict.ADMIT
    assert judge(batch(epoch=6, sequence=0), is_admitted=True) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_only_the_open_transaction_of_that_epoch_is_sealed_and_only_once() -> None:
    assert seal(OPEN, 5) == SEALED
    assert [
        seal(entry, 5) for entry in (None, SEALED, replace(OPEN, open_transaction=None), replace(OPEN, epoch=6))
    ] == [None] * 4


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_marker_breaks_the_seal(outcome: Outcome) -> None:
    marker = Marker(
        producer_id=7,
        txn_epoch=5,
        next_epoch=6,
        coordinator_shard=0,
        coordinator_epoch=1,
        outcome=outcome,
        csn=3,
    )
    assert not entry_after_marker(SEALED, marker, now_ms=1).is_sealed


def test_a_seal_is_stored_so_that_a_program_that_does_not_know_it_stops() -> None:
    stored = codec.encode_producer(SEALED)
    assert codec.decode_producer(stored) == SEALED
    assert codec.decode_producer(codec.encode_producer(OPEN)) == OPEN
    assert stored[0] != codec.VALUE_VERSION
    assert stored[1:] == codec.encode_producer(OPEN)[1:]
