"""Members of share groups over Kafka's protocol, and what is told of their groups."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.access_bits import NOT_ASKED
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.share_group_describe_request import ShareGroupDescribeRequest
from coordinator_server.kafka_front.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.share_groups import ShareGroups, share_groups

HEARTBEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE


@pytest.fixture
def shares() -> ShareGroups:
    return share_groups()


def beats(shares: ShareGroups, member_epoch: int = 0, *topics: str, **fields: Any) -> Any:
    said = {"group_id": "g", "member_id": "m", "member_epoch": member_epoch, **fields}
    if topics:
        said["subscribed_topic_names"] = topics
    return KafkaCaller(shares.world).call(HEARTBEAT, 1, ShareGroupHeartbeatRequest(**said))


def described(shares: ShareGroups, group_id: str = "g", **fields: Any) -> Any:
    request = ShareGroupDescribeRequest(group_ids=(group_id,), **fields)
    (group,) = KafkaCaller(shares.world).call(DESCRIBE, 1, request).groups
    return group


def test_a_member_joins_stays_and_leaves(shares: ShareGroups) -> None:
    joined = beats(shares, 0, "foo", rack_id="r")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "m", 1)
    assert joined.heartbeat_interval_ms == 5_000
    (share,) = joined.assignment.topic_partitions
    topic_id = shares.world.inside.catalog.resolve("foo", b"", 0).topic_id
    assert (share.topic_id, list(share.partitions)) == (topic_id, [0, 1, 2, 3, 4, 5])
    assert beats(shares, 1).assignment is None
    assert beats(shares, -1).member_epoch == -1
    assert described(shares).group_state == "Empty"


def test_a_group_is_described(shares: ShareGroups) -> None:
    beats(shares, 0, "foo", rack_id="r")
    group = described(shares)
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "simple")
    assert (group.group_epoch, group.assignment_epoch, group.authorized_operations) == (1, 1, NOT_ASKED)
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 1)
    assert (member.client_id, member.client_host) == ("a-kafka-client", "/1.2.3.4")
    assert member.subscribed_topic_names == ["foo"]
    (share,) = member.assignment.topic_partitions
    assert (share.topic_name, list(share.partitions)) == ("foo", list(range(6)))
    assert described(shares, include_authorized_operations=True).authorized_operations != NOT_ASKED


def test_what_is_refused_has_kafkas_code(shares: ShareGroups) -> None:
    assert beats(shares, 0, "foo", member_id="").error_code == ErrorCode.INVALID_REQUEST
    assert beats(shares, 0).error_code == ErrorCode.INVALID_REQUEST
    unknown = beats(shares, 5)
    assert (unknown.error_code, unknown.assignment) == (ErrorCode.GROUP_ID_NOT_FOUND, None)
    group = described(shares, "unknown")
    assert (group.group_id, group.error_code) == ("unknown", ErrorCode.GROUP_ID_NOT_FOUND)
    assert group.error_message
