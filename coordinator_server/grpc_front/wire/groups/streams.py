"""The streams members' part of GroupService: messages to commands of `StreamsService`, its values to messages."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_api.v1 import group_pb2
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import set_error
from coordinator_server.grpc_front.wire.groups.topics import topic_partitions
from group_coordinator.streams.requests import (
    EndpointPartitions,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsMemberDescription,
    StreamsReply,
    TaskOffset,
)
from group_coordinator.streams.service import StreamsService
from group_coordinator.streams.state import Roles, TaskId, TaskSet, UserEndpoint, by_subtopology
from group_coordinator.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology


class StreamsServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(self, service: StreamsService) -> None:
        self._service = service

    def StreamsGroupHeartbeat(
        self, request: group_pb2.StreamsGroupHeartbeatRequest, context: CallContext
    ) -> Pending[group_pb2.StreamsGroupHeartbeatResponse]:
        return self._service.heartbeat(_heartbeat(request), context).map(_heartbeat_response)

    def StreamsGroupDescribe(
        self, request: group_pb2.StreamsGroupDescribeRequest, context: CallContext
    ) -> Pending[group_pb2.StreamsGroupDescribeResponse]:
        response = group_pb2.StreamsGroupDescribeResponse()
        for described in self._service.describe(request.group_ids, context):
            description = response.groups.add(group_id=described.group_id)
            if described.refusal is not None:
                set_error(description, Method.STREAMS_GROUP_DESCRIBE, described.refusal)
            else:
                _fill_description(description, described)
        return settled(response)


# From messages


def _heartbeat(message: group_pb2.StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint = message.user_endpoint
    return StreamsHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        instance_id=message.instance_id if message.HasField("instance_id") else None,
        rack_id=message.rack_id if message.HasField("rack_id") else None,
        rebalance_timeout_ms=message.rebalance_timeout_ms if message.HasField("rebalance_timeout_ms") else None,
        topology=_topology(message.topology) if message.HasField("topology") else None,
        owned=_roles(message.owned_tasks) if message.HasField("owned_tasks") else None,
        process_id=message.process_id if message.HasField("process_id") else None,
        user_endpoint=UserEndpoint(endpoint.host, endpoint.port) if message.HasField("user_endpoint") else None,
        client_tags=dict(message.client_tags.tags) if message.HasField("client_tags") else None,
        task_offsets=_offsets(message.task_offsets.offsets) if message.HasField("task_offsets") else None,
        endpoint_epoch=message.endpoint_information_epoch,
        shutdown_application=message.shutdown_application,
        max_wait_ms=message.max_wait_ms,
    )


def _topology(message: group_pb2.StreamsTopology) -> Topology:
    subtopologies = tuple(
        Subtopology(
            subtopology_id=each.subtopology_id,
            source_topics=tuple(each.source_topics),
            repartition_sources=tuple(map(_internal_topic, each.repartition_source_topics)),
            repartition_sinks=tuple(each.repartition_sink_topics),
            changelogs=tuple(map(_internal_topic, each.state_changelog_topics)),
            copartition_groups=tuple(
                CopartitionGroup(tuple(group.source_topics), tuple(group.repartition_source_topics))
                for group in each.copartition_groups
            ),
        )
        for each in message.subtopologies
    )
    return Topology(message.epoch, subtopologies)


def _internal_topic(message: group_pb2.StreamsInternalTopic) -> InternalTopic:
    return InternalTopic(message.name, message.partition_count, dict(message.config))


def _roles(message: group_pb2.StreamsTasks) -> Roles:
    return Roles(_tasks(message.active), _tasks(message.standby), _tasks(message.warmup))


def _tasks(messages: Iterable[group_pb2.StreamsTaskIds]) -> TaskSet:
    return frozenset(TaskId(each.subtopology_id, partition) for each in messages for partition in each.partitions)


def _offsets(messages: Iterable[group_pb2.StreamsTaskOffset]) -> tuple[TaskOffset, ...]:
    return tuple(
        TaskOffset(TaskId(each.subtopology_id, each.partition), each.offset, each.end_offset) for each in messages
    )


# To messages


def _heartbeat_response(reply: StreamsReply) -> group_pb2.StreamsGroupHeartbeatResponse:
    response = group_pb2.StreamsGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        acceptable_recovery_lag=reply.acceptable_lag,
        task_offset_interval_ms=reply.task_offset_interval_ms,
        endpoint_information_epoch=reply.endpoint_epoch,
    )
    for code, detail in reply.statuses:
        response.statuses.add(code=group_pb2.StreamsStatusCode.ValueType(code), detail=detail)
    if reply.tasks is not None:
        response.assignment.CopyFrom(_tasks_message(reply.tasks))
    if reply.endpoints is not None:
        response.endpoint_information.SetInParent()
        response.endpoint_information.endpoints.extend(map(_endpoint_message, reply.endpoints))
    return response


def _tasks_message(roles: Roles) -> group_pb2.StreamsTasks:
    active, standby, warmup = map(_task_ids, roles.sets())
    return group_pb2.StreamsTasks(active=active, standby=standby, warmup=warmup)


def _task_ids(tasks: TaskSet) -> list[group_pb2.StreamsTaskIds]:
    return [
        group_pb2.StreamsTaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in by_subtopology(tasks)
    ]


def _endpoint_message(here: EndpointPartitions) -> group_pb2.StreamsEndpointPartitions:
    return group_pb2.StreamsEndpointPartitions(
        user_endpoint=group_pb2.StreamsEndpoint(host=here.endpoint.host, port=here.endpoint.port),
        active_partitions=topic_partitions(here.active),
        standby_partitions=topic_partitions(here.standby),
    )


def _fill_description(description: group_pb2.StreamsGroupDescription, described: StreamsGroupDescription) -> None:
    description.group_state = described.state_name
    description.group_epoch = described.group_epoch
    description.assignment_epoch = described.assignment_epoch
    description.topology.epoch = described.topology.epoch
    description.topology.subtopologies.extend(map(_subtopology_message, described.topology.subtopologies))
    description.members.extend(map(_member_message, described.members))


def _subtopology_message(subtopology: Subtopology) -> group_pb2.StreamsSubtopology:
    return group_pb2.StreamsSubtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        repartition_source_topics=map(_internal_topic_message, subtopology.repartition_sources),
        repartition_sink_topics=subtopology.repartition_sinks,
        state_changelog_topics=map(_internal_topic_message, subtopology.changelogs),
        copartition_groups=[
            group_pb2.StreamsCopartitionGroup(
                source_topics=group.source_topics, repartition_source_topics=group.repartition_sources
            )
            for group in subtopology.copartition_groups
        ],
    )


def _internal_topic_message(topic: InternalTopic) -> group_pb2.StreamsInternalTopic:
    return group_pb2.StreamsInternalTopic(name=topic.name, partition_count=topic.partition_count, config=topic.config)


def _member_message(described: StreamsMemberDescription) -> group_pb2.StreamsGroupMember:
    member = described.member
    message = group_pb2.StreamsGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=described.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        process_id=member.process_id,
        topology_epoch=member.topology_epoch,
        client_tags=member.client_tags,
        assignment=_tasks_message(described.assigned),
        target_assignment=_tasks_message(described.target),
    )
    if member.user_endpoint is not None:
        message.user_endpoint.host, message.user_endpoint.port = member.user_endpoint
    for (subtopology_id, partition), offset, end_offset in described.task_offsets:
        message.task_offsets.add(
            subtopology_id=subtopology_id, partition=partition, offset=offset, end_offset=end_offset
        )
    return message
