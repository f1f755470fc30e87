"""Bytes of the records of classic groups (storage/v1/group.proto)."""

from __future__ import annotations

from typing import Final

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders
from group_coordinator.classic.state import (
    ClassicGroup,
    ClassicGroupChanged,
    ClassicGroupForgotten,
    ClassicMember,
    ClassicProtocol,
    rebuilt_group,
)
from group_coordinator.codec import CLASSIC_GROUP


def _encode_changed(record: ClassicGroupChanged) -> EncodedRecord | None:
    if not record.is_stored:
        return None
    group = record.group
    value = storage.ClassicGroupValue(
        protocol_type=group.protocol_type,
        generation_id=group.generation_id,
        protocol_name=group.protocol_name,
        leader=group.leader,
        state_timestamp_ms=group.state_timestamp_ms,
        members=[_encode_member(member, group.protocol_name) for member in group.members.values()],
    )
    return EncodedRecord(CLASSIC_GROUP, group.group_id.encode(), value.SerializeToString(), told=group.generation_id)


def _encode_member(member: ClassicMember, protocol_name: str | None) -> storage.ClassicMemberValue:
    return storage.ClassicMemberValue(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        metadata=member.metadata(protocol_name),
        assignment=member.assignment,
    )


def _encode_forgotten(record: ClassicGroupForgotten) -> EncodedRecord:
    return EncodedRecord(CLASSIC_GROUP, record.group_id.encode(), None)


def _decode(key: bytes, encoded: bytes) -> ClassicGroupChanged:
    value = storage.ClassicGroupValue.FromString(encoded)
    return ClassicGroupChanged(_decode_group(key.decode(), value), is_stored=True)


def _decode_group(group_id: str, value: storage.ClassicGroupValue) -> ClassicGroup:
    protocol_name = value.protocol_name if value.HasField("protocol_name") else None
    bare = ClassicGroup(
        group_id=group_id,
        protocol_type=value.protocol_type,
        protocol_name=protocol_name,
        generation_id=value.generation_id,
        leader=value.leader if value.HasField("leader") else None,
        state_timestamp_ms=value.state_timestamp_ms,
    )
    return rebuilt_group(bare, [_decode_member(member, protocol_name) for member in value.members])


def _decode_member(member: storage.ClassicMemberValue, protocol_name: str | None) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=() if protocol_name is None else (ClassicProtocol(protocol_name, member.metadata),),
        assignment=member.assignment,
    )


ENCODERS: Final[Encoders] = {
    ClassicGroupChanged: _encode_changed,
    ClassicGroupForgotten: _encode_forgotten,
}
DECODERS: Final[Decoders] = {CLASSIC_GROUP: _decode}
