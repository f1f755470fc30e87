"""Produce, Fetch and positions of every advertised version, as bytes that another library writes and reads."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from coordinator_server.kafka_front.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.harness.kafka_log import KafkaLog, batch, consumed
from tests.harness.world import World

pytest.importorskip("kio")
from tests.harness.kio_requests import request_bytes, response_of

LATEST = -1


@pytest.fixture
def log() -> KafkaLog:
    log = KafkaLog(World())
    log.create_topic()
    log.produce(batch("a", "b"))
    return log


def answer(log: KafkaLog, key: ApiKey, version: int, request: Any) -> Any:
    """The response to a request, both as bytes in between."""
    definition = API_DEFINITIONS[key]
    decoded = definition.decoder()(request_bytes(key, version, request), version)
    body = definition.encoder()(log.call(key, version, decoded), version)
    return response_of(key, version, b"".join(body))


def versions(key: ApiKey) -> range:
    return range(APIS[key].lowest, APIS[key].highest + 1)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(log: KafkaLog, version: int) -> None:
    response = answer(log, ApiKey.PRODUCE, version, log.produce_request(("t-0", batch("c")), version=version))
    ((result,),) = (topic.partition_responses for topic in response.responses)
    assert (result.index, int(result.error_code), result.base_offset) == (0, 0, 2)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(log: KafkaLog, version: int) -> None:
    log.produce(batch("c"))
    response = answer(log, ApiKey.FETCH, version, log.fetch_request(("t-0", 0), version=version, isolation=1))
    ((data,),) = (topic.partitions for topic in response.responses)
    assert (int(data.error_code), data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert [each.values for each in consumed(data.records)] == [[b"a", b"b"], [b"c"]]


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(log: KafkaLog, version: int) -> None:
    request = ListOffsetsRequest(-1, 0, (ListOffsetsTopic("t", (ListOffsetsPartition(0, timestamp=LATEST),)),))
    response = answer(log, ApiKey.LIST_OFFSETS, version, request)
    ((found,),) = (topic.partitions for topic in response.topics)
    assert (int(found.error_code), found.offset, found.timestamp) == (0, 2, -1)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offset_for_leader_epoch(log: KafkaLog, version: int) -> None:
    request = OffsetForLeaderEpochRequest(-1, (OffsetForLeaderTopic("t", (OffsetForLeaderPartition(0, -1, 0),)),))
    response = answer(log, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    ((found,),) = (topic.partitions for topic in response.topics)
    assert (int(found.error_code), found.leader_epoch, found.end_offset) == (0, 0, 2)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records(log: KafkaLog, version: int) -> None:
    request = DeleteRecordsRequest((DeleteRecordsTopic("t", (DeleteRecordsPartition(0, 1),)),), 1_000)
    response = answer(log, ApiKey.DELETE_RECORDS, version, request)
    ((deleted,),) = (topic.partitions for topic in response.topics)
    assert (int(deleted.error_code), deleted.low_watermark) == (0, 1)
