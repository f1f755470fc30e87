"""Frozen values of the state that a partition keeps in memory.

The records of a partition lie in the store. Memory holds only the state that decides about an append, a marker or a
read. That is the positions of the log, and one entry per producer that has written here. A partition without producers
costs about a kilobyte.

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
from coordinator_protocol.snapshots import CompactionProgress
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.ports import EndIdentity

BATCHES_CACHED_MAX: Final = 5
"""Number of batches per producer that are recognised when they come again. Kafka's producers have as many in flight."""

PRODUCER_EXPIRATION_MS: Final = 24 * 3_600_000
"""Default of Kafka's `producer.id.expiration.ms`."""

REMOVAL_INTERVAL_MS: Final = 2_000

COMPACTION_INTERVAL_MS: Final = 15_000
"""Default of Kafka's `log.cleaner.backoff.ms`."""

COMPACTION_BYTES_PER_SECOND: Final = 12 << 20

NO_COORDINATOR_EPOCH: Final = -1
NO_COORDINATOR_SHARD: Final = -1
NO_OFFSET: Final = -1


class CachedBatch(Struct, frozen=True, gc=False):
    """One of the last batches of a producer, with the fields needed to answer its repetition."""

    base_sequence: int
    last_sequence: int
    base_offset: int


class OpenTransaction(Struct, frozen=True, gc=False):
    """A transaction with records in this partition and no marker yet. Its epoch is that of its producer's entry."""

    first_offset: int
    started_ms: int
    """Wall time of its first append here, for display and for the detection of hanging transactions."""


class LastMarker(Struct, frozen=True, gc=False):
    """The newest marker of a producer. A marker with this csn is a repetition; one with a smaller csn is stale."""

    txn_epoch: int
    outcome: Outcome
    csn: int
    first_offset: int = NO_OFFSET
    """First offset of the records of the transaction that it ended; NO_OFFSET if it had none here. The reply to a
    repeated Transact contains it."""


class ProducerEntry(Struct, frozen=True, gc=False):
    """State that a partition keeps for one producer id."""

    epoch: int
    """Newest epoch. Smaller ones are fenced."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_append_ms: int = 0
    """Wall time of the last append or marker. Expiration counts from here, so a marker keeps the fence (KAFKA-9144)."""
    batches: tuple[CachedBatch, ...] = ()
    """Batches of this epoch, oldest first, at most five. If there are none, the next sequence number is 0."""
    open_transaction: OpenTransaction | None = None
    last_marker: LastMarker | None = None
    is_sealed: bool = False
    """True if the open transaction takes no more records: it is prepared, or a newer instance keeps it until it is
    decided."""
    forgotten_csn: int = 0
    """Newest csn of its coordinator shard that the partition had forgotten when this producer came; 0 once it has a
    marker of its own. The markers of all its transactions have newer csns."""
    coordinator_shard: int = NO_COORDINATOR_SHARD
    """Shard of the producer's transactional id. Csns and coordinator epochs are comparable only within one shard.
    Unknown for a producer that has no marker and wrote nothing in a transaction."""

    @property
    def last_sequence(self) -> int:
        """Sequence number of the newest record of this epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class LogTotals(Struct, frozen=True, gc=False):
    """Cumulative totals of everything before an offset. Only the difference between two of them has a meaning. Removal
    and compaction leave the totals behind the rows that they take away as they are. Compaction corrects the totals
    before those rows instead. These may even be negative, if it leaves more bytes than there were."""

    size_bytes: int = 0
    """Bytes of the rows in `LOG`, wherever their values are stored. Keys do not count."""
    record_count: int = 0
    """Records of clients, including those of aborted transactions. Markers do not count."""
    marker_count: int = 0
    abort_count: int = 0
    """Number of aborted transactions with records here, each counted at its marker."""


class IndexProgress(Struct, frozen=True, gc=False):
    """Progress of the unfinished index entry at the end of the log."""

    first_offset: int = 0
    size_bytes: int = 0
    batch_count: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP_MS
    """Largest timestamp of a record in the whole log. Markers do not count."""


class ForgottenProducers(Struct, frozen=True, gc=False):
    """Summary of all producers that a partition has forgotten."""

    end_offset: int = 0
    """Log end when producers were last forgotten: their records lie before it. 0 if none ever were."""
    csns: tuple[tuple[int, int], ...] = ()
    """Newest csn of their markers by coordinator shard, ascending by shard. A marker for an unknown producer is
    stale if its csn is not newer."""

    def csn_of(self, coordinator_shard: int) -> int:
        """Return the newest forgotten csn of the coordinator shard; 0 if none is forgotten."""
        for shard, csn in self.csns:
            if shard == coordinator_shard:
                return csn
        return 0


class LeaderEpoch(Struct, frozen=True, gc=False):
    """The beginning of a leader epoch of a partition."""

    epoch: int
    start_offset: int
    """First offset that was assigned in the epoch, or will be."""
    began_ms: int
    """Wall time, for display."""
    cause: IncarnationCause


class Leadership(Struct, frozen=True):
    """Leader epochs of a partition. Within one of them, the record at an offset never changes."""

    epoch: int
    """Current epoch, which every batch is stamped with."""
    incarnation: int
    """Incarnation of the store in which the partition was last loaded. In another incarnation it gets another epoch."""
    history: tuple[LeaderEpoch, ...]
    """All epochs, ascending. The last one is the current epoch."""


