"""The engines that keep a server's state, each as one value. The configuration names the one of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog

from coordinator_runtime.backups.of_rocks import make_rocks_backup
from coordinator_runtime.engine import OpenStore, StoppedStore
from coordinator_runtime.identity import uuid_text
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_server.exits import CommandFailed, ExitStatus
from coordinator_server.host.handles import HandlePlan, TooFewHandles, plan_handles, raise_handle_limit
from coordinator_server.settings.config import Config
from coordinator_server.settings.data_directory import refuse_foreign_files

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
    open_stopped: Callable[[Path], StoppedStore]
    """Opens the store of a stopped server for tools that only read. Raises StoreRefused."""


def engine_of(config: Config) -> StoreEngine:
    """Return the engine that the configuration names."""
    return ROCKS


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


def handle_plan(config: Config) -> HandlePlan:
    """Return the distribution of the open files of this process. Raises its limit as far as the system allows. Raises
    CommandFailed."""
    try:
        return plan_handles(raise_handle_limit(), config.connections_max)
    except TooFewHandles as refusal:
        raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal


ROCKS: Final = StoreEngine("rocksdb", open_rocks_store, open_read_only)
"""RocksDB in a directory of this machine."""
