"""Bytes of the records of offsets (storage/v1/group.proto)."""

from __future__ import annotations

import struct
from typing import Final

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_runtime.ports import OutcomeNumber
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders
from group_coordinator.codec import GROUP_ADMINISTERED, OFFSET, PENDING_OFFSET
from group_coordinator.committed.state import (
    CommittingProducer,
    GroupAdministered,
    Offset,
    OffsetCommitted,
    OffsetForgotten,
    PendingCommit,
    PendingOffsetForgotten,
    PendingOffsetHeld,
)
from group_coordinator.state import PartitionKey

_PARTITION: Final = struct.Struct(">16sI")
_PRODUCER: Final = struct.Struct(">QH")


def _partition_key(group_id: str, partition: PartitionKey) -> bytes:
    return group_id.encode() + b"\0" + _PARTITION.pack(*partition)


def _decode_partition_key(key: bytes) -> tuple[str, PartitionKey]:
    topic_id, number = _PARTITION.unpack_from(key, len(key) - _PARTITION.size)
    # A NUL precedes the topic id.
    return key[: -_PARTITION.size - 1].decode(), (topic_id, number)


def _value(offset: Offset) -> storage.OffsetValue:
    return storage.OffsetValue(
        committed_offset=offset.committed_offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp_ms=offset.commit_timestamp_ms,
        expire_timestamp_ms=offset.expire_timestamp_ms,
        position=offset.position,
    )


def _offset(value: storage.OffsetValue) -> Offset:
    return Offset(
        committed_offset=value.committed_offset,
        leader_epoch=value.committed_leader_epoch if value.HasField("committed_leader_epoch") else None,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp_ms,
        expire_timestamp_ms=value.expire_timestamp_ms if value.HasField("expire_timestamp_ms") else None,
        position=value.position,
    )


# Offsets have no history: only the newest matters, and thousands are written each second.


def _encode_committed(record: OffsetCommitted) -> EncodedRecord:
    key = _partition_key(record.group_id, record.partition)
    return EncodedRecord(OFFSET, key, _value(record.offset).SerializeToString(), has_history=False)


def _encode_forgotten(record: OffsetForgotten) -> EncodedRecord:
    return EncodedRecord(OFFSET, _partition_key(record.group_id, record.partition), None, has_history=False)


def _encode_held(record: PendingOffsetHeld) -> EncodedRecord:
    key = _PRODUCER.pack(*record.producer) + _partition_key(record.group_id, record.partition)
    pending = record.pending
    value = storage.PendingOffsetValue(
        offset=_value(pending.offset),
        transactional_id=pending.transactional_id,
        after_csn=pending.after.csn,
        coordinator_shard=pending.after.coordinator_shard,
    )
    return EncodedRecord(PENDING_OFFSET, key, value.SerializeToString(), has_history=False)


def _encode_pending_forgotten(record: PendingOffsetForgotten) -> EncodedRecord:
    key = _PRODUCER.pack(*record.producer) + _partition_key(record.group_id, record.partition)
    return EncodedRecord(PENDING_OFFSET, key, None, has_history=False)


def _encode_administered(record: GroupAdministered) -> EncodedRecord:
    return EncodedRecord(GROUP_ADMINISTERED, record.group_id.encode(), None)


def _decode_committed(key: bytes, value: bytes) -> OffsetCommitted:
    return OffsetCommitted(*_decode_partition_key(key), _offset(storage.OffsetValue.FromString(value)))


def _decode_held(key: bytes, value: bytes) -> PendingOffsetHeld:
    producer = CommittingProducer(*_PRODUCER.unpack_from(key))
    group_id, partition = _decode_partition_key(key[_PRODUCER.size :])
    stored = storage.PendingOffsetValue.FromString(value)
    pending = PendingCommit(
        _offset(stored.offset), stored.transactional_id, OutcomeNumber(stored.coordinator_shard, stored.after_csn)
    )
    return PendingOffsetHeld(group_id, producer, partition, pending)


ENCODERS: Final[Encoders] = {
    OffsetCommitted: _encode_committed,
    OffsetForgotten: _encode_forgotten,
    PendingOffsetHeld: _encode_held,
    PendingOffsetForgotten: _encode_pending_forgotten,
    GroupAdministered: _encode_administered,
}
DECODERS: Final[Decoders] = {OFFSET: _decode_committed, PENDING_OFFSET: _decode_held}
