"""Bugs in what compaction takes from logs. `mutants` has those of everything else."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from coordinator_runtime.decision import Decision
from partition_log import fetch
from partition_log import shard as log_shard
from partition_log.compaction import passes, payloads
from partition_log.compaction.chunks import LeftIndex
from partition_log.compaction.rules import Survivors
from partition_log.compaction_steps import CompactionStep
from partition_log.shard import LogShard
from partition_log.state import PartitionHead
from tests.simulation.mutant import Mutant

_COMPACTING: Final = {
    "topic_keys": 3,
    "topic_compaction": {
        "cleanup_policy": "compact,delete",
        "min_dirty_ratio": "0",
        "delete_retention_ms": "0",
        "max_compaction_lag_ms": "1000",
    },
    "compaction_interval_ms": 100,
    "chunk_rows": 4,
    "stretch_rows": 2,
    "tick_weight": 6.0,
}
_DELETING: Final = {"delete_weight": 6.0, "removal_interval_ms": 200}


def keep_older_values(_newest: Any, _table: Any, _key: bytes) -> int:
    return -1


def take_the_newest_value(newest: Any, table: Any, key: bytes) -> int:
    offset: int = newest(table, key)
    return offset + 1


def count_aborted_records(_is_hidden: Any, _row: Any, _aborted: Any) -> bool:
    return False


def forget_what_needs_a_marker(_keep: Any, _survivors: Survivors, _header: Any) -> None:
    return None


def correct_no_totals(replaced: Any, index: LeftIndex, old: Any, *args: Any) -> Any:
    changed = dict(replaced(index, old, *args))
    return [(at, row) for at, row in changed.items() if at >= old[0].first_offset or row is None]


def count_less(head_after: Any, head: PartitionHead, step: CompactionStep) -> PartitionHead:
    after: PartitionHead = head_after(head, step)
    records = after.totals.record_count - step.less.record_count
    return replace(after, totals=replace(after.totals, record_count=records))


class _NoLeases:
    def oldest(self, _ordinal: int) -> None:
        return None


def heed_no_lease(decide: Any, shard: LogShard, *args: Any) -> Decision:
    leases: Any = shard._leases
    shard._leases = _NoLeases()  # type: ignore[assignment]  # only asked for the oldest one
    try:
        decision: Decision = decide(shard, *args)
        return decision
    finally:
        shard._leases = leases


def show_what_is_left(_check: Any, *_asked: Any) -> bool:
    return True


def close_the_gaps(with_records: Any, header: Any, records: Any) -> bytes:
    stored: bytes = with_records(header, [(at, *record[1:]) for at, record in enumerate(records)])
    return stored


COMPACTION: Final = (
    Mutant(
        "keep_older_values",
        "a pass leaves values that newer ones replace",
        ((payloads, "_newest", keep_older_values),),
        _COMPACTING,
    ),
    Mutant(
        "take_the_newest_value",
        "a pass takes the newest value of a key, too",
        ((payloads, "_newest", take_the_newest_value),),
        _COMPACTING,
    ),
    Mutant(
        "count_aborted_records",
        "aborted records stay, and replace what was committed before them",
        ((passes, "_is_hidden", count_aborted_records),),
        _COMPACTING,
    ),
    Mutant(
        "forget_what_needs_a_marker",
        "markers go before the records of their transactions",
        ((Survivors, "keep", forget_what_needs_a_marker),),
        _COMPACTING,
    ),
    Mutant(
        "correct_no_totals",
        "the totals before a part of a log stay as they were when records of it go",
        ((LeftIndex, "replace", correct_no_totals),),
        _COMPACTING | {"topic_keys": 1, "chunk_rows": 1, "delete_weight": 0.0},
    ),
    Mutant(
        "count_less",
        "the cumulative totals of a log fall with what is compacted",
        ((log_shard, "head_after", count_less),),
        _COMPACTING,
    ),
    Mutant(
        "heed_no_lease",
        "a pass takes what a lease holds",
        ((LogShard, "decide_compact", heed_no_lease),),
        _COMPACTING | _DELETING,
    ),
    Mutant(
        "show_what_is_left",
        "a snapshot that was compacted since is read, with fewer records",
        ((fetch, "check_as_taken", show_what_is_left), (fetch, "is_as_taken", show_what_is_left)),
        _COMPACTING | {"snapshot_weight": 30.0, "steps": 600},
    ),
    Mutant(
        "close_the_gaps",
        "records that stay move to the offsets of those that go",
        ((payloads, "_with_records", close_the_gaps),),
        _COMPACTING | {"topic_keys": 1},
    ),
)
