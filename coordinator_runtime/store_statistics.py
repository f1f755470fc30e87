"""Sizes that an engine knows of its open store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Sizes for the metrics page, read without a lock."""

    wal_bytes: int = 0
    segment_bytes: int = 0
    sst_bytes: int = 0
    memtable_bytes: int = 0
    pending_compaction_bytes: int = 0
    write_stalls: int = 0
    """Number of times a write waited because flushes or compactions lagged behind, since the store was opened."""
    reclaims: int = 0
    """Number of times the space of deleted rows was freed, since the store was opened."""
    damaged_files: int = 0
    """Number of sorted files with known damage, whose families are no longer compacted."""
    block_cache_bytes: int = 0
    table_readers_bytes: int = 0
    """Memory for open sorted files, beside the cache."""
