"""Consumer groups: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

A heartbeat is answered at once. Members hear of changes with the next one.

Source: KIP-848; KIP-1082 (from version 1 on the client makes its member id).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from coordinator_protocol.acls import ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.access_bits import NOT_ASKED, AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.client_hosts import shown_host
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages import consumer_group_heartbeat_response as heartbeat_response
from coordinator_server.kafka_front.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from coordinator_server.kafka_front.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from coordinator_server.kafka_front.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from coordinator_server.kafka_front.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from group_coordinator.consumer.requests import (
    ConsumerGroupDescription,
    HeartbeatRequest,
    MemberDescription,
)
from group_coordinator.consumer.service import ConsumerService
from group_coordinator.members import HeartbeatAnswer
from group_coordinator.topics import TopicShare

_OWN_MEMBER_ID_SINCE: Final = 1
"""First ConsumerGroupHeartbeat whose client makes the member id."""
_UNCHANGED: Final = -1
"""Rebalance timeout of a heartbeat that does not change it."""
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def consumer_group_handlers(service: ConsumerService, access: AccessBits) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    groups = ConsumerGroupCalls(service, access)
    yield ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiHandler(groups.heartbeat, _heartbeat_refused)
    yield ApiKey.CONSUMER_GROUP_DESCRIBE, ApiHandler(groups.describe, _describe_refused)


class ConsumerGroupCalls:
    """One method per API."""

    def __init__(self, service: ConsumerService, access: AccessBits) -> None:
        self._service = service
        self._access = access

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, exchange: KafkaExchange
    ) -> Pending[ConsumerGroupHeartbeatResponse]:
        if exchange.version >= _OWN_MEMBER_ID_SINCE and not request.member_id:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the member id is empty: clients make it from version {_OWN_MEMBER_ID_SINCE} on",
            )
        return self._service.heartbeat(_heartbeat(request), exchange.context).map(_heard)

    def describe(
        self, request: ConsumerGroupDescribeRequest, exchange: KafkaExchange
    ) -> Pending[ConsumerGroupDescribeResponse]:
        def operations(group_id: str) -> int:
            if not request.include_authorized_operations:
                return NOT_ASKED
            return self._access.of(exchange.context, ResourceType.GROUP, group_id)

        found = self._service.describe(request.group_ids, exchange.context, includes_revoked=True)
        groups = [
            _refused_group(described.group_id, exchange, described.refusal)
            if described.refusal is not None
            else _described_group(described, operations(described.group_id))
            for described in found
        ]
        return settled(ConsumerGroupDescribeResponse(groups=groups))


def _heartbeat(request: ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    timeout_ms, topics, owned = request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions
    return HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms == _UNCHANGED else timeout_ms,
        subscribed_topic_names=None if topics is None else frozenset(topics),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned_names=None
        if owned is None
        else tuple([PartitionName("", topic.topic_id, number) for topic in owned for number in topic.partitions]),
    )


def _heard(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if answer.assigned is None
        else heartbeat_response.Assignment(
            topic_partitions=[
                heartbeat_response.TopicPartitions(topic_id=share.topic_id, partitions=share.partitions)
                for share in answer.assigned
            ]
        ),
    )


def _heartbeat_refused(
    _request: ConsumerGroupHeartbeatRequest, exchange: KafkaExchange, error: CoordinatorError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=exchange.code(error), error_message=error.message)


def _described_group(described: ConsumerGroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=described.group_id,
        group_state=described.state_name,
        group_epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor_name,
        members=[_described_member(each) for each in described.members],
        authorized_operations=operations,
    )


def _described_member(described: MemberDescription) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=described.member_epoch,
        client_id=member.client_id,
        client_host=shown_host(member.client_host),
        subscribed_topic_names=sorted(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex or "",
        assignment=_assignment(described.assigned),
        target_assignment=_assignment(described.target),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(shares: Iterable[TopicShare]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=share.topic_id, topic_name=share.topic, partitions=share.partitions)
            for share in shares
        ]
    )


def _refused_group(group_id: str, exchange: KafkaExchange, error: CoordinatorError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=exchange.code(error), error_message=error.message)


def _describe_refused(
    request: ConsumerGroupDescribeRequest, exchange: KafkaExchange, error: CoordinatorError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[_refused_group(group_id, exchange, error) for group_id in request.group_ids]
    )
