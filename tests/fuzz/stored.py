"""Stored rows, some of them changed: their readers report it, and break nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coordinator_protocol.errors import Refused
from coordinator_runtime.rocks import open_read_only
from coordinator_runtime.store import CommitGroup, Family, Mutation, StoreRefused, StoreUnreadable
from partition_log.batches import LogDamaged
from tests.formats import making
from tests.fuzz.choices import Choices
from tests.harness.inside import WorldOptions
from tests.harness.memory_store import MemoryStore
from tests.harness.shelf import MemoryShelf
from tests.harness.world import World
from txnctl.stopped.store_verify import verify_store

CHANGES_MAX: Final = 3
"""Rows changed out of one input."""

_TOLD: Final = (StoreUnreadable, StoreRefused, LogDamaged, Refused)
"""Errors by which the product reports that a row cannot be read."""


class Rows:
    """The kept store of the present format."""

    def __init__(self) -> None:
        with TemporaryDirectory() as directory:
            making.unpack(Path(directory) / "kept")
            kept = open_read_only(Path(directory) / "kept")
            try:
                self._rows = [
                    (family, key, value)
                    for family in Family
                    if family is not Family.META
                    for key, value in kept.scan(family, b"", b"\xff" * 24)
                ]
            finally:
                kept.close()
        self._whole = MemoryStore()
        self._whole.write([CommitGroup(1, self._rows)])
        self._whole.sync()

    def verified(self, data: bytes) -> None:
        """`txnctl store verify` reports what is wrong, whatever is wrong."""
        verify_store(self._changed(Choices(data)))

    def started(self, data: bytes) -> None:
        """A server starts on them, or says why it does not."""
        shelf = MemoryShelf()
        shelf.store = self._changed(Choices(data))
        try:
            world = World(WorldOptions(shard_count=2), shelf)
            world.settle()
            world.tick(60_000)
            world.settle()
        except _TOLD:
            return

    def _changed(self, choices: Choices) -> MemoryStore:
        store = self._whole.copy()
        for _change in range(CHANGES_MAX):
            if choices.is_spent:
                break
            family, key, value = choices.one_of(self._rows)
            row: Mutation
            match choices.number(8):
                case 0:
                    row = family, key, None
                case 1:
                    row = family, choices.changed(key) or b"\0", value
                case _:
                    row = family, key, choices.changed(value)
            store.write([CommitGroup(store.version() + 1, [row])])
        return store

    def check(self) -> None:
        """The store from which the others are copied is as it was."""
        violations = [each for found in verify_store(self._whole) for each in found.violations]
        assert not violations, violations


def seeds() -> Iterator[bytes]:
    """The store as it is, and one with each row gone."""
    yield b""
    for place in range(128):
        yield bytes([place, 0])
