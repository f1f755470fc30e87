"""The bare connections of the loads write and read what Kafka's definitions say."""

from __future__ import annotations

import pytest

from bench.load.kafka_frames import api_versions_request, fetch_request, is_empty_fetch
from coordinator_server.kafka_front.headers import RequestHeader, request_header
from coordinator_server.kafka_front.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, decode
from coordinator_server.kafka_front.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    encode,
)

TOPIC = "empty"
VERSION = 11


def header_and_body(request: bytes) -> tuple[RequestHeader, memoryview]:
    assert int.from_bytes(request[:4]) == len(request) - 4
    return request_header(memoryview(request)[4:], is_flexible=False)


def answer(*, error: int = 0, partition_error: int = 0, records: bytes = b"") -> bytes:
    data = PartitionData(partition_index=0, error_code=partition_error, records=records, aborted_transactions=())
    response = FetchResponse(error_code=error, responses=(FetchableTopicResponse(topic=TOPIC, partitions=(data,)),))
    return b"".join(encode(response, VERSION))


def test_a_fetch_waits_at_an_offset_for_committed_records() -> None:
    header, body = header_and_body(fetch_request(TOPIC, 2, 7, 500))
    assert (header.api_key, header.api_version, header.client_id) == (1, VERSION, "bench")
    request = decode(body, VERSION)
    assert isinstance(request, FetchRequest)
    assert (request.max_wait_ms, request.min_bytes, request.isolation_level) == (500, 1, 1)
    partition = FetchPartition(partition=2, fetch_offset=7, partition_max_bytes=1 << 20)
    assert request.topics == (FetchTopic(topic=TOPIC, partitions=(partition,)),)


def test_the_first_request_of_a_client() -> None:
    header, body = header_and_body(api_versions_request())
    assert (header.api_key, header.api_version, bytes(body)) == (18, 0, b"")


def test_an_answer_without_records() -> None:
    assert is_empty_fetch(answer(), TOPIC)


@pytest.mark.parametrize("found", [{"error": 3}, {"partition_error": 3}, {"records": b"a batch"}])
def test_an_answer_that_is_not_empty(found: dict[str, int | bytes]) -> None:
    assert not is_empty_fetch(answer(**found), TOPIC)  # type: ignore[arg-type]
