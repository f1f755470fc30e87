"""SlateDB's counts of its requests and caches, in the words of our metrics.

Source: SlateDB's metrics `slatedb.object_store.*`, `slatedb.db_cache.*`, `slatedb.object_store_cache.*`,
`slatedb.wal.*` and `slatedb.db.*`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_runtime.slate import binding
from coordinator_runtime.store_statistics import Durations, ObjectStoreNumbers, StoreStatistics

_REQUESTS: Final = "slatedb.object_store.request_count"
_ERRORS: Final = "slatedb.object_store.error_count"
_SECONDS: Final = "slatedb.object_store.request_duration_seconds"
_MEMORY_READS: Final = "slatedb.db_cache.access_count"
_DISK_READS: Final = "slatedb.object_store_cache.part_access_count"
_DISK_HITS: Final = "slatedb.object_store_cache.part_hit_count"
_DISK_BYTES: Final = "slatedb.object_store_cache.cache_bytes"
_WRITTEN: Final = {
    "log": "slatedb.wal.wal_flush_bytes",
    "tables": "slatedb.db.l0_flush_bytes",
    "compaction": "slatedb.compactor.bytes_compacted",
}
_LOG_FLUSHES: Final = "slatedb.wal.wal_buffer_flushes"
_MEMORY_BYTES: Final = "slatedb.db.total_mem_size_bytes"
_STALLS: Final = "slatedb.db.backpressure_count"


def statistics_of(metrics: Iterable[binding.Handle]) -> StoreStatistics:
    """Return the sizes and numbers of a store from a snapshot of its metrics."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    by_operation: defaultdict[str, list[binding.Handle]] = defaultdict(list)
    for metric in metrics:
        labels = {label.key: label.value for label in metric.labels}
        if metric.name == _SECONDS:
            by_operation[labels.get("op", "")].append(metric.value[0])
        elif not metric.value.is_HISTOGRAM():
            counts[metric.name][labels.get("api") or labels.get("result") or ""] += metric.value[0]
    single = {name: found.total() for name, found in counts.items()}
    return StoreStatistics(
        memtable_bytes=single.get(_MEMORY_BYTES, 0),
        write_stalls=single.get(_STALLS, 0),
        objects=ObjectStoreNumbers(
            requests=_by_result(counts[_REQUESTS], counts[_ERRORS]),
            seconds={operation: _summed(each) for operation, each in sorted(by_operation.items())},
            cache_reads={
                ("memory", "hit"): counts[_MEMORY_READS]["hit"],
                ("memory", "miss"): counts[_MEMORY_READS]["miss"],
                ("disk", "hit"): single.get(_DISK_HITS, 0),
                ("disk", "miss"): single.get(_DISK_READS, 0) - single.get(_DISK_HITS, 0),
            },
            written_bytes={purpose: single.get(name, 0) for purpose, name in _WRITTEN.items()},
            cache_bytes=single.get(_DISK_BYTES, 0),
            log_flushes=single.get(_LOG_FLUSHES, 0),
        ),
    )


def _by_result(requests: Mapping[str, int], errors: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return the number of requests by operation and result. Operations that were never asked for are left out."""
    found: dict[tuple[str, str], int] = {}
    for operation, number in sorted(requests.items()):
        if number:
            failed = errors.get(operation, 0)
            found[operation, "ok"], found[operation, "error"] = number - failed, failed
    return found


def _summed(histograms: Iterable[binding.Handle]) -> Durations:
    """Return the sum of distributions with the same bounds: those of SlateDB's parts."""
    first, *others = histograms
    numbers, total = list(first.bucket_counts), first.sum
    for other in others:
        assert other.boundaries == first.boundaries, "durations of requests are counted alike"
        numbers = [one + more for one, more in zip(numbers, other.bucket_counts, strict=True)]
        total += other.sum
    return Durations(tuple(first.boundaries), tuple(numbers), total)
