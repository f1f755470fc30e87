"""A store that a test can close and open again, of either kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from coordinator_runtime.rocks import RocksStore, open_store
from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import open_slate_store
from coordinator_runtime.slate.store import SlateStore
from coordinator_runtime.store import Store
from tests.harness.memory_store import MemoryStore


class Shelf(Protocol):
    """Holds one store; `reopen` closes it and opens what it left."""

    @property
    def store(self) -> Store: ...

    def reopen(self) -> Store: ...


class MemoryShelf:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def reopen(self) -> Store:
        self.store.close()
        self.store = self.store.crash()
        return self.store


class RocksShelf:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.store: RocksStore = open_store(path, shard_count=64)

    def reopen(self) -> Store:
        self.store.close()
        self.store = open_store(self._path, shard_count=64)
        return self.store


class SlateShelf:
    def __init__(self, path: Path) -> None:
        self._location = parse_location(f"memory:{path}")
        self.store: SlateStore = open_slate_store(self._location, shard_count=64)

    def reopen(self) -> Store:
        self.store.close()
        self.store = open_slate_store(self._location, shard_count=64)
        return self.store


@pytest.fixture(params=["memory", "rocks", "slate"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    kinds = {"memory": lambda _path: MemoryShelf(), "rocks": RocksShelf, "slate": SlateShelf}
    made: Shelf = kinds[request.param](tmp_path / "store")
    yield made
    made.store.close()


@pytest.fixture
def store(shelf: Shelf) -> Store:
    return shelf.store
