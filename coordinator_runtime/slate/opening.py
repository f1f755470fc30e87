"""Opening a store in object storage: look at it first, then become its one writer.

A look needs no writing, and fences no server. So a program that may not open the store leaves its server alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from coordinator_runtime import own_rows
from coordinator_runtime.clock import Clock, SystemClock
from coordinator_runtime.identity import new_uuid, uuid_text
from coordinator_runtime.incarnation import IncarnationCause, incarnation_of, next_incarnation, stored_incarnation
from coordinator_runtime.own_rows import (
    DEMAND_PREFIX,
    FORMAT_VERSION_KEY,
    INCARNATION_KEY,
    SHARD_COUNT_KEY,
    STORE_ID_KEY,
    UNFINISHED_KEY,
    WRITER_KEY,
    number_of,
    stored_number,
    unknown_demands,
)
from coordinator_runtime.running_version import running_version
from coordinator_runtime.slate import binding
from coordinator_runtime.slate.location import StoreLocation
from coordinator_runtime.slate.objects import Objects, ObjectsFailed
from coordinator_runtime.slate.ownership import OwnerRecord, OwnershipMark, read_record
from coordinator_runtime.slate.reads import SlateReads, failure_of, stored_key
from coordinator_runtime.slate.retired import RetiredRanges
from coordinator_runtime.slate.store import SlateStore, StoreOpening, retired_in
from coordinator_runtime.slate.store_check import ROUNDS_OF_A_START, RaceResult, check_object_store, refuse_unsafe
from coordinator_runtime.store import Family, StoreFailed, StoreRefused

COLLECTED_AGE: Final = "3600s"
"""Least age of objects that collectors remove. Ages come from the clocks of the servers that wrote them."""

_NO_DATABASE: Final = "failed to find latest transactional object"
_in_memory: Final[dict[str, Any]] = {}
"""Object stores of `memory` by name, because each one that is made has other objects."""


class SlateOptions(Struct, frozen=True):
    """Settings of the engine."""

    cache_dir: Path | None = None
    """Directory of the disk cache; None for none."""
    cache_bytes_max: int = 16 << 30


def object_store_of(location: StoreLocation) -> binding.Handle:
    """Return the object store of a location, with credentials from the environment. Raises StoreRefused."""
    try:
        if location.scheme == "memory":
            if location.bucket not in _in_memory:
                _in_memory[location.bucket] = binding.ObjectStore.resolve("memory:///")
            return _in_memory[location.bucket]
        if location.scheme == "file":
            Path(location.bucket).mkdir(parents=True, exist_ok=True)
            return binding.ObjectStore.resolve(Path(location.bucket).resolve().as_uri())
        return binding.ObjectStore.resolve(f"{location.scheme}://{location.bucket}")
    except (binding.SlateError, OSError) as error:
        raise StoreRefused(f"{location.address} cannot be used: {error}") from error


def open_slate_store(
    location: StoreLocation,
    *,
    shard_count: int,
    options: SlateOptions | None = None,
    accepts_data_loss: bool = False,
    copy_of: bytes | None = None,
    clock: Clock | None = None,
) -> SlateStore:
    """Open the store for writing, or make one there. From now on no other server can write.

    `accepts_data_loss`: go on with less than was durable; the store then begins another incarnation. `copy_of`: id of
    the original, for a copy that is being made.

    Raises StoreRefused: a newer format, another shard count, a bucket that was set back or is of another store. Also if
    the object store cannot be used, or is not safe."""
    known = frozenset() if copy_of is None else frozenset({UNFINISHED_KEY})
    clock = clock if clock is not None else SystemClock()
    objects, beside = object_store_of(location), _objects_of(location)
    began_ms = clock.monotonic_ms()
    # The record first: a server that still runs changes both, the store before the record.
    record = _record_of(location, beside)
    found = _looked_at(location, objects)
    if found is not None:
        check_stored(location, found, shard_count, known)
    elif record is None and not location.is_for_tests:
        refuse_unsafe(location.address, checked_object_store(location, ROUNDS_OF_A_START))
    loss = _loss(location, found, record)
    if loss is not None and not accepts_data_loss:
        raise StoreRefused(
            f"{loss}. Nothing was changed. Put the newer objects back, or start with --accept-data-loss to go on with"
            " what is there; the rest is lost permanently then"
        )
    database = None
    try:
        builder = binding.DbBuilder(location.prefix, objects)
        builder.with_settings(_settings(options or SlateOptions()))
        recorder = binding.MetricsRecorder()
        builder.with_metrics_recorder(recorder)
        looked_ms = clock.monotonic_ms()
        database = binding.result_of(builder.build())
        opening = StoreOpening(found is None, looked_ms - began_ms, clock.monotonic_ms() - looked_ms)
        # Looked at again, because another program may have made or changed it since.
        rows = SlateReads(database, RetiredRanges())
        if rows.get(Family.META, FORMAT_VERSION_KEY) is not None:
            check_stored(location, rows, shard_count, known)
        begins = None if loss is None else IncarnationCause.DATA_LOSS
        _write_down(database, rows, _NewRows(shard_count, copy_of, begins, clock.wall_ms()))
        rows = SlateReads(database, RetiredRanges())
        changes = 0 if record is None else record[0].changes
        began = OwnerRecord(uuid_text(rows.identity.store_id), rows.version(), changes)
        mark = OwnershipMark(beside, clock, began, None if record is None else record[1])
        mark.begin()
        return SlateStore(database, retired_in(database), mark, clock, recorder, opening)
    except ObjectsFailed as error:
        raise _unusable(location, error) from error
    except (binding.SlateError, binding.TooSlow, StoreFailed) as error:
        raise StoreRefused(f"the store {location.address} cannot be opened: {failure_of(error)}") from error
    except StoreRefused:
        if database is not None:
            binding.result_of(database.shutdown())
        raise


def _objects_of(location: StoreLocation) -> Objects:
    try:
        return Objects(location)
    except ObjectsFailed as error:
        raise _unusable(location, error) from error


def _unusable(location: StoreLocation, error: Exception) -> StoreRefused:
    words = " ".join(str(error).split())
    return StoreRefused(f"{location.address} cannot be used: {words[:300]}; check the bucket and the credentials")


def _record_of(location: StoreLocation, beside: Objects) -> tuple[OwnerRecord, str] | None:
    try:
        return read_record(beside)
    except ObjectsFailed as error:
        raise _unusable(location, error) from error


def checked_object_store(
    location: StoreLocation, rounds: int, on_round: Callable[[int], None] = lambda _one: None
) -> list[RaceResult]:
    """Race writers for objects below a location. `on_round` is called with 1 after each round. Raises StoreRefused if
    it cannot be used."""
    try:
        return check_object_store(_objects_of(location), f"check/{uuid_text(new_uuid())}", rounds, on_round)
    except ObjectsFailed as error:
        raise _unusable(location, error) from error


def _loss(location: StoreLocation, found: SlateReads | None, record: tuple[OwnerRecord, str] | None) -> str | None:
    """Describe what is missing beside the record of the owner; None if nothing is. Raises StoreRefused if the record is
    of another store."""
    if record is None:
        return None
    marked, _tag = record
    if found is None:
        return f"{location.address} holds no store, but the record of its owner says version {marked.version}"
    if uuid_text(found.identity.store_id) != marked.store_id:
        raise StoreRefused(
            f"{location.address} holds the store {uuid_text(found.identity.store_id)}, and the record of its owner is"
            f" of the store {marked.store_id}: parts of two stores lie in one place"
        )
    if found.version() >= marked.version:
        return None
    return (
        f"the store {location.address} is at version {found.version()}, but version {marked.version} had been durable:"
        " the bucket was set back, or holds a copy"
    )


def open_slate_stopped(location: StoreLocation) -> StoppedSlateStore:
    """Open the store for reading, without fencing its server. Raises StoreRefused."""
    reader = _reader(location, object_store_of(location))
    if reader is None:
        raise StoreRefused(f"there is no store at {location.address}")
    try:
        return StoppedSlateStore(reader)
    except (binding.SlateError, binding.TooSlow, StoreFailed) as error:
        raise StoreRefused(f"the store {location.address} cannot be read: {failure_of(error)}") from error


class StoppedSlateStore(SlateReads):
    """A store for tools that only read, as of its opening. Implements `StoppedStore`."""

    loss: Final = None

    def __init__(self, reader: binding.Handle) -> None:
        super().__init__(reader, retired_in(reader))
        self._reader = reader

    @property
    def shard_count(self) -> int:
        """The number of shards that the store was made with."""
        return number_of(self.get(Family.META, SHARD_COUNT_KEY))

    @property
    def format_version(self) -> int:
        """The version of the stored format."""
        return number_of(self.get(Family.META, FORMAT_VERSION_KEY))

    def close(self) -> None:
        """Close the reader."""
        with suppress(binding.SlateError):
            binding.result_of(self._reader.shutdown())


def check_stored(
    location: StoreLocation, rows: SlateReads, shard_count: int, known_demands: frozenset[bytes] = frozenset()
) -> None:
    """Check that this program may open what is stored. Raises StoreRefused."""
    format_version = number_of(rows.get(Family.META, FORMAT_VERSION_KEY))
    if format_version != own_rows.FORMAT_VERSION:
        is_older = format_version < own_rows.FORMAT_VERSION
        advice = (
            "no release ever wrote it: use another place"
            if is_older
            else "use the version that wrote it, or a later one"
        )
        raise StoreRefused(
            f"the store {location.address} has format {format_version}, and this program knows"
            f" {own_rows.FORMAT_VERSION}: {advice}"
        )
    names = (key for key, _value in rows.scan(Family.META, DEMAND_PREFIX, DEMAND_PREFIX + b"\xff"))
    demands = unknown_demands(rows.identity.features, (name for name in names if name not in known_demands))
    if demands:
        raise StoreRefused(
            f"the store {location.address} has {', '.join(demands)}, which this program (version {running_version()})"
            f" does not know: start the version that wrote it ({rows.identity.writer or 'not noted'}), or a later one"
        )
    stored = number_of(rows.get(Family.META, SHARD_COUNT_KEY))
    if stored != shard_count:
        raise StoreRefused(
            f"the store {location.address} was made with {stored} shards and cannot be opened with {shard_count},"
            f" because the number decides where every key lies: start with {stored}"
        )


def _looked_at(location: StoreLocation, objects: binding.Handle) -> SlateReads | None:
    """Return the rows of the store as a reader sees them; None if no store was finished there. Raises StoreRefused."""
    reader = _reader(location, objects)
    if reader is None:
        return None
    try:
        rows = SlateReads(reader, RetiredRanges())
        return None if rows.get(Family.META, FORMAT_VERSION_KEY) is None else rows
    except StoreFailed as failure:
        raise StoreRefused(f"the store {location.address} cannot be read: {failure}") from failure


def _reader(location: StoreLocation, objects: binding.Handle) -> binding.Handle:
    """Return a reader of the database; None if there is none. Raises StoreRefused."""
    builder = binding.DbReaderBuilder(location.prefix, objects)
    builder.with_reader_mode(binding.FOLLOW_LATEST)
    try:
        return binding.result_of(builder.build())
    except (binding.SlateError, binding.TooSlow) as error:
        if _NO_DATABASE in str(error):
            return None
        raise StoreRefused(f"the store {location.address} cannot be read: {error}") from error


def _settings(options: SlateOptions) -> binding.Handle:
    """Return SlateDB's settings. Source: decision 59."""
    values = json.loads(binding.Settings.default().to_json_string())
    # Flushes are ours: one for each sync of the commit thread.
    values["flush_interval"] = None
    # Level 0 has one table for each checkpoint. At the default of 8 writes stall.
    values["l0_max_ssts"] = values["l0_max_ssts_per_key"] = 64
    # One table is uploaded at a time. Of several, an older one may be published later. The collector takes what is
    # older than the newest published one for garbage, once it has its least age (SlateDB's RFC 29).
    values["l0_flush_parallelism"] = 1
    # At the default of 5 s, a server that lives for some seconds plans a merge of tables and ends before it is carried
    # out. Tables pile up in level 0 then, and each opening takes longer.
    values["compactor_options"]["worker"]["compactions_poll_interval"] = "1s"
    # Twice the default, so that an idle server sends as many requests as before. Writes notice another writer at once.
    values["manifest_poll_interval"] = "2s"
    for name in ("manifest", "wal", "wal_fence", "compacted", "compactions"):
        values["garbage_collector_options"][f"{name}_options"]["min_age"] = COLLECTED_AGE
    # A fence that is removed would let a former writer write again.
    values["garbage_collector_options"]["wal_fence_options"]["dry_run"] = True
    if options.cache_dir is not None:
        cache = values["object_store_cache_options"]
        cache["root_folder"], cache["max_cache_size_bytes"] = str(options.cache_dir), options.cache_bytes_max
    return binding.Settings.from_json_string(json.dumps(values))


