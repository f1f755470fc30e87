"""Commit groups: what is staged together becomes durable together.

One group is open and collects what operations stage. `seal` closes it and hands its rows over to be written. Sealed
groups become durable in the order in which they were sealed. Answers, effects and events wait with their group, because
no one may see them before it is durable. Among them are those of operations that changed nothing but read a shard that
the group changes: a crash could take back what they saw (promise 1).

`CommitThread`, the one thread beside the loop, makes the groups durable, strictly in order. The loop hands a group over
and goes on. While the disk is busy with one sync, the next group grows on the loop (see `driver`), or waits here once
it is large. The next sync takes all groups that wait: the slower the disk, the larger the merge. There is no other
linger.

The hand-over is a `SimpleQueue`: first in, first out, and written in C. It costs a fifteenth of a deque with a
Condition, because it wakes the thread only if the thread waits. A thread that wakes needs the interpreter. A busy loop
keeps the interpreter for up to five milliseconds, and the disk is idle meanwhile. So a loop that has more to do gives
the interpreter away first (`let_begin`).

Source: design 5, spec log-and-runtime 5.4.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from msgspec import Struct

from coordinator_runtime.clock import Clock
from coordinator_runtime.decision import Effect, ShardKey, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.store import CommitGroup, Store
from coordinator_runtime.timeline import Journal

BATCH_BYTES_MAX: Final = 1024 * 1024
"""Size up to which groups are merged into one batch. The write holds the interpreter for about 2 ms per mebibyte."""

BEGIN_SECONDS_MAX: Final = 0.0005
"""Longest time that the loop waits for the thread to take a group: several times what it takes to wake a thread."""

MARK_INTERVAL_MS: Final = 100
"""Longest time that the durable mark may trail the store (ms). A loss of writes this recent goes unnoticed. A smaller
value costs more syncs."""

HeldReply = tuple[Pending[Any], Any, Exception | None]
"""A caller's reply, and the value or the error to settle it with."""

DecidedEffect = tuple[Effect, ShardKey, int, int]
"""An effect, the shard that wants it, the time of the decision (monotonic milliseconds), and a number. The number is
that of the decision if the effect speaks for a timer (`Timers.supersede`), else 0."""


class StagedGroup(Struct, eq=False):
    """A commit group from its first row until it is durable, and everything that waits for that."""

    version: int
    rows: StagedRows
    answers: list[HeldReply] = []
    effects: list[DecidedEffect] = []
    events: list[tuple[Sequence[object], Turn]] = []
    """Events of each operation, and the turn in which they were decided."""
    afterwards: list[Callable[[], None]] = []
    """Callbacks for when everything else that waited for the group is done."""
    shards: set[ShardKey] = set()
    """Shards whose state the group changes."""
    position: int = 0
    """Position in the journal after the group's last change. Set by `seal`, as are `row_count`, `size_bytes` and
    `sealed_us`."""
    row_count: int = 0
    size_bytes: int = 0
    sealed_us: int = 0
    elapsed_us: int = 0
    """Time from sealing until the group was durable (us), including the wait for earlier flushes."""


