"""An engine as the server and its tools see it: an open store with what belongs to it, and a stopped one for reading.

`Store` is what the runtime needs of any engine. Here is the rest: sizes for the metrics, the way to make a backup, the
mark of what is durable. An engine leaves out what it does not have. A disk to watch is such a thing: an object store
has none. `coordinator_server.engines` names the engines.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from coordinator_runtime.backups.order import MakeBackup
from coordinator_runtime.own_rows import StoreIdentity
from coordinator_runtime.store import Store, StoreReads
from coordinator_runtime.store_statistics import StoreStatistics


@dataclass(frozen=True, slots=True)
class OpenStore:
    """An open store, with what the server needs beside the port."""

    store: Store
    mark_durable: Callable[[int], None]
    """Records a durable version. Called on the commit thread. Raises OSError."""
    statistics: Callable[[], StoreStatistics] = StoreStatistics
    """Sizes of the store, for the metrics; all zero for a store in memory."""
    free_bytes: Callable[[], int] | None = None
    """Free space on its disk; None for a store without one. Raises OSError."""
    make_backup: MakeBackup | None = None
    """None for a store that makes none."""
    backup_advice: str | None = None
    """Advice for a store that makes no backup."""
    store_id: str = ""
    view: Callable[[], AbstractContextManager[StoreReads]] | None = None
    """Opens a view of the store for reads that may wait, on any thread; None if reads answer at once."""


class StoppedStore(StoreReads, Protocol):
    """The store of a stopped server, for tools that only read."""

    @property
    def loss(self) -> str | None:
        """Description of durable data that is missing; None if none is."""
        ...

    @property
    def shard_count(self) -> int: ...

    @property
    def format_version(self) -> int: ...

    @property
    def identity(self) -> StoreIdentity: ...
