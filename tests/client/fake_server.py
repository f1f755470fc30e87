"""A server small enough to be believed: one dictionary of transactional ids, one list per partition.

It knows the rules a client depends on - epochs, sequences, the table of EndTxn, request ids - and nothing else. The
suite against the real server holds it to the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import share_pb2 as share
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.encodings import decode_records
from coordinator_protocol.errors import ErrorClass, ErrorCode, error_class
from coordinator_protocol.methods import Method

TOPIC_ID = b"0123456789abcdef"


@dataclass
class StoredBatch:
    """A batch as the log holds it, with the outcome of its transaction."""

    base_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    count: int
    values: list[bytes | None]
    is_transactional: bool
    outcome: bool | None = None
    """True = committed, False = aborted, None = open. A batch outside transactions is committed."""


@dataclass
class Mapping:
    """A transactional id."""

    producer_id: int
    epoch: int = -1
    state: str = "Empty"
    last_epoch: int = -1
    init_request: bytes = b""
    is_prepared: bool = False
    open_epoch: int | None = None
    """Epoch of the open transaction that a newer instance keeps; that instance has the epoch `epoch`."""
    partitions: set[tuple[str, int]] = field(default_factory=set)
    transact_id: bytes = b""
    """Request id of the Transact that ended the last transaction."""


_ABORTED = "the server had aborted the transaction"


class Refusal(Exception):
    """An error code on its way into a reply."""

    def __init__(self, code: ErrorCode, what: ErrorClass | None = None, message: str = "refused by the fake") -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.what = what
        """The class, where it is not that of the code."""


class FakeServer:
    """Carries out one request at a time, at once."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"t": 3}
        self.topic_ids: dict[str, bytes] = {}
        """The ids of topics that were deleted, for when they are made again."""
        self.deleted = 0
        self.logs: dict[tuple[str, int], list[StoredBatch]] = {}
        self.ids: dict[str, Mapping] = {}
        self.csn = 0
        self._next_producer_id = 100
        self._handlers: dict[Method, Callable[[Any], Any]] = {
            Method.DESCRIBE_LIMITS: lambda _: admin.DescribeLimitsResponse(),
            Method.DESCRIBE_TOPICS: self._describe_topics,
            Method.CREATE_PARTITIONS: self._create_partitions,
            Method.INIT_PRODUCER_ID: self._init_producer_id,
            Method.PRODUCE: self._produce,
            Method.PREPARE_TRANSACTION: self._prepare_transaction,
            Method.END_TXN: self._end_txn,
            Method.TRANSACT: self._transact,
            Method.CREATE_TOPICS: self._create_topics,
            Method.DELETE_TOPICS: self._delete_topics,
        }

    def answer(self, method: Method, request: Any) -> Any:
        return self._handlers[method](request)

    def handle(self, method: Method, handler: Callable[[Any], Any]) -> None:
        """Answer this method from somewhere else."""
        self._handlers[method] = handler

    # Topics that are deleted and made again.

    def id_of(self, topic: str) -> bytes:
        """The id of the topic that has this name now."""
        return self.topic_ids.get(topic, TOPIC_ID)

    def delete_topic(self, topic: str) -> None:
        """Let there be no topic of this name, and the next one have another id."""
        del self.topics[topic]
        self.deleted += 1
        self.topic_ids[topic] = b"%016d" % self.deleted
        self.logs = {place: stored for place, stored in self.logs.items() if place[0] != topic}

    def why_gone(self, topic: str, topic_id: bytes, partition: int) -> ErrorCode:
        """Return the reason why there is no such partition; NONE if there is one."""
        if topic_id and topic not in self.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topic_id not in (b"", self.id_of(topic)):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        is_there = partition < self.topics.get(topic, 0)
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # Views for tests

    def visible(self, topic: str = "t") -> list[bytes | None]:
        """Every committed value, partition by partition."""
        return [
            value
            for partition in range(self.topics[topic])
            for batch in self.logs.get((topic, partition), [])
            if batch.outcome
            for value in batch.values
        ]

    def time_out(self, transactional_id: str) -> None:
        """Abort the open transaction, as the timer does."""
        mapping = self.ids[transactional_id]
        assert mapping.state == "Ongoing"
        self._finish(mapping, committed=False)

    def expire(self, transactional_id: str) -> None:
        """Forget an id that was not used for long."""
        del self.ids[transactional_id]

    # Requests.

    def _describe_topics(self, request: log.DescribeTopicsRequest) -> log.DescribeTopicsResponse:
        reply = log.DescribeTopicsResponse()
        for asked in request.topics or [log.TopicName(name=name) for name in self.topics]:
            found = reply.topics.add(name=asked.name, topic_id=self.id_of(asked.name))
            if asked.name not in self.topics:
                refuse(found, Method.DESCRIBE_TOPICS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            for partition in range(self.topics[asked.name]):
                found.partitions.add(partition=partition)
        return reply

    def _create_topics(self, request: log.CreateTopicsRequest) -> log.CreateTopicsResponse:
        reply = log.CreateTopicsResponse()
        for topic in request.topics:
            result = reply.results.add(name=topic.name)
            if topic.name in self.topics:
                refuse(result, Method.CREATE_TOPICS, ErrorCode.TOPIC_ALREADY_EXISTS)
            elif not request.validate_only:
                self.topics[topic.name] = topic.partition_count
        return reply

    def _create_partitions(self, request: log.CreatePartitionsRequest) -> log.CreatePartitionsResponse:
        reply = log.CreatePartitionsResponse()
        for topic in request.topics:
            result = reply.results.add(name=topic.name)
            if topic.partition_count <= self.topics[topic.name]:
                refuse(result, Method.CREATE_PARTITIONS, ErrorCode.INVALID_PARTITIONS)
            elif not request.validate_only:
                self.topics[topic.name] = topic.partition_count
        return reply

    def _delete_topics(self, request: log.DeleteTopicsRequest) -> log.DeleteTopicsResponse:
        reply = log.DeleteTopicsResponse()
        for topic in request.topics:
            result = reply.results.add(name=topic.name)
            if self.topics.pop(topic.name, None) is None:
                refuse(result, Method.DELETE_TOPICS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return reply

    def _init_producer_id(self, request: txn.InitProducerIdRequest) -> txn.InitProducerIdResponse:
        reply = txn.InitProducerIdResponse()
        if not request.HasField("transactional_id"):
            reply.producer_id = self._new_producer_id()
            return reply
        mapping = self.ids.get(request.transactional_id)
        if mapping is None:
            mapping = self.ids[request.transactional_id] = Mapping(self._new_producer_id())
        if mapping.init_request != request.header.request_id:
            try:
                self._initialise(mapping, request)
            except Refusal as refusal:
                return refuse(reply, Method.INIT_PRODUCER_ID, refusal.code)
        reply.producer_id, reply.producer_epoch = mapping.producer_id, mapping.epoch
        if mapping.open_epoch is not None:
            reply.ongoing_producer_id, reply.ongoing_producer_epoch = mapping.producer_id, mapping.open_epoch
        return reply

    def _initialise(self, mapping: Mapping, request: txn.InitProducerIdRequest) -> None:
        if request.HasField("expected_producer_id") and mapping.epoch >= 0:
            expected = (request.expected_producer_id, request.expected_producer_epoch)
            if expected == (mapping.producer_id, mapping.last_epoch):
                mapping.init_request = request.header.request_id
                return
            if expected != (mapping.producer_id, mapping.epoch):
                raise Refusal(ErrorCode.PRODUCER_FENCED)
        if mapping.state == "Ongoing" and request.keep_prepared:
            if mapping.open_epoch is None:
                mapping.open_epoch = mapping.epoch
        else:
            if mapping.state == "Ongoing":
                self._finish(mapping, committed=False)
            mapping.state = "Empty"
        mapping.epoch += 1
        mapping.last_epoch = -1
        mapping.transact_id = b""
        mapping.init_request = request.header.request_id

    def _produce(self, request: log.ProduceRequest) -> log.ProduceResponse:
        reply = log.ProduceResponse()
        for item in request.batches:
            result = reply.results.add(topic=item.topic, partition=item.partition)
            try:
                self._append(request, item, result)
            except Refusal as refusal:
                refuse(result, Method.PRODUCE, refusal.code)
        return reply

    def _append(self, request: log.ProduceRequest, item: log.PartitionBatch, result: log.ProduceResult) -> None:
        if item.partition >= self.topics.get(item.topic, 0):
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if why := self.why_gone(item.topic, item.topic_id, item.partition):
            raise Refusal(why)
        batch, place = item.batch, (item.topic, item.partition)
        stored = self.logs.setdefault(place, [])
        mine = [b for b in stored if (b.producer_id, b.epoch) == (batch.producer_id, batch.producer_epoch)]
        for old in mine:
            if (old.base_sequence, old.count) == (batch.base_sequence, batch.record_count):
                result.base_offset, result.is_duplicate = old.base_offset, True
                return
        if batch.is_transactional:
            self._check_member(request.transactional_id, batch)
        expected = mine[-1].base_sequence + mine[-1].count if mine else 0
        if batch.base_sequence != expected:
            raise Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if batch.is_transactional:
            mapping = self.ids[request.transactional_id]
            if mapping.state != "Ongoing":
                mapping.state, mapping.transact_id = "Ongoing", b""
            mapping.partitions.add(place)
        result.base_offset = stored[-1].base_offset + stored[-1].count if stored else 0
        stored.append(
            StoredBatch(
                result.base_offset,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.record_count,
                [row[1] for row in decode_records(batch.payload, "fake")],
                batch.is_transactional,
                None if batch.is_transactional else True,
            )
        )

    def _check_member(self, transactional_id: str, batch: log.RecordBatch) -> None:
        mapping = self.ids.get(transactional_id)
        if mapping is None or mapping.producer_id != batch.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if mapping.epoch != batch.producer_epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        if mapping.is_prepared or mapping.open_epoch is not None:
            raise Refusal(ErrorCode.INVALID_TXN_STATE)

    def _prepare_transaction(self, request: txn.PrepareTransactionRequest) -> txn.PrepareTransactionResponse:
        reply = txn.PrepareTransactionResponse()
        mapping = self.ids[request.transactional_id]
        try:
            if (request.producer_id, request.producer_epoch) != (mapping.producer_id, mapping.epoch):
                raise Refusal(ErrorCode.PRODUCER_FENCED)
            if mapping.state != "Ongoing":
                raise Refusal(ErrorCode.INVALID_TXN_STATE)
            self._check_last_sequences(request)
        except Refusal as refusal:
            return refuse(reply, Method.PREPARE_TRANSACTION, refusal.code)
        mapping.is_prepared = True
        reply.ongoing_producer_id, reply.ongoing_producer_epoch = mapping.producer_id, mapping.epoch
        return reply

    def _end_txn(self, request: txn.EndTxnRequest) -> txn.EndTxnResponse:
        reply = txn.EndTxnResponse()
        try:
            mapping = self._end(request)
        except Refusal as refusal:
            return refuse(reply, Method.END_TXN, refusal.code, refusal.message, what=refusal.what)
        reply.producer_id, reply.producer_epoch, reply.csn = mapping.producer_id, mapping.epoch, self.csn
        return reply

    def _end(self, request: txn.EndTxnRequest) -> Mapping:
        mapping = self.ids.get(request.transactional_id)
        if mapping is None or mapping.producer_id != request.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_current = request.producer_epoch == mapping.epoch
        is_retry = request.producer_epoch + 1 == mapping.epoch
        match mapping.state:
            case "CompleteCommit" if is_retry and request.committed:
                return mapping
            case "CompleteAbort" if is_retry and not request.committed:
                return mapping
            case "CompleteCommit" if is_retry:
                raise Refusal(ErrorCode.INVALID_TXN_STATE)
        if not is_current:
            if request.producer_epoch == mapping.last_epoch and mapping.state != "Ongoing":
                raise Refusal(ErrorCode.PRODUCER_FENCED, ErrorClass.RECOVER, _ABORTED)
            raise Refusal(ErrorCode.PRODUCER_FENCED)
        if request.committed:
            if mapping.state != "Ongoing":
                raise Refusal(ErrorCode.INVALID_TXN_STATE)
            self._check_last_sequences(request)
        self._finish(mapping, committed=request.committed)
        return mapping

    def _transact(self, request: txn.TransactRequest) -> txn.TransactResponse:
        reply = txn.TransactResponse()
        mapping = self.ids.get(request.transactional_id)
        lengths = {place: len(stored) for place, stored in self.logs.items()}
        before = None if mapping is None else (mapping.state, set(mapping.partitions), mapping.transact_id)
        try:
            mapping = self._whole(mapping, request)
        except Refusal as refusal:
            for place, stored in self.logs.items():
                del stored[lengths.get(place, 0) :]
            if mapping is not None and before is not None:
                mapping.state, mapping.partitions, mapping.transact_id = before
            return refuse(reply, Method.TRANSACT, refusal.code, refusal.message)
        reply.producer_id, reply.producer_epoch, reply.csn = mapping.producer_id, mapping.epoch, self.csn
        return reply

    def _whole(self, mapping: Mapping | None, request: txn.TransactRequest) -> Mapping:
        if mapping is None or mapping.producer_id != request.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if mapping.transact_id and mapping.transact_id == request.header.request_id:
            return mapping
        if request.producer_epoch != mapping.epoch:
            if request.producer_epoch != mapping.last_epoch or mapping.state not in ("CompleteCommit", "CompleteAbort"):
                raise Refusal(ErrorCode.PRODUCER_FENCED)
            if mapping.state == "CompleteCommit":
                raise Refusal(ErrorCode.INVALID_TXN_STATE)
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, message=_ABORTED)
        for batch in request.batches:
            shim = log.ProduceRequest(transactional_id=request.transactional_id)
            self._append(shim, batch, log.ProduceResult())
        for offsets in request.groups:
            self._take_offsets(request, offsets)
        for acknowledged in request.shares:
            self._take_acknowledgements(request, acknowledged)
        self._finish(mapping, committed=request.committed)
        mapping.transact_id = request.header.request_id
        return mapping

    def _take_offsets(self, request: txn.TransactRequest, offsets: txn.TransactOffsets) -> None:
        commit = group.TxnOffsetCommitRequest.FromString(b"")
        for name in ("group_id", "member_id", "generation_id_or_member_epoch", "group_instance_id"):
            if getattr(offsets, name):
                setattr(commit, name, getattr(offsets, name))
        commit.transactional_id = request.transactional_id
        commit.topics.extend(offsets.topics)
        reply = self._handlers[Method.TXN_OFFSET_COMMIT](commit)
        for verdict in (reply, *reply.results):
            if verdict.error_code:
                raise Refusal(ErrorCode(verdict.error_code))

    def _take_acknowledgements(self, request: txn.TransactRequest, shares: txn.TransactShares) -> None:
        acks = share.TxnShareAcknowledgeRequest(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            group_id=shares.group_id,
            member_id=shares.member_id,
            member_epoch=shares.member_epoch,
            partitions=shares.partitions,
        )
        reply = self._handlers[Method.TXN_SHARE_ACKNOWLEDGE](acks)
        if reply.error_code:
            raise Refusal(ErrorCode(reply.error_code))

    def _check_last_sequences(self, request: txn.EndTxnRequest | txn.PrepareTransactionRequest) -> None:
        for last in request.last_sequences:
            stored = self.logs.get((last.topic, last.partition), [])
            mine = [b for b in stored if (b.producer_id, b.epoch) == (request.producer_id, request.producer_epoch)]
            if not mine or mine[-1].base_sequence + mine[-1].count - 1 != last.sequence:
                raise Refusal(ErrorCode.TRANSACTION_ABORTABLE)

    def _finish(self, mapping: Mapping, *, committed: bool) -> None:
        written_as = mapping.epoch if mapping.open_epoch is None else mapping.open_epoch
        for place in mapping.partitions:
            for batch in self.logs[place]:
                if (batch.producer_id, batch.epoch) == (mapping.producer_id, written_as):
                    batch.outcome = committed
        mapping.partitions.clear()
        mapping.is_prepared, mapping.open_epoch = False, None
        mapping.last_epoch = mapping.epoch
        mapping.epoch += 1
        mapping.state = "CompleteCommit" if committed else "CompleteAbort"
        self.csn += 1

    def _new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id


def refuse(
    reply: Any,
    method: Method,
    code: ErrorCode,
    message: str = "refused by the fake",
    *,
    what: ErrorClass | None = None,
) -> Any:
    """Fill in the three fields of an error, as the server's table says; `what`: a class other than that of its code."""
    reply.error_code = int(code)
    reply.error_class = int(error_class(method, code) if what is None else what)
    reply.error_message = message
    return reply
