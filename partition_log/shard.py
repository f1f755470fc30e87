"""One shard of partitions: it looks up, asks the rules, and returns the consequences.

Every `decide_*` method is the body of an operation: it changes nothing and returns a Decision. Records and markers
enter a partition the same way, so the order of the log is the order of the decisions. Other components use operations:
the transaction coordinator sees the log through `PartitionMarkers`, and the search for hanging transactions through
`PartitionTransactions`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import (
    CATALOG_KEY,
    Decision,
    Operation,
    Record,
    ShardKey,
    Turn,
    once_durable,
)
from coordinator_runtime.expiration import START, Progress, first_sweep, next_sweep, sweep
from coordinator_runtime.incarnation import FIRST, Incarnation
from coordinator_runtime.ports import NO_LEASES, EndIdentity, OffsetLeases, OpenInPartition, UnfinishedTransaction
from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log.catalog.shard import CatalogShard
from partition_log.compaction_steps import CompactionStep, from_log_start, head_after
from partition_log.leadership import head_of_new, raised
from partition_log.partition_state import Append, Appended, Partition, PartitionDraft
from partition_log.records import (
    CompactionEnded,
    LeaderEpochRaised,
    LogCompacted,
    LogRecord,
    LogStartMoved,
    MarkerFromOutside,
    PartitionCreated,
    PartitionDeleted,
    PartitionRestored,
    ProducerRestored,
    ProducerSealed,
    ProducersExpired,
    ProducersForgotten,
    RecordsDeleted,
    RemovalCause,
    RowsAppended,
    RowsCompacted,
    StretchFinished,
)
from partition_log.rules import appending, excluding, indexing, marking, removing
from partition_log.rules.appending import AppendVerdict
from partition_log.rules.marking import MarkerVerdict
from partition_log.state import (
    NO_COORDINATOR_SHARD,
    NO_OFFSET,
    NOT_COMPACTED,
    CachedBatch,
    Compaction,
    LogTotals,
    OpenTransaction,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)

_EXPIRATION_TIMER: Final = "producer_expiration"


class LogShard:
    """Partitions by ordinal. The module docstring has the rules."""

    def __init__(
        self,
        key: ShardKey,
        journal: Journal,
        config: PartitionConfig | None = None,
        incarnation: Incarnation = FIRST,
        leases: OffsetLeases = NO_LEASES,
    ) -> None:
        self.key = key
        self._incarnation = incarnation
        self._leases = leases
        self._journal = journal
        self._config = config if config is not None else PartitionConfig()
        self._heads: TimelineMap[int, PartitionHead] = TimelineMap(journal)
        self._partitions: TimelineMap[int, Partition] = TimelineMap(journal)

    # Reading

    def durable_head(self, ordinal: int) -> PartitionHead | None:
        """Return all positions of a partition as they are on disk; None if there is no such partition on disk."""
        return self._heads.durable(ordinal)

    def log_start_to_be(self, ordinal: int) -> int:
        """Return the live log start of a partition, from which on records can still be held. Records below it are still
        on disk, but are about to be removed."""
        head = self._heads.get(ordinal) or self._heads.durable(ordinal)
        return 0 if head is None else head.log_start_offset

    def compaction_to_be(self, ordinal: int) -> Compaction:
        """Return the live progress of compaction. The store may have lost rows that go with a step which is not durable
        yet."""
        head = self._heads.get(ordinal) or self._heads.durable(ordinal)
        return NOT_COMPACTED if head is None else head.compaction

    def is_readable(self, ordinal: int) -> bool:
        """True unless a deletion is under way. Then the store may have lost rows that the durable head still counts."""
        return self._heads.get(ordinal) is not None

    def durable_producers(self, ordinal: int) -> list[tuple[int, ProducerEntry]]:
        """Return producer ids and entries of a partition as they are on disk, by producer id."""
        partition = self._partitions.durable(ordinal)
        return [] if partition is None else sorted(partition.producers.durable_items(), key=lambda item: item[0])

    def durable_open_transactions(self, ordinal: int) -> list[OpenTransaction]:
        """Return the transactions with records here and no durable marker, by first offset."""
        partition = self._partitions.durable(ordinal)
        entries = (
            [] if partition is None else map(partition.producers.durable, partition.ongoing.durable_copy().values())
        )
        found = [
            entry.open_transaction for entry in entries if entry is not None and entry.open_transaction is not None
        ]
        return sorted(found, key=lambda opened: opened.first_offset)

    def durable_exclusions(self, ordinal: int, unfinished: Iterable[UnfinishedTransaction]) -> Mapping[int, int]:
        """Return the exclusions of a snapshot of this moment in a partition, as `excluding.exclusions` does.
        `unfinished`: transactions that may have records here. Raises Refused likewise."""
        partition, head = self._partitions.durable(ordinal), self._heads.durable(ordinal)
        if partition is None or head is None:
            return {}
        opened, entry_of = partition.ongoing.durable_copy(), partition.producers.durable
        return excluding.exclusions(opened, unfinished, entry_of, head.log_start_offset, head.forgotten)

    def open_transactions(self, ordinal: int) -> list[OpenInPartition]:
        """Return transactions with records in a partition and no marker, live state, by first offset; none if there is
        no such partition."""
        partition, head = self._partitions.get(ordinal), self._heads.get(ordinal)
        if partition is None or head is None or not head.open_transactions:
            return []
        return sorted(_opened_by(partition.producers.items(), ordinal), key=lambda each: each.first_offset)

    def all_open_transactions(self) -> Iterator[OpenInPartition]:
        """Yield the open transactions of every partition in this shard, live state."""
        blocked = [ordinal for ordinal, head in self._heads.items() if head.open_transactions]
        for ordinal in blocked:
            partition = self._partitions.get(ordinal)
            if partition is not None:
                yield from _opened_by(list(partition.producers.items()), ordinal)

    def durable_oldest_open(self, ordinal: int) -> OpenInPartition | None:
        """Return the transaction that committed readers wait for, as it is on disk; None if none is open. Does not look
        at producers that have nothing open."""
        partition = self._partitions.durable(ordinal)
        opened = {} if partition is None else partition.ongoing.durable_copy()
        if partition is None or not opened:
            return None
        producer_id = opened[min(opened)]
        entry = partition.producers.durable(producer_id)
        return None if entry is None else next(iter(_opened_by([(producer_id, entry)], ordinal)), None)

    # Deciding

    def decide_append(self, turn: Turn, *, append: Append) -> Decision:
        """Append a client's batch. The reply is Appended. Raises Refused as `appending.judge_append` and
        `appending.check_timestamp`, and UNKNOWN_TOPIC_OR_PARTITION."""
        draft, batch = self._draft(append, turn), append.header
        entry, log_start_offset = draft.entry(batch.producer_id), draft.head.log_start_offset
        judge = partial(_judge, entry, append, log_start_offset, turn)
        verdict = judge(is_admitted=append.is_admitted)
        joins: tuple[Operation, ...] = ()
        if verdict is AppendVerdict.ADMIT:
            assert append.admission is not None, "a batch that needs an admission comes with it"
            joins = (append.admission(),)
            try:
                # A refusal by the coordinator takes the append back, so the batch may be judged as admitted before it
                # is asked.
                verdict = judge(is_admitted=True)
            except Refused as refusal:
                # The coordinator is asked anyway, because its refusal takes precedence.
                if refusal.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    joins = (*_refused_if_open(entry, append), *joins)
                return Decision(joins=(*joins, once_durable(self.key, refusal)))
        if verdict is AppendVerdict.APPEND:
            # A producer without an entry was just admitted by the shard of its transactional id. For others the entry
            # has the shard.
            coordinator_shard = joins[0].shard.number if joins and batch.is_transactional else NO_COORDINATOR_SHARD
            base_offset = draft.append(batch, append.offsetless, coordinator_shard)
            record, grew = draft.record()
            reply = Appended(base_offset, log_start_offset)
            return Decision(reply, (Record(self.key, record),), joins, events=(grew,))
        assert isinstance(verdict, CachedBatch)
        joins += _refused_if_open(entry, append)
        return Decision(Appended(verdict.base_offset, log_start_offset, is_duplicate=True), joins=joins)

    def decide_append_all(
        self, appends: Sequence[Append], coordinator_shard: int, marker: Marker | None, turn: Turn
    ) -> Decision:
        """Append one or more batches of one transaction, one behind the other, and behind them the marker that ends it,
        if there is one. The partition is in the transaction already. The shard is that of the transactional id. The
        reply is the offset of the transaction's first record here. Raises Refused as `decide_append` and
        `decide_marker`, and DUPLICATE_SEQUENCE_NUMBER for batches that were appended before outside of the
        transaction."""
        draft, producer_id = self._draft(appends[0], turn), appends[0].header.producer_id
        log_start_offset = draft.head.log_start_offset
        for append in appends:
            entry = draft.entry(producer_id)
            verdict = _judge(entry, append, log_start_offset, turn, is_admitted=True)
            if verdict is AppendVerdict.APPEND:
                draft.append(append.header, append.offsetless, coordinator_shard)
            elif entry is None or entry.open_transaction is None:
                raise appending.outside_of_transaction()
        entry = draft.entry(producer_id)
        assert entry is not None, "a batch was appended, or is a duplicate"
        assert entry.open_transaction is not None, "and it is part of this transaction"
        first_offset = entry.open_transaction.first_offset
        if marker is not None:
            judged = marking.judge_marker(entry, marker, forgotten=draft.head.forgotten)
            assert judged is MarkerVerdict.APPEND, "the outcome of an open transaction was decided a moment ago"
            draft.end(marker)
        if not draft.rows:
            return Decision(first_offset)
        record, grew = draft.record()
        return Decision(first_offset, (Record(self.key, record),), events=(grew,))

    def _draft(self, append: Append, turn: Turn) -> PartitionDraft:
        """Begin a draft of the partition that a batch is for. Raises Refused UNKNOWN_TOPIC_OR_PARTITION."""
        draft = self.draft(append.ordinal, turn.now_ms)
        if draft is None:
            raise _unknown()
        return draft

    def draft(self, ordinal: int, now_ms: int) -> PartitionDraft | None:
        """Begin a draft of a partition, live; None if there is no such partition."""
        partition, head = self._partitions.get(ordinal), self._heads.get(ordinal)
        if partition is None or head is None:
            return None
        return PartitionDraft(ordinal, partition, head, self._config, now_ms)

    def decide_marker(self, turn: Turn, *, ordinal: int, marker: Marker) -> Decision:
        """End a transaction in a partition. No reply. Success for a deleted partition, because the records that the
        marker would decide on are gone. Raises Refused as `marking.judge_marker`."""
        draft = self.draft(ordinal, turn.now_ms)
        if draft is None:
            return Decision()
        entry, forgotten = draft.entry(marker.producer_id), draft.head.forgotten
        if marking.judge_marker(entry, marker, forgotten=forgotten) is not MarkerVerdict.APPEND:
            return Decision()
        draft.end(marker)
        record, grew = draft.record()
        records: tuple[Record, ...] = (Record(self.key, record),)
        if marker.is_last:
            # No Transact of this producer is repeated, so the offset of its records need not be remembered.
            ((_producer_id, ended),) = record.producers
            after = removing.head_after_forgetting(record.head, (ended,))
            # Markers may arrive in another order than their csns were assigned.
            raised = ((marker.coordinator_shard, after.forgotten.csn_of(marker.coordinator_shard)),)
            records += (Record(self.key, ProducersForgotten(ordinal, (marker.producer_id,), after, raised)),)
        return Decision(None, records, events=(grew,))

    def decide_marker_from_outside(self, ordinal: int, marker: Marker, check: Operation, turn: Turn) -> Decision:
        """End a transaction as `decide_marker` does, by a marker that no coordinator of this server sent. The check is
        joined first, unless nothing would be written. Raises Refused as `decide_marker` and the check, and
        UNKNOWN_TOPIC_OR_PARTITION."""
        if ordinal not in self._heads:
            raise _unknown()
        decision = self.decide_marker(turn, ordinal=ordinal, marker=marker)
        if not decision.records:
            return decision
        write = Operation(self.key, partial(LogShard.decide_marker, ordinal=ordinal, marker=marker))
        return Decision(joins=(check, write), events=(MarkerFromOutside(ordinal, marker),))

    def decide_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Decision:
        """Let the producer's open transaction take no more records here. No reply. Does nothing if it has no open
        transaction here, or the partition was deleted."""
        partition = self._partitions.get(ordinal)
        entry = None if partition is None else partition.producers.get(producer_id)
        sealed = appending.seal(entry, producer_epoch)
        if sealed is None:
            return Decision()
        return Decision(records=(Record(self.key, ProducerSealed(ordinal, producer_id, sealed)),))

    def decide_check_last_sequence(
        self, ordinal: int, producer_id: int, producer_epoch: int, last_sequence: int
    ) -> Decision:
        """Reply with nothing, or refuse as `appending.check_last_sequence`."""
        partition = self._partitions.get(ordinal)
        entry = None if partition is None else partition.producers.get(producer_id)
        appending.check_last_sequence(
            entry, producer_id=producer_id, producer_epoch=producer_epoch, last_sequence=last_sequence
        )
        return Decision()

    def decide_first_offset(self, ordinal: int, identity: EndIdentity) -> Decision:
        """Find the first record of a transaction that has ended. The reply is its offset; -1 if the transaction has no
        records here; None if its producer's newest transaction is another one, or forgotten."""
        partition = self._partitions.get(ordinal)
        if partition is None:
            return Decision(reply=NO_OFFSET)
        entry = partition.producers.get(identity.producer_id)
        last = None if entry is None else entry.last_marker
        if entry is None or last is None or (entry.coordinator_shard, last.csn) != identity[:2]:
            return Decision()
        return Decision(reply=last.first_offset)

    def decide_expire(self, turn: Turn, progress: Progress = START) -> Decision:
        """Forget producers that have nothing open and have not written here for too long. Look again when the next one
        may be due (spec log-and-runtime 1.7)."""
        now_ms, expiration_ms = turn.now_ms, self._config.producer_id_expiration_ms
        last_uses = self._last_uses(progress.position, now_ms)
        found = sweep(last_uses, progress, now_ms=now_ms, expiration_ms=expiration_ms)
        expired: defaultdict[int, dict[int, ProducerEntry]] = defaultdict(dict)
        for ordinal, producer_id, entry in found.expired:
            expired[ordinal][producer_id] = entry
        return Decision(
            records=tuple(Record(self.key, self._forgetting(*each)) for each in expired.items()),
            effects=(next_sweep(_EXPIRATION_TIMER, self.key, found),),
            events=tuple(ProducersExpired(ordinal, len(entries)) for ordinal, entries in expired.items()),
        )

    def _last_uses(self, position: int, now_ms: int) -> Iterator[tuple[int, tuple[int, int, ProducerEntry]]]:
        """Yield for each producer the time of its last write, and its partition, id and entry, from a position on. A
        producer with an open transaction counts as having written now, even if it is sealed."""
        for ordinal, partition in self._partitions.items():
            for producer_id, entry in islice(partition.producers.items(), position, None):
                last_used_ms = entry.last_append_ms if entry.open_transaction is None else now_ms
                yield last_used_ms, (ordinal, producer_id, entry)
            position = max(0, position - len(partition.producers))

    def _forgetting(self, ordinal: int, entries: Mapping[int, ProducerEntry]) -> ProducersForgotten:
        head = self._heads.get(ordinal)
        assert head is not None, f"partition {ordinal} has no head"
        after = removing.head_after_forgetting(head, entries.values())
        known = set(head.forgotten.csns)
        raised = [each for each in after.forgotten.csns if each not in known]
        return ProducersForgotten(ordinal, tuple(entries), after, raised, removing.remembered_ends(entries))

    def decide_move_log_start(self, ordinal: int, wanted: int, cause: RemovalCause) -> Decision:
        """Let the log of a partition begin at an offset, or as near to it as its last stable offset and leases allow.
        The reply is a `MovedLogStart`. Raises Refused as `removing.move_log_start`, and UNKNOWN_TOPIC_OR_PARTITION."""
        head, durable = self._heads.get(ordinal), self._heads.durable(ordinal)
        if head is None:
            raise _unknown()
        high_watermark = 0 if durable is None else durable.log_end_offset
        moved = removing.move_log_start(
            head, wanted, high_watermark=high_watermark, leased_from=self._leases.oldest(ordinal)
        )
        offsets = moved.log_start_offset - head.log_start_offset
        if not offsets:
            return Decision(moved)
        after = replace(head, log_start_offset=moved.log_start_offset)
        record = Record(self.key, LogStartMoved(ordinal, after))
        return Decision(moved, (record,), events=(RecordsDeleted(ordinal, offsets, cause),))

    def decide_finish_stretch(self, ordinal: int, turn: Turn, *, for_compaction: bool = False) -> Decision:
        """Finish the index entry at the end of a partition's log, with the current time. Without `for_compaction` only
        if nothing else shows its age (`indexing.finish_ahead_of_time`). No reply. Does nothing in a deleted
        partition."""
        head = self._heads.get(ordinal)
        finish = indexing.finish_unfinished if for_compaction else indexing.finish_ahead_of_time
        finished = None if head is None else finish(head, turn.now_ms)
        if finished is None:
            return Decision()
        return Decision(records=(Record(self.key, StretchFinished(ordinal, *finished)),))

    def decide_compact(self, ordinal: int, step: CompactionStep) -> Decision:
        """Change the log of a partition as a pass of compaction wants it. The reply is False, and nothing changes, if a
        lease holds any of the rows. Raises Refused UNKNOWN_TOPIC_OR_PARTITION."""
        head = self._heads.get(ordinal)
        if head is None:
            raise _unknown()
        leased_from = self._leases.oldest(ordinal)
        if leased_from is not None and leased_from < step.end_offset:
            return Decision(reply=False)
        events: tuple[RowsCompacted | CompactionEnded, ...] = ()
        if step.less != LogTotals():
            events = (RowsCompacted(ordinal, step.less.size_bytes, step.less.record_count),)
        elif head.compaction.is_under_way and not step.compaction.is_under_way:
            events = (CompactionEnded(ordinal, step.compaction.end_offset),)
        after = head_after(head, step)
        record = LogCompacted(ordinal, after, from_log_start(step, head.log_start_offset))
        return Decision(reply=True, records=(Record(self.key, record),), events=events)

    def decide_create(self, ordinals: Iterable[int], turn: Turn) -> Decision:
        """Make empty partitions."""
        head = head_of_new(self._incarnation, turn.now_ms)
        return Decision(records=tuple(Record(self.key, PartitionCreated(ordinal, head)) for ordinal in ordinals))

    def decide_delete(self, ordinals: Iterable[int]) -> Decision:
        """Drop partitions with everything in them."""
        return Decision(records=tuple(Record(self.key, PartitionDeleted(ordinal)) for ordinal in ordinals))

    def before_serving(self, turn: Turn) -> Iterator[Record]:
        """Yield the records that must be durable before the partitions are read or written. They are new leader epochs,
        for partitions that were last loaded in another incarnation of the store."""
        for ordinal, head in self._heads.items():
            extended = raised(head, self._incarnation, turn.now_ms)
            if extended is not None:
                yield Record(self.key, LeaderEpochRaised(ordinal, extended))

    def on_loaded(self, turn: Turn) -> Decision:
        """Schedule the forgetting of producers that came due meanwhile. Nothing else is owed: the transaction
        coordinator ends transactions that a crash left open."""
        return Decision(effects=(first_sweep(_EXPIRATION_TIMER, self.key),))

    # Changing

    def replay(self, value: LogRecord) -> None:
        # Nearly every record appends something.
        if not isinstance(value, RowsAppended):
            self._replay_other(value)
            return
        ordinal, head = value.ordinal, value.head
        partition, before = self._partitions.get(ordinal), self._heads.get(ordinal)
        assert partition is not None, f"partition {ordinal} is written and does not exist"
        assert before is not None, f"partition {ordinal} has no head"
        stable_offset = head.last_stable_offset
        assert before.last_stable_offset <= stable_offset, "the last stable offset never goes back"
        self._heads.put(ordinal, head)
        for producer_id, entry in value.producers:
            partition.put(producer_id, entry)
        oldest = next(iter(partition.first_offsets)) if partition.first_offsets else head.log_end_offset
        assert stable_offset == oldest, "all before the oldest open transaction is stable, and no more"

    def _replay_other(self, value: LogRecord) -> None:
        match value:
            case PartitionCreated(ordinal, head) | PartitionRestored(ordinal, head):
                self._put(ordinal, head)
            case LeaderEpochRaised(ordinal, head) | LogStartMoved(ordinal, head) | StretchFinished(ordinal, head):
                self._heads.put(ordinal, head)
            case LogCompacted(ordinal, head):
                self._heads.put(ordinal, head)
            case ProducerRestored(ordinal, producer_id, producer) | ProducerSealed(ordinal, producer_id, producer):
                self._existing(ordinal).put(producer_id, producer)
            case ProducersForgotten(ordinal, producer_ids, head):
                self._heads.put(ordinal, head)
                for producer_id in producer_ids:
                    self._existing(ordinal).producers.remove(producer_id)
            case PartitionDeleted(ordinal):
                self._heads.remove(ordinal)
                self._partitions.remove(ordinal)

    def _put(self, ordinal: int, head: PartitionHead) -> None:
        assert ordinal not in self._heads, f"partition {ordinal} exists already: ordinals are never used again"
        self._heads.put(ordinal, head)
        self._partitions.put(ordinal, Partition(self._journal))

    def _existing(self, ordinal: int) -> Partition:
        partition = self._partitions.get(ordinal)
        assert partition is not None, f"partition {ordinal} is written and does not exist"
        return partition


