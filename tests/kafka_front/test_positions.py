"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords of Kafka's protocol."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from coordinator_server.kafka_front.messages.delete_records_response import DeleteRecordsPartitionResult
from coordinator_server.kafka_front.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from coordinator_server.kafka_front.messages.list_offsets_response import ListOffsetsPartitionResponse
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_response import EpochEndOffset
from tests.harness.calls import partition_name
from tests.harness.kafka_batches import BASE_MS
from tests.harness.kafka_log import KafkaLog, batch
from tests.harness.world import World

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
COMMITTED = 1


def versions(key: ApiKey) -> range:
    return range(APIS[key].lowest, APIS[key].highest + 1)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> KafkaLog:
    log = KafkaLog(world)
    log.create_topic("t", 2)
    return log


def places(found: list[ListOffsetsPartitionResponse]) -> list[tuple[int, int]]:
    """Offset and timestamp of each position, none of which is an error."""
    assert [each.error_code for each in found] == [0] * len(found)
    return [(each.offset, each.timestamp) for each in found]


# ListOffsets


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_the_ends_of_a_log_are_known_in_every_version(log: KafkaLog, version: int) -> None:
    log.produce(batch("a", "b"))
    found = log.list_offsets(EARLIEST, LATEST, version=version)
    assert places(found) == [(0, -1), (2, -1)]
    assert [each.leader_epoch for each in found] == ([0, 0] if version >= 4 else [-1, -1])


def test_a_time_stands_for_the_first_record_from_then_on(log: KafkaLog) -> None:
    log.produce(batch("a", "b", "c", times_ms=(BASE_MS, BASE_MS + 10, BASE_MS + 20)))
    log.produce(batch("d", times_ms=(BASE_MS + 30,)))
    found = log.list_offsets(0, BASE_MS + 1, BASE_MS + 20, BASE_MS + 21, BASE_MS + 31)
    assert places(found) == [(0, BASE_MS), (1, BASE_MS + 10), (2, BASE_MS + 20), (3, BASE_MS + 30), (-1, -1)]


def test_the_newest_record_is_the_first_with_the_largest_timestamp(log: KafkaLog) -> None:
    log.produce(batch("a", "b", "c", times_ms=(BASE_MS, BASE_MS + 20, BASE_MS + 20)))
    log.produce(batch("d", times_ms=(BASE_MS + 5,)))
    assert places(log.list_offsets(NEWEST)) == [(1, BASE_MS + 20)]


def test_a_log_of_this_server_is_local(log: KafkaLog) -> None:
    log.produce(batch("a"))
    found = log.list_offsets(EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD)
    assert places(found) == [(0, -1), (-1, -1), (-1, -1)]


@pytest.mark.parametrize(
    ("timestamp", "since"), [(NEWEST, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11), (-7, 99)]
)
def test_a_special_timestamp_has_no_meaning_in_older_versions(log: KafkaLog, timestamp: int, since: int) -> None:
    for version in versions(ApiKey.LIST_OFFSETS):
        (found,) = log.list_offsets(timestamp, version=version)
        assert found.error_code == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)


def test_a_committed_reader_sees_the_end_of_what_is_stable(world: World, log: KafkaLog) -> None:
    log.produce(batch("plain"))
    pending = world.init("orders")
    world.settle()
    records = batch("open", producer=pending.result(), is_transactional=True)
    log.produce(records, version=12, transactional_id="orders")
    assert places(log.list_offsets(LATEST)) == [(2, -1)]
    assert places(log.list_offsets(LATEST, isolation=COMMITTED)) == [(1, -1)]
    # Only consumers have an isolation level.
    assert places(log.list_offsets(LATEST, isolation=COMMITTED, replica_id=-2)) == [(2, -1)]


