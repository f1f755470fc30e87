"""A server that starts on a store which lost a row, or to which a newer program added one: the shard is not served, and
all others are.

What it finds is a view of the run's store with one row more or less, so the run itself goes on undisturbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.rows import state_row
from coordinator_runtime.store import Family, Store
from partition_log import codec
from tests.harness.inside import Inside
from tests.harness.unwritten import Unwritten
from tests.harness.world import World
from txnctl.stopped.stored import heads

Row = tuple[Family, bytes]

_WITH_STATE = (Coordinator.TRANSACTIONS, Coordinator.GROUPS, Coordinator.SHARE_PARTITIONS)
_UNKNOWN_TYPE = 0x70
_SPARE_TYPE = 0x90


class _Altered(Unwritten):
    """The store with one row more, or with one less."""

    def __init__(self, store: Store, *, more: Row | None = None, less: Row | None = None) -> None:
        super().__init__(store)
        self._more = more
        self._less = less

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = dict(super().scan(family, start, end))
        if self._more is not None and self._more[0] is family and start <= self._more[1] < end:
            rows[self._more[1]] = b"newer"
        if self._less is not None and self._less[0] is family:
            rows.pop(self._less[1], None)
        return iter(sorted(rows.items()))

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        return max((key for key, _ in self.scan(family, prefix, prefix + b"\xff" * 16)), default=None)


def check_that_they_are_noticed(world: World, rng: Random) -> None:
    """Load the store with rows that must not be passed over, with one that may be, and without a last row."""
    shards = sorted(key for key in world.inside.runtime.table.states() if key.coordinator in _WITH_STATE)
    shard = rng.choice(shards)
    _expect(world, {shard}, more=state_row(shard, _UNKNOWN_TYPE, b"whoever"))
    _expect(world, set(), more=state_row(shard, _SPARE_TYPE, b"whoever"))
    begins = heads(world.shelf.store)
    written = [
        (world.inside.catalog.log_shard(topic.name, number), ordinal, key)
        for topic in world.inside.catalog.durable_topics()
        for number, ordinal in enumerate(topic.partition_ordinals)
        if (key := world.shelf.store.last_key(Family.LOG, codec.partition_key(ordinal))) is not None
        # What lies below a log start may be missing.
        and codec.last_offset(key) >= begins[ordinal].log_start_offset
    ]
    if written:
        shard, ordinal, last = rng.choice(written)
        _expect(world, {shard}, less=(Family.LOG, last))
        family = rng.choice([Family.PARTITIONS, Family.PRODUCERS])
        _expect(world, {shard}, more=(family, codec.partition_key(ordinal) + bytes([_UNKNOWN_TYPE])))


def _expect(world: World, refused: set[ShardKey], *, more: Row | None = None, less: Row | None = None) -> None:
    found = Inside(_Altered(world.shelf.store, more=more, less=less), world.clock, world.options)
    found.driver.flush()
    failures = found.runtime.table.failures
    assert failures.keys() == refused, f"with {more} and without {less} these shards are refused: {dict(failures)}"