def _judge(
    entry: ProducerEntry | None, append: Append, log_start_offset: int, turn: Turn, *, is_admitted: bool
) -> AppendVerdict | CachedBatch:
    """Return the verdict on a batch. Raises Refused as `appending.judge_append`, and as `appending.check_timestamp` and
    `appending.check_size` if the batch would be appended."""
    verdict = appending.judge_append(entry, append.header, is_admitted=is_admitted, log_start_offset=log_start_offset)
    if verdict is AppendVerdict.APPEND:
        appending.check_timestamp(append.header, turn.now_ms, append.timestamp_after_max_ms)
        appending.check_size(append.header, len(append.offsetless[1]), append.batch_bytes_max)
    return verdict


def _refused_if_open(entry: ProducerEntry | None, append: Append) -> tuple[Operation, ...]:
    """Return the operation to join before a batch is called a duplicate; none if the partition alone can tell."""
    refusal = appending.refusal_if_open(entry, append.header)
    if refusal is None:
        return ()
    assert append.refuse_if_open is not None, "a batch of a transaction comes with it"
    return (append.refuse_if_open(refusal),)


def _opened_by(producers: Iterable[tuple[int, ProducerEntry]], ordinal: int) -> Iterator[OpenInPartition]:
    """Yield the open transactions of some producers in a partition."""
    for producer_id, entry in producers:
        opened = entry.open_transaction
        if opened is not None:
            yield OpenInPartition(
                ordinal=ordinal,
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                coordinator_epoch=entry.coordinator_epoch,
                coordinator_shard=entry.coordinator_shard,
                first_offset=opened.first_offset,
                started_ms=opened.started_ms,
            )


