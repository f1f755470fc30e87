"""Descriptions of streams groups, from the messages of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.descriptions.groups import (
    STREAMS,
    GroupDescription,
    GroupMember,
    MemberTasks,
    described_by_epochs,
)
from coordinator_client.values import TopicPartition


def described_streams(found: group.StreamsGroupDescription) -> GroupDescription:
    """Return the description of a streams group."""
    sources = {
        each.subtopology_id: (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
        for each in found.topology.subtopologies
    }
    names = tuple(sorted({name for topics in sources.values() for name in topics}))
    members = (
        GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id if member.HasField("instance_id") else None,
            rack_id=member.rack_id if member.HasField("rack_id") else None,
            client_id=member.client_id,
            client_host=member.client_host,
            epoch=member.member_epoch,
            subscribed_topic_names=names,
            subscribed_topic_regex=None,
            assignment=_read_by(member.assignment.active, sources),
            target_assignment=_read_by(member.target_assignment.active, sources),
            is_classic=False,
            tasks=_tasks(member),
        )
        for member in found.members
    )
    return described_by_epochs(found, members, group_type=STREAMS, protocol_type=STREAMS, assignor="sticky")


def _read_by(tasks: Iterable[group.StreamsTaskIds], sources: Mapping[str, Iterable[str]]) -> tuple[TopicPartition, ...]:
    """Return the partitions that active tasks read."""
    found = {
        TopicPartition(topic, partition)
        for each in tasks
        for topic in sources.get(each.subtopology_id, ())
        for partition in each.partitions
    }
    return tuple(sorted(found))


def _tasks(member: group.StreamsGroupMember) -> MemberTasks:
    given = member.assignment
    return MemberTasks(
        process_id=member.process_id,
        active=_ids(given.active),
        standby=_ids(given.standby),
        warmup=_ids(given.warmup),
        lags={
            (each.subtopology_id, each.partition): max(0, each.end_offset - each.offset) for each in member.task_offsets
        },
    )


def _ids(tasks: Iterable[group.StreamsTaskIds]) -> tuple[tuple[str, int], ...]:
    return tuple((each.subtopology_id, partition) for each in tasks for partition in each.partitions)
