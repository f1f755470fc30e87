"""Real servers with a store of the test's own: what `python -m` modules like `failing_server` are made of."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.store import CommitGroup, Family, Store
from coordinator_server import engines, process
from coordinator_server.addresses import Address
from coordinator_server.listeners import OpenListener
from coordinator_server.security import reloading_credentials
from coordinator_server.settings.config import Config
from coordinator_server.settings.config_sources import load_config

LOOK_VARIABLE: Final = "SPECIAL_SERVER_LOOK_SECONDS"
"""Seconds between two looks at the files of certificates and tokens."""


class StoreOver:
    """The Store port over another store, to override what a test wants to be different."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def incarnation(self) -> Incarnation:
        return self._store.incarnation

    def write(self, groups: Sequence[CommitGroup]) -> None:
        self._store.write(groups)

    def sync(self) -> None:
        self._store.sync()

    def version(self) -> int:
        return self._store.version()

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._store.get(family, key)

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(family, start, end)

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan_headers(family, start, end)

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan_unverified(family, start, end)

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan_backwards(family, start, end)

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        return self._store.last(family, prefix)

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        return self._store.last_key(family, prefix)

    def close(self) -> None:
        self._store.close()


def serve(opener: engines.StoreOpener, config_type: type[Config] = Config) -> NoReturn:
    """Serve as `txnctl serve` does, on the store that the opener opens. All but the directory and the address comes
    from TXN_* in the environment."""
    if LOOK_VARIABLE in os.environ:
        setattr(reloading_credentials, "LOOK_SECONDS", float(os.environ[LOOK_VARIABLE]))  # noqa: B010
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--listen", required=True)
    flags = vars(parser.parse_args())
    del flags["command"]

    def announce(listeners: Sequence[OpenListener], kafka: Sequence[Address]) -> None:
        print(f"test server: gRPC on {listeners[0].address}, data in {flags['data_dir']}", flush=True)

    config = config_type.model_construct(**dict(load_config(None, flags).config))
    process.end_process(process.run(config, announce, opener))
