"""Commit groups: what is staged together becomes durable together.

One group is open and collects what operations stage. `seal` closes it and hands its rows over to be written; the sealed
groups become durable in the order in which they were sealed. With each group wait the answers, effects and events that
nobody may know before it is durable. They include those of operations that changed nothing but looked at a shard that
the group changes: a crash could take back what they saw (promise 1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from coordinator_runtime.clock import Clock
from coordinator_runtime.decision import Effect, ShardKey, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.store import CommitGroup
from coordinator_runtime.timeline import Journal

Answer = tuple[Pending[Any], Any, Exception | None]
"""A caller's reply, and the value or the error that it gets."""

DecidedEffect = tuple[Effect, ShardKey, int, int]
"""An effect, the shard that wants it, when it was decided (monotonic milliseconds), and the number of the decision if
it speaks for a timer (`Timers.supersede`), else 0."""


class StagedGroup(Struct, eq=False):
    """A commit group from its first row until it is durable, and what waits for that."""

    version: int
    rows: StagedRows
    answers: list[Answer] = []
    effects: list[DecidedEffect] = []
    events: list[tuple[Sequence[object], Turn]] = []
    """What happened in each operation, and for whom."""
    afterwards: list[Callable[[], None]] = []
    """Called last, when everything else that waited for the group is done."""
    shards: set[ShardKey] = set()
    """The shards whose state the group changes."""
    position: int = 0
    """Position in the journal behind the group's last change. Set by `seal`, as the three fields below."""
    row_count: int = 0
    size_bytes: int = 0
    sealed_us: int = 0
    elapsed_us: int = 0
    """Time from sealing until the group was durable, with the wait for the flushes before it."""


class CommitGroups:
    """The open group, and the sealed ones that are not durable yet."""

    def __init__(
        self, *, clock: Clock, journal: Journal, durable_version: int, hand_over: Callable[[CommitGroup], None]
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._hand_over = hand_over
        self.durable_version = durable_version
        """Version of the newest group that is durable."""
        self.open = StagedGroup(durable_version + 1, StagedRows())
        self.sealed: deque[StagedGroup] = deque()
        """Handed over and not durable yet, oldest first."""
        self.undurable_bytes = 0
        """Keys and values that are staged or on their way to the disk."""

    @property
    def is_idle(self) -> bool:
        """True when nothing is staged and nothing waits for the disk."""
        return not self.sealed and not self.open.shards

    def newest_that_changes(self, shards: set[ShardKey]) -> StagedGroup | None:
        """The newest group that changes one of these shards; None if all that they hold is durable."""
        for group in (self.open, *reversed(self.sealed)):
            if not group.shards.isdisjoint(shards):
                return group
        return None

    def seal(self) -> None:
        """Close the open group, if anything was staged, and hand it over to be written."""
        group = self.open
        if not group.shards:
            return
        self.sealed.append(group)
        self.open = StagedGroup(group.version + 1, StagedRows())
        mutations = group.rows.mutations()
        group.position = self._journal.position()
        group.size_bytes, group.row_count = group.rows.size_bytes, len(mutations)
        group.sealed_us = self._clock.monotonic_us()
        self._hand_over(CommitGroup(group.version, mutations, group.rows.deleted_ranges, group.size_bytes))

    def become_durable(self, version: int) -> Iterator[StagedGroup]:
        """Yield the sealed groups up to a version that is on disk, oldest first, the state of each readable by then."""
        while self.sealed and self.sealed[0].version <= version:
            group = self.sealed.popleft()
            self.durable_version = group.version
            self.undurable_bytes -= group.size_bytes
            self._journal.make_durable(group.position)
            group.elapsed_us = self._clock.monotonic_us() - group.sealed_us
            yield group
