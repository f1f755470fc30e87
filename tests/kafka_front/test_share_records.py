"""ShareFetch, ShareAcknowledge and the offsets of share groups over Kafka's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front import share_records
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages import share_acknowledge_request as acknowledging
from coordinator_server.kafka_front.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from coordinator_server.kafka_front.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from coordinator_server.kafka_front.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from coordinator_server.kafka_front.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from coordinator_server.kafka_front.outgoing import Outgoing
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP
from tests.harness.kafka_caller import CALLER, KafkaCaller
from tests.harness.share_consumers import ACCEPT, REJECT, RELEASE, RENEW, alter_shares
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from tests.harness.world import World


@pytest.fixture
def world() -> World:
    """A group that reads `t` from the beginning, with the member "m" and five records."""
    world = group_world(topics={"t": 1}, writes_records=True)
    alter_shares(world, auto_offset_reset="earliest")
    ShareMember(world, "m").joins("t")
    Shares(world, "t-0", GROUP).produce(3, 2)
    return world


def topic_id(world: World) -> bytes:
    return world.inside.catalog.resolve("t", b"", 0).topic_id


def fetched(world: World, epoch: int, *acks: tuple[int, int, tuple[int, ...]], version: int = 2, **fields: Any) -> Any:
    batches = tuple(AcknowledgementBatch(*each) for each in acks)
    partitions = (FetchPartition(0, batches),) if acks or epoch == 0 else ()
    settings = {"max_records": 500, "min_bytes": 1, **fields}
    topics = (FetchTopic(topic_id(world), partitions),) if partitions else ()
    request = ShareFetchRequest(group_id=GROUP, member_id="m", share_session_epoch=epoch, topics=topics, **settings)
    return KafkaCaller(world).call(ApiKey.SHARE_FETCH, version, request)


def acknowledge(
    world: World, epoch: int, *acks: tuple[int, int, tuple[int, ...]]
) -> acknowledging.ShareAcknowledgeRequest:
    partition = acknowledging.AcknowledgePartition(0, tuple(acknowledging.AcknowledgementBatch(*each) for each in acks))
    topics = (acknowledging.AcknowledgeTopic(topic_id(world), (partition,)),) if acks else ()
    return acknowledging.ShareAcknowledgeRequest(
        group_id=GROUP, member_id="m", share_session_epoch=epoch, topics=topics
    )


def acknowledged(world: World, epoch: int, *acks: tuple[int, int, tuple[int, ...]]) -> Any:
    return KafkaCaller(world).call(ApiKey.SHARE_ACKNOWLEDGE, 2, acknowledge(world, epoch, *acks))


def partition_of(response: Any) -> Any:
    assert response.error_code == ErrorCode.NONE, response
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


def acquired(response: Any) -> list[tuple[int, int, int]]:
    if not response.responses:
        return []
    return [
        (each.first_offset, each.last_offset, each.delivery_count) for each in partition_of(response).acquired_records
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_fetched_and_acknowledged(world: World, version: int) -> None:
    response = fetched(world, 0, version=version)
    assert acquired(response) == [(0, 4, 1)]
    assert response.acquisition_lock_timeout_ms == 30_000
    assert sum(map(len, partition_of(response).records)) > 100
    answer = acknowledged(world, 1, (0, 1, (ACCEPT,)), (2, 4, (REJECT, RELEASE, RELEASE)))
    assert partition_of(answer).error_code == ErrorCode.NONE
    assert acquired(fetched(world, 2, version=version)) == [(3, 4, 2)]


def test_acknowledgements_go_with_a_fetch_and_have_an_error_of_their_own(world: World) -> None:
    fetched(world, 0, max_records=1)
    response = fetched(world, 1, (0, 2, (ACCEPT,)))
    assert partition_of(response).acknowledge_error_code == ErrorCode.NONE
    assert acquired(response) == [(3, 4, 1)]
    refused = partition_of(fetched(world, 2, (0, 2, (ACCEPT,))))
    assert (refused.error_code, refused.acknowledge_error_code) == (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
    assert refused.acknowledge_error_message


def test_the_second_mode_of_acquisition_takes_no_more_than_asked_for(world: World) -> None:
    assert acquired(fetched(world, 0, max_records=2)) == [(0, 2, 1)]
    assert acquired(fetched(world, 1, max_records=1, share_acquire_mode=1)) == [(3, 3, 1)]


def test_a_fetch_that_renews_acquires_nothing(world: World) -> None:
    alter_shares(world, renew_acknowledge_enable="true")
    fetched(world, 0, max_records=1)
    response = fetched(world, 1, (0, 2, (RENEW,)), is_renew_ack=True, max_records=0)
    assert (partition_of(response).acknowledge_error_code, acquired(response)) == (ErrorCode.NONE, [])


def test_a_forbidden_renewal_has_kafkas_code_and_the_records_stay_held(world: World) -> None:
    alter_shares(world, renew_acknowledge_enable="false")
    fetched(world, 0)
    refused = partition_of(acknowledged(world, 1, (0, 1, (RENEW,))))
    assert refused.error_code == ErrorCode.INVALID_RECORD_STATE
    refused = partition_of(fetched(world, 2, (0, 1, (ACCEPT, RENEW))))
    assert refused.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert partition_of(acknowledged(world, 3, (0, 4, (ACCEPT,)))).error_code == ErrorCode.NONE


def test_sessions_have_kafkas_codes(world: World) -> None:
    assert fetched(world, 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    fetched(world, 0)
    assert fetched(world, 3).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    forgotten = (ForgottenTopic(topic_id(world), (0,)),)
    assert fetched(world, 1, forgotten_topics_data=forgotten).error_code == ErrorCode.NONE
    Shares(world, "t-0", GROUP).produce(1)
    assert acquired(fetched(world, 2)) == []
    assert acknowledged(world, -1).error_code == ErrorCode.NONE
    assert picture(Shares(world, "t-0", GROUP).state) == "0: .1 .1 .1 .1 .1"


def test_a_new_session_hears_of_each_partition_that_it_begins_with(world: World) -> None:
    shares = Shares(world, "t-0", GROUP)
    shares.resolve(5)
    nothing = partition_of(fetched(world, 0))
    assert (nothing.partition_index, nothing.error_code, nothing.acquired_records) == (0, ErrorCode.NONE, [])
    assert not fetched(world, 1).responses
    shares.produce(1)
    assert acquired(fetched(world, 0)) == [(5, 5, 1)]


def test_acquired_records_come_in_parts_of_the_wanted_size(world: World) -> None:
    Shares(world, "t-0", GROUP).produce(1, 1)
    assert acquired(fetched(world, 0, batch_size=3)) == [(0, 2, 1), (3, 5, 1), (6, 6, 1)]
    acknowledged(world, 1, (0, 6, (RELEASE,)))
    assert acquired(fetched(world, 2, batch_size=1)) == [(0, 2, 2), (3, 4, 2), (5, 5, 2), (6, 6, 2)]


def test_a_session_ends_with_its_connection(world: World) -> None:
    fetched(world, 0)
    shares = world.inside.core.groups.share_records
    shares.connection_lost("kafka-2")
    assert acknowledged(world, 1, (0, 1, (ACCEPT,))).error_code == ErrorCode.NONE
    begun = KafkaCaller(world).begin(ApiKey.SHARE_ACKNOWLEDGE, 2, acknowledge(world, 2, (2, 2, (ACCEPT,))))
    shares.connection_lost(CALLER.connection)
    world.settle()
    assert partition_of(begun.result()).error_code == ErrorCode.NONE
    assert picture(Shares(world, "t-0", GROUP).state) == "3: .1 .1"
    assert fetched(world, 3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(fetched(world, 0)) == [(3, 4, 2)]


def test_a_session_that_was_begun_again_ends_with_its_own_connection(world: World) -> None:
    fetched(world, 0)
    request = ShareFetchRequest(group_id=GROUP, member_id="m", share_session_epoch=0, min_bytes=1, max_records=500)
    KafkaCaller(world).call(ApiKey.SHARE_FETCH, 2, request, connection="kafka-2")
    shares = world.inside.core.groups.share_records
    shares.connection_lost(CALLER.connection)
    assert acknowledged(world, 1, (0, 1, (ACCEPT,))).error_code == ErrorCode.NONE
    shares.connection_lost("kafka-2")
    world.settle()
    assert picture(Shares(world, "t-0", GROUP).state) == "2: .1 .1 .1"


def test_records_that_cannot_be_sent_are_released(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would take them for gaps, and acknowledge them."""
    of = share_records.OutgoingRecords.of

    def cut(self: Any, batches: Any, *others: Any) -> Any:
        def only_the_first(sent: list[Outgoing]) -> list[Outgoing]:
            return [Outgoing(each.records, each.error, batches[0][1][0].base_offset) for each in sent]

        return of(self, batches, *others).map(only_the_first)

    monkeypatch.setattr(share_records.OutgoingRecords, "of", cut)
    assert acquired(fetched(world, 0)) == [(0, 2, 1)]
    world.settle()
    assert picture(Shares(world, "t-0", GROUP).state) == "0: m1 m1 m1 .1 .1"


