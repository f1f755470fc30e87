"""Fetch of Kafka's protocol, for consumers.

There are no fetch sessions: every request names all partitions. A request within a session is refused with
FETCH_SESSION_ID_NOT_FOUND, after which clients send a full request.

Source: KIP-98, KIP-227 (sessions), KIP-320 and KIP-595 (leader epochs), KIP-392, KIP-516 (topic ids), KIP-951 (current
leader); Kafka's `KafkaApis.handleFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from coordinator_protocol.batch import ENCODINGS_OF_OLD_READERS, Encoding
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.worker import Worker
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import FETCH_SESSION_ID_NOT_FOUND
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.isolation import isolation_of
from coordinator_server.kafka_front.messages.fetch_request import FetchRequest
from coordinator_server.kafka_front.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from coordinator_server.kafka_front.outgoing import Outgoing, OutgoingRecords
from coordinator_server.kafka_front.partitions import ANY_PARTITION, answered, epoch_of, impossible
from partition_log.leadership import Diverged
from partition_log.requests import Fetch, FetchItem, FetchResult
from partition_log.service import LogService
from partition_log.state import NO_OFFSET, Isolation, PartitionHead

TOPIC_IDS_SINCE: Final = 13
LEADERS_SINCE: Final = 16
"""First version whose answers name the current leader."""
NO_SESSION: Final = 0
_FULL_EPOCHS: Final = (0, -1)
"""Session epochs of full requests: with the wish for a session, and without."""
_EVERY_ENCODING: Final = ENCODINGS_OF_OLD_READERS | {Encoding.KAFKA_V2}
_NOTHING: Final = (b"",)
_UNNAMED: Final = LeaderIdAndEpoch()


class FetchApi:
    """Reads batches."""

    def __init__(self, log: LogService, worker: Worker) -> None:
        self._log = log
        self._outgoing = OutgoingRecords(log.fetcher, worker)

    def serve(self, request: FetchRequest, exchange: KafkaExchange) -> Pending[FetchResponse]:
        """Read the batches. Raises Refused INVALID_REQUEST for an unknown isolation level."""
        if request.session_epoch not in _FULL_EPOCHS:
            return settled(FetchResponse(error_code=exchange.noted(FETCH_SESSION_ID_NOT_FOUND)))
        isolation = isolation_of(request.isolation_level)
        bytes_max = max(1, request.max_bytes)
        plan = list(_planned(request, exchange.version))

        def read(items: list[FetchItem]) -> Pending[list[FetchResult]]:
            # A partition with an error is answered at once.
            wait_ms_max = max(0, request.max_wait_ms) if len(items) == len(plan) else 0
            bytes_min = max(0, request.min_bytes)
            command = Fetch(
                items, isolation, wait_ms_max, bytes_min, bytes_max, is_raw=True, accepted_encodings=_EVERY_ENCODING
            )
            return self._log.fetch(command, exchange.context)

        def respond(results: Sequence[FetchResult]) -> Pending[FetchResponse]:
            def with_records(records: Sequence[Outgoing]) -> FetchResponse:
                found = zip(results, records, strict=True)
                return _response(request, exchange, found, lists_aborted=isolation is Isolation.READ_COMMITTED)

            connection = exchange.context.connection
            batches = [result.batches for result in results]
            return self._outgoing.of(batches, exchange.version, bytes_max, connection).map(with_records)

        return answered(plan, FetchItem, read).then(respond)

    def refused(self, request: FetchRequest, exchange: KafkaExchange, error: CoordinatorError) -> FetchResponse:
        """Return the error for the whole answer, and for each partition in versions that expect it there.

        A code of 0, for want of capacity, is an answer without records. It names all partitions, because clients ignore
        a full answer without some of them."""
        code = exchange.code(error)
        if code and exchange.version >= TOPIC_IDS_SINCE:
            return FetchResponse(error_code=code, session_id=request.session_id)
        everywhere = repeat((FetchResult(ANY_PARTITION, NO_OFFSET, error=error), Outgoing(_NOTHING)))
        response = _response(request, exchange, everywhere, lists_aborted=False)
        return FetchResponse(0, code, request.session_id, response.responses)


def fetch_handlers(log: LogService, worker: Worker) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handler of Fetch. `worker` converts large batches."""
    api = FetchApi(log, worker)
    yield ApiKey.FETCH, ApiHandler(api.serve, api.refused)


def _planned(request: FetchRequest, version: int) -> Iterator[FetchItem | FetchResult]:
    is_replica = max(request.replica_id, request.replica_state.replica_id) >= 0
    for topic in request.topics:
        topic_id = topic.topic_id if version >= TOPIC_IDS_SINCE else b""
        for each in topic.partitions:
            name = PartitionName(topic.topic, topic_id, each.partition)
            refusal = _no_replica() if is_replica else impossible(name)
            if refusal is not None:
                yield FetchResult(name, each.fetch_offset, error=refusal)
                continue
            yield FetchItem(
                name,
                each.fetch_offset,
                partition_bytes_max=max(1, each.partition_max_bytes),
                current_leader_epoch=epoch_of(each.current_leader_epoch),
                last_read_epoch=epoch_of(each.last_fetched_epoch),
            )


def _no_replica() -> Refused:
    text = "the request comes from a replica, and this server has none; fetch as a consumer (replica id -1)"
    return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)


def _response(
    request: FetchRequest,
    exchange: KafkaExchange,
    found: Iterable[tuple[FetchResult, Outgoing]],
    *,
    lists_aborted: bool,
) -> FetchResponse:
    """Return the response without a session."""
    results = iter(found)
    topics = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [
                _partition_data(each.partition, exchange, *next(results), lists_aborted=lists_aborted)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    names_leader = any(each.current_leader.leader_id >= 0 for topic in topics for each in topic.partitions)
    node = exchange.node
    nodes = (NodeEndpoint(node.node_id, node.host, node.port),) if names_leader else ()
    return FetchResponse(0, 0, NO_SESSION, topics, nodes)


def _partition_data(
    partition: int, exchange: KafkaExchange, result: FetchResult, outgoing: Outgoing, *, lists_aborted: bool
) -> PartitionData:
    error, head = result.error or outgoing.error, result.head
    if isinstance(error, Diverged):
        found = error.divergence
        return PartitionData(
            partition,
            0,
            *_positions(head),
            EpochEndOffset(found.epoch, found.end_offset),
            aborted_transactions=None,
            records=_NOTHING,
        )
    if error is not None:
        return _refused_partition(partition, exchange, error, head)
    aborted = None
    if lists_aborted:
        aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in result.aborted]
    return PartitionData(
        partition, 0, *_positions(head), aborted_transactions=aborted, records=outgoing.records or _NOTHING
    )


def _refused_partition(
    partition: int, exchange: KafkaExchange, error: CoordinatorError, head: PartitionHead | None
) -> PartitionData:
    leader = _UNNAMED
    if error.code is ErrorCode.FENCED_LEADER_EPOCH and head is not None and exchange.version >= LEADERS_SINCE:
        leader = LeaderIdAndEpoch(exchange.node.node_id, head.leadership.epoch)
    code = exchange.code(error)
    return PartitionData(partition, code, *_positions(None), current_leader=leader, records=_NOTHING)


def _positions(head: PartitionHead | None) -> tuple[int, int, int]:
    """Return high watermark, last stable offset and log start."""
    if head is None:
        return NO_OFFSET, NO_OFFSET, NO_OFFSET
    return head.log_end_offset, head.last_stable_offset, head.log_start_offset
