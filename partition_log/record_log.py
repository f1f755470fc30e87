"""Reads of the log for share groups. Implements `coordinator_runtime.record_log.RecordLog`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import AnswerLimit, CallContext, PartitionName, PartitionRef, Permission
from coordinator_runtime.record_log import AbortedRange, LogBatches, LogReadLimits, LogSpan, LogView
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.shard import CatalogShard, unresolved
from partition_log.catalog.state import PlacedPartition
from partition_log.positions import PositionService
from partition_log.reading import bound_of
from partition_log.requests import Fetch, FetchItem, FetchResult, ListOffsets, OffsetQuery, OffsetResult
from partition_log.service import LogService
from partition_log.shard import LogShard
from partition_log.state import NO_OFFSET, Isolation, PartitionHead


class RecordReads:
    """Reads of records, positions, and growth."""

    def __init__(self, runtime: Runtime, catalog: CatalogShard, log: LogService, positions: PositionService) -> None:
        self._runtime = runtime
        self._catalog = catalog
        self._log = log
        self._positions = positions
        self._growth = _Growth(runtime)

    def find(
        self, name: PartitionName, context: CallContext, permission: Permission = Permission.READ
    ) -> PartitionRef | Refused:
        found = self._log.find(permission, context, name)
        return found if isinstance(found, Refused) else found.ref

    def view(self, ref: PartitionRef, *, is_committed: bool) -> LogView:
        head = _head(self._runtime, self._placed(ref))
        bound = bound_of(head, _isolation(is_committed=is_committed))
        return LogView(head.log_start_offset, bound, head.log_end_offset, head.leadership.epoch)

    def read(self, spans: Sequence[LogSpan], limits: LogReadLimits) -> Pending[list[LogBatches]]:
        found: list[PlacedPartition | Refused] = [
            self._catalog.placed(span.ref.ordinal) or unresolved(span.ref.topic) for span in spans
        ]
        items = [
            FetchItem(PartitionName(span.ref.topic, span.ref.topic_id, span.ref.partition), *span[1:]) for span in spans
        ]
        request = Fetch(
            items,
            isolation=_isolation(is_committed=limits.is_committed),
            bytes_max=limits.bytes_max,
            is_raw=True,
            accepted_encodings=limits.accepted_encodings,
        )
        return self._log.fetcher.fetch(request, found, limits.connection).map(
            lambda results: [_batches(result, hides_aborted=limits.is_committed) for result in results]
        )

    def offset_since(
        self, ref: PartitionRef, timestamp_ms: int, context: CallContext, *, is_committed: bool
    ) -> Pending[int]:
        isolation = _isolation(is_committed=is_committed)
        name = PartitionName(ref.topic, ref.topic_id, ref.partition)
        bound = self.view(ref, is_committed=is_committed).bound_offset
        query = ListOffsets([OffsetQuery(name, timestamp_ms)], isolation)

        def offset(results: list[OffsetResult]) -> int:
            (result,) = results
            if result.error is not None:
                raise result.error
            return bound if result.offset == NO_OFFSET else result.offset

        return self._positions.list_offsets(query, context, Permission.READ).map(offset)

    def listen(self, ref: PartitionRef, look_again: Callable[[], None]) -> None:
        placed = self._catalog.placed(ref.ordinal)
        if placed is not None:
            self._growth.listen(placed.shard, ref.ordinal, look_again)

    def stop_listening(self, ref: PartitionRef, look_again: Callable[[], None]) -> None:
        self._growth.stop_listening(ref.ordinal, look_again)

    @property
    def answer_limit(self) -> AnswerLimit:
        return self._log.fetcher.answer_limit

    def _placed(self, ref: PartitionRef) -> PlacedPartition:
        placed = self._catalog.placed(ref.ordinal)
        if placed is None:
            raise unresolved(ref.topic)
        return placed


def _head(runtime: Runtime, placed: PlacedPartition) -> PartitionHead:
    shard: LogShard = runtime.shard(placed.shard)
    head = shard.durable_head(placed.ref.ordinal)
    if head is None:
        raise unresolved(placed.ref.topic)
    return head


def _isolation(*, is_committed: bool) -> Isolation:
    return Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED


def _batches(result: FetchResult, *, hides_aborted: bool) -> LogBatches:
    head, error = result.head, result.error
    if isinstance(error, Refused) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        # The log start has moved since, so there is nothing to hand out of this read.
        error = None
    if head is None:
        return LogBatches(result.next_offset, error=error)
    return LogBatches(
        result.next_offset,
        result.batches,
        tuple(AbortedRange(each.producer_id, each.first_offset, each.marker_offset) for each in result.aborted)
        if hides_aborted
        else (),
        head.log_start_offset,
        head.leadership.epoch,
        error,
    )


@dataclass(slots=True)
class _GrowthWatch:
    """Listeners of one partition, and the positions that they know."""

    head: PartitionHead | None
    listeners: dict[Callable[[], None], None] = field(default_factory=dict)


class _Growth:
    """Listeners for new durable positions of partitions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._watches: dict[ShardKey, dict[int, _GrowthWatch]] = {}
        self._shards: dict[int, ShardKey] = {}
        """Shard of each partition with a listener, which a deleted partition has lost."""

    def listen(self, shard: ShardKey, ordinal: int, look_again: Callable[[], None]) -> None:
        if not self._watches:
            self._runtime.on_durable_change(self._wake)
        watch = self._watches.setdefault(shard, {}).get(ordinal)
        if watch is None:
            self._shards[ordinal] = shard
            watch = self._watches[shard][ordinal] = _GrowthWatch(self._head(shard, ordinal))
        watch.listeners[look_again] = None

    def stop_listening(self, ordinal: int, look_again: Callable[[], None]) -> None:
        shard = self._shards.get(ordinal)
        if shard is None:
            return
        watch = self._watches[shard][ordinal]
        watch.listeners.pop(look_again, None)
        if not watch.listeners:
            del self._shards[ordinal], self._watches[shard][ordinal]
            if not self._watches[shard]:
                del self._watches[shard]
        if not self._watches:
            self._runtime.stop_telling(self._wake)

    def _head(self, shard: ShardKey, ordinal: int) -> PartitionHead | None:
        found: LogShard | None = self._runtime.table.find(shard)
        return None if found is None else found.durable_head(ordinal)

    def _wake(self, keys: Iterable[ShardKey]) -> None:
        woken: dict[Callable[[], None], None] = {}
        for key in keys:
            for ordinal, watch in self._watches.get(key, {}).items():
                head = self._head(key, ordinal)
                if head is not watch.head or head is None:
                    watch.head = head
                    woken.update(watch.listeners)
        for look_again in woken:
            look_again()
