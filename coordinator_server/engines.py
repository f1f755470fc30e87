"""The engines that keep a server's state, each as one value. The configuration names the one of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from coordinator_runtime.backups.of_rocks import make_rocks_backup
from coordinator_runtime.clock import Clock, SystemClock
from coordinator_runtime.engine import OpenStore, StoppedStore
from coordinator_runtime.identity import uuid_text
from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.migration import Watch, migrate_to_bucket, migrate_to_directory, unwatched
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.rocks.store_directory import StoreDirectory, refused_in_words
from coordinator_runtime.slate.location import TEST_SCHEMES, StoreLocation, parse_location
from coordinator_runtime.store import StoreRefused
from coordinator_server.exits import CommandFailed, ExitStatus
from coordinator_server.host.handles import HandlePlan, TooFewHandles, plan_handles, raise_handle_limit
from coordinator_server.settings.config import Config
from coordinator_server.settings.data_directory import refuse_foreign_files

if TYPE_CHECKING:
    from coordinator_runtime.slate.lease import Node
    from coordinator_runtime.slate.lease_keeper import LeaseKeeper
    from coordinator_runtime.slate.store_check import RaceResult

TEST_STORES_VARIABLE: Final = "COORDINATOR_TEST_STORES"
"""Environment variable that allows the stores `memory:` and `file:`."""

_log = structlog.get_logger("server")


class StoreOpener(Protocol):
    """Opens the store that the configuration names. Raises StoreRefused, CommandFailed."""

    def __call__(self, config: Config) -> OpenStore: ...


@dataclass(frozen=True, slots=True)
class StoreEngine:
    """One engine: the ways to open its stores."""

    name: str
    open_store: StoreOpener
    """Opens the store of a server for writing."""
    open_stopped: Callable[[str], StoppedStore]
    """Opens the store of a stopped server for tools that only read, by its directory or address. Raises
    StoreRefused."""


def engine_of(config: Config) -> StoreEngine:
    """Return the engine that the configuration names."""
    return ROCKS if config.store is None else SLATE


def open_rocks_store(config: Config) -> OpenStore:
    """Open the embedded store in the data directory. Raises StoreRefused, CommandFailed."""
    refuse_foreign_files(config)
    store = open_store(
        config.data_dir,
        shard_count=config.shard_count,
        accept_data_loss=config.accept_data_loss,
        options=replace(config.store_options(), open_files_max=handle_plan(config).store_files_max),
    )
    if store.damaged_files.names:
        _log.warning(
            "damaged_files",
            files=store.damaged_files.names,
            advice="what can be read is served, and is not compacted: restore a backup, or copy what is left to a new "
            "directory",
        )
    return OpenStore(
        store,
        store.mark_durable,
        store.statistics,
        free_bytes=store.free_bytes,
        make_backup=partial(make_rocks_backup, store),
        store_id=uuid_text(store.identity.store_id),
    )


def open_bucket_store(config: Config) -> OpenStore:
    """Open the store in object storage. Raises StoreRefused."""
    slate = _slate()
    location = _checked_location(config.store or "")
    if config.backup_settings() is not None:
        raise StoreRefused(f"backup_directory is set, and there will be no backups: {_no_backups(location.address)}")
    if StoreDirectory(config.data_dir).durable_mark_path.exists():
        raise StoreRefused(
            f"{config.data_dir} holds a store, which a server with a store in {location.address} would leave unused:"
            " name another directory for the cache, or move the store with `txnctl migrate`"
        )
    cache = config.data_dir / "cache" if config.store_cache_bytes_max else None
    if cache is not None:
        with refused_in_words(cache):
            cache.mkdir(parents=True, exist_ok=True)
    store = slate.open_slate_store(
        location,
        shard_count=config.shard_count,
        options=slate.SlateOptions(cache, config.store_cache_bytes_max),
        accepts_data_loss=config.accept_data_loss,
    )
    _log.info("bucket_opened", look_ms=store.opening.look_ms, engine_ms=store.opening.engine_ms)
    return OpenStore(
        store,
        store.mark_durable,
        store.statistics,
        store_id=uuid_text(store.identity.store_id),
        backup_advice=f"this server makes no backups: {_no_backups(location.address)}",
        view=store.view,
    )


def _no_backups(address: str) -> str:
    return (
        f"the store is in object storage. Use the versions of the bucket, or stop the server, export with `txnctl"
        f" migrate {address} DIR`, and back up DIR (docs/scale-out.md)"
    )


def _open_bucket_stopped(address: str) -> StoppedStore:
    store: StoppedStore = _slate().open_slate_stopped(_checked_location(address))
    return store


def object_store_check(address: str, rounds: int, on_round: Callable[[int], None]) -> Sequence[RaceResult]:
    """Check the object store of a location. `on_round` is called with 1 after each round. Raises StoreRefused."""
    location = _checked_location(address)
    results: Sequence[RaceResult] = _slate().checked_object_store(location, rounds, on_round)
    return results


def migrate_store(
    source: str, target: str, pause: Callable[[int], None], watch: Watch = unwatched
) -> tuple[int, Incarnation]:
    """Copy a store from a directory to a location in object storage, or back. Returns the number of rows, and the
    incarnation that the copy begins. `pause` waits so many milliseconds, and `watch` shows the progress. Raises
    StoreRefused, StoreFailed, StoreUnreadable."""
    _slate()
    clock = SystemClock()
    places = [_checked_location(place) if _is_address(place) else Path(place) for place in (source, target)]
    match places:
        case [Path() as directory, StoreLocation() as location]:
            return migrate_to_bucket(directory, location, clock=clock, pause=pause, watch=watch)
        case [StoreLocation() as location, Path() as directory]:
            return migrate_to_directory(location, directory, clock=clock, pause=pause, watch=watch)
    raise StoreRefused("one of the two must be a directory, and the other an address such as s3://BUCKET/PREFIX")


def lease_keeper(
    config: Config, me: Node, clock: Clock, on_change: Callable[[], None], end_process: Callable[[], None]
) -> LeaseKeeper:
    """Return the keeper of the lease of the configured store. Raises StoreRefused."""
    _slate()
    location = _checked_location(config.store or "")
    if location.scheme == "file":
        raise StoreRefused(f"{location.address} can keep no lease, because files have no conditional writes")
    module = import_module("coordinator_runtime.slate.lease_keeper")
    keeper: LeaseKeeper = module.keeper_of(
        location, me, config.lease_ttl_ms, clock, on_change=on_change, end_process=end_process
    )
    return keeper


def _is_address(place: str) -> bool:
    return "://" in place or place.startswith(tuple(f"{scheme}:" for scheme in TEST_SCHEMES))


def _slate() -> ModuleType:
    """Return the module that opens stores in object storage. Raises StoreRefused if its libraries are missing."""
    try:
        # Late: the libraries are of an extra.
        return import_module("coordinator_runtime.slate.opening")
    except ImportError as missing:
        raise StoreRefused(
            f"stores in object storage need other libraries ({missing}): install txn-coordinator[objectstore]"
        ) from missing


def _checked_location(address: str) -> StoreLocation:
    """Return the place of a store. Raises StoreRefused, also for one that only tests may use."""
    location = parse_location(address)
    if location.is_for_tests and TEST_STORES_VARIABLE not in os.environ:
        raise StoreRefused(
            f"{address} is for tests: it can lose what was acknowledged. Name a bucket, or set {TEST_STORES_VARIABLE}=1"
        )
    return location


def handle_plan(config: Config) -> HandlePlan:
    """Return the distribution of the open files of this process. Raises its limit as far as the system allows. Raises
    CommandFailed."""
    try:
        return plan_handles(raise_handle_limit(), config.connections_max)
    except TooFewHandles as refusal:
        raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal


ROCKS: Final = StoreEngine("rocksdb", open_rocks_store, open_read_only)
"""RocksDB in a directory of this machine."""

SLATE: Final = StoreEngine("slatedb", open_bucket_store, _open_bucket_stopped)
"""SlateDB in a bucket."""
