"""Bugs of the Kafka front, as `mutants` has those of everything else."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from coordinator_protocol.checksum import crc32c
from coordinator_protocol.kafka_batches import KafkaBatch
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front import committed_offsets, consumer_groups, fetch, outgoing, produce, transactions
from coordinator_server.kafka_front.classic_groups import ClassicMembers
from coordinator_server.kafka_front.committed_offsets import CommittedOffsets
from coordinator_server.kafka_front.exchange import KafkaExchange
from coordinator_server.kafka_front.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from coordinator_server.kafka_front.messages.end_txn_request import EndTxnRequest
from coordinator_server.kafka_front.messages.fetch_response import PartitionData
from coordinator_server.kafka_front.messages.heartbeat_response import HeartbeatResponse
from coordinator_server.kafka_front.messages.produce_request import ProduceRequest
from coordinator_server.kafka_front.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from coordinator_server.kafka_front.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from coordinator_server.kafka_front.produce import ProduceApi
from coordinator_server.kafka_front.transactions import Producers
from partition_log.requests import Fetch
from partition_log.state import Isolation
from tests.harness.kafka_log import TRANSACTIONAL
from tests.simulation.mutant import Mutant

_CHECKSUM, _COVERED, _ATTRIBUTES = 17, 21, 22
"""Places in a batch of Kafka: its checksum, what that covers, and the lower byte of its attributes."""
_NO_OFFSET = -1
_BY_KAFKA = {"kafka_share": 1.0}
_MIXED = {"kafka_share": 0.5}
_GATHERED = {"member_weight": 40.0, "steps": 600}
_GENERAL = {"lane": False}


def _take_as_plain(from_kafka: Any, records: memoryview) -> KafkaBatch:
    header, payload, crc = from_kafka(records)
    return replace(header, is_transactional=False), payload, crc


def _send_as_plain(to_kafka: Any, header: Any, stored: Any) -> list[bytes]:
    batch = bytearray(b"".join(to_kafka(header, stored)))
    batch[_ATTRIBUTES] &= ~TRANSACTIONAL
    batch[_CHECKSUM:_COVERED] = crc32c(batch[_COVERED:]).to_bytes(4, "big")
    return [bytes(batch)]


def _answer_at_once(serve: Any, api: ProduceApi, request: ProduceRequest, exchange: KafkaExchange) -> Pending[Any]:
    answer: Pending[Any] = serve(api, request, exchange)
    if answer.is_settled and exchange.codes:
        return answer
    topics = [
        TopicProduceResponse(
            each.name, each.topic_id, [PartitionProduceResponse(at.index, 0, _NO_OFFSET) for at in each.partition_data]
        )
        for each in request.topic_data
    ]
    return settled(ProduceResponse(topics))


def _list_nothing(data: Any, *arguments: Any, lists_aborted: bool) -> PartitionData:
    found: PartitionData = data(*arguments, lists_aborted=lists_aborted)
    return found if found.aborted_transactions is None else replace(found, aborted_transactions=[])


def _read_beyond(fetch_type: Any, items: Any, _isolation: Isolation, *rest: Any, **fields: Any) -> Fetch:
    command: Fetch = fetch_type(items, Isolation.READ_UNCOMMITTED, *rest, **fields)
    return command


def _lose_offsets(_commit: Any, _offsets: CommittedOffsets, request: Any, _exchange: Any) -> Pending[Any]:
    topics = [
        TxnOffsetCommitResponseTopic(
            each.name, [TxnOffsetCommitResponsePartition(at.partition_index) for at in each.partitions]
        )
        for each in request.topics
    ]
    return settled(TxnOffsetCommitResponse(topics=topics))


def _commit_always(end: Any, producers: Producers, request: EndTxnRequest, exchange: KafkaExchange) -> Pending[Any]:
    pending: Pending[Any] = end(producers, replace(request, committed=True), exchange)
    return pending


def _every_marker_commits(to_kafka: Any, header: Any, _outcome: Outcome, coordinator_epoch: int) -> Any:
    return to_kafka(header, Outcome.COMMIT, coordinator_epoch)


def _keep_the_identity(ended: Any, exchange: KafkaExchange, answer: Any) -> Any:
    response = ended(exchange, answer)
    return replace(response, producer_epoch=response.producer_epoch - 1) if response.producer_epoch > 0 else response


def _all_is_well(_heartbeat: Any, _members: ClassicMembers, _request: Any, _exchange: Any) -> Pending[Any]:
    return settled(HeartbeatResponse())


def _assign_nothing(heard: Any, answer: Any) -> ConsumerGroupHeartbeatResponse:
    response: ConsumerGroupHeartbeatResponse = heard(answer)
    return replace(response, assignment=None)


def _no_error(refused: Any, request: Any, exchange: KafkaExchange, _error: Any) -> Any:
    return refused(request, exchange, None)


KAFKA = (
    Mutant(
        "kafka_batches_are_plain",
        "a batch of a Kafka producer is taken without its transactional bit",
        ((produce, "from_kafka", _take_as_plain),),
        _BY_KAFKA,
    ),
    Mutant(
        "kafka_readers_get_plain_batches",
        "a batch is sent to a Kafka consumer without its transactional bit",
        ((outgoing, "to_kafka", _send_as_plain),),
        _BY_KAFKA,
    ),
    Mutant(
        "kafka_answer_before_durable",
        "a Produce of Kafka's protocol is answered before its batch is durable",
        ((ProduceApi, "serve", _answer_at_once),),
        _BY_KAFKA | _GENERAL | {"crash_weight": 4.0},
    ),
    Mutant(
        "kafka_readers_see_aborts",
        "a read_committed Kafka Fetch lists no aborted transactions",
        ((fetch, "_partition_data", _list_nothing),),
        _BY_KAFKA,
    ),
    Mutant(
        "kafka_readers_see_what_is_open",
        "a read_committed Kafka Fetch goes beyond the last stable offset",
        ((fetch, "Fetch", _read_beyond),),
        _BY_KAFKA,
    ),
    Mutant(
        "kafka_loses_offsets",
        "a TxnOffsetCommit of Kafka's protocol is answered, and its offset is lost",
        ((CommittedOffsets, "commit_in_transaction", _lose_offsets),),
        _BY_KAFKA,
    ),
    Mutant(
        "kafka_commits_always",
        "an EndTxn of Kafka's protocol commits what it shall abort",
        ((Producers, "end", _commit_always),),
        _BY_KAFKA | _GENERAL,
    ),
    Mutant(
        "kafka_markers_commit",
        "Kafka's readers are told of every marker that it is one of a commit",
        ((outgoing, "marker_to_kafka", _every_marker_commits),),
        _BY_KAFKA,
    ),
    Mutant(
        "kafka_keeps_the_identity",
        "an EndTxn of version 5 tells the epoch that the producer has",
        ((transactions, "_ended", _keep_the_identity),),
        _BY_KAFKA | {"version_1_share": 0.0},
    ),
    Mutant(
        "kafka_refuses_no_offset",
        "an offset that a group refused is answered as committed",
        ((committed_offsets, "_commit_refused", _no_error),),
        _MIXED | _GATHERED,
    ),
    Mutant(
        "kafka_heartbeats_skip_the_group",
        "a Heartbeat of Kafka's protocol is answered without a look at the group",
        ((ClassicMembers, "heartbeat", _all_is_well),),
        _MIXED | _GATHERED,
    ),
    Mutant(
        "kafka_assigns_nothing",
        "a ConsumerGroupHeartbeat of Kafka's protocol never tells what is assigned",
        ((consumer_groups, "_heard", _assign_nothing),),
        _MIXED | _GATHERED,
    ),
)
"""Bugs of the Kafka front."""
