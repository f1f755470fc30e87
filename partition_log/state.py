"""What a partition remembers, as frozen values.

The records of a partition lie in the store. In memory is only what an append, a marker or a reader needs to decide: the
positions of the log, and one entry per producer that has written here. A partition without producers costs about a
kilobyte.

Source: spec log-and-runtime 1.1, 1.3 and 1.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from msgspec import Struct

from coordinator_protocol.batch import NO_TIMESTAMP_MS
from coordinator_protocol.marker import Outcome
from coordinator_protocol.producers import NO_SEQUENCE
from coordinator_runtime.incarnation import LineCause
from coordinator_runtime.ports import EndIdentity

BATCHES_CACHED_MAX: Final = 5
"""Batches per producer that are recognised when they come again: as many as Kafka's producers have in flight."""

PRODUCER_EXPIRATION_MS: Final = 24 * 3_600_000
"""Kafka's `producer.id.expiration.ms`."""

REMOVAL_INTERVAL_MS: Final = 2_000

NO_COORDINATOR_EPOCH: Final = -1
NO_COORDINATOR_SHARD: Final = -1
NO_OFFSET: Final = -1


class CachedBatch(Struct, frozen=True, gc=False):
    """One of the last batches of a producer: enough to answer its repetition."""

    base_sequence: int
    last_sequence: int
    base_offset: int


class OpenTransaction(Struct, frozen=True, gc=False):
    """A transaction with records here and no marker yet. Its epoch is that of its producer's entry."""

    first_offset: int
    started_ms: int
    """Wall time of its first append here, for people and for what finds hanging transactions."""


class LastMarker(Struct, frozen=True, gc=False):
    """The newest marker of a producer. A marker with this csn or a smaller one was sent before."""

    txn_epoch: int
    outcome: Outcome
    csn: int
    first_offset: int = NO_OFFSET
    """Where the records of the transaction begin that it ended; NO_OFFSET: it had none here. A repeated Transact is
    answered with it."""


class ProducerEntry(Struct, frozen=True, gc=False):
    """What a partition knows of one producer id."""

    epoch: int
    """Smaller epochs are fenced."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_append_ms: int = 0
    """Wall time of the last append or marker. Expiration counts from here, so a marker keeps the fence (KAFKA-9144)."""
    batches: tuple[CachedBatch, ...] = ()
    """Batches of this epoch, oldest first, five at most. Empty: the next sequence is 0."""
    open_transaction: OpenTransaction | None = None
    last_marker: LastMarker | None = None
    is_sealed: bool = False
    """The open transaction takes no more records: it is prepared, or a newer instance keeps it until it is decided."""
    forgotten_csn: int = 0
    """Newest csn of its coordinator shard that the partition had forgotten when this producer came; 0 once it has a
    marker of its own. All that it writes is ended by a newer one."""
    coordinator_shard: int = NO_COORDINATOR_SHARD
    """Shard of the producer's transactional id: csns and coordinator epochs mean something within it only. Not known of
    one that has no marker and wrote nothing in a transaction."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record of this epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class LogTotals(Struct, frozen=True, gc=False):
    """Everything that lies before an offset, counted, to be compared with that before another one. Only the difference
    means something: what removal or compaction takes away is made up for in the numbers before it, so that those behind
    stay. They may even be negative, where what compaction left takes more bytes."""

    size_bytes: int = 0
    """Bytes of the rows in `LOG`, wherever their values lie; keys do not count."""
    record_count: int = 0
    """Records of clients, those of aborted transactions too; markers are none."""
    marker_count: int = 0
    abort_count: int = 0
    """Aborted transactions with records here, each counted at its marker."""


class IndexProgress(Struct, frozen=True, gc=False):
    """The end of the log, which is no finished stretch yet."""

    first_offset: int = 0
    size_bytes: int = 0
    batch_count: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP_MS
    """Largest timestamp of a record in the whole log, markers left out."""


