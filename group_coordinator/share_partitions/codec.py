"""Bytes of the records of share partitions (storage/v1/share.proto)."""

from __future__ import annotations

import struct
from typing import Final

from coordinator_api.storage.v1 import share_pb2 as storage
from coordinator_runtime.ports import OutcomeNumber
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders, TableCodec
from coordinator_runtime.unknown_rows import UnknownRow
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged, SharePartitionForgotten
from group_coordinator.share_partitions.state import (
    UNRESOLVED,
    AcknowledgingTransaction,
    DurableForm,
    PendingAcknowledgement,
    RecordState,
    form_of_runs,
    restored,
    runs_of,
    state_of,
)

SHARE_PARTITION: Final = 1
"""Record type: a number in stored keys, never changed or used again."""

_ORDINAL: Final = struct.Struct(">I")
_STORED_STATES: Final = frozenset(RecordState) - {RecordState.ACQUIRED}


def _encode_key(key: ShareKey) -> bytes:
    return _ORDINAL.pack(key.ordinal) + key.group_id.encode()


def decode_key(key: bytes) -> ShareKey:
    """Return the name of the share partition of a row."""
    return ShareKey(key[_ORDINAL.size :].decode(), _ORDINAL.unpack_from(key)[0])


def _encode_changed(record: SharePartitionChanged) -> EncodedRecord | None:
    if not record.is_stored:
        return None
    form = record.partition.durable_form
    runs = list(runs_of(form))
    value = storage.SharePartitionValue(
        state_epoch=form.state_epoch,
        leader_epoch=form.leader_epoch,
        start_offset=None if form.start_offset == UNRESOLVED else form.start_offset,
        run_lengths=[length for length, _cell, _number in runs],
        run_cells=bytes([cell for _length, cell, _number in runs]),
        run_pending=[number for _length, _cell, number in runs] if form.pending else (),
        pending=[_encode_pending(number, each) for number, each in sorted(form.pending.items())],
    )
    return EncodedRecord(SHARE_PARTITION, _encode_key(record.key), value.SerializeToString(), has_history=False)


def _encode_forgotten(record: SharePartitionForgotten) -> EncodedRecord:
    return EncodedRecord(SHARE_PARTITION, _encode_key(record.key), None, has_history=False)


def _decode_changed(key: bytes, value: bytes) -> SharePartitionChanged:
    name, stored = decode_key(key), storage.SharePartitionValue.FromString(value)
    for cell in stored.run_cells:
        _check_cell(cell, name)
    start_offset = stored.start_offset if stored.HasField("start_offset") else UNRESOLVED
    numbers = stored.run_pending or [0] * len(stored.run_lengths)
    form = form_of_runs(
        DurableForm(stored.state_epoch, stored.leader_epoch, start_offset, b""),
        zip(stored.run_lengths, stored.run_cells, numbers, strict=True),
        {each.number: _decode_pending(each) for each in stored.pending},
    )
    return SharePartitionChanged(name, restored(form), is_stored=True)


def _encode_pending(number: int, pending: PendingAcknowledgement) -> storage.PendingAcknowledgement:
    transaction = pending.transaction
    return storage.PendingAcknowledgement(
        number=number,
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        coordinator_shard=transaction.after.coordinator_shard,
        after_csn=transaction.after.csn,
        is_rejection=pending.is_rejection,
        delivery_count_limit=pending.delivery_count_limit,
        has_letters=pending.has_letters,
    )


def _decode_pending(stored: storage.PendingAcknowledgement) -> PendingAcknowledgement:
    after = OutcomeNumber(stored.coordinator_shard, stored.after_csn)
    return PendingAcknowledgement(
        AcknowledgingTransaction(stored.transactional_id, stored.producer_id, stored.producer_epoch, after),
        stored.is_rejection,
        stored.delivery_count_limit,
        stored.has_letters,
    )


def _check_cell(cell: int, name: ShareKey) -> None:
    """Return only for a cell that this program stores. Raises UnknownRow."""
    try:
        is_known = state_of(cell) in _STORED_STATES
    except ValueError:
        is_known = False
    if not is_known:
        raise UnknownRow(
            f"the state of records of group {name.group_id!a} in the partition with ordinal {name.ordinal} is "
            f"{cell & 7}, which this program does not know: start the version that wrote it, or a later one"
        )


ENCODERS: Final[Encoders] = {
    SharePartitionChanged: _encode_changed,
    SharePartitionForgotten: _encode_forgotten,
}
DECODERS: Final[Decoders] = {SHARE_PARTITION: _decode_changed}


def share_codec() -> TableCodec:
    """Return the codec of the records of share partitions."""
    return TableCodec([(ENCODERS, DECODERS)])
