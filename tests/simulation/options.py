"""Options of one run of the simulation, drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from coordinator_protocol.limits import EPOCH_MAX
from partition_log.catalog.settings import Retention
from partition_log.compaction.chunks import CHUNK_ROWS_MAX
from partition_log.state import PRODUCER_EXPIRATION_MS
from txn_coordinator.config import TwoPhase


def _compaction(rng: Random) -> Mapping[str, str]:
    """Return settings of a topic that is compacted."""
    return {
        "cleanup_policy": rng.choice(("compact", "compact,delete")),
        "min_dirty_ratio": rng.choice(("0", "0.5")),
        "delete_retention_ms": rng.choice(("0", "1000")),
        "min_compaction_lag_ms": rng.choice(("0", "0", "500")),
        "max_compaction_lag_ms": rng.choice(("-1", "1000")),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one run."""

    seed: int
    two_phase: TwoPhase
    epoch_max: int
    transactional_ids: int
    partitions: int
    steps: int
    crash_weight: float
    tick_weight: float
    flush_weight: float
    version_1_share: float
    parked_calls_max: int
    group_bytes_max: int
    passing_weight: float
    """Weight of the steps that delete a further topic, or make it again; 0 = there is none."""
    participant_ids: int
    """Number of transactional ids whose transactions are decided outside."""
    producer_expiration_ms: int
    """Age at which partitions forget idle producers (ms)."""
    shard_weight: float
    """Weight of the steps that unload or load a shard."""
    member_weight: float
    """Weight of the steps of a member of a group."""
    transact_share: float
    """Share of the transactions of version 2 that are ended at once, by Transact with all that is left to write."""
    stretch_rows: int
    """Rows of a log per stretch."""
    delete_weight: float
    """Weight of the steps that delete or hold records."""
    retention: Retention
    """Retention of partitions."""
    removal_interval_ms: int
    """Interval of the searches for records beyond the retention (ms)."""
    compaction_interval_ms: int
    """Interval of the searches for logs to compact (ms); 0 = none."""
    topic_keys: int | None
    """Number of keys of the main topic, which is compacted; 0 = each record has its own; None = it is not compacted."""
    topic_compaction: Mapping[str, str]
    """Settings of the main topic about its compaction."""
    chunk_rows: int
    """Rows of a log that a pass of compaction changes at once."""
    growth_weight: float
    """Weight of the steps that add partitions or alter a topic."""
    aborted_stride: int
    """Offsets between two rows of an aborted transaction: small, so that short ones lie across several."""
    sink_weight: float
    """Weight of the steps of an engine that writes to a sink."""
    participants_at_once: int
    """Markers of a sink's decision per step."""
    snapshot_weight: float
    """Weight of the steps of a reader of snapshots."""
    lane: bool
    """Whether Transacts of the common shape take the fast path."""
    kafka_share: float
    """Share of the clients, members and readers that speak Kafka's protocol."""
    share_weight: float
    """Weight of the steps of a worker of a share group."""
    streams_weight: float
    """Weight of the steps of a thread of a streams group."""
    give_up_weight: float
    """Weight of the steps in which a user's patience with a request ends."""

    @classmethod
    def of(cls, seed: int) -> Options:
        rng = Random(f"options {seed}")
        compaction_interval_ms = Random(f"compaction {seed}").choice((0, 100, 700))
        compacted_rng = Random(f"compacted {seed}")
        is_compacted = compaction_interval_ms and compacted_rng.random() < 0.5
        return cls(
            seed=seed,
            two_phase=rng.choice(list(TwoPhase)),
            epoch_max=rng.choice((2, 3, 4, 6, EPOCH_MAX)),
            transactional_ids=rng.choice((1, 2, 3)),
            partitions=rng.choice((1, 2, 3)),
            steps=rng.choice((150, 300, 600)),
            crash_weight=rng.choice((0.0, 0.5, 2.0)),
            tick_weight=rng.choice((0.5, 3.0)),
            flush_weight=rng.choice((4.0, 15.0)),
            version_1_share=rng.choice((0.0, 0.0, 0.3)),
            parked_calls_max=rng.choice((0, 2, 10_000)),
            group_bytes_max=rng.choice((1, 1 << 20)),
            passing_weight=((1.0, 2.0, 8.0) + (0.0,) * 7)[int(10 * rng.random())],
            participant_ids=rng.choice((0, 0, 1, 2)),
            producer_expiration_ms=rng.choice((PRODUCER_EXPIRATION_MS, PRODUCER_EXPIRATION_MS, 500, 3_000)),
            shard_weight=rng.choice((0.0, 0.0, 0.5, 3.0)),
            member_weight=rng.choice((0.0, 0.0, 40.0)),
            transact_share=rng.choice((0.0, 0.2, 0.7)),
            stretch_rows=rng.choice((1, 2, 5, 256)),
            aborted_stride=rng.choice((2, 5, 1 << 16)),
            lane=rng.random() < 0.5,
            delete_weight=rng.choice((0.3, 2.0)),
            retention=Retention(rng.choice((-1, -1, 500, 3_000)), rng.choice((-1, -1, 1, 500, 3_000))),
            removal_interval_ms=rng.choice((200, 1_000, 5_000)),
            compaction_interval_ms=compaction_interval_ms,
            topic_keys=compacted_rng.choice((0, 1, 3, 10)) if is_compacted else None,
            topic_compaction=_compaction(compacted_rng),
            chunk_rows=compacted_rng.choice((1, 4, CHUNK_ROWS_MAX)) if is_compacted else CHUNK_ROWS_MAX,
            growth_weight=rng.choice((0.3, 2.0)),
            sink_weight=rng.choice((0.0, 0.0, 40.0)),
            participants_at_once=rng.choice((1, 64)),
            snapshot_weight=rng.choice((0.0, 5.0, 15.0)),
            kafka_share=rng.choice((0.0, 0.5, 0.5, 1.0)),
            share_weight=rng.choice((0.0, 0.0, 40.0)),
            streams_weight=Random(f"streams {seed}").choice((0.0, 0.0, 40.0)),
            give_up_weight=Random(f"patience {seed}").choice((1.0, 1.0, 8.0)),
        )
