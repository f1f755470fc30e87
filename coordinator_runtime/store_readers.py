"""Reads that may wait: jobs on the stored rows, on threads beside the loop.

An engine on a local disk answers from the loop's thread. A read that misses the cache of an engine on an object store
takes tens of milliseconds. The loop would serve no other caller meanwhile. So such an engine opens views for
readers (`OpenStore.view`), and jobs go to a thread. Their results come back to the loop. Every read of stored rows on
behalf of a caller or of a round is such a job. With an engine on a disk it runs at once (`ReadsAtOnce`).

A job reads through one view, which shows the store as of the beginning of the job. It must not touch the state of any
shard. What it reads may be removed meanwhile by the loop's decisions, so the caller checks that when it has the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.store import StoreReads

T = TypeVar("T")

READER_THREADS: Final = 8
"""Number of jobs that read at the same time. Each mostly waits for the object store."""


class StoreReader(Protocol):
    """Runs jobs on the stored rows."""

    @property
    def is_apart(self) -> bool:
        """True if jobs run beside the loop, False if they are done when `read` returns."""

    def read(self, job: Callable[[StoreReads], T]) -> Pending[T]:
        """Run a job. The reply has its result or its error, and is settled on the loop's thread."""


class ReadsAtOnce:
    """Runs each job on the loop's thread, before `read` returns: for an engine whose reads do not wait."""

    is_apart: Final = False

    def __init__(self, store: StoreReads) -> None:
        self._store = store

    def read(self, job: Callable[[StoreReads], T]) -> Pending[T]:
        """Run a job as `StoreReader.read`."""
        try:
            return settled(job(self._store))
        except Exception as error:  # noqa: BLE001  it is the reply
            return failed(error)


class ReaderThreads:
    """The threads of a server that read. They are daemons, because a process must end though a store hangs."""

    is_apart: Final = True

    def __init__(
        self,
        view: Callable[[], AbstractContextManager[StoreReads]],
        tell: Callable[[Callable[[], None]], object],
        *,
        count: int = READER_THREADS,
    ) -> None:
        """`view` opens a view of the store; any thread may call it. `tell` calls its argument on the loop's thread."""
        self._view = view
        self._tell = tell
        self._count = count
        self._jobs: SimpleQueue[tuple[Callable[[StoreReads], Any], Pending[Any]]] = SimpleQueue()
        self._started = 0

    def read(self, job: Callable[[StoreReads], T]) -> Pending[T]:
        """Run a job as `StoreReader.read`."""
        reply: Pending[T] = Pending()
        self._jobs.put((job, reply))
        if self._started < self._count:
            self._started += 1
            threading.Thread(target=self._run, name="reader", daemon=True).start()  # noqa: TID251  it reads rows only
        return reply

    def _run(self) -> None:
        while True:
            job, reply = self._jobs.get()
            if reply.is_cancelled:
                self._tell(reply.give_up)
                continue
            try:
                with self._view() as rows:
                    result = job(rows)
            except Exception as error:  # noqa: BLE001  it is the reply
                self._tell(partial(reply.fail, error))
            else:
                self._tell(partial(reply.succeed, result))
            # Otherwise the last job would keep its answer until the next one comes.
            del job, reply
