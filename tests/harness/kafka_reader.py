"""A consumer of Kafka's protocol that hides what it must, as Kafka's clients do: the server lists, the client hides.

Source: Kafka's `CompletedFetch`, in its clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.fetch_response import AbortedTransaction, PartitionData
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from coordinator_server.kafka_front.messages.offset_for_leader_epoch_response import EpochEndOffset
from tests.harness.calls import partition_name
from tests.harness.entries import LogEntry, Reading
from tests.harness.kafka_log import TRANSACTIONAL, Consumed, KafkaLog, consumed, joined

CONTROL: Final = 1 << 5
ABORT_KEY: Final = b"\0\0\0\0"
"""Key of the record in an abort marker: version 0, type 0."""
BYTES_MAX: Final = 1 << 22
NO_EPOCH: Final = -1


@dataclass(slots=True)
class KafkaReader:
    """One consumer. It reads by offsets that it is given."""

    log: KafkaLog

    def read(
        self,
        partition: str,
        fetch_offset: int = 0,
        *,
        is_committed: bool = True,
        bytes_max: int = BYTES_MAX,
        last_fetched_epoch: int = NO_EPOCH,
    ) -> Reading:
        """Read as its user does. Raises Refused for an error of the partition."""
        data = self.fetch(
            partition,
            fetch_offset,
            version=12,
            isolation=int(is_committed),
            partition_fields={"partition_max_bytes": bytes_max, "last_fetched_epoch": last_fetched_epoch},
        )
        batches = consumed(data.records)
        hidden = set[int]()
        if is_committed:
            assert data.aborted_transactions is not None
            hidden = aborted_batches(batches, data.aborted_transactions)
        visible = [each for each in batches if not each.attributes & CONTROL and each.base_offset not in hidden]
        return Reading(
            tuple(entry for each in visible for entry in _entries(each)),
            max([fetch_offset, *(each.base_offset + each.last_offset_delta + 1 for each in batches)]),
            data.high_watermark,
            data.last_stable_offset,
            sum(len(each.records) for each in batches if each.base_offset in hidden),
            data.log_start_offset,
            batches[-1].leader_epoch if batches else None,
        )

    def parted_at(self, partition: str, position: int, epoch: int | None) -> int | None:
        """Return the offset at which the log parts from the one that the reader has read, as a Fetch reports it; None
        if it does not. OffsetForLeaderEpoch must agree."""
        last_fetched_epoch = NO_EPOCH if epoch is None else epoch
        data = self.fetch(partition, position, version=12, partition_fields={"last_fetched_epoch": last_fetched_epoch})
        if data.diverging_epoch.end_offset < 0:
            return None
        assert not joined(data.records), "a reader that has to go back gets no records"
        parted = self.epoch_end(partition, last_fetched_epoch)
        told = data.diverging_epoch
        assert (parted.leader_epoch, parted.end_offset) == (told.epoch, told.end_offset)
        return told.end_offset

    def epoch_end(self, partition: str, epoch: int) -> EpochEndOffset:
        """OffsetForLeaderEpoch. Raises Refused."""
        name = partition_name(partition)
        asked = OffsetForLeaderPartition(name.partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(-1, (OffsetForLeaderTopic(name.topic, (asked,)),))
        response = self.log.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
        ((found,),) = (topic.partitions for topic in response.topics)
        assert isinstance(found, EpochEndOffset)
        if found.error_code:
            raise Refused(ErrorCode(found.error_code), f"{partition}: a Kafka OffsetForLeaderEpoch of {epoch}")
        return found

    def fetch(self, partition: str, fetch_offset: int, **options: Any) -> PartitionData:
        """The answer for one partition. Raises Refused."""
        data = self.log.fetch(partition, fetch_offset, **options)
        if data.error_code:
            raise Refused(ErrorCode(data.error_code), f"{partition}: a Kafka Fetch from {fetch_offset}")
        return data


def aborted_batches(batches: Sequence[Consumed], aborted: Sequence[AbortedTransaction]) -> set[int]:
    """Base offsets of the batches that a client hides."""
    left = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()
    hidden: set[int] = set()
    for each in batches:
        while left and left[-1].first_offset <= each.base_offset + each.last_offset_delta:
            producers.add(left.pop().producer_id)
        producer_id = each.producer[0]
        if each.attributes & CONTROL:
            if each.records[0][1] == ABORT_KEY:
                producers.discard(producer_id)
        elif each.attributes & TRANSACTIONAL and producer_id in producers:
            hidden.add(each.base_offset)
    return hidden


def _entries(batch: Consumed) -> list[LogEntry]:
    producer_id, producer_epoch, _sequence = batch.producer
    return [
        LogEntry(offset, (value or b"").decode(), producer_id, producer_epoch) for offset, _key, value in batch.records
    ]
