"""The list of all partitions with positions, sizes and blockers. Only log and transaction coordinator together know
all of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.hashing import coordinator_key
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext, OpenInPartition, Permission, ResourceType
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.stepping import in_steps
from coordinator_runtime.store import StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from partition_log.batches import LogDamaged
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import Topic
from partition_log.held import HeldTotals
from partition_log.shard import LogShard
from partition_log.state import LogTotals, PartitionHead
from txn_coordinator.hanging import ProducerOwners, judge
from txn_coordinator.state import Transaction

LISTED_MAX: Final = 1_000
"""Largest number of partitions that a request may ask for."""
ANSWERED_MAX: Final = 200
"""Largest number of partitions in one answer. Its message is made in one turn of the loop, in about a millisecond."""
PARTITIONS_PER_STEP: Final = 10
"""Number of partitions that one turn of the loop reads: about 1 ms if each has removed records and a blocker."""
PASSED_PER_STEP: Final = 1_000
"""Number of partitions that one turn of the loop passes without reading them."""


class ListPlace(Struct, frozen=True, order=True):
    """Place of a partition in the list."""

    topic: str
    partition: int


class ListPartitions(Struct, frozen=True):
    """Request for a part of the list."""

    topics: Collection[str] = ()
    """Only these topics; empty for all."""
    only_open: bool = False
    """True for only partitions in which a transaction is open."""
    after: ListPlace | None = None
    limit: int = 0


class Blocker(Struct, frozen=True):
    """The oldest open transaction of a partition, as far as the caller may see it."""

    opened: OpenInPartition
    age_ms: int
    owner: Transaction | None
    """Id that will end it; None if there is none, if it is unknown, or if the caller may not describe it."""
    is_owner_hidden: bool


class ListedPartition(Struct, frozen=True):
    """One partition of the list. Without a head its shard does not serve."""

    topic: Topic
    partition: int
    head: PartitionHead | None = None
    held: LogTotals = LogTotals()
    """Totals of what the partition holds."""
    blocker: Blocker | None = None


class PartitionList(Struct, frozen=True):
    """An answer, and the place where the next one begins; None if this is the last."""

    partitions: list[ListedPartition]
    next_after: ListPlace | None


_Owners = dict[int, Transaction | None]
"""Owners that were found, by producer id."""


class PartitionLister:
    """The use case. Needs DESCRIBE on each topic, and DESCRIBE on a transactional id that is named."""

    def __init__(
        self,
        runtime: Runtime,
        reader: StoreReader,
        catalog: CatalogShard,
        owners: ProducerOwners,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._held = HeldTotals(reader)
        self._catalog = catalog
        self._owners = owners
        self._authorizer = authorizer

    def list_partitions(self, command: ListPartitions, context: CallContext) -> Pending[PartitionList]:
        """Return the durable state of partitions, read in several turns of the loop.

        Raises Refused INVALID_REQUEST for a limit out of its range.
        """
        if not 0 <= command.limit <= LISTED_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"limit is {command.limit} and must be from 0 to {LISTED_MAX}")
        may = self._authorizer.is_allowed
        topics = [
            topic
            for topic in self._catalog.durable_topics()
            if (not command.topics or topic.name in command.topics)
            and may(context, Permission.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        return in_steps(self._runtime, self._steps(topics, command, context))

    def _steps(
        self, topics: list[Topic], command: ListPartitions, context: CallContext
    ) -> Generator[Pending[Any] | None, None, PartitionList]:
        found: list[ListedPartition] = []
        owners: _Owners = {}
        limit, read, passed, computed = min(command.limit or ANSWERED_MAX, ANSWERED_MAX), 0, 0, self._held.computed
        for topic, partition in _from(topics, command.after):
            if len(found) == limit:
                last = found[-1]
                return PartitionList(found, ListPlace(last.topic.name, last.partition))
            listed = yield from self._listed(topic, partition, owners, context, only_open=command.only_open)
            passed += 1
            if listed is not None:
                found.append(listed)
                read += 1
            if read == PARTITIONS_PER_STEP or passed == PASSED_PER_STEP or self._held.computed > computed:
                read, passed, computed = 0, 0, self._held.computed
                # Within one step: an owner may change before the next one.
                owners.clear()
                yield None
        return PartitionList(found, None)

    def _listed(
        self, topic: Topic, partition: int, owners: _Owners, context: CallContext, *, only_open: bool
    ) -> Generator[Pending[Any] | None, None, ListedPartition | None]:
        """Return a partition; None if it is gone, or not wanted."""
        ordinal = topic.partition_ordinals[partition]
        placed = self._catalog.placed(ordinal)
        if placed is None:
            return None  # Its deletion is under way.
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        head = None if shard is None else shard.durable_head(ordinal)
        if shard is None or head is None:
            return None if only_open else ListedPartition(topic, partition)
        if only_open and not head.open_transactions:
            return None
        blocker = self._blocker(shard, ordinal, owners, context) if head.open_transactions else None
        try:
            held = yield from self._held.of(ordinal, head)
        except (LogDamaged, StoreUnreadable):
            held = LogTotals()  # The damage is reported where records are read.
        return ListedPartition(topic, partition, head, held, blocker)

    def _blocker(self, shard: LogShard, ordinal: int, owners: _Owners, context: CallContext) -> Blocker | None:
        opened = shard.durable_oldest_open(ordinal)
        if opened is None:
            return None
        age_ms = max(0, self._runtime.clock.wall_ms() - opened.started_ms)
        owner = owners.get(opened.producer_id)
        if owner is None:
            owner = owners[opened.producer_id] = self._owner(opened)
        if owner is None or judge(opened, owner) is not None:
            return Blocker(opened, age_ms, None, is_owner_hidden=False)
        is_hidden = not self._authorizer.is_allowed(
            context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, coordinator_key(owner.transactional_id)
        )
        return Blocker(opened, age_ms, None if is_hidden else owner, is_hidden)

    def _owner(self, opened: OpenInPartition) -> Transaction | None:
        owner = self._owners.durable_owner_in(opened.coordinator_shard, opened.producer_id)
        if owner is not None:
            return owner
        try:
            return self._owners.durable_owner_of(opened.producer_id)
        except Refused:
            return None  # The shard of its id does not serve.


def _from(topics: list[Topic], after: ListPlace | None) -> Iterator[tuple[Topic, int]]:
    """Yield the partitions of topics, which are sorted by name, from the one after a place on."""
    first, start = 0, 0
    if after is not None:
        first = bisect_right(topics, after.topic, key=lambda topic: topic.name)
        if first and topics[first - 1].name == after.topic:
            first, start = first - 1, max(0, after.partition + 1)
    for index in range(first, len(topics)):
        numbers: Iterable[int] = range(start if index == first else 0, len(topics[index].partition_ordinals))
        for partition in numbers:
            yield topics[index], partition
