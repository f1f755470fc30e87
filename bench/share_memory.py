"""Measures the memory of records that members of share groups hold, and the time of the operations on them.

1,000 share partitions with 1,000 records each, all held: the state of a shard and the timers of its acquisitions, as
the server keeps them. The size of an acquisition is that of one ShareFetch in one partition. Target: at most 100 bytes
for each record in flight, everything included.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from functools import partial
from time import perf_counter_ns
from typing import Final

from coordinator_runtime.clock import Timers
from coordinator_runtime.decision import ArmTimer, Coordinator, Decision, ShardKey, Turn
from coordinator_runtime.timeline import Journal
from group_coordinator.share_partitions.acquiring import LogPosition, Read, Span, Terms
from group_coordinator.share_partitions.decisions import decide_acknowledge, decide_acquire, decide_initialize
from group_coordinator.share_partitions.decisions import decide_resolve_start as decide_start
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged
from group_coordinator.share_partitions.requests import Acknowledge, Acquire
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.shard import ShareShard

PARTITIONS: Final = 1_000
RECORDS: Final = 1_000
"""Number of records in each."""
SIZES: Final = (1_000, 500, 50, 10)
"""Numbers of records in an acquisition."""
_BATCH: Final = 10
_TERMS: Final = Terms()
_TURN: Final = Turn(now_ms=0)
_SHARD: Final = ShardKey(Coordinator.SHARE_PARTITIONS, 0)
_KEYS: Final = tuple(ShareKey("workers", ordinal) for ordinal in range(PARTITIONS))


class _Server:
    """A shard with its timers, every change durable at once."""

    def __init__(self) -> None:
        self._journal = Journal()
        self._journal.is_loading = True
        self._shard = ShareShard(_SHARD, self._journal)
        self._timers = Timers()
        for key in _KEYS:
            self._perform(decide_initialize(self._shard, _TURN, key=key, state_epoch=1))
            self._perform(decide_start(self._shard, _TURN, key=key, state_epoch=1, offset=0))

    def acquire(self, key: ShareKey, first_offset: int, count: int) -> None:
        """Hand the next records to a member, as one ShareFetch does."""
        batch = min(count, _BATCH)
        spans = [Span(at, at + batch - 1) for at in range(first_offset, first_offset + count, batch)]
        command = Acquire(
            member_id=f"member-{first_offset % 8}",
            state_epoch=1,
            read=Read(first_offset, tuple(spans)),
            log=LogPosition(0),
            terms=_TERMS,
            max_records=count,
        )
        self._perform(decide_acquire(self._shard, _TURN, key=key, command=command))

    def acknowledge(self, key: ShareKey, size: int, offset: int) -> None:
        """Acknowledge one record of an acquisition of this size."""
        member_id = f"member-{offset // size * size % 8}"
        command = Acknowledge(member_id, (AckBatch(offset, offset, (1,)),), _TERMS)
        self._perform(decide_acknowledge(self._shard, _TURN, key=key, command=command))

    def _perform(self, decision: Decision) -> None:
        for record in decision.records:
            assert isinstance(record.value, SharePartitionChanged)
            self._shard.replay(record.value)
        for effect in decision.effects:
            if isinstance(effect, ArmTimer):
                self._timers.arm(effect.key, effect.delay_ms, partial(_expire, effect), owner=_SHARD)

    @property
    def held_count(self) -> int:
        return self._shard.counts().held_records


def _expire(timer: ArmTimer) -> None:
    raise AssertionError(f"{timer.key} expired: time stands still here")


def _fill(server: _Server, size: int) -> Iterator[int]:
    """Let members acquire every record. Yield the time of each acquisition (ns)."""
    for first_offset in range(0, RECORDS, size):
        for key in _KEYS:
            began_ns = perf_counter_ns()
            server.acquire(key, first_offset, size)
            yield perf_counter_ns() - began_ns


def _settle(server: _Server, size: int) -> Iterator[int]:
    """Acknowledge records one by one. Yield the time of each acknowledgement (ns)."""
    for key in _KEYS[:10]:
        for offset in range(0, RECORDS, 2):
            began_ns = perf_counter_ns()
            server.acknowledge(key, size, offset)
            yield perf_counter_ns() - began_ns


def memory_bytes(size: int) -> int:
    """Return the bytes of all records and acquisitions in flight, with share partitions and timers."""
    gc.collect()
    tracemalloc.start()
    server = _Server()
    for _taken_ns in _fill(server, size):
        pass
    gc.collect()
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert server.held_count == PARTITIONS * RECORDS
    return used_bytes


def main() -> None:
    """Print memory and times for each size of an acquisition."""
    print(f"{PARTITIONS * RECORDS:,} records in flight over {PARTITIONS:,} share partitions")
    print("| records of an acquisition | bytes a record | acquire us, p50 | p99 | acknowledge one us, p50 | p99 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size in SIZES:
        used_bytes = memory_bytes(size)
        server = _Server()
        # Otherwise the collector would scan all objects of the process while operations are timed.
        gc.disable()
        times = [sorted(_fill(server, size)), sorted(_settle(server, size))]
        gc.enable()
        figures = [f"{each[len(each) * share // 100] / 1e3:.1f}" for each in times for share in (50, 99)]
        print(f"| {size:,} | {used_bytes / (PARTITIONS * RECORDS):.1f} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