class _NewRows(Struct, frozen=True):
    """Values of the rows about the store that may have to be written."""

    shard_count: int
    store_id: bytes | None
    begins: IncarnationCause | None
    wall_ms: int


def _write_down(database: binding.Handle, rows: SlateReads, wanted: _NewRows) -> None:
    """Write the rows about the store itself that are new, and wait until they are stored."""
    stored = rows.identity.writer
    writer = own_rows.newer_writer(stored, running_version())
    new: list[tuple[bytes, bytes]] = []
    if writer != stored:
        new.append((WRITER_KEY, writer.encode()))
    if wanted.begins is not None:
        before = incarnation_of(rows.get(Family.META, INCARNATION_KEY))
        new.append((INCARNATION_KEY, stored_incarnation(next_incarnation(before, wanted.begins, wanted.wall_ms))))
    if rows.get(Family.META, FORMAT_VERSION_KEY) is None:
        new.append((SHARD_COUNT_KEY, stored_number(wanted.shard_count)))
        new.append((STORE_ID_KEY, wanted.store_id or new_uuid()))
        new.append((FORMAT_VERSION_KEY, stored_number(own_rows.FORMAT_VERSION)))
    if new:
        put_meta(database, new)


def is_store_at(location: StoreLocation) -> bool:
    """Return True if anything of a store is there. Raises StoreRefused."""
    reader = _reader(location, object_store_of(location))
    if reader is not None:
        binding.result_of(reader.shutdown())
    return reader is not None or _record_of(location, _objects_of(location)) is not None


def put_meta(database: binding.Handle, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Write rows of META together, and wait until they are stored. Raises the errors of the binding."""
    batch = binding.WriteBatch()
    for key, value in rows:
        batch.put(stored_key(Family.META, key), value)
    binding.result_of(database.write_with_options(batch, binding.WRITE))
    binding.result_of(database.flush_with_options(binding.WAL))
