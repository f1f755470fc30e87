"""Collects records into batches: one queue per partition, and at most one batch of a partition in flight.

A batch is cut when it is full, or when a caller waits for it; there is no linger time. Identity and sequence are
stamped when it is sent for the first time, and stay the same through all retries. The next batch of a partition waits
for the answer to the previous one. So order and sequence numbers hold through losses and retries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec import Struct

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.encodings import (
    BATCH_OVERHEAD_BYTES,
    ROW_OVERHEAD_BYTES,
    BatchStamp,
    headers_bytes_max,
    write_batch,
)
from coordinator_client.errors import TransactionError, rejected
from coordinator_client.values import Identity, Row, TopicPartitionCount
from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.hashing import partition_for
from coordinator_protocol.limits import KIBI
from coordinator_protocol.producers import SEQUENCE_MAX, subtract_sequence

REQUEST_BYTES_MAX: Final = 960 * KIBI
"""Maximum payload of one Produce request, unless a single batch is larger. With its names, it fits into a session
message. While the server flushes one request, the next is written and read."""

_KNOWN_KEYS_MAX: Final = 4_096

NO_OFFSET: Final = -1


class Batches(Protocol):
    """The repeated field of a request that holds its batches."""

    def add(self) -> log.PartitionBatch:
        """Add an empty batch, and return it to be filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFormat:
    """Format and size limits of batches."""

    encoding: Encoding
    compression: Compression
    batch_bytes: int
    """Size past which a batch may not grow; it is cut before."""
    record_bytes_max: int
    """Maximum size of a record that can be sent."""
    is_transactional: bool


class BatchPlace(Struct, eq=False, gc=False):
    """Place of one batch in the log, shared by the results of its sends."""

    topic: str
    partition: int
    base_offset: int = NO_OFFSET
    """Offset of its first record; `NO_OFFSET` = not known."""


class SentRecord(Struct, frozen=True, eq=False, gc=False):
    """Result of a send: the partition of the record, and its offset once that is known."""

    _place: BatchPlace
    _number: int

    @property
    def topic(self) -> str:
        """Topic of the record."""
        return self._place.topic

    @property
    def partition(self) -> int:
        """Partition that was named, or chosen by the key."""
        return self._place.partition

    @property
    def offset(self) -> int | None:
        """Offset of the record, known once a commit or flush has returned; None before, and after a failure.

        Also None for the last records of a transaction above `transact_bytes`, which go with the commit; they have an
        offset if `flush` comes before it.
        """
        base = self._place.base_offset
        return None if base == NO_OFFSET else base + self._number

    def __repr__(self) -> str:
        return f"SentRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset})"


