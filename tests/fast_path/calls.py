"""Requests of clients in the histories that two servers live through: calls as bytes, good ones and damaged ones.

`Call` is one request, in words that Hypothesis can draw and print. `Clients` has the knowledge of clients (their
identities and sequences) and makes bytes of it. They do not wait for answers: they go on as if all went well, and learn
from the answers where it did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from coordinator_api.v1 import common_pb2, group_pb2, log_pb2, session_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorCode
from tests.fast_path.damages import DAMAGES, all_batches
from tests.harness.payloads import UNREADABLE_PAYLOADS

IDS: Final = ("a", "b", "c")
NEW_IDS: Final = tuple(f"new-{number}" for number in range(40))
"""Ids without an owner before they are initialised, and without a use after that."""
PARTITIONS: Final = ("t-0", "t-1", "t-2", "words-0")
"""`t` takes what every reader can decode, `words` anything."""
ABSENT: Final = ("t-9", "nowhere-0", "gone-0")
"""The last one's topic comes and goes."""
GROUPS: Final = ("g", "h")
"""They have offsets, and no members."""
REBALANCING: Final = "r"
"""A consumer group."""
MEMBERS: Final = ("m", "n")
"""Its members, which come and go."""
STRANGER: Final = "s"
"""Never was in it, and says so."""

_TOPICS: Final = {
    "t": log_pb2.NewTopic(
        name="t", partition_count=3, config={"timestamp_after_max_ms": "3600000", "batch_bytes_max": "50000"}
    ),
    "words": log_pb2.NewTopic(name="words", partition_count=1, config=UNREADABLE_PAYLOADS),
    "gone": log_pb2.NewTopic(name="gone", partition_count=1),
}

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one client."""

    kind: str
    """A method of the protocol."""
    name: str = "a"
    """Transactional id."""
    partitions: tuple[str, ...] = ("t-0",)
    groups: tuple[str, ...] = ()
    committed: bool = True
    epoch: int = 0
    """Distance of the epoch that is shown from the client's own."""
    sequence: int = 0
    """The same for the first sequence of each batch."""
    repeats: bool = False
    """Send the bytes of the id's last call once more."""
    damage: str = ""
    """Name of its damage, see `DAMAGES`."""
    member: str = ""
    """The member that beats, or for which offsets of the consumer group are committed; then its epoch is shown."""
    timeout_ms: int = 0
    """Time that the client waits; 0: as long as the server likes."""
    version: int = 2
    """Version of the client in this call. The damage "version 1" says the same."""

    @property
    def is_of_version_1(self) -> bool:
        return self.version == 1 or self.damage == "version 1"


