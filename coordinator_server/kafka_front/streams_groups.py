"""Members of streams groups over Kafka's protocol: StreamsGroupHeartbeat and StreamsGroupDescribe.

A heartbeat is answered at once. Members hear of changes with the next one. Internal topics are made before the answer,
by the rights of the caller.

Source: KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from coordinator_protocol.acls import ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front.access_bits import NOT_ASKED, AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.client_hosts import shown_host
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages import streams_group_describe_response as described_message
from coordinator_server.kafka_front.messages import streams_group_heartbeat_request as heartbeat_request
from coordinator_server.kafka_front.messages import streams_group_heartbeat_response as heartbeat_response
from coordinator_server.kafka_front.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from coordinator_server.kafka_front.messages.streams_group_describe_response import (
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
)
from coordinator_server.kafka_front.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from coordinator_server.kafka_front.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from coordinator_server.kafka_front.streams_topologies import described_topology, topology_of
from group_coordinator.members import JOIN_EPOCH
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
from group_coordinator.topics import TopicShare

_UNCHANGED: Final = -1
"""Rebalance timeout of a heartbeat that does not change it."""


def streams_group_handlers(service: StreamsService, access: AccessBits) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    groups = StreamsGroupCalls(service, access)
    yield ApiKey.STREAMS_GROUP_HEARTBEAT, ApiHandler(groups.heartbeat, _heartbeat_refused)
    yield ApiKey.STREAMS_GROUP_DESCRIBE, ApiHandler(groups.describe, _describe_refused)


class StreamsGroupCalls:
    """One method per API."""

    def __init__(self, service: StreamsService, access: AccessBits) -> None:
        self._service = service
        self._access = access

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, exchange: KafkaExchange
    ) -> Pending[StreamsGroupHeartbeatResponse]:
        return self._service.heartbeat(_heartbeat(request), exchange.context).map(_heard)

    def describe(
        self, request: StreamsGroupDescribeRequest, exchange: KafkaExchange
    ) -> Pending[StreamsGroupDescribeResponse]:
        def operations(group_id: str) -> int:
            if not request.include_authorized_operations:
                return NOT_ASKED
            return self._access.of(exchange.context, ResourceType.GROUP, group_id)

        groups = [
            _refused_group(described.group_id, exchange, described.refusal)
            if described.refusal is not None
            else _described_group(described, operations(described.group_id))
            for described in self._service.describe(request.group_ids, exchange.context)
        ]
        return settled(StreamsGroupDescribeResponse(groups=groups))


# From messages


def _heartbeat(request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint, tags, timeout_ms = request.user_endpoint, request.client_tags, request.rebalance_timeout_ms
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms == _UNCHANGED else timeout_ms,
        topology=None if request.topology is None else topology_of(request.topology),
        owned=_owned(request),
        process_id=_process_id(request),
        user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else {each.key: each.value for each in tags},
        task_offsets=_offsets(request),
        endpoint_epoch=request.endpoint_information_epoch,
        shutdown_application=request.shutdown_application,
    )


def _process_id(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Return the process of the member. In Kafka a join may leave it out: such a member is a process of its own."""
    if request.process_id is None and request.member_epoch == JOIN_EPOCH:
        return request.member_id
    return request.process_id


def _owned(request: StreamsGroupHeartbeatRequest) -> Roles | None:
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    given = [_tasks(each) for each in lists if each is not None]
    if not given:
        return None
    if len(given) < len(lists):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "only some lists of tasks are there: send active, standby and warm-up tasks, or none",
        )
    return Roles(*given)


def _tasks(messages: Iterable[heartbeat_request.TaskIds]) -> TaskSet:
    return frozenset([TaskId(each.subtopology_id, partition) for each in messages for partition in each.partitions])


def _offsets(request: StreamsGroupHeartbeatRequest) -> tuple[TaskOffset, ...] | None:
    if request.task_offsets is None and request.task_end_offsets is None:
        return None
    offsets, end_offsets = _by_task(request.task_offsets or ()), _by_task(request.task_end_offsets or ())
    if offsets.keys() != end_offsets.keys():
        raise Refused(
            ErrorCode.INVALID_REQUEST, "task_offsets and task_end_offsets name different tasks; send both of each task"
        )
    return tuple([TaskOffset(task, offset, end_offsets[task]) for task, offset in offsets.items()])


def _by_task(messages: Iterable[heartbeat_request.TaskOffset]) -> dict[TaskId, int]:
    return {TaskId(each.subtopology_id, each.partition): each.offset for each in messages}


# Answers to heartbeats


def _heard(reply: StreamsReply) -> StreamsGroupHeartbeatResponse:
    active, standby, warmup = (None, None, None) if reply.tasks is None else map(_task_ids, reply.tasks.sets())
    return StreamsGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        acceptable_recovery_lag=reply.acceptable_lag,
        task_offset_interval_ms=reply.task_offset_interval_ms,
        status=[heartbeat_response.Status(code, detail) for code, detail in reply.statuses],
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None if reply.endpoints is None else [_endpoint(each) for each in reply.endpoints],
    )


def _task_ids(tasks: TaskSet) -> list[heartbeat_response.TaskIds]:
    return [heartbeat_response.TaskIds(*each) for each in by_subtopology(tasks)]


def _endpoint(here: EndpointPartitions) -> heartbeat_response.EndpointToPartitions:
    return heartbeat_response.EndpointToPartitions(
        user_endpoint=heartbeat_response.Endpoint(here.endpoint.host, here.endpoint.port),
        active_partitions=_partitions(here.active),
        standby_partitions=_partitions(here.standby),
    )


def _partitions(shares: Iterable[TopicShare]) -> list[heartbeat_response.TopicPartition]:
    return [heartbeat_response.TopicPartition(share.topic, share.partitions) for share in shares if share.topic]


def _heartbeat_refused(
    _request: StreamsGroupHeartbeatRequest, exchange: KafkaExchange, error: CoordinatorError
) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=exchange.code(error), error_message=error.message)


# Descriptions


def _described_group(described: StreamsGroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=described.group_id,
        group_state=described.state_name,
        group_epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
        topology=described_topology(described.topology),
        members=[_described_member(each) for each in described.members],
        authorized_operations=operations,
    )


def _described_member(described: StreamsMemberDescription) -> Member:
    member, offsets = described.member, described.task_offsets
    return Member(
        member_id=member.member_id,
        member_epoch=described.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=shown_host(member.client_host),
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.user_endpoint is None else described_message.Endpoint(*member.user_endpoint),
        client_tags=[described_message.KeyValue(name, value) for name, value in sorted(member.client_tags.items())],
        task_offsets=_described_offsets([(each.task, each.offset) for each in offsets]),
        task_end_offsets=_described_offsets([(each.task, each.end_offset) for each in offsets]),
        assignment=_described_tasks(described.assigned),
        target_assignment=_described_tasks(described.target),
    )


def _described_offsets(offsets: Sequence[tuple[TaskId, int]]) -> list[described_message.TaskOffset]:
    return [described_message.TaskOffset(*task, offset) for task, offset in offsets]


def _described_tasks(roles: Roles) -> described_message.Assignment:
    active, standby, warmup = ([described_message.TaskIds(*each) for each in by_subtopology(t)] for t in roles.sets())
    return described_message.Assignment(active, standby, warmup)


def _refused_group(group_id: str, exchange: KafkaExchange, error: CoordinatorError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=exchange.code(error), error_message=error.message)


def _describe_refused(
    request: StreamsGroupDescribeRequest, exchange: KafkaExchange, error: CoordinatorError
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[_refused_group(group_id, exchange, error) for group_id in request.group_ids]
    )
