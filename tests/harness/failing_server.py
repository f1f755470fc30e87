"""A real server whose disk fails on demand: `python -m tests.harness.failing_server serve ...`.

The store is RocksDB, until a row is written whose key contains POISON: that write or the sync after it fails with the
error that FAILING_SERVER_ERROR names ("EIO", "ENOSPC", or FENCED), at the step that FAILING_SERVER_STEP names ("write",
"sync").
So a test says by the name of a transactional id what fails.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from coordinator_runtime.engine import OpenStore
from coordinator_runtime.store import CommitGroup, Store, StoreFailed, StoreFenced
from coordinator_server import engines
from coordinator_server.settings.config import Config
from tests.harness.special_server import StoreOver, serve

POISON: Final = "poison"
FENCED: Final = "FENCED"
"""Error of a store that another server has taken over."""
ERROR_VARIABLE: Final = "FAILING_SERVER_ERROR"
STEP_VARIABLE: Final = "FAILING_SERVER_STEP"


class FailingStore(StoreOver):
    """Fails at the poisoned row."""

    def __init__(self, store: Store, failure: StoreFailed, step: str) -> None:
        super().__init__(store)
        self._failure = failure
        self._step = step
        self._is_poisoned = False

    def write(self, groups: Sequence[CommitGroup]) -> None:
        keys = (key for group in groups for _family, key, _value in group.mutations)
        self._is_poisoned = self._is_poisoned or any(POISON.encode() in key for key in keys)
        self._fail_at("write")
        super().write(groups)

    def sync(self) -> None:
        self._fail_at("sync")
        super().sync()

    def _fail_at(self, step: str) -> None:
        if self._is_poisoned and step == self._step:
            raise self._failure


def open_failing_store(config: Config) -> OpenStore:
    """RocksDB behind a FailingStore."""
    opened = engines.open_rocks_store(config)
    failing = FailingStore(opened.store, _failure(os.environ[ERROR_VARIABLE]), os.environ[STEP_VARIABLE])
    return OpenStore(failing, opened.mark_durable)


def _failure(name: str) -> StoreFailed:
    if name == FENCED:
        return StoreFenced("another server has opened the store")
    return StoreFailed(os.strerror(getattr(errno, name)))


if __name__ == "__main__":
    serve(open_failing_store)
