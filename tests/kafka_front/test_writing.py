"""Responses: values that a version cannot hold are refused, and records are not copied."""

from __future__ import annotations

import pytest

from coordinator_server.kafka_front.messages import (
    api_versions_response,
    consumer_group_heartbeat_response,
    create_topics_response,
    describe_topic_partitions_response,
    fetch_response,
    heartbeat_response,
    join_group_response,
    list_groups_response,
)
from coordinator_server.kafka_front.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from coordinator_server.kafka_front.writing import Records


def fetched(**fields: object) -> FetchResponse:
    partition = PartitionData(partition_index=1, **fields)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


@pytest.mark.parametrize("version", [11, 12])
def test_records_are_pieces_of_their_own(version: int) -> None:
    batch = memoryview(bytes(5_000))
    pieces = fetch_response.encode(fetched(records=batch), version)
    assert [piece is batch for piece in pieces] == [False, True] + [False] * (version >= 12)
    copied = fetch_response.encode(fetched(records=bytes(batch)), version)
    assert b"".join(copied) == b"".join(pieces)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("records", [(b"ab", memoryview(b"cd")), [b"abcd"], memoryview(b"abcd")])
def test_records_may_come_in_several_pieces(version: int, records: Records) -> None:
    assert b"".join(fetch_response.encode(fetched(records=records), version)) == b"".join(
        fetch_response.encode(fetched(records=b"abcd"), version)
    )


def test_no_records_are_null_and_not_empty() -> None:
    assert fetch_response.encode(fetched(), 11)[0][-4:] == b"\xff\xff\xff\xff"
    assert fetch_response.encode(fetched(records=b""), 11)[0][-4:] == b"\0\0\0\0"


def test_a_value_for_a_field_that_the_version_lacks_is_refused() -> None:
    leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    assert fetch_response.encode(fetched(current_leader=leader), 12)
    with pytest.raises(ValueError, match="FetchResponse version 11: there is no field current_leader for a value"):
        fetch_response.encode(fetched(current_leader=leader), 11)


def test_a_value_is_dropped_where_the_definition_says_that_it_does_not_matter() -> None:
    throttled = heartbeat_response.HeartbeatResponse(throttle_time_ms=5, error_code=16)
    assert heartbeat_response.encode(throttled, 0) == [b"\0\x10"]
    assert heartbeat_response.encode(throttled, 1) == [b"\0\0\0\x05\0\x10"]


def test_null_is_refused_where_the_version_has_none() -> None:
    joined = join_group_response.JoinGroupResponse(protocol_type="consumer", protocol_name=None)
    assert join_group_response.encode(joined, 7)
    with pytest.raises(ValueError, match="JoinGroupResponse version 6: protocol_name cannot be null"):
        join_group_response.encode(joined, 6)


@pytest.mark.parametrize("version", [2, 3])
def test_a_text_of_more_than_32767_bytes_is_refused(version: int) -> None:
    groups = list_groups_response.ListGroupsResponse(groups=[list_groups_response.ListedGroup(group_id="é" * 16_384)])
    with pytest.raises(ValueError, match="group_id has 32768 bytes, more than 32767"):
        list_groups_response.encode(groups, version)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="HeartbeatResponse version 1: "):
        heartbeat_response.encode(heartbeat_response.HeartbeatResponse(error_code=40_000), 1)


def test_a_tagged_field_is_written_unless_it_is_at_its_default() -> None:
    made = create_topics_response.CreatableTopicResult(name="t", num_partitions=1)
    refused = create_topics_response.CreatableTopicResult(name="t", num_partitions=1, topic_config_error_code=29)
    (plain,) = create_topics_response.encode(create_topics_response.CreateTopicsResponse(topics=[made]), 5)
    (tagged,) = create_topics_response.encode(create_topics_response.CreateTopicsResponse(topics=[refused]), 5)
    assert tagged == plain[:-2] + b"\x01\x00\x02\x00\x1d" + b"\x00"


def test_finalized_features_are_tagged_arrays() -> None:
    feature = api_versions_response.FinalizedFeatureKey(
        name="transaction.version", max_version_level=2, min_version_level=2
    )
    answer = api_versions_response.ApiVersionsResponse(finalized_features_epoch=1, finalized_features=[feature])
    (body,) = api_versions_response.encode(answer, 3)
    assert body == (
        b"\0\0\x01\0\0\0\0\x02"
        + (b"\x01\x08" + (1).to_bytes(8, "big"))
        + (b"\x02\x1a\x02\x14transaction.version\0\x02\0\x02\0")
    )


def test_a_structure_that_may_be_null_has_a_marker() -> None:
    response = consumer_group_heartbeat_response
    nothing = response.ConsumerGroupHeartbeatResponse()
    assigned = response.ConsumerGroupHeartbeatResponse(assignment=response.Assignment())
    assert response.encode(nothing, 0)[0][-2:] == b"\xff\0"
    assert response.encode(assigned, 0)[0][-4:] == b"\x01\x01\0\0"


def test_the_defaults_are_those_of_the_definitions() -> None:
    """Java's client reads the two without a look whether they are null: the server makes them empty."""
    partition = describe_topic_partitions_response.DescribeTopicPartitionsResponsePartition()
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == (None, None)
    assert (partition.leader_epoch, partition.replica_nodes) == (-1, ())