def _unknown() -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "this partition does not exist, or its topic was deleted a moment ago; look the topic up again",
    )


class PartitionMarkers:
    """The partitions' half of `coordinator_runtime.participants.MarkerPort`, and
    `coordinator_runtime.ports.PartitionSequences`."""

    def __init__(self, catalog: CatalogShard) -> None:
        self._catalog = catalog

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        """Make the operation that ends the transaction in a partition. Idempotent by csn. Success for a deleted
        partition, once the deletion is durable. Refuses as `marking.judge_marker`."""
        placed = self._catalog.placed(ordinal)
        if placed is None:
            return once_durable(CATALOG_KEY)

        return Operation(placed.shard, partial(LogShard.decide_marker, ordinal=ordinal, marker=marker))

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        """Make the operation that seals the producer's open transaction in a partition: it takes no more records.
        Idempotent. Success for a deleted partition."""
        placed = self._catalog.placed(ordinal)
        if placed is None:
            return once_durable(CATALOG_KEY)

        return Operation(placed.shard, lambda log, _turn: log.decide_seal(ordinal, producer_id, producer_epoch))

    def check_last_sequence(self, ordinal: int, producer_id: int, producer_epoch: int, last_sequence: int) -> Operation:
        """Make the operation that checks the sequence number of the producer's last record. It must be `last_sequence`,
        in this epoch and in the transaction that is open in the partition. Refuses with TRANSACTION_ABORTABLE."""
        placed = self._catalog.placed(ordinal)
        if placed is None:
            deleted = "a partition of the transaction was deleted with its records; abort it"
            return once_durable(CATALOG_KEY, Refused(ErrorCode.TRANSACTION_ABORTABLE, deleted))

        return Operation(
            placed.shard,
            lambda log, _turn: log.decide_check_last_sequence(ordinal, producer_id, producer_epoch, last_sequence),
        )


class PartitionTransactions:
    """Implements `coordinator_runtime.ports.OpenTransactions`."""

    def __init__(self, shards: Callable[[], Iterable[LogShard]], catalog: CatalogShard) -> None:
        self._shards = shards
        self._catalog = catalog

    def all_open(self) -> Iterator[OpenInPartition]:
        """Yield the open transactions of all partitions that are served here, live state."""
        for shard in self._shards():
            yield from shard.all_open_transactions()

    def ask_open(self, ordinal: int, then: Callable[[Sequence[OpenInPartition]], Decision]) -> Operation:
        """Make the operation that asks the partition's shard. A deleted partition has no open transactions."""
        placed = self._catalog.placed(ordinal)
        if placed is None:
            return Operation(CATALOG_KEY, lambda _catalog, _turn: then(()))

        return Operation(placed.shard, lambda log, _turn: then(log.open_transactions(ordinal)))
