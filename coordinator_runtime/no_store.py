"""A store without rows, for a server that waits for its store: its parts are made as usual, and load nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_runtime.incarnation import FIRST, Incarnation
from coordinator_runtime.store import CommitGroup, Family, StoreFailed


class NoStore:
    """Implements `Store`. Every read finds nothing, and every write fails."""

    incarnation: Incarnation = FIRST

    def version(self) -> int:
        return 0

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return None: there are no rows."""

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    scan_headers = scan_backwards = scan_unverified = scan

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return None: there are no rows."""

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        """Return None: there are no rows."""

    def close(self) -> None:
        """There is nothing to release."""

    def write(self, groups: Sequence[CommitGroup]) -> None:
        raise StoreFailed("this server waits for its store")

    def sync(self) -> None:
        raise StoreFailed("this server waits for its store")
