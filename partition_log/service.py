"""The use cases of records: produce, fetch, positions, producers.

Names are resolved in the live catalog, because a partition may be written as soon as its creation is staged: its
records become durable after it. Reads then look at durable state only. A refusal because of a name waits until the
catalog is durable as it is now: "there is no such topic" may rest on a deletion that a crash would take back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_topic_name
from coordinator_runtime.authorization import require
from coordinator_runtime.decision import CATALOG_KEY, once_durable
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    Permission,
    ResourceType,
    TransactionVerifier,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store, StoreUnreadable
from partition_log.batch_checks import BatchChecks
from partition_log.batches import LogDamaged
from partition_log.catalog.directory import TopicDirectory
from partition_log.catalog.state import PlacedPartition
from partition_log.counting import count_records
from partition_log.fetch import Fetcher
from partition_log.produce import Appender
from partition_log.reading import Budget, find_by_time
from partition_log.requests import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    CountQuery,
    CountResult,
    FetchRequest,
    FetchResult,
    OffsetQuery,
    OffsetResult,
    ProduceRequest,
    ProduceResult,
    ProducersDescription,
)
from partition_log.shard import LogShard
from partition_log.state import Isolation, PartitionHead

ResultT = TypeVar("ResultT")


class LogService:
    """Reads and writes of records."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        directory: TopicDirectory,
        *,
        verifier: TransactionVerifier,
        authorizer: Authorizer,
        checks: BatchChecks,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._directory = directory
        self._authorizer = authorizer
        self._appender = Appender(runtime, verifier, checks)
        self.fetcher = Fetcher(runtime, store, directory)

    def produce(self, request: ProduceRequest, context: CallContext) -> Pending[list[ProduceResult]]:
        """Append batches; one result per batch, durable when answered. The first batch that opens its transaction in a
        partition takes all partitions of the request into the transaction, also that of a batch that is
        then refused by itself. Raises Refused as `Appender.produce`, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
        transactional_id = request.transactional_id
        if transactional_id is not None:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return self._appender.produce(request, context, place=partial(self._place, Permission.WRITE, context))

    def fetch(self, request: FetchRequest, context: CallContext) -> Pending[list[FetchResult]]:
        """Read batches; one result per partition. Waits as long as the request says. May be refused as
        `Fetcher.fetch`."""
        place = partial(self._place, Permission.READ, context)
        found = self.fetcher.fetch(request, place, context.connection)
        return found.then(lambda results: self._when_catalog_durable(results, [result.error for result in results]))

    def list_offsets(
        self, queries: Sequence[OffsetQuery], isolation: Isolation, context: CallContext
    ) -> Pending[list[OffsetResult]]:
        """Positions by end or time, all of the same moment."""
        results = [self._find_offset(query, isolation, context) for query in queries]
        return self._when_catalog_durable(results, [result.error for result in results])

    def _find_offset(self, query: OffsetQuery, isolation: Isolation, context: CallContext) -> OffsetResult:
        try:
            placed = self._place(Permission.DESCRIBE, context, query.name)
            head = self._readable_head(placed)
            ref = placed.ref
            try:
                offset, timestamp_ms = self._position(ref.ordinal, head, query.timestamp_ms, isolation.bound(head))
            except (LogDamaged, StoreUnreadable) as damage:
                raise self.fetcher.damage.met(ref, damage) from damage
        except Refused as refusal:
            return OffsetResult(query.name, error=refusal)
        return OffsetResult(PartitionName(ref.topic, ref.topic_id, ref.partition), offset, timestamp_ms)

    def _position(self, ordinal: int, head: PartitionHead, timestamp_ms: int, bound: int) -> tuple[int, int]:
        if timestamp_ms == LATEST_TIMESTAMP:
            return bound, -1
        if timestamp_ms == EARLIEST_TIMESTAMP:
            return head.log_start_offset, -1
        if timestamp_ms < 0:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{timestamp_ms} is no position: use -1 (latest), -2 (earliest) or Unix milliseconds",
            )
        return find_by_time(self._store, ordinal, head, bound=bound, timestamp_ms=timestamp_ms)

    def count_records(self, queries: Sequence[CountQuery], context: CallContext) -> Pending[list[CountResult]]:
        """How many records lie from each offset on, all counted at the same moment, and not more than one call may
        read: where a count ends before the high watermark, the caller goes on from there."""
        budget = Budget(visible_bytes=0)
        results = [self._count_records(query, budget, context) for query in queries]
        self.fetcher.on_work(budget.work_bytes)
        return self._when_catalog_durable(results, [result.error for result in results])

    def _count_records(self, query: CountQuery, budget: Budget, context: CallContext) -> CountResult:
        try:
            placed = self._place(Permission.DESCRIBE, context, query.name)
            head = self._readable_head(placed)
            ref = placed.ref
            try:
                counted = count_records(self._store, ref.ordinal, head, query.start_offset, budget)
            except (LogDamaged, StoreUnreadable) as damage:
                raise self.fetcher.damage.met(ref, damage) from damage
        except Refused as refusal:
            return CountResult(query.name, error=refusal)
        return CountResult(PartitionName(ref.topic, ref.topic_id, ref.partition), counted, head)

    def describe_producers(
        self, names: Sequence[PartitionName], context: CallContext
    ) -> Pending[list[ProducersDescription]]:
        """The producers that partitions remember, from durable state, in the order asked."""
        described = [self._describe_producers(name, context) for name in names]
        return self._when_catalog_durable(described, [each.error for each in described])

    def _describe_producers(self, name: PartitionName, context: CallContext) -> ProducersDescription:
        try:
            if name.topic:
                check_topic_name(name.topic)
            placed = self._place(Permission.READ, context, name)
            self._readable_head(placed)
        except Refused as refusal:
            return ProducersDescription(name, error=refusal)
        shard: LogShard = self._runtime.shard(placed.shard)
        return ProducersDescription(name, tuple(shard.durable_producers(placed.ref.ordinal)))

    def _place(self, permission: Permission, context: CallContext, name: PartitionName) -> PlacedPartition:
        # Asked by name first, so that who may not see a topic does not learn whether it exists.
        if name.topic:
            require(self._authorizer, context, permission, ResourceType.TOPIC, name.topic)
        placed = self._directory.place(*name)
        if not name.topic:
            require(self._authorizer, context, permission, ResourceType.TOPIC, placed.ref.topic)
        return placed

    def _readable_head(self, placed: PlacedPartition) -> PartitionHead:
        shard: LogShard = self._runtime.shard(placed.shard)
        head = shard.durable_head(placed.ref.ordinal)
        if head is None:
            raise self._directory.refuse_unresolved(placed.ref.topic)
        return head

    def _when_catalog_durable(self, results: list[ResultT], errors: Sequence[object]) -> Pending[list[ResultT]]:
        if not any(errors):
            return settled(results)
        return self._runtime.write(once_durable(CATALOG_KEY, results), is_urgent=True)
