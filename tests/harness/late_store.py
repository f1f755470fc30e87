"""A store whose reads answer late, by virtual time, as one in a bucket does on a miss of its cache.

The core gets `UnreadableStore`, which fails every read that would hold up the loop, and `LateReader` for its jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, NoReturn, TypeVar

from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import CommitGroup, Family, Store, StoreReads

T = TypeVar("T")

TIMER: Final = "client"
"""Kind of the timers, one that worlds know as a test's own."""
_numbers = count()


class LateReader:
    """Runs each job `delay_ms` after it was asked for."""

    is_apart: Final = True

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime = runtime
        self._store = store
        self.delay_ms = 0
        self.jobs = 0
        """Number of jobs since the start."""

    def read(self, job: Callable[[StoreReads], T]) -> Pending[T]:
        reply: Pending[T] = Pending()
        self.jobs += 1

        def run() -> None:
            try:
                result = job(self._store)
            except Exception as error:  # noqa: BLE001
                reply.fail(error)
            else:
                reply.succeed(result)

        self._runtime.arm((TIMER, "read", next(_numbers)), self.delay_ms, run)
        return reply


class UnreadableStore:
    """A store for the loop alone: what it was opened with can be read, and nothing else."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def incarnation(self) -> Incarnation:
        return self._store.incarnation

    def version(self) -> int:
        return self._store.version()

    def write(self, groups: Sequence[CommitGroup]) -> None:
        self._store.write(groups)

    def sync(self) -> None:
        self._store.sync()

    def close(self) -> None:
        self._store.close()

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._store.get(family, key) if family is Family.META else _held_up()

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _held_up()

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _held_up()

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _held_up()

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _held_up()

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        return _held_up()

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        return _held_up()


def _held_up() -> NoReturn:
    raise AssertionError("the loop would wait for the object store")
