"""The marker: the control record that ends one transaction in one partition, and its two stored forms.

By itself it is a batch with one payload, big-endian:

    version u16, type i16 (the outcome), coordinator_epoch i32, txn_epoch i16, next_epoch i16, csn u64,
    coordinator_shard u16, first_offset i64

The producer id is in the batch header. Later versions may only add bytes at the end, so a reader takes a higher version
and a longer value, as Kafka's readers do.

If one write makes both the marker and the last batch of its transaction, the marker is a tail after that batch, in the
same row of LOG. The batch has the other fields. So a Transact writes one row for each partition in place of two.
`batch_length` tells where the batch ends and the tail begins. The marker has the offset after the batch. The row's
key has that offset too, because it always has the greatest offset of the row. A marker before the payload was
rejected, because Fetch serves a batch as one slice. So was a flag in the header, which the client's checksum covers.

```
 0 kind (1)           u8     6 coordinator_epoch  i32    26 first_offset of the transaction  i64
 1 outcome            u8    10 csn                u64    34 CRC-32C of all before            u32
 2 next_epoch         i16   18 wall_ms            i64
 4 coordinator_shard  u16
```

Readers need not tell the two forms apart: `control_batch` makes the batch that a tail stands for, byte by byte the same
as a separate one.

Source: design 6 (csn) and 10; spec log-and-runtime 1.2 and 1.5; spec transactions 2.7; docs/store-format.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from msgspec import Struct

from coordinator_protocol.batch import (
    HEADER_BYTES_COUNTED,
    TAIL_BYTES,
    BatchHeader,
    Encoding,
    encode_offsetless,
    pack_place,
)
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.errors import ErrorCode, Refused

MARKER_VERSION: Final = 2
MARKER_BYTES: Final = 30

_PAYLOAD: Final = struct.Struct(">HhihhQHq")
_VERSION_MAX: Final = 2**15 - 1


class Outcome(IntEnum):
    """End of a transaction, in the numbers of Kafka's control records."""

    ABORT = 0
    COMMIT = 1


_OUTCOMES: Final = tuple(Outcome)


class MarkerPayload(Struct, frozen=True, kw_only=True, gc=False):
    """A marker's payload: everything but the producer id, which is in the batch header."""

    txn_epoch: int
    next_epoch: int
    coordinator_shard: int
    coordinator_epoch: int
    outcome: Outcome
    csn: int
    first_offset: int
    """First offset of the transaction's records in the partition; -1 = it has none."""


class Marker(Struct, frozen=True, kw_only=True, gc=False):
    """The order to end the transaction `(producer_id, txn_epoch)`; every repetition is the same value.

    `next_epoch` is the epoch that the producer has afterwards: lower ones are fenced in this partition. `csn` (commit
    sequence number) was assigned when the outcome was decided; a partition tells a repeated marker from a stale one by
    it. It is compared only with csns of the same `coordinator_shard`, that of the transactional id. The same holds for
    the coordinator epoch: another shard may have another counter.

    `is_last`: the producer id never writes again, so the partition forgets the producer with the marker. The flag is
    not stored in the marker, but in what it changes."""

    producer_id: int
    txn_epoch: int
    next_epoch: int
    coordinator_shard: int
    coordinator_epoch: int
    outcome: Outcome
    csn: int
    is_last: bool = False


def encode_marker_payload(marker: Marker, first_offset: int) -> bytes:
    """Return the payload of the control batch for `marker`. `first_offset`: first offset of the records that the
    marker ends."""
    return _PAYLOAD.pack(
        MARKER_VERSION,
        marker.outcome,
        marker.coordinator_epoch,
        marker.txn_epoch,
        marker.next_epoch,
        marker.csn,
        marker.coordinator_shard,
        first_offset,
    )


def decode_marker_payload(payload: bytes | memoryview) -> MarkerPayload:
    """Return the content of a control batch.

    Raises: Refused (CORRUPT_MESSAGE) if it is too short, or holds a version, type or epoch that no writer ever
    wrote."""
    if len(payload) < MARKER_BYTES:
        raise _corrupt(f"it has {len(payload)} bytes of at least {MARKER_BYTES}")
    version, outcome, coordinator_epoch, txn_epoch, next_epoch, csn, shard, first_offset = _PAYLOAD.unpack_from(payload)
    if not MARKER_VERSION <= version <= _VERSION_MAX:
        raise _corrupt(f"its version is {version}")
    if not 0 <= outcome < len(_OUTCOMES):
        raise _corrupt(f"its type is {outcome}, neither abort (0) nor commit (1)")
    if coordinator_epoch < 0 or txn_epoch < 0 or next_epoch < 0:
        raise _corrupt(
            f"its epochs are {coordinator_epoch} (coordinator), {txn_epoch} (transaction) and {next_epoch} (next)"
        )
    return MarkerPayload(
        txn_epoch=txn_epoch,
        next_epoch=next_epoch,
        coordinator_shard=shard,
        coordinator_epoch=coordinator_epoch,
        outcome=_OUTCOMES[outcome],
        csn=csn,
        first_offset=first_offset,
    )