class Clients:
    """Makes calls, and learns from answers."""

    def __init__(self) -> None:
        self.identities: dict[str, Identity] = dict.fromkeys((*IDS, *NEW_IDS), (0, 0))
        self._sequences: dict[tuple[str, str], int] = {}
        self._request = 0
        self._writes = 0
        """Number of calls that brought records, which the records' values contain."""
        self._topic_ids: dict[str, bytes] = {}
        self._sent: dict[str, tuple[str, bytes, bool]] = {}
        self._asked: dict[int, tuple[str, str, Identity]] = {}
        """Method, id and identity of each call, by its correlation id."""
        self._newest: dict[str, int] = {}
        self._members: dict[str, tuple[int, group_pb2.PartitionSet]] = {}
        """Epoch and owned partitions, by member, as the server answered."""
        self.correlation_id = 0
        self.sent: Counter[str] = Counter()
        """Number of calls, by method."""
        self._codes: dict[int, tuple[str, ErrorCode]] = {}
        """Method and error of each answer, by its correlation id."""

    def message(self, calls: Iterable[Call], cancels: Iterable[int] = ()) -> bytes:
        """A message of a session."""
        return session_pb2.SessionRequest(
            header=common_pb2.RequestHeader(client_id="client"), calls=map(self._call, calls), cancels=cancels
        ).SerializeToString()

    def codes(self, method: str) -> list[ErrorCode]:
        """The errors of all answers of a method that gives an identity, in the order of their calls."""
        return [code for _number, (each, code) in sorted(self._codes.items()) if each == method]

    def learn(self, answers: Iterable[session_pb2.SessionAnswer]) -> None:
        """Go on with what the newest answers say."""
        for answer in answers:
            method, name, identity = self._asked.pop(answer.correlation_id, ("", "", (0, 0)))
            if method == "CreateTopics" and not answer.status:
                created = log_pb2.CreateTopicsResponse.FromString(answer.body).results
                self._topic_ids |= {each.name: each.topic_id for each in created if not each.error_code}
            elif method == "DescribeTransactions" and not answer.status:
                self._learn_all(transaction_pb2.DescribeTransactionsResponse.FromString(answer.body))
            elif method == "ConsumerGroupHeartbeat" and not answer.status:
                self._learn_member(name, group_pb2.ConsumerGroupHeartbeatResponse.FromString(answer.body))
            elif method in _GIVES_IDENTITY:
                reply = _GIVES_IDENTITY[method].FromString(answer.body)
                self._codes[answer.correlation_id] = method, ErrorCode(reply.error_code)
                if self._newest[name] != answer.correlation_id:
                    continue
                if not answer.status and not reply.error_code:
                    self._become(name, (reply.producer_id, reply.producer_epoch))
                else:
                    self.identities[name] = identity

    def _learn_all(self, response: transaction_pb2.DescribeTransactionsResponse) -> None:
        for each in response.transactions:
            if not each.error_code:
                own = (each.producer_id, each.producer_epoch)
                if each.HasField("client_producer_id"):
                    own = (each.client_producer_id, each.client_producer_epoch)
                self.identities[each.transactional_id] = own

    def _learn_member(self, member: str, reply: group_pb2.ConsumerGroupHeartbeatResponse) -> None:
        if reply.error_code or reply.member_epoch < 0:
            self._members.pop(member, None)
            return
        _epoch, owned = self._members.get(member, (0, group_pb2.PartitionSet()))
        self._members[member] = reply.member_epoch, reply.assignment if reply.HasField("assignment") else owned

    def _become(self, name: str, identity: Identity) -> None:
        if identity != self.identities[name]:
            self.identities[name] = identity
            self._sequences = {key: next_ for key, next_ in self._sequences.items() if key[0] != name}

    def _call(self, call: Call) -> session_pb2.SessionCall:
        self.correlation_id += 1
        sent = self._sent.get(call.name) if call.repeats else None
        method, body, is_of_version_1 = sent or (call.kind, self._body(call), call.is_of_version_1)
        self._sent[call.name] = method, body, is_of_version_1
        self.sent[method] += 1
        self._newest[call.name] = self.correlation_id
        about = call.member if method == "ConsumerGroupHeartbeat" else call.name
        # The answer to an end of version 1 gives no identity: the client keeps its own.
        asked = "" if method == "EndTxn" and is_of_version_1 else method
        self._asked[self.correlation_id] = asked, about, self.identities[call.name]
        is_good = not (call.epoch or call.sequence or call.damage)
        if sent is None and call.kind in ("Transact", "EndTxn") and is_good and not is_of_version_1:
            producer_id, epoch = self.identities[call.name]
            self._become(call.name, (producer_id, epoch + 1))
        return session_pb2.SessionCall(
            correlation_id=self.correlation_id, method=method, timeout_ms=call.timeout_ms, body=body
        )

    def _body(self, call: Call) -> bytes:
        self._writes += call.kind in ("Produce", "Transact")
        request = _MAKE[call.kind](self, call)
        self._request += 1
        request.header.request_id = self._request.to_bytes(16, "big")
        if call.version != 2:
            request.header.client_txn_version = call.version
        if call.damage:
            DAMAGES[call.damage](request)
        if call.damage == "partition by both names":
            self._name_twice(request)
        body: bytes = request.SerializeToString()
        return body[: len(body) // 2] if call.damage == "cut" else body

    def _name_twice(self, request: Any) -> None:
        """The first batch comes twice; the second one names its topic by the id."""
        for first in all_batches(request)[:1]:
            again = request.batches.add()
            again.CopyFrom(first)
            if first.topic in self._topic_ids:
                again.topic, again.topic_id = "", self._topic_ids[first.topic]

    def _identity(self, call: Call) -> dict[str, Any]:
        producer_id, epoch = self.identities[call.name]
        return {
            "transactional_id": call.name,
            "producer_id": producer_id,
            "producer_epoch": min(max(0, epoch + call.epoch), 2**15 - 1),
        }

    def _init(self, call: Call) -> transaction_pb2.InitProducerIdRequest:
        request = transaction_pb2.InitProducerIdRequest(transactional_id=call.name, transaction_timeout_ms=5_000)
        if call.sequence:
            # To go on after an error, as who one was.
            shown = self._identity(call)
            request.expected_producer_id, request.expected_producer_epoch = (
                shown["producer_id"],
                shown["producer_epoch"],
            )
        if not call.committed:
            request.enable_2pc = request.keep_prepared = True
        return request

    def _add(self, call: Call) -> transaction_pb2.AddPartitionsToTxnRequest:
        topics = [common_pb2.TopicPartitions(topic=topic, partitions=[n]) for topic, n in map(_split, call.partitions)]
        if topics and topics[0].topic in self._topic_ids and call.damage in ("topic by id", "partition by both names"):
            by_id = common_pb2.TopicPartitions(
                topic_id=self._topic_ids[topics[0].topic], partitions=topics[0].partitions
            )
            topics = [by_id, *topics[call.damage == "topic by id" :]]
        return transaction_pb2.AddPartitionsToTxnRequest(**self._identity(call), topics=topics)

    def _produce(self, call: Call) -> log_pb2.ProduceRequest:
        shown = self._identity(call)
        batches = [self._batch(call, partition, is_named=True) for partition in call.partitions]
        return log_pb2.ProduceRequest(transactional_id=shown["transactional_id"], batches=batches)

    def _transact(self, call: Call) -> transaction_pb2.TransactRequest:
        return transaction_pb2.TransactRequest(
            **self._identity(call),
            committed=call.committed,
            batches=[self._batch(call, partition, is_named=False) for partition in call.partitions],
            groups=[self._transacted(call, group) for group in call.groups],
        )

    def _transacted(self, call: Call, group: str) -> transaction_pb2.TransactOffsets:
        offsets = transaction_pb2.TransactOffsets(group_id=group, topics=self._offsets(call))
        if group == REBALANCING and call.member in (*self._members, STRANGER):
            epoch, _owned = self._members.get(call.member, (1, None))
            offsets.member_id, offsets.generation_id_or_member_epoch = call.member, epoch
        return offsets

    def _beat(self, call: Call) -> group_pb2.ConsumerGroupHeartbeatRequest:
        """Come, stay or, if not `committed`, go."""
        epoch, owned = self._members.get(call.member, (0, group_pb2.PartitionSet()))
        request = group_pb2.ConsumerGroupHeartbeatRequest(
            group_id=REBALANCING, member_id=call.member, member_epoch=epoch if call.committed else -1
        )
        if call.committed:
            request.topic_partitions.CopyFrom(owned)
        if call.committed and not epoch:
            request.rebalance_timeout_ms = 5_000
            request.subscribed_topic_names.names.append("t")
        return request

    def _end(self, call: Call) -> transaction_pb2.EndTxnRequest:
        request = transaction_pb2.EndTxnRequest(**self._identity(call), committed=call.committed)
        # One of a single partition says nothing of what the log must hold, unless that is to be wrong.
        for partition in call.partitions if call.sequence or len(call.partitions) > 1 else ():
            topic, number = _split(partition)
            sequence = max(-1, self._sequences.get((call.name, partition), 0) - 1 + call.sequence)
            request.last_sequences.add(topic=topic, partition=number, sequence=sequence)
        return request

    def _prepare(self, call: Call) -> transaction_pb2.PrepareTransactionRequest:
        return transaction_pb2.PrepareTransactionRequest(**self._identity(call))

    def _commit_offsets(self, call: Call) -> group_pb2.TxnOffsetCommitRequest:
        group = call.groups[0] if call.groups else GROUPS[0]
        return group_pb2.TxnOffsetCommitRequest(**self._identity(call), group_id=group, topics=self._offsets(call))

    def _describe(self, _call: Call) -> transaction_pb2.DescribeTransactionsRequest:
        return transaction_pb2.DescribeTransactionsRequest(transactional_ids=IDS)

    def _fetch(self, call: Call) -> log_pb2.FetchRequest:
        asked = [log_pb2.FetchPartition(topic=topic, partition=n) for topic, n in map(_split, call.partitions)]
        return log_pb2.FetchRequest(partitions=asked)

    def _create(self, call: Call) -> log_pb2.CreateTopicsRequest:
        """The topics of these partitions; else the one that comes and goes."""
        names = sorted({_split(partition)[0] for partition in call.partitions} & {"t", "words"}) or ["gone"]
        return log_pb2.CreateTopicsRequest(topics=[_TOPICS[name] for name in names])

    def _delete(self, _call: Call) -> log_pb2.DeleteTopicsRequest:
        return log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(name="gone")])

    def _offsets(self, call: Call) -> list[group_pb2.TopicOffsets]:
        offset = group_pb2.PartitionOffset(partition=0, committed_offset=self._request, metadata="m" * call.sequence)
        return [group_pb2.TopicOffsets(topic="t" if call.partitions[:1] != ("t-9",) else "gone", partitions=[offset])]

    def _batch(self, call: Call, partition: str, *, is_named: bool) -> log_pb2.PartitionBatch:
        """One record. In a Produce the batch names its producer."""
        next_sequence = self._sequences.get((call.name, partition), 0)
        value = f"{call.name}{self._writes}".encode() + b"+" * (40_000 if call.damage == "large" else 0)
        batch = log_pb2.RecordBatch(
            record_count=1,
            base_timestamp_ms=5,
            max_timestamp_ms=5,
            base_sequence=max(0, next_sequence + call.sequence),
            is_transactional=is_named,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            payload=log_pb2.Records(records=[log_pb2.Record(value=value, timestamp_ms=5)]).SerializeToString(),
        )
        if is_named:
            shown = self._identity(call)
            batch.producer_id, batch.producer_epoch = shown["producer_id"], shown["producer_epoch"]
            if not (call.epoch or call.sequence or call.damage):
                self._sequences[call.name, partition] = next_sequence + 1
        topic, number = _split(partition)
        if call.damage == "topic by id" and topic in self._topic_ids:
            return log_pb2.PartitionBatch(topic_id=self._topic_ids[topic], partition=number, batch=batch)
        return log_pb2.PartitionBatch(topic=topic, partition=number, batch=batch)


_MAKE: Final[dict[str, Callable[[Clients, Call], Any]]] = {
    "InitProducerId": Clients._init,
    "AddPartitionsToTxn": Clients._add,
    "Produce": Clients._produce,
    "Transact": Clients._transact,
    "EndTxn": Clients._end,
    "PrepareTransaction": Clients._prepare,
    "TxnOffsetCommit": Clients._commit_offsets,
    "ConsumerGroupHeartbeat": Clients._beat,
    "DescribeTransactions": Clients._describe,
    "Fetch": Clients._fetch,
    "CreateTopics": Clients._create,
    "DeleteTopics": Clients._delete,
}
_GIVES_IDENTITY: Final[dict[str, Any]] = {
    "InitProducerId": transaction_pb2.InitProducerIdResponse,
    "Transact": transaction_pb2.TransactResponse,
    "EndTxn": transaction_pb2.EndTxnResponse,
}


def _split(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)
