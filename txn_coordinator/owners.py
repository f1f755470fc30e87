"""Owners of producer ids: asked by those who meet one in a partition and not in a request."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, ShardKey, Turn
from coordinator_runtime.runtime import Runtime
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.records import UnownedMarkerWritten
from txn_coordinator.rules import administering
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import Transaction


class ProducerOwners:
    """Transactional ids by producer id, over all shards. Implements `coordinator_runtime.ports.MarkerGuard`.

    That nobody owns a producer id is said only while all shards serve; else the question is refused, retriably."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def owner_of(self, producer_id: int) -> Transaction | None:
        """The id whose transactions have this producer id, live state."""
        found = self._find(producer_id)
        return None if found is None else found[1]

    def owners_of(self, producer_ids: Iterable[int]) -> dict[int, Transaction]:
        """The owners of many producer ids at once; those without an owner are missing."""
        wanted = set(producer_ids)
        found: dict[int, Transaction] = {}
        shards = self._all_shards() if wanted else []
        for shard in shards:
            found.update(shard.owners_among(wanted))
        return found

    def durable_owner_of(self, producer_id: int) -> Transaction | None:
        """Return the id whose transactions have this producer id in durable state. It is found as long as its own shard
        serves."""
        shards: list[TransactionShard] = self._runtime.shards(Coordinator.TRANSACTIONS)
        for shard in shards:
            owner = shard.durable_owner_of(producer_id)
            if owner is not None:
                return owner
        # Refused unless nobody was missed.
        self._all_shards()
        return None

    def check(self, ordinal: int, marker: Marker) -> Operation:
        """Refuses a marker from outside that contradicts what is decided or undecided here."""

        def decide(counters: CountersShard, _turn: Turn) -> Decision:
            counters.check_given(marker.producer_id, marker.csn)
            found = self._find(marker.producer_id)
            if found is None:
                written = UnownedMarkerWritten(marker.csn, ordinal, marker.producer_id)
                return Decision(records=(Record(COUNTERS, written, cause="foreign"),))
            key, owner = found
            return Decision(joins=(Operation(key, lambda shard, _later: _check(shard, owner, ordinal, marker)),))

        return Operation(COUNTERS, decide)

    def _find(self, producer_id: int) -> tuple[ShardKey, Transaction] | None:
        for shard in self._all_shards():
            owner = shard.owner_of(producer_id)
            if owner is not None:
                return shard.key, owner
        return None

    def _all_shards(self) -> list[TransactionShard]:
        """Raises Refused unless all serve: that nobody owns a producer id can only be said when nobody was missed."""
        return self._runtime.table.all_serving(Coordinator.TRANSACTIONS)


def _check(shard: TransactionShard, owner: Transaction, ordinal: int, marker: Marker) -> Decision:
    administering.check_foreign_marker(owner, ordinal, marker, coordinator_epoch=shard.coordinator_epoch)
    return Decision()