def test_the_offsets_of_a_group_are_described_altered_and_deleted(world: World) -> None:
    fetched(world, 0)
    acknowledged(world, 1, (0, 1, (ACCEPT,)))
    caller = KafkaCaller(world)
    ask, groups = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (DescribeShareGroupOffsetsRequestGroup(GROUP, None),)

    def described(version: int = 1, asked: Any = groups) -> Any:
        return caller.call(ask, version, DescribeShareGroupOffsetsRequest(asked)).groups

    (group,) = described()
    ((partition,),) = [topic.partitions for topic in group.topics]
    assert (partition.start_offset, partition.leader_epoch, partition.lag) == (2, 0, 3)
    named = DescribeShareGroupOffsetsRequestTopic("nowhere", (0,))
    found, unknown = described(
        0,
        (DescribeShareGroupOffsetsRequestGroup(GROUP, (named,)), DescribeShareGroupOffsetsRequestGroup("nobody", None)),
    )
    assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    topic = AlterShareGroupOffsetsRequestTopic("t", (AlterShareGroupOffsetsRequestPartition(0, 4),))
    alter = AlterShareGroupOffsetsRequest(GROUP, (topic,))
    delete = DeleteShareGroupOffsetsRequest(
        GROUP, (DeleteShareGroupOffsetsRequestTopic("t"), DeleteShareGroupOffsetsRequestTopic("nowhere"))
    )
    for key, request in ((ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter), (ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete)):
        assert caller.call(key, 0, request).error_code == ErrorCode.NON_EMPTY_GROUP
    ShareMember(world, "m", epoch=1).leaves()
    altered = caller.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, alter)
    assert [each.error_code for each in altered.responses[0].partitions] == [ErrorCode.NONE]
    (group,) = described()
    assert group.topics[0].partitions[0].start_offset == 4
    deleted = caller.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, delete)
    assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (group,) = described()
    assert not group.topics
