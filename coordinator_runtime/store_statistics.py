"""Sizes that an engine knows of its open store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Durations:
    """A distribution of durations (seconds)."""

    bounds: tuple[float, ...]
    numbers: tuple[int, ...]
    """Number of durations up to each bound and above the one before; the last one is of those above all."""
    total: float


@dataclass(frozen=True, slots=True)
class ObjectStoreNumbers:
    """Requests to object storage and reads of its caches, since the store was opened."""

    requests: Mapping[tuple[str, str], int]
    """Requests by operation and result: ok, error. Repetitions by the HTTP client are not counted."""
    seconds: Mapping[str, Durations]
    """Durations by kind: get, put, delete."""
    cache_reads: Mapping[tuple[str, str], int]
    """Reads by cache (memory, disk) and result (hit, miss)."""
    written_bytes: Mapping[str, int]
    """Bytes written by purpose: log, tables, compaction."""
    cache_bytes: int = 0
    """Size of the cache on disk."""
    log_flushes: int = 0
    """Number of objects of the log that were written."""


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
    objects: ObjectStoreNumbers | None = None
    """None for a store on a disk."""
