"""Lag of selected groups, measured in the background, because a scrape must not wait for reads of the log.

A round measures the groups one partition per turn of the loop, to keep turns short, or on a thread where reads may
wait. It publishes its numbers when it is
complete, and the next one begins after a pause. Only groups that an operator selected are measured: a group is a label,
and there may be any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from coordinator_runtime.decision import Coordinator
from coordinator_runtime.pending import Pending
from coordinator_runtime.rounds import Steps, awaited
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from coordinator_server.metrics.instruments import MS, Labels, Readings, Sample, single
from group_coordinator.committed.offsets import Offsets
from group_coordinator.shard import GroupShard
from group_coordinator.state import PartitionKey
from partition_log.batches import LogDamaged
from partition_log.catalog.shard import CatalogShard
from partition_log.counting import Counted, count_records
from partition_log.reading import ReadBudget, oldest_unread_ms
from partition_log.shard import LogShard
from partition_log.state import Isolation, PartitionHead

ROUND_PAUSE_MS: Final = 10_000

_TURN_BATCHES: Final = 512
_TURN_BYTES: Final = 1 << 20
"""Limits of the read per turn of the loop, which takes about a millisecond."""

_ISOLATIONS: Final = {isolation: isolation.name.lower() for isolation in Isolation}
_PREFIX: Final = "*"


@dataclass(frozen=True, slots=True)
class LagConfig:
    """Selection of the watched groups."""

    groups: tuple[str, ...] = ()
    """Ids, or prefixes of ids that end in `*`."""
    topics_max: int = 1_000
    """Maximum number of pairs of a group and a topic."""

    def chosen(self, shard: GroupShard) -> list[str]:
        """Return the watched groups of a shard that have durable offsets, by id."""
        prefixes = tuple(name.removesuffix(_PREFIX) for name in self.groups if name.endswith(_PREFIX))
        offsets = shard.part(Offsets)
        chosen = {name for name in self.groups if offsets.of(name).has_durable}
        if prefixes:
            chosen |= {group_id for group_id in offsets.durable_group_ids() if group_id.startswith(prefixes)}
        return sorted(chosen)


@dataclass(slots=True)
class _TopicLag:
    """Lag of one group in one topic, over all partitions in which it has committed an offset."""

    records: dict[Isolation, int] = field(default_factory=lambda: dict.fromkeys(Isolation, 0))
    oldest_ms: dict[Isolation, int] = field(default_factory=dict)
    """Timestamp of the oldest unread record; absent if all were read."""


@dataclass(slots=True)
class _Round:
    """Results of one round so far, by group and topic."""

    lags: dict[tuple[str, str], _TopicLag] = field(default_factory=dict)
    omitted: set[tuple[str, str]] = field(default_factory=set)


class GroupLags:
    """The newest finished round, and the one under way. On the loop thread only."""

    def __init__(self, runtime: Runtime, reader: StoreReader, catalog: CatalogShard, config: LagConfig) -> None:
        self._runtime = runtime
        self._reader = reader
        self._catalog = catalog
        self._config = config
        self._finished = _Round()

    def start(self) -> None:
        """Begin a round now, and others after it. Does nothing if no group is selected."""
        if self._config.groups:
            self._begin()

    def _begin(self) -> None:
        found = _Round()
        self._go_on(found, self._look(found))

    def _go_on(self, found: _Round, turns: Steps) -> None:
        """Take one turn. Continue in the next turn of the loop, or begin a new round after the pause."""
        done = next(turns, turns)
        if done is turns:
            self._finished = found
            self._runtime.arm("lag", ROUND_PAUSE_MS, self._begin)
            return

        def later() -> None:
            self._runtime.arm("lag", 0, lambda: self._go_on(found, turns))

        if isinstance(done, Pending):
            done.on_settled(lambda _reply: later())
        else:
            later()

    def _look(self, found: _Round) -> Steps:
        """Fill a round, and give way after every shard and every partition."""
        for shard in self._runtime.shards(Coordinator.GROUPS):
            for group_id in self._config.chosen(shard):
                for partition, _offset in list(shard.part(Offsets).of(group_id).committed.durable_items()):
                    yield from self._look_at(found, shard, group_id, partition)
            yield None

    def _look_at(self, found: _Round, shard: GroupShard, group_id: str, partition: PartitionKey) -> Steps:
        topic_id, number = partition
        placed = self._catalog.find("", topic_id, number)
        if placed is None:
            return  # The topic was deleted, and its offsets will be.
        lag = self._lag_of(found, (group_id, placed.ref.topic))
        if lag is None:
            return
        offset = shard.part(Offsets).of(group_id).committed.durable(partition)
        at = None if offset is None else offset.committed_offset
        is_first = True
        while at is not None:
            log: LogShard | None = self._runtime.table.find(placed.shard)
            ordinal = placed.ref.ordinal
            head = None if log is None or not log.is_readable(ordinal) else log.durable_head(ordinal)
            if head is None:
                return  # Not served here now, or being deleted.
            try:
                if is_first:
                    ages = yield from awaited(self._reader.read(partial(_oldest, ordinal, head, at)))
                    _note_ages(lag, ages)
                counted = yield from awaited(self._reader.read(partial(_counted, ordinal, head, at)))
            except (LogDamaged, StoreUnreadable):
                return  # Reported when it is fetched. Records behind it are not counted in this round.
            lag.records[Isolation.READ_COMMITTED] += counted.committed_records
            lag.records[Isolation.READ_UNCOMMITTED] += counted.records
            at = counted.next_offset if counted.next_offset < head.log_end_offset else None
            is_first = False
            yield None

    def _lag_of(self, found: _Round, key: tuple[str, str]) -> _TopicLag | None:
        lag = found.lags.get(key)
        if lag is None and len(found.lags) < self._config.topics_max:
            lag = found.lags[key] = _TopicLag()
        if lag is None:
            found.omitted.add(key)
        return lag

    def readings(self, now_ms: int) -> Readings:
        """Return the newest finished round, with ages as of `now_ms`."""
        records: dict[Labels, Sample] = {}
        seconds: dict[Labels, Sample] = {}
        for (group_id, topic), lag in self._finished.lags.items():
            for isolation, name in _ISOLATIONS.items():
                labels = (group_id, topic, name)
                records[labels] = lag.records[isolation]
                seconds[labels] = max(0, now_ms - lag.oldest_ms.get(isolation, now_ms)) / MS
        return {
            "txn_group_lag_records": records,
            "txn_group_lag_seconds": seconds,
            "txn_group_lag_omitted": single(len(self._finished.omitted)),
        }


def _note_ages(lag: _TopicLag, ages: Iterable[tuple[Isolation, int | None]]) -> None:
    for isolation, oldest_ms in ages:
        if oldest_ms is not None:
            lag.oldest_ms[isolation] = min(oldest_ms, lag.oldest_ms.get(isolation, oldest_ms))


def _oldest(ordinal: int, head: PartitionHead, at: int, rows: StoreReads) -> list[tuple[Isolation, int | None]]:
    """Return the timestamp of the oldest record behind an offset, for readers of each isolation level."""
    return [(each, oldest_unread_ms(rows, ordinal, head, at, each, _turn_budget())) for each in Isolation]


def _counted(ordinal: int, head: PartitionHead, at: int, rows: StoreReads) -> Counted:
    return count_records(rows, ordinal, head, at, _turn_budget())


def _turn_budget() -> ReadBudget:
    return ReadBudget(visible_bytes=0, batches=_TURN_BATCHES, read_bytes=_TURN_BYTES)
