"""A World whose events are counted and logged, as a server's are."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.ports import CallContext
from coordinator_runtime.store import Family
from coordinator_server.events.observer import EventObserver, GroupObserver
from coordinator_server.metrics.groups import GroupNumbers
from coordinator_server.metrics.instruments import Histogram, Readings, Sample
from coordinator_server.metrics.partitions import LogNumbers, Survey, survey
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.security.audit import AuditLog
from partition_log.codec import log_key
from tests.harness.inside import WorldOptions
from tests.harness.memory_store import Damage
from tests.harness.world import MemoryShelf, TransactContents, World, partition_name
from tests.logs.lines import partition
from txn_coordinator.state import Identity

LOADER = CallContext(client_id="loader-1", host="10.0.0.1")
INTRUDER = CallContext(client_id="loader-2", host="10.0.0.2")
TOPIC = "t"
PARTITION = "t-0"


class ObservedWorld(World):
    """Counts from zero in every life, as a process does."""

    def __init__(self, options: WorldOptions | None = None) -> None:
        self.transactions = TransactionNumbers()
        self.log = LogNumbers()
        super().__init__(options)

    def _start(self) -> None:
        super()._start()
        self.transactions, self.log = TransactionNumbers(), LogNumbers()
        for shard in self.inside.runtime.shards(Coordinator.TRANSACTIONS):
            self.transactions.load(shard.table.durable_transactions())
        self.observe()

    def observe(self) -> None:
        """Tell an observer from now on, with the logging that is set up at this moment."""
        observer = self.inside.runtime.on_event = EventObserver(
            self.transactions,
            self.log,
            GroupObserver(GroupNumbers(), partition),
            clock=self.clock,
            catalog=self.inside.catalog,
            audit=AuditLog(self.clock, lambda *_line, **_told: None),
        )
        self.inside.log.fetcher.on_read = self.log.read
        self.inside.log.fetcher.damage.on_found = observer.damage_found

    # Calls of a client, in short

    def opened(self, transactional_id: str = "a", context: CallContext = LOADER) -> Identity:
        """A producer with one record in an open transaction."""
        identity = self.initialised(transactional_id, context)
        self.produce(transactional_id, identity, PARTITION, ["x"], sequence=0, context=context)
        self.settle()
        return identity

    def initialised(
        self, transactional_id: str = "a", context: CallContext = LOADER, expected: Identity | None = None
    ) -> Identity:
        initialised = self.init(transactional_id, context, expected=expected)
        self.settle()
        return initialised.result()

    def ended(self, identity: Identity, outcome: Outcome, transactional_id: str = "a") -> Identity:
        ended = self.end(transactional_id, identity, outcome, LOADER)
        self.settle()
        return ended.result().next_identity

    def transacted(self, identity: Identity, outcome: Outcome, transactional_id: str = "a") -> Identity:
        """A record in a whole transaction, in one request."""
        context = replace(LOADER, request_id=b"%016d" % identity.producer_epoch)
        contents = TransactContents(batches=[(PARTITION, ["x"], 0)])
        answer = self.transact(transactional_id, identity, contents, outcome, context)
        self.settle()
        return answer.result().ended.next_identity

    def damage_batch(self, partition: str, last_offset: int, damage: Damage) -> None:
        """The disk no longer has the batch that ends there."""
        assert isinstance(self.shelf, MemoryShelf)
        ordinal = self.inside.catalog.resolve(*partition_name(partition)).ordinal
        self.shelf.store.damage(Family.LOG, log_key(ordinal, last_offset), damage)

    # Metrics

    def readings(self) -> Readings:
        return {**self.transactions.readings(self.clock.wall_ms()), **self.log.readings()}

    def survey(self, partitions_max: int = 1_000) -> Survey:
        return survey(self.inside.runtime, self.inside.catalog, partitions_max)

    def value(self, name: str, *labels: str) -> float:
        value = self.sample(name, *labels)
        assert not isinstance(value, Histogram)
        return value

    def histogram(self, name: str, *labels: str) -> Histogram:
        value = self.sample(name, *labels)
        assert isinstance(value, Histogram)
        return value

    def sample(self, name: str, *labels: str) -> Sample:
        return self.readings()[name][labels]

    def non_zero(self, name: str) -> dict[tuple[str, ...], float]:
        values = self.readings()[name]
        return {labels: value for labels, value in values.items() if not isinstance(value, Histogram) and value}

    def check_states(self) -> None:
        """Assert that the counts, kept step by step, agree with a look at everything."""
        found: Counter[tuple[str, ...]] = Counter()
        for shard in self.inside.runtime.shards(Coordinator.TRANSACTIONS):
            found.update((transaction.state.api_name,) for transaction in shard.table.durable_transactions())
        assert self.non_zero("txn_coordinator_transactions") == dict(found)
        assert self.value("txn_coordinator_transactional_ids") == found.total()
