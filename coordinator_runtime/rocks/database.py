"""Opening RocksDB: the one place that makes its options.

`StoreOptions` has the sizes that an operator may set; everything else is fixed here. A test keeps other code from
opening RocksDB past this module, because an open with other options can end the process (`_tracking_options`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, Rdict

from coordinator_runtime.rocks.files import RESTORE, DamagedFiles, blamed_file
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.rocks.store_directory import StoreDirectory, with_advice
from coordinator_runtime.store import Family, StoreRefused

_MEBIBYTE: Final = 1024 * 1024

_TRACKED_WALS: Final = Path(__file__).with_name("tracked_wals")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes that an operator may set. The defaults fit a small machine."""

    write_buffer_bytes: int = 64 * _MEBIBYTE
    """Memory for data in the log that is not yet in sorted files, all families together. Too small: many small files
    and stalls. Too large: memory, and a longer recovery after a crash."""
    block_cache_bytes: int = 32 * _MEBIBYTE
    """Memory for blocks that were read, all families together. Too small: fetches behind the page cache decompress
    again and again."""
    wal_bytes_max: int = 256 * _MEBIBYTE
    """Size of the write-ahead log at which the family that holds its oldest part is flushed. Bounds disk and recovery
    time."""
    open_files_max: int = -1
    """Number of sorted files that are kept open; -1 for all of them. Too small: reads open files again and again."""
    segments: SegmentOptions = field(default_factory=SegmentOptions)


def families_of(directory: StoreDirectory) -> list[str]:
    """Return the names of the existing families. Raises StoreRefused."""
    try:
        names: list[str] = Rdict.list_cf(str(directory.store_path))
    except Exception as error:
        raise refusal_of(directory, error) from error
    return names


def open_for_reading(directory: StoreDirectory, families: Sequence[Family]) -> Rdict:
    """Open some families without changing any file of the store. Raises StoreRefused."""
    options = _tracking_options()
    options.create_if_missing(False)
    # The log that a server left is no reason to refuse: it is replayed into memory.
    access = AccessType.read_only(error_if_log_file_exist=False)
    return _open_rocksdb(directory, options, {family.name: Options(raw_mode=True) for family in families}, access)


def open_for_writing(directory: StoreDirectory, options: StoreOptions, damaged: DamagedFiles) -> Rdict:
    """Open RocksDB with all families, and create missing ones. Raises StoreRefused."""
    cache = Cache(options.block_cache_bytes)
    families = {family.name: _family_options(family, options, cache) for family in Family}
    for family in filter(damaged.spares, Family):
        families[family.name].set_disable_auto_compactions(True)
    return _open_rocksdb(directory, _database_options(options), families, AccessType.read_write())


def refusal_of(directory: StoreDirectory, error: Exception) -> StoreRefused:
    """Return the refusal for an error of RocksDB, with the file at fault and advice."""
    complaint = " ".join(str(error).split()).rstrip(".")
    cannot = f"RocksDB cannot open the store in {directory.path}: {complaint}"
    if not complaint.startswith("Corruption") and "No such file" not in complaint:
        return StoreRefused(f"RocksDB cannot open the store in {directory.path}: {with_advice(error)}")
    file = blamed_file(complaint)
    if "ahead of WALs" in complaint:
        what = f"one of the logs {directory.store_path}/*.log is damaged"
    elif file is None:
        what = f"files in {directory.store_path} are damaged"
    else:
        path = directory.store_path / file
        what = f"{path} is {'damaged' if path.exists() else 'missing'}"
    return StoreRefused(f"{what}. {cannot}. {RESTORE}")


def _open_rocksdb(
    directory: StoreDirectory, options: Options, families: dict[str, Options], access: AccessType
) -> Rdict:
    try:
        return Rdict(str(directory.store_path), options, column_families=families, access_type=access)
    except Exception as error:
        raise refusal_of(directory, error) from error


def _tracking_options() -> Options:
    """Return the options that every open needs, for reading as for writing.

    RocksDB keeps a list of the logs that it has closed and synced, and refuses to open if one of them is missing or
    shorter. Without the list, a log that is missing and is not the last leaves holes without notice.

    Once a store has such a list, opening it for reading without this option ends the process by a signal. Opening it
    for writing drops the list. rocksdict has no call for the option, so it comes from an options file of ours."""
    options, _families = Options.load_latest(str(_TRACKED_WALS))
    # Recover a prefix, never holes. The durable mark detects writes that this drops silently.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    return options


def _database_options(options: StoreOptions) -> Options:
    """Return the options for all families. Source: spec log-and-runtime 5.1, 5.6."""
    database = _tracking_options()
    database.create_if_missing(True)
    database.create_missing_column_families(True)
    # Recycled log files would hide where the log ends.
    database.set_recycle_log_file_num(0)
    database.set_db_write_buffer_size(options.write_buffer_bytes)
    database.set_max_total_wal_size(options.wal_bytes_max)
    database.set_bytes_per_sync(_MEBIBYTE)
    database.set_wal_bytes_per_sync(_MEBIBYTE)
    database.set_max_background_jobs(2)
    database.set_max_open_files(options.open_files_max)
    database.set_keep_log_file_num(5)
    database.set_stats_persist_period_sec(0)
    return database


def _family_options(family: Family, options: StoreOptions, cache: Cache) -> Options:
    """Return the options of one family. Source: spec log-and-runtime 5.1."""
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    # Otherwise indexes and filters of all files stay in memory beside the cache: a hundredth of the data, permanently.
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    if family in (Family.PRODUCERS, Family.COORDINATOR_STATE):
        blocks.set_bloom_filter(10, False)
    own = Options(raw_mode=True)
    own.set_block_based_table_factory(blocks)
    # Producers compress their batches themselves.
    own.set_compression_type(DBCompressionType.none() if family is Family.LOG else DBCompressionType.lz4())
    own.set_write_buffer_size(options.write_buffer_bytes // (2 if family is Family.LOG else 8))
    own.set_max_write_buffer_number(3)
    # RocksDB slows writers down by making each one sleep. `no_slowdown` turns that into a failure that uses up the
    # writer's allowance, so that a retry could never succeed. So there is only go and stop.
    own.set_level_zero_slowdown_writes_trigger(36)
    own.set_level_zero_stop_writes_trigger(36)
    own.set_soft_pending_compaction_bytes_limit(0)
    return own