class SealedBatch(Struct, frozen=True, eq=False):
    """A batch that has been sent; every attempt sends the same bytes."""

    queue: PartitionQueue
    size_bytes: int
    place: BatchPlace
    identity: Identity
    """Identity stamped into the batch."""
    base_sequence: int
    message: log.PartitionBatch
    """Message with the records, which are stored nowhere else."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """Unacknowledged records of one partition, in order."""

    topic: TopicPartitionCount
    partition: int
    rows: list[Row] = field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    place: BatchPlace = field(init=False)
    """Place of the open batch."""
    sealed: deque[tuple[list[Row], int, BatchPlace]] = field(default_factory=deque)
    """Batches that are cut and not sent: the records of each, an upper bound of its bytes, and its place."""
    in_flight: SealedBatch | None = None
    next_sequence: int = 0

    def __post_init__(self) -> None:
        self.place = BatchPlace(self.topic.name, self.partition)

    @property
    def unsent_count(self) -> int:
        """Number of records that were not sent."""
        return len(self.rows) + sum(len(rows) for rows, _, _ in self.sealed)

    def cut(self) -> None:
        """Cut the open batch, and begin the next one."""
        self.sealed.append((self.rows, self.size_bytes, self.place))
        self.rows, self.size_bytes = [], BATCH_OVERHEAD_BYTES
        self.place = BatchPlace(self.topic.name, self.partition)

    def drop_unsent(self) -> int:
        """Forget the waiting records; return their size in bytes."""
        dropped = self.size_bytes - BATCH_OVERHEAD_BYTES
        dropped += sum(size_bytes - BATCH_OVERHEAD_BYTES for _, size_bytes, _ in self.sealed)
        self.rows, self.size_bytes = [], BATCH_OVERHEAD_BYTES
        self.place = BatchPlace(self.topic.name, self.partition)
        self.sealed.clear()
        return dropped


class TopicWriter:
    """Chooses the partition of each record of one topic: by its key, as Kafka does. Records without a key go to the
    partitions in turn, batch by batch."""

    __slots__ = ("_by_key", "keyless", "queues", "topic")

    def __init__(self, topic: TopicPartitionCount, *, first: float) -> None:
        """Create a queue for each partition. `first`, a number in [0, 1), chooses the first partition for records
        without a key."""
        self.topic = topic
        self.queues = [PartitionQueue(topic, partition) for partition in range(topic.partition_count)]
        self.keyless = int(first * topic.partition_count)
        """Partition of records without a key, until its batch is cut."""
        self._by_key: dict[bytes, PartitionQueue] = {}

    def grow(self, topic: TopicPartitionCount) -> None:
        """Add the new partitions of the topic. From now on keys are spread over all of them, as in Kafka."""
        new = range(len(self.queues), topic.partition_count)
        if new:
            self.topic = topic
            self.queues += [PartitionQueue(topic, partition) for partition in new]
            self._by_key.clear()

    def queue_for(self, key: bytes | None, partition: int | None) -> PartitionQueue:
        """Return the queue for a record. Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) for a number out of range."""
        if partition is not None:
            if not 0 <= partition < len(self.queues):
                raise rejected(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{self.topic.name} has the partitions 0 to {len(self.queues) - 1}, and {partition} was named",
                )
            return self.queues[partition]
        if key is None:
            return self.queues[self.keyless]
        queue = self._by_key.get(key)
        if queue is None:
            # Keys repeat, and in Python the hash takes longer than everything else in a send.
            if len(self._by_key) >= _KNOWN_KEYS_MAX:
                self._by_key.clear()
            queue = self._by_key[key] = self.queues[partition_for(key, len(self.queues))]
        return queue


class Accumulator:
    """All records that were taken and are not acknowledged yet."""

    def __init__(self, batch_format: BatchFormat) -> None:
        self._format = batch_format
        self.writers: dict[str, TopicWriter] = {}
        """Writer of each topic whose partitions are known."""
        # These dictionaries are ordered sets: among ten thousand partitions, only those with something to do are
        # visited.
        self._open: dict[PartitionQueue, TopicWriter] = {}
        self.ready: dict[PartitionQueue, None] = {}
        """Partitions with a batch that can be sent now."""
        self._sent: dict[PartitionQueue, None] = {}
        self.newest: SentRecord
        """Result of the last send."""
        self.buffered_bytes = 0
        """Upper bound of the wire bytes of all records that wait or are in flight."""

    def learn(self, topic: TopicPartitionCount, *, first: float) -> None:
        """Take records for this topic from now on; a known topic may have more partitions than before."""
        writer = self.writers.get(topic.name)
        if writer is None or writer.topic.topic_id != topic.topic_id:
            self.writers[topic.name] = TopicWriter(topic, first=first)
        else:
            writer.grow(topic)

    def forget(self, *topics: str) -> None:
        """Forget the partitions of topics that may have been deleted or recreated; the next record looks them up
        again."""
        for topic in topics:
            self.writers.pop(topic, None)

    def append(self, writer: TopicWriter, row: Row, partition: int | None) -> bool:
        """Take a record; return True if a batch became full and can be sent.

        Raises: Rejected with MESSAGE_TOO_LARGE or UNKNOWN_TOPIC_OR_PARTITION.
        """
        batch_format = self._format
        key, value, _, headers = row
        size = ROW_OVERHEAD_BYTES
        if key:
            size += len(key)
        if value:
            size += len(value)
        if headers:
            size += headers_bytes_max(headers)
        queue = writer.queue_for(key, partition)
        has_sealed = False
        # A record that fits beside others cannot be too large.
        if not queue.rows or queue.size_bytes + size > batch_format.batch_bytes:
            if size + BATCH_OVERHEAD_BYTES > batch_format.record_bytes_max:
                raise _too_large(size, batch_format.record_bytes_max)
            # A record without a key moves to the next partition here, whose batch may be full as well.
            while queue.rows and queue.size_bytes + size > batch_format.batch_bytes:
                del self._open[queue]
                self._seal([(queue, writer)])
                queue = writer.queue_for(key, partition)
                has_sealed = True
            self._open[queue] = writer
        rows = queue.rows
        self.newest = SentRecord(queue.place, len(rows))
        rows.append(row)
        queue.size_bytes += size
        self.buffered_bytes += size
        return has_sealed

    def seal_all(self) -> None:
        """Cut every open batch."""
        self._seal(self._open.items())
        self._open.clear()

    def fits_one_request(self, bytes_max: int) -> bool:
        """Return True if everything unsent is cut into at most one batch per partition, and is at most this large."""
        if self._open:
            return False
        size_bytes = 0
        # If nothing was sent yet, as in most transactions, every partition with a cut batch can send.
        for queue in self._with_sealed() if self._sent else self.ready:
            if len(queue.sealed) > 1:
                return False
            size_bytes += queue.sealed[0][1]
        return size_bytes <= bytes_max

    def take(self, identity: Identity, into: Batches) -> list[SealedBatch]:
        """Return the batches of the next request, stamped and written into it: at most one for each partition without a
        batch in flight."""
        taken: list[SealedBatch] = []
        size_bytes, batch_format = 0, self._format
        producer_id, producer_epoch = identity
        for queue in list(self.ready):
            rows, batch_bytes, place = queue.sealed[0]
            size_bytes += batch_bytes
            if taken and size_bytes > REQUEST_BYTES_MAX:
                break
            del self.ready[queue], queue.sealed[0]
            self._sent[queue] = None
            topic, sequence, message = queue.topic, queue.next_sequence, into.add()
            message.topic, message.topic_id, message.partition = topic.name, topic.topic_id, queue.partition
            write_batch(
                message.batch,
                rows,
                encoding=batch_format.encoding,
                compression=batch_format.compression,
                stamp=BatchStamp(producer_id, producer_epoch, sequence, batch_format.is_transactional),
            )
            batch = SealedBatch(queue, batch_bytes, place, identity, sequence, message)
            # Wraps to 0 after SEQUENCE_MAX.
            queue.next_sequence = (sequence + len(rows)) & SEQUENCE_MAX
            queue.in_flight = batch
            taken.append(batch)
        return taken

    @property
    def unsent_count(self) -> int:
        """Number of records that were taken and not sent."""
        return sum(queue.unsent_count for queue in {*self._open, *self._with_sealed()})

    def settle(self, batch: SealedBatch) -> None:
        """Forget a batch that is in the log or never will be, so that its partition can send the next."""
        batch.queue.in_flight = None
        self.buffered_bytes -= batch.size_bytes - BATCH_OVERHEAD_BYTES
        if batch.queue.sealed:
            self.ready[batch.queue] = None

    def take_back_sequence(self, batch: SealedBatch, identity: Identity | None) -> None:
        """Reuse the sequence numbers of this batch, which is certainly not in the log, so that there is no gap.

        After a change of identity this does nothing: the new identity begins at 0 anyway.
        """
        if batch.identity == identity:
            batch.queue.next_sequence = batch.base_sequence

    def drop_unsent(self) -> None:
        """Forget the waiting records; batches in flight stay."""
        for queue in [*self._open, *self._with_sealed()]:
            self.buffered_bytes -= queue.drop_unsent()
        self._open.clear()
        self.ready.clear()

    def drop(self) -> None:
        """Forget everything that waits or is in flight."""
        # After a commit nothing waits, so each partition is visited once.
        if self._open or self.ready:
            self.drop_unsent()
        for queue in self._sent:
            queue.in_flight = None
            if queue.sealed:
                queue.sealed.clear()
        self.buffered_bytes = 0

    def restart_sequences(self) -> None:
        """Restart sequences at 0 in every partition, as every new identity must."""
        sent, self._sent = self._sent, {}
        for queue in sent:
            queue.next_sequence = 0
            if queue.in_flight is not None:
                # A batch in flight keeps its stamp, and its partition waits for it.
                self._sent[queue] = None

    def last_sequences(self) -> list[txn.LastSequence]:
        """Return the last sequence sent to each partition under this identity; the server checks a commit against
        it."""
        return [
            txn.LastSequence(
                topic=queue.topic.name,
                topic_id=queue.topic.topic_id,
                partition=queue.partition,
                sequence=subtract_sequence(queue.next_sequence, 1),
            )
            for queue in self._sent
        ]

    def _with_sealed(self) -> list[PartitionQueue]:
        """Return every queue with a cut batch once: those that can send, and those that wait for an answer."""
        ready = self.ready
        return [*ready, *[queue for queue in self._sent if queue.sealed and queue not in ready]]

    def _seal(self, opened: Iterable[tuple[PartitionQueue, TopicWriter]]) -> None:
        """Cut the open batches of these partitions; the caller removes them from the open ones."""
        for queue, writer in opened:
            queue.cut()
            if queue.partition == writer.keyless:
                # Records without a key move to the next partition once the batch that they shared is cut.
                writer.keyless = (queue.partition + 1) % len(writer.queues)
            if queue.in_flight is None:
                self.ready[queue] = None


def _too_large(size: int, bytes_max: int) -> TransactionError:
    return rejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the record takes up to {size} bytes and a batch of {bytes_max} must hold it with {BATCH_OVERHEAD_BYTES} of "
        "its own; store large values elsewhere and send a reference",
    )