def _corrupt(what: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"not a marker: {what}")


_TAIL: Final = struct.Struct(">BBhHiQqq")
_CRC: Final = struct.Struct(">I")
_KIND: Final = 1

assert _TAIL.size + _CRC.size == TAIL_BYTES


def encode_tail(marker: Marker, first_offset: int, now_ms: int) -> bytes:
    """Return the tail that ends the transaction of the batch before it. `first_offset`: first offset of its records."""
    fields = _TAIL.pack(
        _KIND,
        marker.outcome,
        marker.next_epoch,
        marker.coordinator_shard,
        marker.coordinator_epoch,
        marker.csn,
        now_ms,
        first_offset,
    )
    return fields + _CRC.pack(crc32c(fields))


def marker_header(batch: BatchHeader, tail: bytes | memoryview) -> BatchHeader:
    """Return the header of the marker's own batch. Raises Refused CORRUPT_MESSAGE for an invalid tail."""
    return control_header(
        batch.producer_id, batch.producer_epoch, _fields(tail)[6], batch.last_offset + 1, batch.leader_epoch
    )


def control_header(producer_id: int, txn_epoch: int, now_ms: int, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Return the header of a marker's batch."""
    return BatchHeader(
        base_offset=base_offset,
        record_count=1,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        encoding=Encoding.CONTROL,
        producer_id=producer_id,
        producer_epoch=txn_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def control_batch(header: BatchHeader, stored: bytes | memoryview) -> bytes | memoryview:
    """Return the batch of a marker that is stored as a batch or as a tail. Raises Refused CORRUPT_MESSAGE for an
    invalid tail."""
    if len(stored) != TAIL_BYTES:
        return stored
    _kind, outcome, next_epoch, coordinator_shard, coordinator_epoch, csn, _wall_ms, first_offset = _fields(stored)
    marker = Marker(
        producer_id=header.producer_id,
        txn_epoch=header.producer_epoch,
        next_epoch=next_epoch,
        coordinator_shard=coordinator_shard,
        coordinator_epoch=coordinator_epoch,
        outcome=Outcome(outcome),
        csn=csn,
    )
    return marker_row(
        marker,
        first_offset=first_offset,
        offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        now_ms=header.base_timestamp_ms,
    )


def marker_row(
    marker: Marker, *, first_offset: int, offset: int, leader_epoch: int, now_ms: int, behind: bytes = b""
) -> bytes:
    """Return the row for a marker at this offset: the only place that chooses between the two forms.

    `behind`: the last row that the same write appends for the transaction, which gets the marker as its tail. Empty =
    it appends none, and the marker is a batch by itself. `first_offset`: first offset of the records that the marker
    ends; -1 = there are none."""
    if behind:
        return behind + encode_tail(marker, first_offset, now_ms)
    header = control_header(marker.producer_id, marker.txn_epoch, now_ms, offset, leader_epoch)
    rest_of_header, payload = encode_offsetless(header, encode_marker_payload(marker, first_offset))
    return pack_place(offset, HEADER_BYTES_COUNTED + len(payload), leader_epoch) + rest_of_header + payload


def _fields(tail: bytes | memoryview) -> tuple[int, int, int, int, int, int, int, int]:
    fields: tuple[int, int, int, int, int, int, int, int] = _TAIL.unpack_from(tail)
    (written,) = _CRC.unpack_from(tail, _TAIL.size)
    found = crc32c(memoryview(tail)[: _TAIL.size])
    if written != found:
        raise _not_a_tail(
            f"its checksum says {written:#010x} and its bytes say {found:#010x}; restore them from a copy"
        )
    if fields[0] != _KIND or fields[1] >= len(_OUTCOMES):
        raise _not_a_tail(f"it is of kind {fields[0]} and outcome {fields[1]}; read it with a newer version")
    return fields


def _not_a_tail(what: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"not the tail of a row: {what}")
