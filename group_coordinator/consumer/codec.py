"""Bytes of the records of consumer groups (storage/v1/group.proto). A key is the group id, then a NUL and the member id
or pattern."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, TypeAlias

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_protocol.assignors.values import Share
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders
from group_coordinator.classic.state import ClassicProtocol
from group_coordinator.codec import (
    CONSUMER_CURRENT_ASSIGNMENT,
    CONSUMER_GROUP_EPOCH,
    CONSUMER_MEMBER,
    CONSUMER_REGEX,
    CONSUMER_TARGET_EPOCH,
    CONSUMER_TARGET_MEMBER,
)
from group_coordinator.consumer import records
from group_coordinator.consumer.state import (
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberSubscription,
    ResolvedRegex,
)
from group_coordinator.members import MemberState
from group_coordinator.state import OfGroup

_SEPARATOR: Final = b"\0"


def _key(*parts: str) -> bytes:
    return _SEPARATOR.join(part.encode() for part in parts)


def _parts(key: bytes) -> tuple[str, str]:
    group_id, _, rest = key.partition(_SEPARATOR)
    return group_id.decode(), rest.decode()


def _epoch(record: records.GroupEpochBumped) -> EncodedRecord:
    value = storage.ConsumerGroupEpochValue(group_epoch=record.group_epoch, metadata_hash=record.metadata_hash)
    return EncodedRecord(
        CONSUMER_GROUP_EPOCH, _key(record.group_id), value.SerializeToString(), told=record.group_epoch
    )


def _member(record: records.MemberChanged) -> EncodedRecord:
    member = record.member
    value = storage.ConsumerMemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=sorted(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex,
        server_assignor=member.server_assignor,
    )
    if member.classic is not None:
        value.classic.session_timeout_ms = member.classic.session_timeout_ms
        for name, metadata in member.classic.protocols:
            value.classic.protocols.add(name=name, metadata=metadata)
    return EncodedRecord(CONSUMER_MEMBER, _key(record.group_id, member.member_id), value.SerializeToString())


def _regex(record: records.RegexResolved) -> EncodedRecord:
    value = storage.ConsumerRegexValue(
        topic_names=sorted(record.resolved.topics),
        catalog_version=record.resolved.catalog_hash,
        resolved_ms=record.resolved.resolved_ms,
    )
    return EncodedRecord(CONSUMER_REGEX, _key(record.group_id, record.regex), value.SerializeToString())


def _target_epoch(record: records.TargetEpochReached) -> EncodedRecord:
    value = storage.ConsumerTargetEpochValue(
        assignment_epoch=record.assignment_epoch, computed_ms=record.computed_ms, assignor_name=record.assignor_name
    )
    return EncodedRecord(
        CONSUMER_TARGET_EPOCH, _key(record.group_id), value.SerializeToString(), told=record.assignment_epoch
    )


def _target(record: records.TargetChanged) -> EncodedRecord:
    value = storage.ConsumerTargetMemberValue(
        topics=[
            storage.TopicPartitionsValue(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in sorted(record.share.items())
        ]
    )
    # Targets have no history: they can be computed again from an epoch. Assignments cannot.
    key = _key(record.group_id, record.member_id)
    return EncodedRecord(CONSUMER_TARGET_MEMBER, key, value.SerializeToString(), has_history=False)


def _assignment(record: records.AssignmentChanged) -> EncodedRecord:
    assignment = record.assignment
    value = storage.ConsumerCurrentAssignmentValue(
        member_epoch=assignment.member_epoch,
        previous_member_epoch=assignment.previous_member_epoch,
        state=int(assignment.state),
        assigned=_held_values(assignment.assigned),
        pending_revocation=_held_values(assignment.pending_revocation),
    )
    key = _key(record.group_id, record.member_id)
    return EncodedRecord(CONSUMER_CURRENT_ASSIGNMENT, key, value.SerializeToString(), told=assignment.member_epoch)


def _held_values(held: Held) -> list[storage.TopicPartitionsValue]:
    values = []
    for topic_id, epochs in sorted(held.items()):
        partitions = sorted(epochs)
        values.append(
            storage.TopicPartitionsValue(
                topic_id=topic_id, partitions=partitions, assignment_epochs=[epochs[number] for number in partitions]
            )
        )
    return values


def _no_group(record_type: int, record: OfGroup) -> EncodedRecord:
    return EncodedRecord(record_type, _key(record.group_id), None)


def _no_member(record_type: int, record: records.OfMember, *, has_history: bool = True) -> EncodedRecord:
    return EncodedRecord(record_type, _key(record.group_id, record.member_id), None, has_history=has_history)


def _no_regex(record: records.RegexForgotten) -> EncodedRecord:
    return EncodedRecord(CONSUMER_REGEX, _key(record.group_id, record.regex), None)


def _decode_epoch(key: bytes, value: bytes) -> records.GroupEpochBumped:
    stored = storage.ConsumerGroupEpochValue.FromString(value)
    return records.GroupEpochBumped(key.decode(), stored.group_epoch, stored.metadata_hash)


def _decode_member(key: bytes, value: bytes) -> records.MemberChanged:
    group_id, member_id = _parts(key)
    stored = storage.ConsumerMemberValue.FromString(value)
    classic = None
    if stored.HasField("classic"):
        protocols = tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in stored.classic.protocols)
        classic = ClassicMetadata(stored.classic.session_timeout_ms, protocols)
    member = ConsumerMember(
        member_id=member_id,
        instance_id=stored.instance_id if stored.HasField("instance_id") else None,
        rack_id=stored.rack_id if stored.HasField("rack_id") else None,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        subscription=MemberSubscription(
            frozenset(stored.subscribed_topic_names),
            stored.subscribed_topic_regex if stored.HasField("subscribed_topic_regex") else None,
        ),
        server_assignor=stored.server_assignor if stored.HasField("server_assignor") else None,
        classic=classic,
    )
    return records.MemberChanged(group_id, member)


def _decode_regex(key: bytes, value: bytes) -> records.RegexResolved:
    group_id, regex = _parts(key)
    stored = storage.ConsumerRegexValue.FromString(value)
    resolved = ResolvedRegex(frozenset(stored.topic_names), stored.catalog_version, stored.resolved_ms)
    return records.RegexResolved(group_id, regex, resolved)


def _decode_target_epoch(key: bytes, value: bytes) -> records.TargetEpochReached:
    stored = storage.ConsumerTargetEpochValue.FromString(value)
    return records.TargetEpochReached(key.decode(), stored.assignment_epoch, stored.computed_ms, stored.assignor_name)


def _decode_target(key: bytes, value: bytes) -> records.TargetChanged:
    group_id, member_id = _parts(key)
    stored = storage.ConsumerTargetMemberValue.FromString(value)
    share: Share[bytes] = {topic.topic_id: tuple(topic.partitions) for topic in stored.topics}
    return records.TargetChanged(group_id, member_id, share)


def _decode_assignment(key: bytes, value: bytes) -> records.AssignmentChanged:
    group_id, member_id = _parts(key)
    stored = storage.ConsumerCurrentAssignmentValue.FromString(value)
    assignment = CurrentAssignment(
        member_epoch=stored.member_epoch,
        previous_member_epoch=stored.previous_member_epoch,
        state=MemberState(stored.state),
        assigned=_held(stored.assigned),
        pending_revocation=_held(stored.pending_revocation),
    )
    return records.AssignmentChanged(group_id, member_id, assignment)


def _held(stored: Iterable[storage.TopicPartitionsValue]) -> Held:
    return {topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs, strict=True)) for topic in stored}


_Unstored: TypeAlias = records.MetadataChecked | records.RegexesChecked | records.RebalanceNoted | records.RejoinAwaited


def _nothing(_record: _Unstored) -> None:
    return None


ENCODERS: Final[Encoders] = {
    records.GroupEpochBumped: _epoch,
    records.ConsumerGroupForgotten: partial(_no_group, CONSUMER_GROUP_EPOCH),
    records.MemberChanged: _member,
    records.MemberForgotten: partial(_no_member, CONSUMER_MEMBER),
    records.RegexResolved: _regex,
    records.RegexForgotten: _no_regex,
    records.TargetEpochReached: _target_epoch,
    records.TargetEpochForgotten: partial(_no_group, CONSUMER_TARGET_EPOCH),
    records.TargetChanged: _target,
    records.TargetForgotten: partial(_no_member, CONSUMER_TARGET_MEMBER, has_history=False),
    records.AssignmentChanged: _assignment,
    records.AssignmentForgotten: partial(_no_member, CONSUMER_CURRENT_ASSIGNMENT),
    records.MetadataChecked: _nothing,
    records.RebalanceNoted: _nothing,
    records.RegexesChecked: _nothing,
    records.RejoinAwaited: _nothing,
}

DECODERS: Final[Decoders] = {
    CONSUMER_GROUP_EPOCH: _decode_epoch,
    CONSUMER_MEMBER: _decode_member,
    CONSUMER_REGEX: _decode_regex,
    CONSUMER_TARGET_EPOCH: _decode_target_epoch,
    CONSUMER_TARGET_MEMBER: _decode_target,
    CONSUMER_CURRENT_ASSIGNMENT: _decode_assignment,
}
