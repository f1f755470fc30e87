"""A real server whose disk fails on demand: `python -m tests.harness.failing_server serve ...`.

The store is RocksDB, until a row is written whose key contains POISON: that write or the sync after it fails with the
error that FAILING_SERVER_ERROR names ("EIO", "ENOSPC"), at the step that FAILING_SERVER_STEP names ("write", "sync").
So a test says by the name of a transactional id what fails.
"""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from coordinator_runtime.store import CommitGroup, Family, Store, StoreFailed
from coordinator_server import process
from coordinator_server.build import OpenStore
from coordinator_server.config import Address, Config, load_config

POISON: Final = "poison"
ERROR_VARIABLE: Final = "FAILING_SERVER_ERROR"
STEP_VARIABLE: Final = "FAILING_SERVER_STEP"


class FailingStore:
    """The Store port over another store, failing at the poisoned row."""

    def __init__(self, store: Store, error: OSError, step: str) -> None:
        self._store = store
        self._error = error
        self._step = step
        self._is_poisoned = False

    def write(self, groups: Sequence[CommitGroup]) -> None:
        keys = (key for group in groups for _family, key, _value in group.mutations)
        self._is_poisoned = self._is_poisoned or any(POISON.encode() in key for key in keys)
        self._fail_at("write")
        self._store.write(groups)

    def sync(self) -> None:
        self._fail_at("sync")
        self._store.sync()

    def version(self) -> int:
        return self._store.version()

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._store.get(family, key)

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(family, start, end)

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan_backwards(family, start, end)

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        return self._store.last(family, prefix)

    def atomic_domain(self, shard: int) -> Hashable:
        return self._store.atomic_domain(shard)

    def close(self) -> None:
        self._store.close()

    def _fail_at(self, step: str) -> None:
        if self._is_poisoned and step == self._step:
            raise StoreFailed(str(self._error)) from self._error


def open_failing_store(config: Config) -> OpenStore:
    """RocksDB behind a FailingStore."""
    opened = process.open_rocks_store(config)
    number = getattr(errno, os.environ[ERROR_VARIABLE])
    error = OSError(number, os.strerror(number))
    return OpenStore(FailingStore(opened.store, error, os.environ[STEP_VARIABLE]), opened.mark_durable)


def main() -> None:
    """Serve as `txnctl serve` does, on the failing store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--listen", required=True)
    flags = vars(parser.parse_args())
    del flags["command"]

    def announce(address: Address) -> None:
        print(f"failing server: gRPC on {address}, data in {flags['data_dir']}", flush=True)

    process.end_process(process.run(load_config(None, flags).config, announce, open_failing_store))


if __name__ == "__main__":
    main()