class ForgottenProducers(Struct, frozen=True, gc=False):
    """What a partition still knows of the producers that it forgot, of all of them together."""

    end_offset: int = 0
    """Log end when some were last forgotten: what they wrote lies before it. 0 = none ever was."""
    csns: tuple[tuple[int, int], ...] = ()
    """By coordinator shard, ascending: the newest of their markers. A marker of the shard up to there that is for an
    unknown producer was sent before."""

    def csn_of(self, coordinator_shard: int) -> int:
        """The newest forgotten marker of the coordinator shard; 0 = none is forgotten."""
        for shard, csn in self.csns:
            if shard == coordinator_shard:
                return csn
        return 0


class LeaderEpoch(Struct, frozen=True, gc=False):
    """Where a leader epoch of a partition began."""

    epoch: int
    start_offset: int
    """The first offset that was given in it, or will be."""
    began_ms: int
    """Wall time, for people."""
    cause: LineCause


class Leadership(Struct, frozen=True):
    """The leader epochs of a partition. What lies at an offset never changes within one."""

    epoch: int
    """The present one, which every batch is stamped with."""
    incarnation: int
    """Incarnation of the store in which the partition was loaded last: in another one it gets another epoch."""
    history: tuple[LeaderEpoch, ...]
    """All epochs, ascending; the last one is the present one."""


FIRST_LEADERSHIP: Final = Leadership(0, 0, (LeaderEpoch(0, 0, 0, LineCause.CREATED),))
"""What partitions have in a store that never lost anything, but for the time."""


class PartitionHead(Struct, frozen=True, gc=False):
    """All positions of a partition at one moment. The durable reading is what readers get: its `log_end_offset` is the
    high watermark. Always log start <= last stable offset <= log end."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    last_stable_offset: int = 0
    """First offset of the oldest open transaction, else the log end. The record AT it is not stable."""
    open_transactions: int = 0
    last_abort_offset: int = NO_OFFSET
    """Offset of the newest abort marker that ended a transaction: readers beyond it need not look for aborted ones."""
    index: IndexProgress = IndexProgress()
    forgotten: ForgottenProducers = ForgottenProducers()
    totals: LogTotals = LogTotals()
    """What lies before the log end."""
    compacted_to: int = 0
    """Before it, offsets may be without a record: within a batch, and between two. From there on none is. The last row
    of a log stays, with no record left in it if need be: it says where the log ends."""
    leadership: Leadership = FIRST_LEADERSHIP


EMPTY_HEAD: Final = PartitionHead()


HIGH_WATERMARK: Final = -1
"""Stands for the durable end of the log, in requests."""


class MovedLogStart(Struct, frozen=True, gc=False):
    """Where a log begins, after somebody wanted it to begin elsewhere."""

    log_start_offset: int
    held_back: str = ""
    """What kept it from where it was wanted, and what to do about it; empty: nothing did."""
    due_offset: int = 0
    """Where it would begin if nobody held anything."""


class Isolation(IntEnum):
    """Which records a read may show."""

    READ_COMMITTED = 0
    READ_UNCOMMITTED = 1


class IndexEntry(Struct, frozen=True, gc=False):
    """A finished stretch of the log. Its borders are those of rows in `LOG`, and stretches follow each other without
    gaps. What it says of the log up to its end never falls from one to the next, so the first one that reaches a value
    is found by halving (`stretches.first_that`)."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    """Largest timestamp of a record from the log's beginning up to here."""
    ended_ms: int
    """Wall time of its last append: what is left to go by where records have no time, or one in the future."""
    totals: LogTotals
    """What lies before its end."""


class AbortedTransaction(Struct, frozen=True, gc=False):
    """A transaction that had records here and was aborted. Visible records are those of all others that have ended."""

    producer_id: int
    txn_epoch: int
    first_offset: int
    marker_offset: int
    coordinator_shard: int
    csn: int


class RememberedEnd(Struct, frozen=True, gc=False):
    """What is left of a forgotten producer's last transaction, for a Transact that is repeated however late."""

    identity: EndIdentity
    first_offset: int


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """How partitions are kept."""

    index_interval_bytes: int = 1 << 20
    """How long a stretch of the log is; a search by time and a count read one or two of them. Too small: a row more for
    every batch. Too large: long searches."""
    index_interval_batches: int = 256
    """Bounds the rows that one search reads: about a millisecond."""
    removal_interval_ms: int = REMOVAL_INTERVAL_MS
    """Pause between two rounds of removal."""
    producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS
    """Time after which a producer that does not write is forgotten."""
