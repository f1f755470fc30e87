"""Bytes of the records of share groups (storage/v1/group.proto). A key is the group id, then a NUL and the member id or
the topic id."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_protocol.assignors.values import Share
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders
from group_coordinator.codec import (
    SHARE_CURRENT_ASSIGNMENT,
    SHARE_GROUP_EPOCH,
    SHARE_MEMBER,
    SHARE_PARTITIONS,
    SHARE_TARGET_EPOCH,
    SHARE_TARGET_MEMBER,
)
from group_coordinator.share import records
from group_coordinator.share.state import ShareAssignment, ShareMember
from group_coordinator.state import OfGroup

_SEPARATOR: Final = b"\0"


def _key(group_id: str, *rest: bytes) -> bytes:
    return _SEPARATOR.join((group_id.encode(), *rest))


def _parts(key: bytes) -> tuple[str, bytes]:
    group_id, _, rest = key.partition(_SEPARATOR)
    return group_id.decode(), rest


def _epoch(record: records.ShareGroupEpochBumped) -> EncodedRecord:
    value = storage.ShareGroupEpochValue(group_epoch=record.group_epoch, metadata_hash=record.metadata_hash)
    return EncodedRecord(SHARE_GROUP_EPOCH, _key(record.group_id), value.SerializeToString(), told=record.group_epoch)


def _member(record: records.ShareMemberChanged) -> EncodedRecord:
    member = record.member
    value = storage.ShareMemberValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return EncodedRecord(SHARE_MEMBER, _key(record.group_id, member.member_id.encode()), value.SerializeToString())


def _target_epoch(record: records.ShareTargetEpochReached) -> EncodedRecord:
    value = storage.ShareTargetEpochValue(
        assignment_epoch=record.assignment_epoch, computed_ms=record.computed_ms, assignor_name=record.assignor_name
    )
    return EncodedRecord(
        SHARE_TARGET_EPOCH, _key(record.group_id), value.SerializeToString(), told=record.assignment_epoch
    )


def _target(record: records.ShareTargetChanged) -> EncodedRecord:
    value = storage.ShareTargetMemberValue(topics=_share_values(record.share))
    # Targets have no history, as those of consumer groups.
    key = _key(record.group_id, record.member_id.encode())
    return EncodedRecord(SHARE_TARGET_MEMBER, key, value.SerializeToString(), has_history=False)


def _assignment(record: records.ShareAssignmentChanged) -> EncodedRecord:
    assignment = record.assignment
    value = storage.ShareCurrentAssignmentValue(
        member_epoch=assignment.member_epoch,
        previous_member_epoch=assignment.previous_member_epoch,
        assigned=_share_values(assignment.assigned),
    )
    key = _key(record.group_id, record.member_id.encode())
    return EncodedRecord(SHARE_CURRENT_ASSIGNMENT, key, value.SerializeToString(), told=assignment.member_epoch)


def _share_values(share: Share[bytes]) -> list[storage.TopicPartitionsValue]:
    return [
        storage.TopicPartitionsValue(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in sorted(share.items())
    ]


def _partitions(record: records.SharePartitionsInitialized) -> EncodedRecord:
    value = storage.SharePartitionsValue(partitions=sorted(record.partitions))
    return EncodedRecord(SHARE_PARTITIONS, _key(record.group_id, record.topic_id), value.SerializeToString())


def _no_group(record_type: int, record: OfGroup) -> EncodedRecord:
    return EncodedRecord(record_type, _key(record.group_id), None)


def _no_member(record_type: int, record: records.OfShareMember, *, has_history: bool = True) -> EncodedRecord:
    return EncodedRecord(record_type, _key(record.group_id, record.member_id.encode()), None, has_history=has_history)


def _no_partitions(record: records.SharePartitionsForgotten) -> EncodedRecord:
    return EncodedRecord(SHARE_PARTITIONS, _key(record.group_id, record.topic_id), None)


def _decode_epoch(key: bytes, value: bytes) -> records.ShareGroupEpochBumped:
    stored = storage.ShareGroupEpochValue.FromString(value)
    return records.ShareGroupEpochBumped(key.decode(), stored.group_epoch, stored.metadata_hash)


def _decode_member(key: bytes, value: bytes) -> records.ShareMemberChanged:
    group_id, member_id = _parts(key)
    stored = storage.ShareMemberValue.FromString(value)
    member = ShareMember(
        member_id=member_id.decode(),
        rack_id=stored.rack_id if stored.HasField("rack_id") else None,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topics=frozenset(stored.subscribed_topic_names),
    )
    return records.ShareMemberChanged(group_id, member)


def _decode_target_epoch(key: bytes, value: bytes) -> records.ShareTargetEpochReached:
    stored = storage.ShareTargetEpochValue.FromString(value)
    return records.ShareTargetEpochReached(
        key.decode(), stored.assignment_epoch, stored.computed_ms, stored.assignor_name
    )


def _decode_target(key: bytes, value: bytes) -> records.ShareTargetChanged:
    group_id, member_id = _parts(key)
    return records.ShareTargetChanged(
        group_id, member_id.decode(), _share(storage.ShareTargetMemberValue.FromString(value).topics)
    )


def _decode_assignment(key: bytes, value: bytes) -> records.ShareAssignmentChanged:
    group_id, member_id = _parts(key)
    stored = storage.ShareCurrentAssignmentValue.FromString(value)
    assignment = ShareAssignment(stored.member_epoch, stored.previous_member_epoch, _share(stored.assigned))
    return records.ShareAssignmentChanged(group_id, member_id.decode(), assignment)


def _share(stored: Iterable[storage.TopicPartitionsValue]) -> Share[bytes]:
    return {topic.topic_id: tuple(topic.partitions) for topic in stored}


def _decode_partitions(key: bytes, value: bytes) -> records.SharePartitionsInitialized:
    group_id, topic_id = _parts(key)
    stored = storage.SharePartitionsValue.FromString(value)
    return records.SharePartitionsInitialized(group_id, topic_id, frozenset(stored.partitions))


def _nothing(_record: records.ShareTopicsLooked) -> None:
    return None


ENCODERS: Final[Encoders] = {
    records.ShareGroupEpochBumped: _epoch,
    records.ShareGroupForgotten: partial(_no_group, SHARE_GROUP_EPOCH),
    records.ShareMemberChanged: _member,
    records.ShareMemberForgotten: partial(_no_member, SHARE_MEMBER),
    records.ShareTargetEpochReached: _target_epoch,
    records.ShareTargetEpochForgotten: partial(_no_group, SHARE_TARGET_EPOCH),
    records.ShareTargetChanged: _target,
    records.ShareTargetForgotten: partial(_no_member, SHARE_TARGET_MEMBER, has_history=False),
    records.ShareAssignmentChanged: _assignment,
    records.ShareAssignmentForgotten: partial(_no_member, SHARE_CURRENT_ASSIGNMENT),
    records.SharePartitionsInitialized: _partitions,
    records.SharePartitionsForgotten: _no_partitions,
    records.ShareTopicsLooked: _nothing,
}

DECODERS: Final[Decoders] = {
    SHARE_GROUP_EPOCH: _decode_epoch,
    SHARE_MEMBER: _decode_member,
    SHARE_TARGET_EPOCH: _decode_target_epoch,
    SHARE_TARGET_MEMBER: _decode_target,
    SHARE_CURRENT_ASSIGNMENT: _decode_assignment,
    SHARE_PARTITIONS: _decode_partitions,
}
