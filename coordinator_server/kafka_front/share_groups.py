"""Members of share groups over Kafka's protocol: ShareGroupHeartbeat and ShareGroupDescribe.

`share_records` has the records, and `share_offsets` the offsets of groups.

Source: KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import ResourceType
from coordinator_server.kafka_front.access_bits import NOT_ASKED, AccessBits
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.client_hosts import shown_host
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages import share_group_heartbeat_response as heartbeat_response
from coordinator_server.kafka_front.messages.share_group_describe_request import ShareGroupDescribeRequest
from coordinator_server.kafka_front.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from coordinator_server.kafka_front.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from coordinator_server.kafka_front.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from group_coordinator.members import HeartbeatAnswer
from group_coordinator.share.requests import ShareGroupDescription, ShareHeartbeat, ShareMemberDescription
from group_coordinator.share.service import ShareService


def share_group_handlers(service: ShareService, access: AccessBits) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of this family."""
    groups = ShareGroupCalls(service, access)
    yield ApiKey.SHARE_GROUP_HEARTBEAT, ApiHandler(groups.heartbeat, _heartbeat_refused)
    yield ApiKey.SHARE_GROUP_DESCRIBE, ApiHandler(groups.describe, _describe_refused)


class ShareGroupCalls:
    """One method per API."""

    def __init__(self, service: ShareService, access: AccessBits) -> None:
        self._service = service
        self._access = access

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, exchange: KafkaExchange
    ) -> Pending[ShareGroupHeartbeatResponse]:
        if not request.member_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "the member id is empty: clients make it")
        return self._service.heartbeat(_heartbeat(request), exchange.context).map(_heard)

    def describe(
        self, request: ShareGroupDescribeRequest, exchange: KafkaExchange
    ) -> Pending[ShareGroupDescribeResponse]:
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
        return settled(ShareGroupDescribeResponse(groups=groups))


def _heartbeat(request: ShareGroupHeartbeatRequest) -> ShareHeartbeat:
    topics = request.subscribed_topic_names
    return ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_topic_names=None if topics is None else frozenset(topics),
        # A session is independent of the membership in Kafka, and librdkafka leaves before it acknowledges.
        keeps_session=True,
    )


def _heard(answer: HeartbeatAnswer) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
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
    _request: ShareGroupHeartbeatRequest, exchange: KafkaExchange, error: CoordinatorError
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=exchange.code(error), error_message=error.message)


def _described_group(described: ShareGroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=described.group_id,
        group_state=described.state_name,
        group_epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor_name,
        members=[_described_member(each) for each in described.members],
        authorized_operations=operations,
    )


def _described_member(described: ShareMemberDescription) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=described.member_epoch,
        client_id=member.client_id,
        client_host=shown_host(member.client_host),
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=share.topic_id, topic_name=share.topic, partitions=share.partitions)
                for share in described.assigned
            ]
        ),
    )


def _refused_group(group_id: str, exchange: KafkaExchange, error: CoordinatorError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=exchange.code(error), error_message=error.message)


def _describe_refused(
    request: ShareGroupDescribeRequest, exchange: KafkaExchange, error: CoordinatorError
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[_refused_group(group_id, exchange, error) for group_id in request.group_ids]
    )
