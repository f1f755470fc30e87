"""A partition log driven by hand: memory store, manual clock, and a fake transaction coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coordinator_core.config import CoreConfig
from coordinator_core.shards import catalog_kind, partitions_kind
from coordinator_protocol.batch import BatchHeader, Compression, Encoding
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, ShardKey, TransactionInTheWay, Unpark
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import ALLOW_ALL, Authorizer, CallContext, ClientBatch, Membership, PartitionName
from coordinator_runtime.store import Store
from coordinator_runtime.store_features import StoreFeatures
from coordinator_runtime.store_readers import ReadsAtOnce, StoreReader
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.settings import KEEP_ALL, Retention, TopicDefaults
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import NewTopic
from partition_log.compaction.passes import CompactionPorts, LogCompaction
from partition_log.counting import count_records
from partition_log.foreign_markers import ForeignMarkers
from partition_log.positions import PositionService
from partition_log.ranges import RangeService
from partition_log.reading import ReadBudget
from partition_log.records import DamageFound, RowsRemoved
from partition_log.removal import LogRemoval
from partition_log.requests import (
    CreateTopics,
    Fetch,
    FetchItem,
    FetchResult,
    ListOffsets,
    OffsetQuery,
    OffsetResult,
    Produce,
    ProduceResult,
)
from partition_log.service import LogService
from partition_log.shard import LogShard, PartitionMarkers
from partition_log.state import Isolation, PartitionConfig, PartitionHead, ProducerEntry
from partition_log.topics import TopicPorts, TopicService, TopicUsers
from tests.harness.hand_driver import HandDriver
from tests.harness.leases import HeldOffsets
from tests.harness.manual_clock import ManualClock
from tests.harness.memory_store import MemoryStore
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.shelf import CrashingStore, crashing
from tests.harness.workers import HeldWorker
from tests.log.transactions_fake import FakeTransactions

SHARD_COUNT = 4
TOPIC = "orders"
CONTEXT = CallContext(client_id="test")
VERSION_1 = CallContext(client_id="test", client_txn_version=1)

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


@dataclass(frozen=True)
class Producer:
    """A producer. A transactional one names its id."""

    producer_id: int = 7
    epoch: int = 0
    transactional_id: str | None = None

    def at(self, epoch: int) -> Producer:
        return Producer(self.producer_id, epoch, self.transactional_id)


NO_PRODUCER = Producer(-1, -1)


def transactional(producer_id: int = 7, epoch: int = 0) -> Producer:
    return Producer(producer_id, epoch, f"tx-{producer_id}")


def membership_of(producer: Producer) -> Membership:
    assert producer.transactional_id is not None
    return Membership(producer.transactional_id, producer.producer_id, producer.epoch)


@dataclass(frozen=True)
class Batch:
    """A batch as a test sends it; the payload stands for its records."""

    producer: Producer = NO_PRODUCER
    sequence: int = -1
    count: int = 1
    payload: bytes = b"records"
    timestamp_ms: int = 1_000
    changes: dict[str, Any] = field(default_factory=dict)
    crc: int | None = None

    def item(self, name: PartitionName) -> ClientBatch:
        fields: dict[str, Any] = {
            "base_offset": 0,
            "record_count": self.count,
            "base_timestamp_ms": self.timestamp_ms,
            "max_timestamp_ms": self.timestamp_ms,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
            "base_sequence": self.sequence,
            "encoding": Encoding.RECORDS_V1,
            "compression": Compression.NONE,
            "is_transactional": self.producer.transactional_id is not None,
        }
        return ClientBatch(name, BatchHeader(**{**fields, **self.changes}), self.payload, self.crc)


class DrivenLog:
    """Everything of the partition log on one store. `crash` gives the one that a restart finds."""

    def __init__(
        self,
        store: Store | None = None,
        clock: ManualClock | None = None,
        *,
        config: PartitionConfig | None = None,
        limits: Limits | None = None,
        authorizer: Authorizer | None = None,
        csn: int = 0,
        default_retention: Retention = KEEP_ALL,
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.clock = clock if clock is not None else ManualClock()
        self.config = config
        self.default_retention = default_retention
        self.limits = limits if limits is not None else Limits()
        self.driver = HandDriver(self.store, self.clock)
        self.reader: StoreReader = ReadsAtOnce(self.store)
        self.runtime = self.driver.runtime
        self.catalog = CatalogShard(
            self.runtime.journal,
            shard_count=SHARD_COUNT,
            incarnation=self.store.incarnation.number,
            defaults=TopicDefaults(default_retention, batch_bytes_max=self.limits.batch_bytes_max),
        )
        self.driver.load(catalog_kind(self.catalog))
        core_config = CoreConfig(shard_count=SHARD_COUNT, partitions=config or PartitionConfig())
        self.leases: dict[int, int] = {}
        """The first held offset, by ordinal."""
        self.driver.load(
            partitions_kind(
                self.runtime,
                self.catalog,
                core_config,
                incarnation=self.store.incarnation,
                leases=HeldOffsets(self.leases),
            )
        )
        self.markers = PartitionMarkers(self.catalog)
        self.transactions = FakeTransactions(self.runtime, csn)
        self.transactions.markers = self.markers
        self._topic_count = self.runtime.groups.durable_version * 1_000
        authorizer = ALLOW_ALL if authorizer is None else authorizer
        users = TopicUsers(self.transactions, self.transactions, self.transactions)
        self.topics = TopicService(
            self.runtime,
            self.catalog,
            ports=TopicPorts(users, authorizer, StoreFeatures(self.runtime, self.store)),
            limits=self.limits,
            new_topic_id=self.new_topic_id,
        )
        self.worker = HeldWorker()
        """Checks what is not checked at once."""
        self.checks = BatchChecks(self.worker, self.limits, features=StoreFeatures(self.runtime, self.store))
        self.log = LogService(
            self.runtime,
            self.store,
            self.catalog,
            verifier=self.transactions,
            checks=self.checks,
            authorizer=authorizer,
        )
        self.removed: list[RowsRemoved] = []
        self.removal = LogRemoval(self.runtime, self.reader, self.catalog, self.log.fetcher.damage)
        self.removal.on_removed = self.removed.append
        self.told: list[DamageFound] = []  # Damage that readers met.
        self.log.fetcher.damage.on_found = self.told.append
        self.foreign_markers = ForeignMarkers(
            self.runtime, self.catalog, guard=self.transactions, authorizer=authorizer
        )

    def new_topic_id(self) -> bytes:
        self._topic_count += 1
        return self._topic_count.to_bytes(16, "big")

    def flush(self) -> None:
        self.driver.settle()

    def crash(self, kept_groups: int = 0) -> DrivenLog:
        """Return the log that a restart finds: everything flushed, and the first groups of the rest."""
        self.driver.write_unsynced(kept_groups)
        return self._reopened(crashing(self.store).crash(kept_groups=kept_groups))

    def _reopened(self, store: Store) -> DrivenLog:
        return DrivenLog(
            store,
            self.clock,
            config=self.config,
            limits=self.limits,
            csn=self.transactions.csn,
            default_retention=self.default_retention,
        )

    def backup(self) -> CrashingStore:
        """A copy of the store as it is now."""
        return crashing(self.store).copy()

    def restore(self, backup: CrashingStore) -> DrivenLog:
        """Return the log that a start finds if a backup took the place of this store."""
        store = backup.copy()
        store.begin_incarnation(IncarnationCause.RESTORE, self.clock.wall_ms())
        driven = self._reopened(store)
        driven.flush()
        return driven

    def remove(self) -> None:
        """One round of retention and removal, durable when this returns."""
        for _step in self.removal.round():
            self.flush()

    def compact(self, steps_max: int | None = None) -> bool:
        """One round of compaction, durable step by step; False if it was left after `steps_max` of its steps."""
        for step, _ in enumerate(self.compaction.round()):
            if step == steps_max:
                return False
            self.flush()
        return True

    # Topics

    def create(
        self, name: str = TOPIC, partition_count: int = 1, config: Mapping[str, str] = UNREADABLE_PAYLOADS
    ) -> bytes:
        """A topic that is durable; returns its id. By default it takes payloads that only stand for records."""
        created = self.topics.create_topics(CreateTopics([NewTopic(name, partition_count, config)]), CONTEXT)
        self.flush()
        (result,) = created.result()
        assert result.error is None, result.error
        return result.topic_id

    def ordinal(self, partition: int = 0, topic: str = TOPIC) -> int:
        return self.catalog.resolve(topic, b"", partition).ordinal

    # Writing

    def send(
        self, batch: Batch, *, partition: int = 0, topic: str = TOPIC, context: CallContext = CONTEXT
    ) -> Pending[list[ProduceResult]]:
        """Produce one batch; nothing is flushed."""
        item = batch.item(PartitionName(topic, b"", partition))
        return self.log.produce(Produce(batch.producer.transactional_id, (item,)), context)

    def append(
        self, batch: Batch, *, partition: int = 0, topic: str = TOPIC, context: CallContext = CONTEXT
    ) -> ProduceResult:
        """Produce one batch and flush."""
        sent = self.send(batch, partition=partition, topic=topic, context=context)
        self.flush()
        return sent.result()[0]

    def marker(
        self,
        producer: Producer,
        outcome: Outcome,
        *,
        next_epoch: int | None = None,
        csn: int | None = None,
        **others: Any,
    ) -> Marker:
        """The marker that ends the producer's transaction; the epoch rises unless it says otherwise."""
        fields = {
            "coordinator_shard": 0,
            "coordinator_epoch": 1,
            "csn": self.transactions.next_csn() if csn is None else csn,
            "next_epoch": producer.epoch + 1 if next_epoch is None else next_epoch,
        }
        return Marker(
            producer_id=producer.producer_id, txn_epoch=producer.epoch, outcome=outcome, **{**fields, **others}
        )

    def write_marker(self, marker: Marker, *, partition: int = 0, topic: str = TOPIC) -> CoordinatorError | None:
        """Write a marker and flush; returns the refusal, if any."""
        return self.perform(self.markers.partition_marker(self.ordinal(partition, topic), marker))

    def perform(self, operation: Operation) -> CoordinatorError | None:
        written = self.runtime.write(operation, is_urgent=True)
        self.flush()
        try:
            written.result()
        except Refused as refusal:
            return refusal
        return None

    def end(self, producer: Producer, outcome: Outcome, *, next_epoch: int | None = None, partition: int = 0) -> None:
        refusal = self.write_marker(self.marker(producer, outcome, next_epoch=next_epoch), partition=partition)
        assert refusal is None, refusal

    def unpark(self, producer: Producer) -> None:
        """Unpark as the transaction coordinator does when the transaction is complete."""
        key = ShardKey(Coordinator.TRANSACTIONS, 0)
        effects = (Unpark(TransactionInTheWay(producer.transactional_id)),)
        self.runtime.write(Operation(key, lambda _shard, _turn: Decision(effects=effects)), is_urgent=True)
        self.flush()

    # Reading

    @cached_property
    def compaction(self) -> LogCompaction:
        ports = CompactionPorts(
            self.worker,
            StoreFeatures(self.runtime, self.store),
            self.log.fetcher.damage,
            lambda placed: self.leases.get(placed.ref.ordinal),
        )
        return LogCompaction(self.runtime, self.reader, self.catalog, ports, self.config)

    @cached_property
    def positions(self) -> PositionService:
        return PositionService(self.runtime, self.reader, self.log, self.worker)

    @property
    def ranges(self) -> RangeService:
        return RangeService(self.reader, self.log)

    def shard(self, partition: int = 0, topic: str = TOPIC) -> LogShard:
        placed = self.catalog.place(topic, b"", partition)
        shard: LogShard = self.runtime.shard(placed.shard)
        return shard

    def head(self, partition: int = 0, topic: str = TOPIC) -> PartitionHead:
        head = self.shard(partition, topic).durable_head(self.ordinal(partition, topic))
        assert head is not None
        return head

    def entry(self, producer_id: int = 7, partition: int = 0, topic: str = TOPIC) -> ProducerEntry | None:
        producers = dict(self.shard(partition, topic).durable_producers(self.ordinal(partition, topic)))
        return producers.get(producer_id)

    def fetch(
        self, request: Fetch | None = None, *, context: CallContext = CONTEXT, **fields: Any
    ) -> Pending[list[FetchResult]]:
        """Fetch what the fields of FetchItem and Fetch say; by default partition 0 from offset 0, at once."""
        if request is None:
            of_item = ("end_offset", "partition_bytes_max", "current_leader_epoch", "last_read_epoch", "end_epoch")
            item_fields = {key: fields.pop(key) for key in of_item if key in fields}
            name = PartitionName(fields.pop("topic", TOPIC), b"", fields.pop("partition", 0))
            item = FetchItem(name, fields.pop("fetch_offset", 0), **item_fields)
            request = Fetch((item,), **fields)
        return self.log.fetch(request, context)

    def read(self, **fields: Any) -> FetchResult:
        (result,) = self.fetch(**fields).result()
        return result

    def read_all(self, isolation: Isolation = COMMITTED, *, partition: int = 0, **fields: Any) -> list[int]:
        """Offsets of all records that a reader sees, fetch after fetch."""
        offsets: list[int] = []
        offset = fields.pop("fetch_offset", 0)
        while True:
            result = self.read(isolation=isolation, partition=partition, fetch_offset=offset, **fields)
            assert result.error is None, result.error
            offsets += offsets_of(result)
            if result.next_offset == offset:
                return offsets
            offset = result.next_offset

    def count(self, start_offset: int = 0, *, batches_max: int = 2) -> tuple[int, int]:
        """Records from the offset on, all and committed ones, asked for in small steps."""
        records = committed = 0
        while True:
            budget = ReadBudget(0, batches_max)
            counted = count_records(self.store, self.ordinal(), self.head(), start_offset, budget)
            records, committed = records + counted.records, committed + counted.committed_records
            if counted.next_offset >= self.head().log_end_offset:
                return records, committed
            start_offset = counted.next_offset

    def offsets(
        self, timestamp_ms: int, isolation: Isolation = COMMITTED, partitions: Sequence[int] = (0,), topic: str = TOPIC
    ) -> list[OffsetResult]:
        queries = [OffsetQuery(PartitionName(topic, b"", partition), timestamp_ms) for partition in partitions]
        return self.positions.list_offsets(ListOffsets(queries, isolation), CONTEXT).result()

    def state(self) -> dict[Any, Any]:
        """Everything the shards hold, as it is on disk, to be compared."""
        topics = self.catalog.durable_topics()
        partitions = {}
        for topic in topics:
            for partition, ordinal in enumerate(topic.partition_ordinals):
                shard = self.shard(partition, topic.name)
                partitions[ordinal] = (
                    shard.durable_head(ordinal),
                    shard.durable_producers(ordinal),
                    shard.durable_open_transactions(ordinal),
                )
        return {"topics": topics, "partitions": partitions}


def offsets_of(result: FetchResult) -> list[int]:
    return [header.base_offset + delta for header, _encoded in result.batches for delta in range(header.record_count)]


def code(result: Any) -> ErrorCode:
    """The code of a refusal or of an item; NONE for success."""
    error = result if isinstance(result, CoordinatorError) else getattr(result, "error", None)
    return ErrorCode.NONE if error is None else error.code


def read_around(driven: DrivenLog, **fields: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets that a reader gets who goes on behind every damage, and what it had to leave out."""
    offsets: list[int] = []
    left_out: list[tuple[int, int]] = []
    at, end = 0, driven.head().log_end_offset
    while at < end:
        result = driven.read(fetch_offset=at, **fields)
        offsets += offsets_of(result)
        assert result.next_offset > at, "every answer leads on"
        if code(result) is ErrorCode.CORRUPT_MESSAGE:
            left_out.append((at, result.next_offset))
        else:
            assert result.error is None
        at = result.next_offset
    return offsets, left_out
