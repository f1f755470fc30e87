"""A store that a second process only looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.store import CommitGroup, Family, Store


class Unwritten:
    """Reads from a store, and forgets what is written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def incarnation(self) -> Incarnation:
        return self._store.incarnation

    def write(self, groups: Sequence[CommitGroup]) -> None:
        return None

    def sync(self) -> None:
        return None

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
        return None