def test_partitions_that_cannot_be_asked_do_not_harm_the_others(log: KafkaLog) -> None:
    log.produce(batch("a"))
    names = ["t-0", "t-1", "t--1", "u-0", "t-1"]
    topics = [
        ListOffsetsTopic(name.topic, (ListOffsetsPartition(name.partition, timestamp=LATEST),))
        for name in map(partition_name, names)
    ]
    response = log.call(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(-1, 0, tuple(topics)))
    found = [topic.partitions[0] for topic in response.topics]
    assert [each.error_code for each in found] == [
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [each.offset for each in found] == [1, -1, -1, -1, -1]


def test_an_unknown_isolation_level_is_refused_in_every_partition(log: KafkaLog) -> None:
    (found,) = log.list_offsets(LATEST, isolation=2)
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.INVALID_REQUEST, -1, -1)


# OffsetForLeaderEpoch


def epoch_end(
    log: KafkaLog, epoch: int, partition: str = "t-0", version: int = 4, current_leader_epoch: int = -1
) -> EpochEndOffset:
    name = partition_name(partition)
    asked = OffsetForLeaderPartition(name.partition, current_leader_epoch, epoch)
    request = OffsetForLeaderEpochRequest(-1, (OffsetForLeaderTopic(name.topic, (asked,)),))
    response = log.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    ((found,),) = (topic.partitions for topic in response.topics)
    assert isinstance(found, EpochEndOffset)
    assert found.partition == name.partition
    return found


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_a_reader_of_a_lost_log_learns_where_its_epoch_ends(world: World, log: KafkaLog, version: int) -> None:
    log.produce(batch("a"))
    backup = world.back_up()
    log.produce(batch("b"))
    world.restore(backup)
    world.settle()
    log.produce(batch("c", "d"))
    (batch_of_now,) = log.read(offset=1)
    now = batch_of_now.leader_epoch
    ends = [epoch_end(log, epoch, version=version) for epoch in (0, now, now + 1, -1)]
    assert [(each.leader_epoch, each.end_offset) for each in ends] == [(0, 1), (now, 3), (-1, -1), (-1, -1)]
    assert {each.error_code for each in ends} == {0}


def test_a_wrong_current_epoch_is_an_error(log: KafkaLog) -> None:
    found = epoch_end(log, 0, current_leader_epoch=4)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


@pytest.mark.parametrize("partition", ["u-0", "t-7", "t--1"])
def test_an_unknown_partition_has_no_epochs(log: KafkaLog, partition: str) -> None:
    assert epoch_end(log, 0, partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# DeleteRecords


def delete(log: KafkaLog, *items: tuple[str, int], version: int = 2) -> list[DeleteRecordsPartitionResult]:
    topics = [
        DeleteRecordsTopic(name.topic, (DeleteRecordsPartition(name.partition, offset),))
        for name, offset in ((partition_name(partition), offset) for partition, offset in items)
    ]
    response = log.call(ApiKey.DELETE_RECORDS, version, DeleteRecordsRequest(tuple(topics), 30_000))
    return [each for topic in response.topics for each in topic.partitions]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_deleted_records_move_the_start_of_the_log(log: KafkaLog, version: int) -> None:
    log.produce(batch("a", "b", "c"))
    (deleted,) = delete(log, ("t-0", 2), version=version)
    assert (deleted.partition_index, deleted.error_code, deleted.low_watermark) == (0, 0, 2)
    assert places(log.list_offsets(EARLIEST)) == [(2, -1)]
    assert log.fetch(offset=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_high_watermark_deletes_everything(log: KafkaLog) -> None:
    log.produce(batch("a", "b", "c"))
    (deleted,) = delete(log, ("t-0", -1))
    assert (deleted.error_code, deleted.low_watermark) == (0, 3)


def test_each_partition_is_deleted_from_by_itself(log: KafkaLog) -> None:
    log.produce(batch("a"))
    results = delete(log, ("t-1", 7), ("t--1", 0), ("u-0", 0), ("t-0", 1))
    assert [(each.error_code, each.low_watermark) for each in results] == [
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, 1),
    ]


def test_a_partition_that_is_named_twice_refuses_the_whole_call(log: KafkaLog) -> None:
    log.produce(batch("a"))
    assert {each.error_code for each in delete(log, ("t-0", 1), ("t-0", 0))} == {ErrorCode.INVALID_REQUEST}
    assert places(log.list_offsets(EARLIEST)) == [(0, -1)]