FIRST_LEADERSHIP: Final = Leadership(0, 0, (LeaderEpoch(0, 0, 0, IncarnationCause.CREATED),))
"""Leadership of partitions in a store that never lost data, apart from the time."""


class FinishedPass(Struct, frozen=True, gc=False):
    """A pass of compaction that has ended."""

    end_offset: int
    finished_ms: int
    """Wall time of its end."""


class Compaction(Struct, frozen=True):
    """Progress of compaction in a log."""

    clean_to: int = 0
    """Offset before which every key has one record at most. The log from here on is dirty."""
    end_offset: int = 0
    """End of the pass that is under way; `clean_to` if none is."""
    position: int = 0
    """Offset that the pass has come to."""
    finished: tuple[FinishedPass, ...] = ()
    """Passes that have ended, by their ends. Those that no tombstone depends on are left out."""

    @property
    def is_under_way(self) -> bool:
        """True if a pass has begun and not ended."""
        return self.end_offset > self.clean_to

    @property
    def progress(self) -> CompactionProgress:
        """Progress that a snapshot remembers."""
        return CompactionProgress(self.end_offset, self.position)

    def changed_to(self, since: CompactionProgress) -> int:
        """Return the offset before which rows may have changed since an earlier moment; 0 if none has."""
        last_finished = CompactionProgress(self.clean_to, self.clean_to)
        return max((each.position for each in (last_finished, self.progress) if each > since), default=0)


NOT_COMPACTED: Final = Compaction()


class PartitionHead(Struct, frozen=True, gc=False):
    """All positions of a partition at one moment. Readers get the durable reading, whose `log_end_offset` is the high
    watermark. Always log start <= last stable offset <= log end."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    last_stable_offset: int = 0
    """First offset of the oldest open transaction, else the log end. The record AT it is not stable."""
    open_transactions: int = 0
    last_abort_offset: int = NO_OFFSET
    """Offset of the newest abort marker that ended a transaction. Readers beyond it need not look for aborted
    transactions."""
    index: IndexProgress = IndexProgress()
    forgotten: ForgottenProducers = ForgottenProducers()
    totals: LogTotals = LogTotals()
    """Totals of everything before the log end."""
    compacted_to: int = 0
    """Offsets before this one may be without a record, within a batch or between two. From here on every offset has
    one. The last row of a log always stays, if need be without records, because it marks the log end."""
    leadership: Leadership = FIRST_LEADERSHIP
    compaction: Compaction = NOT_COMPACTED


EMPTY_HEAD: Final = PartitionHead()


HIGH_WATERMARK: Final = -1
"""Stands for the durable end of the log in requests."""


class MovedLogStart(Struct, frozen=True, gc=False):
    """Result of a request to move a log start."""

    log_start_offset: int
    held_back: str = ""
    """Reason why the log start is before the wanted offset, and what to do about it; empty if nothing held it back."""
    due_offset: int = 0
    """Offset at which the log would begin without leases."""


class Isolation(IntEnum):
    """Isolation level of a read."""

    READ_COMMITTED = 0
    READ_UNCOMMITTED = 1


class IndexEntry(Struct, frozen=True, gc=False):
    """An index entry, which covers a finished section of the log (a stretch). It begins and ends with rows of `LOG`,
    and entries follow each other without gaps. `max_timestamp_ms` and `totals` describe the log up to the entry's end
    and never fall from one entry to the next. A binary search therefore finds the first entry that reaches a value
    (`stretches.first_that`)."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    """Largest timestamp of a record from the log's beginning up to the entry's end."""
    ended_ms: int
    """Wall time of its last append. It decides the age where records have no timestamp, or one in the future."""
    totals: LogTotals
    """Totals of everything before its end."""


class AbortedTransaction(Struct, frozen=True, gc=False):
    """An aborted transaction with records in this partition. Records of all other transactions that have ended are
    visible."""

    producer_id: int
    txn_epoch: int
    first_offset: int
    marker_offset: int
    coordinator_shard: int
    csn: int


class RememberedEnd(Struct, frozen=True, gc=False):
    """End of a forgotten producer's last transaction, kept to answer a Transact that is repeated however late."""

    identity: EndIdentity
    first_offset: int


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Settings of partitions."""

    index_interval_bytes: int = 1 << 20
    """Size of an index entry (bytes of log). A search by time and a count read one or two of them. Too small: an index
    row for every batch. Too large: long searches."""
    index_interval_batches: int = 256
    """Largest number of batches in an index entry. It bounds the rows that one search reads, to about a millisecond."""
    removal_interval_ms: int = REMOVAL_INTERVAL_MS
    """Pause between two rounds of removal."""
    compaction_interval_ms: int = COMPACTION_INTERVAL_MS
    """Pause between two looks for a partition to be compacted."""
    compaction_bytes_per_second: int = COMPACTION_BYTES_PER_SECOND
    """Largest number of bytes of a log that a pass reads in a second; 0 = no limit. Too small: logs grow faster than
    they are compacted. Too large: other callers wait for the disk."""
    producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS
    """Time after which a producer that does not write is forgotten."""
