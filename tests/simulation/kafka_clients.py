"""The requests of a run by Kafka's protocol: the same clients, another front.

What they ask becomes Kafka's messages, and what they are answered becomes what any client of the run understands.
"""

from __future__ import annotations

from typing import Any, Final

from coordinator_protocol.batch import Compression
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from coordinator_server.kafka_front.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from coordinator_server.kafka_front.messages.end_txn_request import EndTxnRequest
from coordinator_server.kafka_front.messages.init_producer_id_request import InitProducerIdRequest
from coordinator_server.kafka_front.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from coordinator_server.kafka_front.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from coordinator_server.kafka_front.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from partition_log.requests import ProduceResult
from tests.harness.calls import partition_name
from tests.harness.kafka_batches import BASE_MS
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.kafka_log import KafkaLog, batch
from tests.harness.kafka_reader import KafkaReader
from tests.harness.payloads import key_of
from tests.harness.world import World
from tests.simulation.history import Op
from txn_coordinator.outcomes import Ended
from txn_coordinator.state import Identity

KINDS: Final = frozenset({"init", "add", "offset", "produce", "plain", "end"})
"""What Kafka's protocol has a request for."""
_COMPRESSIONS: Final = (Compression.NONE, Compression.GZIP, Compression.LZ4)
_NO_IDENTITY: Final = Identity(-1, -1)
_NO_CSN: Final = 0
"""Kafka's protocol tells none."""
_UNKNOWN_OUTCOMES: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""What a client is told where the server itself does not know what became of the request."""
_WAIT_MS: Final = 5_000
"""Longest wait behind a transaction (`kafka_call.TRANSACTIONAL_WAIT_MS_MAX`)."""


class KafkaClients:
    """All clients of a run that speak Kafka's protocol, as programs of version 1 or 2 of transactions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._caller = KafkaCaller(world, offers_fast_path=True)
        self._log = KafkaLog(world, self._caller)
        self.reader = KafkaReader(self._log)

    def call(self, op: Op, *, timeout_ms: int) -> Pending[Any]:
        """Send a request, and return what its answer says; a refusal is its error."""
        context: dict[str, Any] = {
            "client_id": op.instance,
            "deadline_ms": self._world.clock.monotonic_ms() + _WAIT_MS,
        }
        match op.kind:
            case "init":
                return self._initialise(op, timeout_ms, context)
            case "add":
                return self._add(op, context)
            case "offset":
                return self._commit_offset(op, context)
            case "produce" | "plain":
                return self._produce(op, context)
            case _:
                return self._end(op, context)

    def _initialise(self, op: Op, timeout_ms: int, context: dict[str, Any]) -> Pending[Identity]:
        shown = _NO_IDENTITY if op.expected is None else Identity(*op.expected)
        request = InitProducerIdRequest(op.transactional_id, timeout_ms, shown.producer_id, shown.producer_epoch)
        version = 4 if op.version == 1 else 5

        def granted(response: Any) -> Identity:
            check(response.error_code)
            return Identity(response.producer_id, response.producer_epoch)

        return self._caller.begin(ApiKey.INIT_PRODUCER_ID, version, request, **context).map(granted)

    def _add(self, op: Op, context: dict[str, Any]) -> Pending[bool]:
        name, identity = partition_name(op.partition), _identity_of(op)
        topic = AddPartitionsToTxnTopic(name.topic, (name.partition,))
        request = AddPartitionsToTxnRequest((), op.transactional_id, *identity, (topic,))

        def added(response: Any) -> bool:
            ((result,),) = (each.results_by_partition for each in response.results_by_topic_v3_and_below)
            check(result.partition_error_code)
            return True

        return self._caller.begin(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, **context).map(added)

    def _commit_offset(self, op: Op, context: dict[str, Any]) -> Pending[bool]:
        """In version 1 after AddOffsetsToTxn."""
        identity = _identity_of(op)
        topic = TxnOffsetCommitRequestTopic("t", (TxnOffsetCommitRequestPartition(0, op.offset),))
        request = TxnOffsetCommitRequest(op.transactional_id, op.group, *identity, topics=(topic,))

        def commit(_added: bool) -> Pending[bool]:
            version = 3 if op.version == 1 else 5
            return self._caller.begin(ApiKey.TXN_OFFSET_COMMIT, version, request, **context).map(_offset_committed)

        if op.version == 2:
            return commit(True)
        adding = AddOffsetsToTxnRequest(op.transactional_id, *identity, op.group)
        added = self._caller.begin(ApiKey.ADD_OFFSETS_TO_TXN, 3, adding, **context)
        return added.map(lambda response: check(response.error_code)).then(commit)

    def _produce(self, op: Op, context: dict[str, Any]) -> Pending[ProduceResult]:
        is_transactional = op.kind == "produce"
        records = batch(
            *op.values,
            producer=_identity_of(op),
            sequence=op.sequence,
            is_transactional=is_transactional,
            compression=_COMPRESSIONS[op.number % len(_COMPRESSIONS)],
            times_ms=[max(BASE_MS, self._world.clock.wall_ms())] * len(op.values),
            keys=self._keys(op),
        )
        version = 11 if op.version == 1 else 12
        transactional_id = op.transactional_id if is_transactional else None
        request = self._log.produce_request((op.partition, records), version=version, transactional_id=transactional_id)
        name = partition_name(op.partition)

        def produced(response: Any) -> ProduceResult:
            ((result,),) = (each.partition_responses for each in response.responses)
            if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return ProduceResult(name, base_offset=-1, is_duplicate=True)
            check(result.error_code)
            return ProduceResult(name, base_offset=result.base_offset)

        return self._caller.begin(ApiKey.PRODUCE, version, request, **context).map(produced)

    def _keys(self, op: Op) -> list[bytes]:
        """Return the keys of records for a topic that is compacted; none for another."""
        key_counts = self._world.options.key_counts
        key_count = key_counts.get(partition_name(op.partition).topic)
        return [] if key_count is None else [key_of(value, key_count).encode() for value in op.values]

    def _end(self, op: Op, context: dict[str, Any]) -> Pending[Ended]:
        request = EndTxnRequest(op.transactional_id, *_identity_of(op), op.outcome.upper() == Outcome.COMMIT.name)

        def ended(response: Any) -> Ended:
            check(response.error_code)
            return Ended(Identity(response.producer_id, response.producer_epoch), _NO_CSN)

        return self._caller.begin(ApiKey.END_TXN, 3 if op.version == 1 else 5, request, **context).map(ended)

    # Offsets of groups

    def commit_plainly(self, group: str, offset: int) -> Pending[int]:
        """OffsetCommit of one offset, by a caller without a membership."""
        topic = OffsetCommitRequestTopic("t", partitions=(OffsetCommitRequestPartition(0, offset),))

        def committed(response: Any) -> int:
            _offset_committed(response)
            return offset

        return self._caller.begin(ApiKey.OFFSET_COMMIT, 9, OffsetCommitRequest(group, topics=(topic,))).map(committed)

    def fetch_offset(self, group: str, *, require_stable: bool) -> Pending[int]:
        """OffsetFetch of one partition; -1 = nothing is committed."""
        topics = (OffsetFetchRequestTopic("t", (0,)),)
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)

        def fetched(response: Any) -> int:
            check(response.error_code)
            ((found,),) = (each.partitions for each in response.topics)
            check(found.error_code)
            offset: int = found.committed_offset
            return offset

        return self._caller.begin(ApiKey.OFFSET_FETCH, 7, request).map(fetched)


def check(code: int) -> bool:
    """Raise what the code says; 0 says nothing."""
    if not code:
        return True
    named = ErrorCode(code)
    # Only what the server is sure of is a refusal.
    raise Refused(ErrorCode.REQUEST_TIMED_OUT if named in _UNKNOWN_OUTCOMES else named, "as Kafka's clients are told")


def _offset_committed(response: Any) -> bool:
    ((result,),) = (each.partitions for each in response.topics)
    return check(result.error_code)


def _identity_of(op: Op) -> Identity:
    assert op.identity is not None
    return Identity(*op.identity)