class CommitGroups:
    """The open group, and the sealed groups that are not durable yet."""

    def __init__(
        self, *, clock: Clock, journal: Journal, durable_version: int, hand_over: Callable[[CommitGroup], None]
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._hand_over = hand_over
        self.durable_version = durable_version
        """Version of the newest durable group."""
        self.open = StagedGroup(durable_version + 1, StagedRows())
        self.sealed: deque[StagedGroup] = deque()
        """Groups that were handed over and are not durable yet, oldest first."""
        self.undurable_bytes = 0
        """Bytes of keys and values that are staged or on their way to the disk."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is staged and nothing waits for the disk."""
        return not self.sealed and not self.open.shards

    def newest_that_changes(self, shards: set[ShardKey]) -> StagedGroup | None:
        """Return the newest group that changes one of these shards; None if all that they hold is durable."""
        for group in (self.open, *reversed(self.sealed)):
            if not group.shards.isdisjoint(shards):
                return group
        return None

    def seal(self) -> bool:
        """Close the open group and hand it over to be written. Return False if nothing was staged in it."""
        group = self.open
        if not group.shards:
            return False
        self.sealed.append(group)
        self.open = StagedGroup(group.version + 1, StagedRows())
        mutations = group.rows.mutations()
        group.position = self._journal.position()
        group.size_bytes, group.row_count = group.rows.size_bytes, len(mutations)
        group.sealed_us = self._clock.monotonic_us()
        self._hand_over(CommitGroup(group.version, mutations, group.rows.deleted_ranges, group.size_bytes))
        return True

    def become_durable(self, version: int) -> Iterator[StagedGroup]:
        """Yield the sealed groups up to a version that is on disk, oldest first. The state of each is readable when it
        is yielded."""
        while self.sealed and self.sealed[0].version <= version:
            group = self.sealed.popleft()
            self.durable_version = group.version
            self.undurable_bytes -= group.size_bytes
            self._journal.make_durable(group.position)
            group.elapsed_us = self._clock.monotonic_us() - group.sealed_us
            yield group


class CommitThread:
    """Thread that writes, syncs and reports groups. After the first error it never touches the store again.

    The callbacks run on this thread. `on_durable` gets the version of the newest durable group, at least once per sync
    and always growing. `on_failure` gets the error, at most once and last. `mark_durable` writes the durable mark after
    the report, so that replies do not wait for it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        on_durable: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        mark_durable: Callable[[int], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._mark_durable = mark_durable
        self.on_synced: Callable[[int], None] = lambda _elapsed_us: None
        """Called on this thread with the duration of each sync (us), for metrics. Set it before `start`."""
        self._handed_over: SimpleQueue[CommitGroup | None] = SimpleQueue()
        self._untaken = threading.Lock()
        """Locked by the hand-over of a group, and unlocked by the thread when it takes everything handed over.
        `let_begin` waits for that by locking it, and leaves it locked until the thread takes something again. Only the
        thread unlocks it, so it never unlocks a lock that is free."""
        self._synced_version = self._marked_version = store.version()
        self._marked_at_ms = clock.monotonic_ms()
        self._is_closed = False
        # A daemon thread, because a process that must end cannot wait for a disk that hangs.
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)  # noqa: TID251 - the only one

    def start(self) -> None:
        """Begin to take groups. Call once only."""
        self._thread.start()

    def submit(self, group: CommitGroup) -> None:
        """Hand a group over without waiting: a fraction of a microsecond, or a few if the thread must be woken.

        Versions must follow each other. After a failure groups are dropped, and their outcome is unknown."""
        assert not self._is_closed, "a group was handed over after close"
        self._untaken.acquire(blocking=False)
        self._handed_over.put(group)

    def let_begin(self) -> None:
        """Wait until the thread has the interpreter and has taken the last group, for `BEGIN_SECONDS_MAX` at most.

        For the thread that hands over, right after `submit`."""
        self._untaken.acquire(timeout=BEGIN_SECONDS_MAX)

    @property
    def waiting_groups(self) -> int:
        """Number of groups handed over and not yet being written."""
        return self._handed_over.qsize()

    def close(self) -> None:
        """Make durable what was handed over, report it, bring the mark up to date, end the thread. Idempotent.

        Returns at once after a failure. The store stays open."""
        if not self._is_closed:
            self._is_closed = True
            self._handed_over.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            is_closing = False
            wait_seconds: float | None = None
            while not is_closing:
                groups, is_closing = self._take(wait_seconds)
                if groups:
                    self._commit(groups)
                wait_seconds = self._until_mark_seconds()
                if groups:
                    # Reported just before this thread waits again, because the loop wakes now and needs the
                    # interpreter.
                    self._on_durable(groups[-1].version)
                if is_closing or wait_seconds == 0:
                    self._mark()
                    wait_seconds = None
        except BaseException as error:  # noqa: BLE001 - any error, even a panic of the store, must reach the process
            self._on_failure(error)

    def _take(self, wait_seconds: float | None) -> tuple[list[CommitGroup], bool]:
        """Return everything in the queue, and True if the thread is closing and no more will come.

        Waits for the first entry for `wait_seconds` at most."""
        try:
            taken = [self._handed_over.get(timeout=wait_seconds)]
        except Empty:
            return [], False
        # Later arrivals belong to the next sync, or a busy loop could delay this one for ever.
        taken.extend(self._handed_over.get() for _ in range(self._handed_over.qsize()))
        if self._untaken.locked():
            self._untaken.release()
        groups = [group for group in taken if group is not None]
        return groups, len(groups) < len(taken)

    def _commit(self, groups: Sequence[CommitGroup]) -> None:
        for batch in _batches(groups):
            self._store.write(batch)
        # Groups without rows (state in memory only) rest on earlier groups, which are on disk.
        if any(group.mutations or group.deleted_ranges for group in groups):
            began_us = self._clock.monotonic_us()
            self._store.sync()
            self.on_synced(self._clock.monotonic_us() - began_us)
            self._synced_version = groups[-1].version

    def _until_mark_seconds(self) -> float | None:
        """Return the time until the durable mark must be written; None while it is up to date."""
        if self._marked_version == self._synced_version:
            return None
        return max(0, self._marked_at_ms + MARK_INTERVAL_MS - self._clock.monotonic_ms()) / 1000

    def _mark(self) -> None:
        if self._marked_version != self._synced_version:
            self._mark_durable(self._synced_version)
            self._marked_version = self._synced_version
            self._marked_at_ms = self._clock.monotonic_ms()


def _batches(groups: Sequence[CommitGroup]) -> Iterator[list[CommitGroup]]:
    """Yield the groups in their order, merged up to BATCH_BYTES_MAX. A group is never split: a larger one goes
    alone."""
    batch: list[CommitGroup] = []
    batch_bytes = 0
    for group in groups:
        if batch and batch_bytes + group.size_bytes > BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(group)
        batch_bytes += group.size_bytes
    yield batch
