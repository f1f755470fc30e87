"""Measures the load of 100,000 transactional ids, 1,000 of them with an open transaction.

The store is RocksDB on the disk of temporary files, written once and closed. Then a whole server is built on it and
loads, as `txnctl serve` does, until every shard serves. Target: 3 s (design 8).
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Final

import uvloop
from msgspec.structs import replace

from coordinator_runtime.clock import SystemClock
from coordinator_runtime.decision import Coordinator, Record, ShardRouter, Turn
from coordinator_runtime.rows import StagedRows, StateRows
from coordinator_runtime.store import CommitGroup
from coordinator_server.addresses import Address
from coordinator_server.build import build, load
from coordinator_server.engines import open_rocks_store
from coordinator_server.host.memory import loading_for_good
from coordinator_server.settings.config import Config
from txn_coordinator.codec import TransactionCodec
from txn_coordinator.records import TransactionChanged
from txn_coordinator.state import Transaction, TransactionState

IDS: Final = 100_000
OPEN_EVERY: Final = 100
RUNS: Final = 3
_ROWS_PER_GROUP: Final = 5_000


def main() -> None:
    """Print the duration of each load, and the longest time that it blocked the loop."""
    with tempfile.TemporaryDirectory(prefix="bench-load-ids-") as directory:
        config = Config.model_validate({"data_dir": Path(directory)})
        _fill(config)
        runs = [_measure(config) for _ in range(RUNS)]
    print(f"{IDS:,} ids, {IDS // OPEN_EVERY:,} with an open transaction, {config.shard_count} shards")
    print(f"load: {_in_words([run.elapsed_ms for run in runs])}")
    print(f"processor time of it: {_in_words([run.processor_ms for run in runs])}")
    print(f"longest stall of the loop: {max(run.stall_ms for run in runs):.1f} ms")


@dataclass(frozen=True, slots=True)
class _Run:
    elapsed_ms: float
    processor_ms: float
    """Processor time of all threads. Less than the elapsed time if the machine has other work."""
    stall_ms: float
    """Longest time that the load blocked the loop."""


def _in_words(figures_ms: list[float]) -> str:
    return f"median {median(figures_ms):,.0f} ms of {', '.join(f'{each:,.0f}' for each in figures_ms)}"


def _measure(config: Config) -> _Run:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_load(config))


async def _load(config: Config) -> _Run:
    """Load, and return when every shard serves."""
    clock = SystemClock()
    opened = open_rocks_store(config)
    server = build(config, opened, clock, _fail)
    server.commits.start()
    gc.collect()
    stalls_us: list[int] = []
    watch = asyncio.create_task(_watch(clock, stalls_us))
    began_us, began_processor_ns = clock.monotonic_us(), process_time_ns()
    with loading_for_good():
        failed_shards = await load(server, config, Address("localhost", 0))
    elapsed_us, processor_ns = clock.monotonic_us() - began_us, process_time_ns() - began_processor_ns
    watch.cancel()
    known_ids = server.readings.numbers.transactions.known_ids
    assert (failed_shards, known_ids) == (0, IDS), f"{failed_shards} shards failed, {known_ids} ids are known"
    await server.driver.drain()
    server.commits.close()
    opened.store.close()
    return _Run(elapsed_us / 1e3, processor_ns / 1e6, max(stalls_us) / 1e3)


async def _watch(clock: SystemClock, stalls_us: list[int]) -> None:
    """Yield to the loop repeatedly, and note the time of each turn."""
    before_us = clock.monotonic_us()
    while True:
        await asyncio.sleep(0)
        now_us = clock.monotonic_us()
        stalls_us.append(now_us - before_us)
        before_us = now_us


def _fail(failure: Exception) -> None:
    raise failure


def _fill(config: Config) -> None:
    """Write the ids as the transaction coordinator would have."""
    opened = open_rocks_store(config)
    router = ShardRouter(Coordinator.TRANSACTIONS, config.shard_count)
    rows, turn = StateRows(TransactionCodec()), Turn(now_ms=SystemClock().wall_ms(), client_id="bench")
    for key in router.shard_keys:
        assert not list(rows.load(key)(opened.store)), "the store is new"
    staged = StagedRows()
    for count, transaction in enumerate(_transactions(turn.now_ms), start=1):
        key = router.shard_key(transaction.transactional_id)
        rows.stage(Record(key, TransactionChanged(transaction), cause=transaction.cause), turn, staged)
        if count % _ROWS_PER_GROUP == 0:
            opened.store.write([CommitGroup(opened.store.version() + 1, staged.mutations())])
            staged = StagedRows()
    opened.store.sync()
    opened.mark_durable(opened.store.version())
    opened.store.close()


def _transactions(now_ms: int) -> Iterator[Transaction]:
    """Yield ids that committed once, and some that have the next transaction open in two partitions."""
    for number in range(IDS):
        committed = Transaction(
            transactional_id=f"application-{number % 97}-task-{number}",
            producer_id=number,
            producer_epoch=number % 1_000,
            last_producer_epoch=number % 1_000 - 1,
            txn_timeout_ms=60_000,
            state=TransactionState.COMPLETE_COMMIT,
            start_ms=now_ms - 1_000,
            last_update_ms=now_ms,
            csn=number + 1,
            cause="client",
        )
        if number % OPEN_EVERY:
            yield committed
        else:
            partitions = frozenset({number, number + 1})
            yield replace(committed, state=TransactionState.ONGOING, partitions=partitions, cause="add")
