"""Producers and consumers of Kafka's protocol in one world.

Their batches are Kafka's bytes. The messages around them are values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.compression import unpack_as
from coordinator_protocol.kafka_records import decode_kafka_records
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from coordinator_server.kafka_front.messages.fetch_response import FetchResponse, PartitionData
from coordinator_server.kafka_front.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from coordinator_server.kafka_front.messages.list_offsets_response import ListOffsetsPartitionResponse
from coordinator_server.kafka_front.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from coordinator_server.kafka_front.messages.produce_response import PartitionProduceResponse, ProduceResponse
from coordinator_server.kafka_front.writing import Records
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics
from tests.harness.calls import partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.kafka_batches import BASE_MS, kafka_batch, kafka_packed, kafka_payload
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World
from txn_coordinator.state import Identity

ALL: Final = -1
"""Acks of a producer that waits for all."""
BY_ID: Final = 13
"""First version of Produce and of Fetch that names topics by id."""
TRANSACTIONAL: Final = 1 << 4
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True, slots=True)
class Consumed:
    """One batch, as a consumer reads it."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    max_timestamp_ms: int
    producer: tuple[int, int, int]
    """Id, epoch, sequence."""
    records: tuple[tuple[int, bytes | None, bytes | None], ...]
    """Offset, key and value."""

    @property
    def values(self) -> list[bytes | None]:
        return [value for _offset, _key, value in self.records]


def batch(
    *values: str,
    producer: Identity | None = None,
    sequence: int = 0,
    is_transactional: bool = False,
    compression: Compression = Compression.NONE,
    times_ms: Sequence[int] = (),
    keys: Sequence[bytes | None] = (),
) -> memoryview:
    """A batch as a Kafka producer sends it."""
    count = len(values)
    placed = zip(keys or [None] * count, values, times_ms or [BASE_MS] * count, strict=True)
    rows = [(key, value.encode(), at, ()) for key, value, at in placed]
    return memoryview(
        kafka_batch(
            kafka_packed(kafka_payload(rows), compression),
            len(rows),
            compression=compression,
            producer=(-1, -1, -1) if producer is None else (*producer, sequence),
            attributes=TRANSACTIONAL if is_transactional else 0,
            max_ms=max(at for _key, _value, at, _headers in rows),
        )
    )


def joined(records: Records | None) -> bytes:
    """The bytes of the records in an answer, which are never null."""
    assert records is not None
    return b"".join([records] if isinstance(records, bytes | memoryview) else records)


def consumed(records: Records | None) -> list[Consumed]:
    """The batches in an answer, each with the checksum that its bytes have."""
    content, at, found = joined(records), 0, []
    while at < len(content):
        offset, length, epoch, magic, crc, attributes, delta, base_ms, max_ms, *producer, count = _HEADER.unpack_from(
            content, at
        )
        end = at + 12 + length
        assert magic == 2
        assert crc == crc32c(content[at + 21 : end])
        payload = unpack_as(Encoding.KAFKA_V2, content[at + _HEADER.size : end], Compression(attributes & 7))
        decoded = decode_kafka_records(payload, base_ms)
        assert len(decoded) == count
        placed = tuple((offset + place, key, value) for place, _at, key, value, _headers in decoded)
        producer_id, producer_epoch, sequence = producer
        found.append(
            Consumed(offset, epoch, attributes, delta, max_ms, (producer_id, producer_epoch, sequence), placed)
        )
        at = end
    assert at == len(content)
    return found


