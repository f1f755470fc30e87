"""Batches that a client must not send, and that one bad batch harms no other."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.batch import HEADER_BYTES, BatchHeader, Encoding, TimestampType, stored_crc, verify_batch
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import Limits
from tests.log.driven_log import Batch, DrivenLog, Producer, code

IDEMPOTENT = Producer()


def crc_of(driven: DrivenLog, batch: Batch) -> int:
    """Append a batch and return the stored checksum, which is the one that the client computes."""
    driven.append(batch)
    return stored_crc(driven.read().batches[-1][1])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base_offset": 5}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2**31}, ErrorCode.INVALID_RECORD),
        ({"encoding": Encoding.CONTROL}, ErrorCode.INVALID_RECORD),
        ({"is_control": True}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 7}, ErrorCode.INVALID_RECORD),
        ({"producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 7, "producer_epoch": 2**15, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": 2**31}, ErrorCode.INVALID_RECORD),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp_ms": -2}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp_ms": 2_000}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp_ms": 2**63}, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_malformed_batch_is_refused_and_nothing_is_appended(
    driven: DrivenLog, changes: dict[str, Any], expected: ErrorCode
) -> None:
    result = driven.append(Batch(changes=changes))
    assert code(result) is expected
    assert result.error is not None
    assert len(result.error.message) > 20
    assert driven.head().log_end_offset == 0


def test_an_empty_payload_is_refused(driven: DrivenLog) -> None:
    assert code(driven.append(Batch(payload=b""))) is ErrorCode.INVALID_RECORD


def test_a_batch_as_large_as_allowed_is_appended_and_one_byte_more_is_not() -> None:
    driven = DrivenLog(limits=Limits(batch_bytes_max=1_000))
    driven.create()
    assert code(driven.append(Batch(payload=b"x" * (1_000 - HEADER_BYTES)))) is ErrorCode.NONE
    assert code(driven.append(Batch(payload=b"x" * (1_001 - HEADER_BYTES)))) is ErrorCode.MESSAGE_TOO_LARGE


def test_the_checksum_of_the_client_is_stored_as_it_is(driven: DrivenLog) -> None:
    crc = crc_of(driven, Batch(payload=b"some records"))
    assert driven.append(Batch(payload=b"some records", crc=crc)).error is None
    header, encoded = driven.read(fetch_offset=1).batches[0]
    verify_batch(encoded)
    assert (stored_crc(encoded), header.base_offset) == (crc, 1)


@pytest.mark.parametrize("payload", [b"some record", b"some recordz", b"some records!", b"Some records"])
def test_a_payload_that_was_cut_or_changed_on_its_way_is_refused(driven: DrivenLog, payload: bytes) -> None:
    crc = crc_of(driven, Batch(payload=b"some records"))
    assert code(driven.append(Batch(payload=payload, crc=crc))) is ErrorCode.CORRUPT_MESSAGE
    assert driven.head().log_end_offset == 1


@pytest.mark.parametrize("changes", [{"record_count": 3}, {"max_timestamp_ms": 1_001}, {"encoding": Encoding.ARROW_V1}])
def test_a_header_that_was_changed_on_its_way_is_refused(driven: DrivenLog, changes: dict[str, Any]) -> None:
    crc = crc_of(driven, Batch())
    assert code(driven.append(Batch(changes=changes, crc=crc))) is ErrorCode.CORRUPT_MESSAGE


def test_a_checksum_of_zero_is_a_checksum(driven: DrivenLog) -> None:
    assert code(driven.append(Batch(crc=0))) is ErrorCode.CORRUPT_MESSAGE


def test_a_refused_batch_leaves_its_sequence_free(driven: DrivenLog) -> None:
    assert code(driven.append(Batch(IDEMPOTENT, 0, crc=1))) is ErrorCode.CORRUPT_MESSAGE
    assert driven.append(Batch(IDEMPOTENT, 0)).base_offset == 0


def test_a_bad_batch_harms_no_other_in_the_same_group(driven: DrivenLog) -> None:
    sent = [driven.send(batch) for batch in (Batch(), Batch(payload=b""), Batch(IDEMPOTENT, 3), Batch())]
    driven.flush()
    assert [code(pending.result()[0]) for pending in sent] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.NONE,
    ]
    assert driven.read_all() == [0, 1]


def test_every_stored_batch_is_whole(driven: DrivenLog) -> None:
    driven.append(Batch(count=3))
    driven.append(Batch(IDEMPOTENT, 0, changes={"encoding": Encoding.ARROW_V1}))
    found: list[tuple[BatchHeader, bytes]] = list(driven.read(is_raw=True).batches)
    for _header, encoded in found:
        verify_batch(encoded)
    assert [header.encoding for header, _ in found] == [Encoding.RECORDS_V1, Encoding.ARROW_V1]
