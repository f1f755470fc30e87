"""A transactional producer that speaks Kafka's protocol without bytes, as old or as new as its versions say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from coordinator_server.kafka_front.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from coordinator_server.kafka_front.messages.end_txn_request import EndTxnRequest
from coordinator_server.kafka_front.messages.init_producer_id_request import InitProducerIdRequest
from coordinator_server.kafka_front.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.harness.calls import partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World
from txn_coordinator.state import Identity

NO_PRODUCER = Identity(-1, -1)


@dataclass
class KafkaProducer:
    """One client. It keeps the identity that it was last given."""

    world: World
    transactional_id: str | None = "a"
    identity: Identity = NO_PRODUCER

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        """Return the response, once all is settled."""
        reply = KafkaCaller(self.world).begin(key, version, request)
        self.world.settle()
        return reply.result()

    def initialises(self, version: int = 4, *, shows: Identity = NO_PRODUCER, timeout_ms: int = 60_000) -> ErrorCode:
        response = self.call(
            ApiKey.INIT_PRODUCER_ID,
            version,
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=shows.producer_id,
                producer_epoch=shows.producer_epoch,
            ),
        )
        found = Identity(response.producer_id, response.producer_epoch)
        if response.error_code:
            assert found == NO_PRODUCER, "a refusal names no identity"
        else:
            self.identity = found
        return ErrorCode(response.error_code)

    def adds(self, *partitions: str, version: int = 3) -> dict[str, ErrorCode]:
        """AddPartitionsToTxn. Returns the code of each partition."""
        names = [partition_name(each) for each in partitions]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name.topic, partitions=(name.partition,)) for name in names
            ),
        )
        response = self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        return {
            f"{topic.name}-{each.partition_index}": ErrorCode(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    def adds_group(self, group_id: str = "g", version: int = 3) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=group_id,
        )
        return ErrorCode(self.call(ApiKey.ADD_OFFSETS_TO_TXN, version, request).error_code)

    def commits_offset(self, partition: str, offset: int, version: int = 3, **fields: Any) -> ErrorCode:
        """TxnOffsetCommit of one offset."""
        topic, _id, number = partition_name(partition)
        given = TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id or "",
            group_id="g",
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(given,)),),
            **fields,
        )
        (result,) = self.call(ApiKey.TXN_OFFSET_COMMIT, version, request).topics
        assert result.name == topic
        return ErrorCode(result.partitions[0].error_code)

    def writes(self, partition: str, value: str, *, sequence: int, txn_version: int = 1) -> None:
        """A record, by whatever door."""
        context = ANYBODY if txn_version == 2 else _OLDER
        produced = self.world.produce(
            self.transactional_id, self.identity, partition, [value], sequence=sequence, context=context
        )
        self.world.settle()
        assert produced.result().error is None, produced.result().error

    def end_request(self, *, committed: bool = True) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )

    def ends(self, version: int = 3, *, committed: bool = True) -> ErrorCode:
        """EndTxn. The producer takes the identity that it is given, if there is one."""
        response = self.call(ApiKey.END_TXN, version, self.end_request(committed=committed))
        if response.producer_id != -1:
            self.identity = Identity(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)


_OLDER = type(ANYBODY)(client_txn_version=1)