class KafkaLog:
    """Requests about partitions, most of them about one."""

    def __init__(self, world: World, caller: KafkaCaller | None = None) -> None:
        self._world = world
        self._caller = caller or KafkaCaller(world)
        self._topic_ids: dict[str, bytes] = {}

    def create_topic(self, name: str = "t", partition_count: int = 1, **config: str) -> None:
        """Create a topic with checked payloads."""
        command = CreateTopics([NewTopic(name, partition_count, config)])
        created = self._world.inside.topics.create_topics(command, ANYBODY)
        self._world.settle()
        self._topic_ids[name] = created.result()[0].topic_id

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic; one that no topic has for a topic that was not created here."""
        return self._topic_ids.get(topic, b"?" * 16)

    def begin(self, key: ApiKey, version: int, request: Any) -> Pending[Any]:
        """Begin a call."""
        return self._caller.begin(key, version, request)

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        """The response, once all is durable."""
        pending = self.begin(key, version, request)
        self._world.settle()
        assert pending.is_settled, f"{key.name} waits"
        return pending.result()

    def produce_request(
        self,
        *items: tuple[str, memoryview | None],
        version: int = 9,
        acks: int = ALL,
        transactional_id: str | None = None,
    ) -> ProduceRequest:
        """A request with a batch for each partition."""
        topics = []
        for partition, records in items:
            name = partition_name(partition)
            data = (PartitionProduceData(name.partition, records),)
            by_id = version >= BY_ID
            topics.append(
                TopicProduceData("", self.topic_id(name.topic), data)
                if by_id
                else TopicProduceData(name.topic, partition_data=data)
            )
        return ProduceRequest(transactional_id, acks, 30_000, tuple(topics))

    def send(self, *items: tuple[str, memoryview | None], version: int = 9, **options: Any) -> ProduceResponse | None:
        """The response to several batches."""
        request = self.produce_request(*items, version=version, **options)
        response: ProduceResponse | None = self.call(ApiKey.PRODUCE, version, request)
        return response

    def produce(self, records: memoryview | None, partition: str = "t-0", **options: Any) -> PartitionProduceResponse:
        """The result of one batch."""
        response = self.send((partition, records), **options)
        assert response is not None
        ((result,),) = (topic.partition_responses for topic in response.responses)
        assert isinstance(result, PartitionProduceResponse)
        return result

    def fetch_request(
        self,
        *items: tuple[str, int],
        version: int = 11,
        isolation: int = 0,
        partition_fields: dict[str, Any] | None = None,
        **fields: Any,
    ) -> FetchRequest:
        """A consumer's request for partitions from an offset on."""
        topics = []
        for partition, offset in items:
            name = partition_name(partition)
            asked = FetchPartition(name.partition, fetch_offset=offset, partition_max_bytes=1 << 22)
            asked = msgspec.structs.replace(asked, **(partition_fields or {}))
            by_id = version >= BY_ID
            topics.append(
                FetchTopic("", self.topic_id(name.topic), (asked,))
                if by_id
                else FetchTopic(name.topic, partitions=(asked,))
            )
        request = FetchRequest(min_bytes=1, isolation_level=isolation, topics=tuple(topics))
        return msgspec.structs.replace(request, **fields)

    def fetch_all(self, *items: tuple[str, int], version: int = 11, **options: Any) -> FetchResponse:
        """The response to a request for several partitions."""
        response: FetchResponse = self.call(
            ApiKey.FETCH, version, self.fetch_request(*items, version=version, **options)
        )
        return response

    def fetch(self, partition: str = "t-0", offset: int = 0, **options: Any) -> PartitionData:
        """Return the answer of one partition to a consumer."""
        ((data,),) = (topic.partitions for topic in self.fetch_all((partition, offset), **options).responses)
        assert isinstance(data, PartitionData)
        return data

    def read(self, partition: str = "t-0", offset: int = 0, **options: Any) -> list[Consumed]:
        """The batches that a consumer gets."""
        data = self.fetch(partition, offset, **options)
        assert data.error_code == 0
        return consumed(data.records)

    def list_offsets(
        self, *timestamps: int, partition: str = "t-0", version: int = 11, isolation: int = 0, **fields: Any
    ) -> list[ListOffsetsPartitionResponse]:
        """The position for each timestamp, asked one after the other."""
        return [self._position(each, partition_name(partition), version, isolation, fields) for each in timestamps]

    def _position(
        self, timestamp: int, name: PartitionName, version: int, isolation: int, fields: dict[str, Any]
    ) -> ListOffsetsPartitionResponse:
        query = ListOffsetsPartition(name.partition, timestamp=timestamp)
        request = ListOffsetsRequest(-1, isolation, (ListOffsetsTopic(name.topic, (query,)),))
        response = self.call(ApiKey.LIST_OFFSETS, version, msgspec.structs.replace(request, **fields))
        ((found,),) = (topic.partitions for topic in response.topics)
        assert isinstance(found, ListOffsetsPartitionResponse)
        return found
