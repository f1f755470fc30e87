"""Bytes of the records of streams groups (storage/v1/group.proto). A key is the group id, then a NUL and the member
id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders
from group_coordinator.codec import (
    STREAMS_CURRENT_ASSIGNMENT,
    STREAMS_GROUP_EPOCH,
    STREAMS_MEMBER,
    STREAMS_TARGET_EPOCH,
    STREAMS_TARGET_MEMBER,
    STREAMS_TOPOLOGY,
)
from group_coordinator.members import MemberState
from group_coordinator.state import OfGroup
from group_coordinator.streams import records
from group_coordinator.streams.state import (
    Roles,
    StreamsAssignment,
    StreamsMember,
    TaskId,
    TaskSet,
    UserEndpoint,
    by_subtopology,
)
from group_coordinator.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology

_SEPARATOR: Final = b"\0"


def _key(*parts: str) -> bytes:
    return _SEPARATOR.join(part.encode() for part in parts)


def _parts(key: bytes) -> tuple[str, str]:
    group_id, _, rest = key.partition(_SEPARATOR)
    return group_id.decode(), rest.decode()


def _epoch(record: records.StreamsGroupEpochBumped) -> EncodedRecord:
    value = storage.StreamsGroupEpochValue(
        group_epoch=record.group_epoch,
        metadata_hash=record.metadata_hash,
        validated_topology_epoch=record.validated_topology_epoch,
    )
    return EncodedRecord(STREAMS_GROUP_EPOCH, _key(record.group_id), value.SerializeToString(), told=record.group_epoch)


def _topology(record: records.StreamsTopologyChanged) -> EncodedRecord:
    value = storage.StreamsTopologyValue(epoch=record.topology.epoch)
    for each in record.topology.subtopologies:
        value.subtopologies.add(
            subtopology_id=each.subtopology_id,
            source_topics=each.source_topics,
            repartition_source_topics=map(_internal_topic, each.repartition_sources),
            repartition_sink_topics=each.repartition_sinks,
            state_changelog_topics=map(_internal_topic, each.changelogs),
            copartition_groups=[
                storage.StreamsCopartitionGroupValue(
                    source_topics=group.source_topics, repartition_source_topics=group.repartition_sources
                )
                for group in each.copartition_groups
            ],
        )
    return EncodedRecord(STREAMS_TOPOLOGY, _key(record.group_id), value.SerializeToString(deterministic=True))


def _internal_topic(topic: InternalTopic) -> storage.StreamsInternalTopicValue:
    return storage.StreamsInternalTopicValue(
        name=topic.name, partition_count=topic.partition_count, config=topic.config
    )


def _member(record: records.StreamsMemberChanged) -> EncodedRecord:
    member, endpoint = record.member, record.member.user_endpoint
    value = storage.StreamsMemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        process_id=member.process_id,
        topology_epoch=member.topology_epoch,
        endpoint_host="" if endpoint is None else endpoint.host,
        endpoint_port=0 if endpoint is None else endpoint.port,
        client_tags=member.client_tags,
        reports_offsets=member.reports_offsets,
    )
    key = _key(record.group_id, member.member_id)
    return EncodedRecord(STREAMS_MEMBER, key, value.SerializeToString(deterministic=True))


def _target_epoch(record: records.StreamsTargetEpochReached) -> EncodedRecord:
    value = storage.StreamsTargetEpochValue(assignment_epoch=record.assignment_epoch, computed_ms=record.computed_ms)
    return EncodedRecord(
        STREAMS_TARGET_EPOCH, _key(record.group_id), value.SerializeToString(), told=record.assignment_epoch
    )


def _target(record: records.StreamsTargetChanged) -> EncodedRecord:
    value = storage.StreamsTargetMemberValue(tasks=_roles_value(record.roles))
    # Targets have no history, as those of consumer groups.
    key = _key(record.group_id, record.member_id)
    return EncodedRecord(STREAMS_TARGET_MEMBER, key, value.SerializeToString(), has_history=False)


def _assignment(record: records.StreamsAssignmentChanged) -> EncodedRecord:
    assignment = record.assignment
    value = storage.StreamsCurrentAssignmentValue(
        member_epoch=assignment.member_epoch,
        previous_member_epoch=assignment.previous_member_epoch,
        state=int(assignment.state),
        assigned=_roles_value(assignment.assigned, assignment.active_since),
        pending_revocation=_roles_value(assignment.pending_revocation, assignment.active_since),
    )
    key = _key(record.group_id, record.member_id)
    return EncodedRecord(STREAMS_CURRENT_ASSIGNMENT, key, value.SerializeToString(), told=assignment.member_epoch)


def _roles_value(roles: Roles, active_since: Mapping[TaskId, int] | None = None) -> storage.StreamsRolesValue:
    value = storage.StreamsRolesValue(standby=_tasks_values(roles.standby), warmup=_tasks_values(roles.warmup))
    for each in _tasks_values(roles.active):
        if active_since is not None:
            each.assignment_epochs.extend(active_since[TaskId(each.subtopology_id, n)] for n in each.partitions)
        value.active.append(each)
    return value


def _tasks_values(tasks: TaskSet) -> list[storage.StreamsTasksValue]:
    return [
        storage.StreamsTasksValue(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in by_subtopology(tasks)
    ]


def _no_group(record_type: int, record: OfGroup) -> EncodedRecord:
    return EncodedRecord(record_type, _key(record.group_id), None)


def _no_member(record_type: int, record: records.OfStreamsMember, *, has_history: bool = True) -> EncodedRecord:
    return EncodedRecord(record_type, _key(record.group_id, record.member_id), None, has_history=has_history)


def _decode_epoch(key: bytes, value: bytes) -> records.StreamsGroupEpochBumped:
    stored = storage.StreamsGroupEpochValue.FromString(value)
    return records.StreamsGroupEpochBumped(
        key.decode(), stored.group_epoch, stored.metadata_hash, stored.validated_topology_epoch
    )


def _decode_topology(key: bytes, value: bytes) -> records.StreamsTopologyChanged:
    stored = storage.StreamsTopologyValue.FromString(value)
    subtopologies = tuple(
        Subtopology(
            subtopology_id=each.subtopology_id,
            source_topics=tuple(each.source_topics),
            repartition_sources=tuple(map(_decode_internal_topic, each.repartition_source_topics)),
            repartition_sinks=tuple(each.repartition_sink_topics),
            changelogs=tuple(map(_decode_internal_topic, each.state_changelog_topics)),
            copartition_groups=tuple(
                CopartitionGroup(tuple(group.source_topics), tuple(group.repartition_source_topics))
                for group in each.copartition_groups
            ),
        )
        for each in stored.subtopologies
    )
    return records.StreamsTopologyChanged(key.decode(), Topology(stored.epoch, subtopologies))


def _decode_internal_topic(stored: storage.StreamsInternalTopicValue) -> InternalTopic:
    return InternalTopic(stored.name, stored.partition_count, dict(stored.config))


def _decode_member(key: bytes, value: bytes) -> records.StreamsMemberChanged:
    group_id, member_id = _parts(key)
    stored = storage.StreamsMemberValue.FromString(value)
    member = StreamsMember(
        member_id=member_id,
        process_id=stored.process_id,
        topology_epoch=stored.topology_epoch,
        instance_id=stored.instance_id if stored.HasField("instance_id") else None,
        rack_id=stored.rack_id if stored.HasField("rack_id") else None,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        user_endpoint=UserEndpoint(stored.endpoint_host, stored.endpoint_port) if stored.endpoint_host else None,
        client_tags=dict(stored.client_tags),
        reports_offsets=stored.reports_offsets,
    )
    return records.StreamsMemberChanged(group_id, member)


def _decode_target_epoch(key: bytes, value: bytes) -> records.StreamsTargetEpochReached:
    stored = storage.StreamsTargetEpochValue.FromString(value)
    return records.StreamsTargetEpochReached(key.decode(), stored.assignment_epoch, stored.computed_ms)


def _decode_target(key: bytes, value: bytes) -> records.StreamsTargetChanged:
    group_id, member_id = _parts(key)
    stored = storage.StreamsTargetMemberValue.FromString(value)
    return records.StreamsTargetChanged(group_id, member_id, _roles(stored.tasks))


def _decode_assignment(key: bytes, value: bytes) -> records.StreamsAssignmentChanged:
    group_id, member_id = _parts(key)
    stored = storage.StreamsCurrentAssignmentValue.FromString(value)
    assignment = StreamsAssignment(
        member_epoch=stored.member_epoch,
        previous_member_epoch=stored.previous_member_epoch,
        state=MemberState(stored.state),
        assigned=_roles(stored.assigned),
        pending_revocation=_roles(stored.pending_revocation),
        active_since={
            TaskId(each.subtopology_id, partition): epoch
            for each in (*stored.assigned.active, *stored.pending_revocation.active)
            for partition, epoch in zip(each.partitions, each.assignment_epochs, strict=True)
        },
    )
    return records.StreamsAssignmentChanged(group_id, member_id, assignment)


def _roles(stored: storage.StreamsRolesValue) -> Roles:
    return Roles(_tasks(stored.active), _tasks(stored.standby), _tasks(stored.warmup))


def _tasks(stored: Iterable[storage.StreamsTasksValue]) -> TaskSet:
    return frozenset(TaskId(each.subtopology_id, partition) for each in stored for partition in each.partitions)


_Unstored: TypeAlias = (
    records.StreamsTopicsLooked
    | records.StreamsOffsetsReported
    | records.StreamsShutdownWanted
    | records.StreamsRebalanceNoted
    | records.StreamsFirstTargetDelayed
)


def _nothing(_record: _Unstored) -> None:
    return None


ENCODERS: Final[Encoders] = {
    records.StreamsGroupEpochBumped: _epoch,
    records.StreamsGroupForgotten: partial(_no_group, STREAMS_GROUP_EPOCH),
    records.StreamsTopologyChanged: _topology,
    records.StreamsTopologyForgotten: partial(_no_group, STREAMS_TOPOLOGY),
    records.StreamsMemberChanged: _member,
    records.StreamsMemberForgotten: partial(_no_member, STREAMS_MEMBER),
    records.StreamsTargetEpochReached: _target_epoch,
    records.StreamsTargetEpochForgotten: partial(_no_group, STREAMS_TARGET_EPOCH),
    records.StreamsTargetChanged: _target,
    records.StreamsTargetForgotten: partial(_no_member, STREAMS_TARGET_MEMBER, has_history=False),
    records.StreamsAssignmentChanged: _assignment,
    records.StreamsAssignmentForgotten: partial(_no_member, STREAMS_CURRENT_ASSIGNMENT),
    records.StreamsTopicsLooked: _nothing,
    records.StreamsOffsetsReported: _nothing,
    records.StreamsShutdownWanted: _nothing,
    records.StreamsRebalanceNoted: _nothing,
    records.StreamsFirstTargetDelayed: _nothing,
}

DECODERS: Final[Decoders] = {
    STREAMS_GROUP_EPOCH: _decode_epoch,
    STREAMS_TOPOLOGY: _decode_topology,
    STREAMS_MEMBER: _decode_member,
    STREAMS_TARGET_EPOCH: _decode_target_epoch,
    STREAMS_TARGET_MEMBER: _decode_target,
    STREAMS_CURRENT_ASSIGNMENT: _decode_assignment,
}
