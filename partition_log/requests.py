"""What the log service is asked and what it answers, as values without a wire format.

An item that was refused carries its error and nothing else that means anything, unless its class says so.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from coordinator_protocol.batch import BatchHeader, OffsetlessBatch
from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.decision import Operation
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.requests import ClientBatch
from partition_log.catalog.state import PayloadValidation
from partition_log.counting import NOTHING_COUNTED, Counted
from partition_log.state import EndedTransaction, Isolation, PartitionHead, ProducerEntry


class TopicName(Struct, frozen=True):
    """A topic by name, by id, or by both."""

    name: str
    topic_id: bytes = b""


class TopicResult(Struct, frozen=True):
    """What became of one topic of a request."""

    name: str
    topic_id: bytes = b""
    partition_count: int = 0
    error: CoordinatorError | None = None


class TopicDescription(Struct, frozen=True):
    """A topic with the durable positions of its partitions, by partition number."""

    name: str
    topic_id: bytes = b""
    heads: tuple[PartitionHead, ...] = ()
    validate_payload: PayloadValidation = PayloadValidation.FULL
    error: CoordinatorError | None = None


class Append(Struct, frozen=True):
    """A client's batch on its way into a partition; its shape has been checked."""

    ordinal: int
    header: BatchHeader
    offsetless: OffsetlessBatch
    admission: Callable[[], Operation] | None = None
    """Makes the operation that refuses unless the partition is, or now becomes, part of the batch's transaction. Needed
    for transactional batches."""
    is_admitted: bool = False


class Appended(Struct, frozen=True):
    """Reply to an append: the batch is in the log, durable."""

    base_offset: int
    log_start_offset: int
    is_duplicate: bool = False
    """It had been there before; nothing was written."""


class ProduceRequest(Struct, frozen=True):
    """Batches of one call."""

    transactional_id: str | None
    items: tuple[ClientBatch, ...]


class ProduceResult(Struct, frozen=True):
    """What became of one batch."""

    name: PartitionName
    base_offset: int = 0
    """-1 with DUPLICATE_SEQUENCE_NUMBER: the records are in the log, where is not remembered."""
    log_start_offset: int = 0
    """Also with UNKNOWN_PRODUCER_ID: it tells the producer whether retention has removed what it wrote last."""
    is_duplicate: bool = False
    error: CoordinatorError | None = None


class FetchItem(Struct, frozen=True):
    """What a reader wants of one partition."""

    name: PartitionName
    fetch_offset: int
    end_offset: int | None = None
    """Stop before this offset; None: only the isolation level bounds the read."""
    partition_bytes_max: int = 0
    """0: as much as the whole answer may have."""


class FetchRequest(Struct, frozen=True):
    """What a reader wants, and how long it waits for it."""

    items: tuple[FetchItem, ...]
    isolation: Isolation = Isolation.READ_COMMITTED
    wait_ms_max: int = 0
    bytes_min: int = 1
    bytes_max: int = 1 << 20
    is_raw: bool = False
    """Hide nothing, and list the aborted transactions."""


class FetchResult(Struct, frozen=True):
    """What was found in one partition. With OFFSET_OUT_OF_RANGE the head is there too, so that the reader knows what is
    in range."""

    name: PartitionName
    next_offset: int
    """With CORRUPT_MESSAGE: where the log goes on behind the damage."""
    head: PartitionHead | None = None
    batches: tuple[tuple[BatchHeader, bytes], ...] = ()
    """Headers and stored forms."""
    aborted_records_hidden: int = 0
    control_records_hidden: int = 0
    aborted: tuple[EndedTransaction, ...] = ()
    error: CoordinatorError | None = None


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


class OffsetQuery(Struct, frozen=True):
    """A position asked for by end or by time."""

    name: PartitionName
    timestamp_ms: int
    """LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, or Unix milliseconds."""


class OffsetResult(Struct, frozen=True):
    """A position. -1 for both numbers: no record is that new."""

    name: PartitionName
    offset: int = 0
    timestamp_ms: int = 0
    error: CoordinatorError | None = None


class CountQuery(Struct, frozen=True):
    """Asks how many records lie from an offset on."""

    name: PartitionName
    start_offset: int


class CountResult(Struct, frozen=True):
    """Records from an offset on, as far as one call counts, and the positions under which they were counted."""

    name: PartitionName
    counted: Counted = NOTHING_COUNTED
    head: PartitionHead | None = None
    error: CoordinatorError | None = None


class ProducersDescription(Struct, frozen=True):
    """The producers that a partition remembers, durable state, by producer id."""

    name: PartitionName
    producers: tuple[tuple[int, ProducerEntry], ...] = ()
    error: CoordinatorError | None = None
