"""One life of a whole server's process on one thread: its options, its core over a store, and the state it keeps.

`World` is what a test holds: it lets such lives begin, crash and follow one another over one store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from coordinator_core.assembly import Core, Dependencies, assemble
from coordinator_core.config import CoreConfig
from coordinator_protocol.limits import EPOCH_MAX, Limits
from coordinator_runtime.decision import Coordinator, ShardKey, ShardRouter
from coordinator_runtime.late_answers import WAITING_MAX
from coordinator_runtime.ports import Authorizer
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_runtime.share_ports import ShareStates
from coordinator_runtime.store import Store
from coordinator_server.grpc_front.wire.servicers import group_servicers
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.config import GroupConfig
from group_coordinator.registry import PARTS, GroupPart
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import DurableForm
from partition_log.catalog.settings import KEEP_ALL, Retention
from partition_log.shard import LogShard, PartitionTransactions
from partition_log.state import PRODUCER_EXPIRATION_MS, PartitionConfig, PartitionHead, ProducerEntry
from tests.harness.calls import partition_name as partition_name
from tests.harness.combinations import wanted_lane, wanted_two_phase
from tests.harness.entries import LogEntry as LogEntry
from tests.harness.group_calls import GroupCalls
from tests.harness.group_wire import GroupWire
from tests.harness.hand_driver import HandDriver
from tests.harness.late_store import LateReader, UnreadableStore
from tests.harness.manual_clock import ManualClock
from tests.harness.workers import HeldWorker
from txn_coordinator.config import EXPIRATION_MS, TwoPhase
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.shard import TransactionShard
from txn_coordinator.sink_state import Sink
from txn_coordinator.state import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Configuration of the server."""

    two_phase: TwoPhase = field(default_factory=wanted_two_phase)
    producer_epoch_max: int = EPOCH_MAX
    shard_count: int = 2
    runtime_limits: RuntimeLimits = field(default_factory=RuntimeLimits)
    expiration_ms: int = EXPIRATION_MS
    """Time after which an idle transactional id is forgotten."""
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    """Time after which a partition forgets an idle producer."""
    index_interval_batches: int = PartitionConfig().index_interval_batches
    """Number of rows of a log that make a stretch."""
    retention: Retention = KEEP_ALL
    """Rule by which partitions keep records."""
    removal_interval_ms: int = 3_600_000
    """Pause until the next look for records that they do not keep."""
    compaction_interval_ms: int = 0
    """Pause between two looks for a log to be compacted; 0 = nothing is compacted."""
    group_config: GroupConfig = field(default_factory=GroupConfig)
    group_parts: tuple[GroupPart, ...] = PARTS
    share_states: Callable[[], ShareStates | None] = lambda: None
    """Makes the states of the partitions of share groups, for each life."""
    group_waits_max: int = WAITING_MAX
    """Calls that may wait for other members."""
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    late_reads_ms: int | None = None
    """Delay of the reads of stored rows, beside the loop; None: the loop reads them at once."""
    worker: HeldWorker | None = None
    """Computes large targets and checks payloads, in all lives; None: each life has its own."""
    authorizer: Authorizer | None = None
    two_phase_commit_enable: bool = True
    lane: bool = field(default_factory=wanted_lane)
    writes_records: bool = False
    """True if producers of the world write records that any reader can read, and not words."""
    key_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of keys that the records of a topic share. In other topics each has its own."""

    def limits(self) -> Limits:
        return Limits(producer_epoch_max=self.producer_epoch_max)

    def core_config(self) -> CoreConfig:
        return CoreConfig(
            limits=self.limits(),
            shard_count=self.shard_count,
            two_phase=self.two_phase,
            two_phase_commit_enable=self.two_phase_commit_enable,
            transactional_id_expiration_ms=self.expiration_ms,
            partitions=PartitionConfig(
                index_interval_batches=self.index_interval_batches,
                producer_id_expiration_ms=self.producer_expiration_ms,
                removal_interval_ms=self.removal_interval_ms,
                compaction_interval_ms=self.compaction_interval_ms,
                compaction_bytes_per_second=0,
            ),
            default_retention=self.retention,
            groups=self.group_config,
            group_waits_max=self.group_waits_max,
            lane=self.lane,
        )


@dataclass(frozen=True, slots=True)
class StateView:
    """Everything durable that a server knows, except for what is counted anew at each start."""

    topics: tuple[object, ...]
    heads: dict[str, PartitionHead]
    producers: dict[str, tuple[tuple[int, ProducerEntry], ...]]
    transactions: dict[str, Transaction]
    offsets: dict[str, object]
    csn: int
    sinks: frozenset[Sink]
    shares: dict[ShareKey, DurableForm]


class Inside:
    """One life of the process: loaded from a store, gone with the crash."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        options: WorldOptions,
        on_assembled: Callable[[Core], None] | None = None,
    ) -> None:
        self.driver = HandDriver(store, clock, options.runtime_limits)
        self.runtime = self.driver.runtime
        self._topic_number = 0
        self.late = None if options.late_reads_ms is None else LateReader(self.runtime, store)
        core = self.core = assemble(
            self.runtime,
            store if self.late is None else UnreadableStore(store),
            options.core_config(),
            Dependencies(
                worker=options.worker or HeldWorker(),
                payload_worker=options.worker or HeldWorker(),
                compaction_worker=HeldWorker() if options.compaction_interval_ms else None,
                assignors=options.assignors,
                group_parts=options.group_parts,
                share_states=options.share_states(),
                new_topic_id=self._new_topic_id,
                reader=self.late,
            ),
            options.authorizer,
        )
        if on_assembled is not None:
            on_assembled(core)
        self.driver.load_core(core)
        if self.late is not None:
            self.late.delay_ms = options.late_reads_ms or 0
        self.catalog = core.catalog
        self.markers = core.markers
        self.sender = core.sender
        self.open_transactions = PartitionTransactions(partial(self.runtime.shards, Coordinator.LOG), self.catalog)
        self.transactions = core.transactions.service
        self.reader = core.transactions.reader
        self.log = core.log.records
        self.positions = core.log.positions
        self.topics = core.log.topics
        self.removal = core.log.removal
        self.groups = GroupCalls(
            self.runtime,
            ShardRouter(Coordinator.GROUPS, options.shard_count),
            core.groups.offsets,
            self.transactions,
            self.catalog,
        )
        self.group_wire = GroupWire(group_servicers(core))

    def _new_topic_id(self) -> bytes:
        """Return an unused id: numbered by how much was ever stored, and by how many this process made."""
        self._topic_number += 1
        return self.runtime.groups.durable_version.to_bytes(8, "big") + self._topic_number.to_bytes(8, "big")

    def state(self, is_meant: Callable[[ShardKey], bool] = lambda _key: True) -> StateView:
        """The durable state of some shards, all of which serve."""
        catalog = self.catalog
        heads: dict[str, PartitionHead] = {}
        producers: dict[str, tuple[tuple[int, ProducerEntry], ...]] = {}
        for topic in catalog.durable_topics():
            for partition, ordinal in enumerate(topic.partition_ordinals):
                key = catalog.log_shard(topic.name, partition)
                if not is_meant(key):
                    continue
                log: LogShard = self.runtime.shard(key)
                head = log.durable_head(ordinal)
                assert head is not None, "a topic and its partitions are durable together"
                heads[f"{topic.name}-{partition}"] = head
                producers[f"{topic.name}-{partition}"] = tuple(log.durable_producers(ordinal))
        all_shards: list[TransactionShard] = self.runtime.shards(Coordinator.TRANSACTIONS)
        shards = [shard for shard in all_shards if is_meant(shard.key)]
        transactions = {each.transactional_id: each for shard in shards for each in shard.table.durable_transactions()}
        counters: CountersShard = self.runtime.shard(COUNTERS)
        return StateView(
            (*catalog.durable_topics(), catalog.acls.durable_version(), frozenset(catalog.acls.durable())),
            heads,
            producers,
            transactions,
            self.groups.durable_state(is_meant),
            counters.durable_csn(),
            frozenset(sink for shard in shards for sink in shard.sinks.state.all_durable()),
            self._shares(is_meant),
        )

    def _shares(self, is_meant: Callable[[ShardKey], bool]) -> dict[ShareKey, DurableForm]:
        shards: list[ShareShard] = self.runtime.shards(Coordinator.SHARE_PARTITIONS)
        return {key: form for shard in shards if is_meant(shard.key) for key, form in shard.durable_state().items()}
