"""Removal of records, by request or by retention, while others hold what they still read.

What is about to be removed is copied before, so that the auditor knows the whole log: what the store says lies below a
log start, at the moment when the server says that it removes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.pending import Pending
from partition_log.leases import LEASE_MS_MAX
from partition_log.leases import Lease as HeldRecords
from partition_log.records import RowsRemoved
from partition_log.requests import DeleteRecords, DeleteRecordsResult, RecordsToDelete
from partition_log.shard import LogShard
from tests.harness.calls import partition_name
from tests.harness.entries import LogEntry, stored_entries
from tests.harness.group_calls import ANYBODY
from tests.harness.world import World
from tests.simulation.history import Deletion, Entry, History, Lease


class Removals:
    """Who deletes, who holds, and what went."""

    def __init__(
        self,
        world: World,
        rng: Random,
        history: History,
        *,
        partitions: list[str],
        now: Callable[[], int],
        plain: Callable[[LogEntry], Entry],
    ) -> None:
        self._world = world
        self._rng = rng
        self._history = history
        self._partitions = partitions
        self._now = now
        self._plain = plain
        self._copied_to: defaultdict[str, int] = defaultdict(int)
        self._held: dict[str, tuple[Lease, bytes]] = {}
        """Leases with their ids. No run lasts as long as one."""
        self.watch()

    def watch(self) -> None:
        """The server has started."""
        self._world.inside.removal.on_removed = self._on_removed
        for lease, _id in self._held.values():
            lease.ended_at = self._now()
        self._held.clear()

    def log_start(self, partition: str) -> int:
        """Where a partition begins, durably. Raises Refused where its shard is away."""
        placed = self._world.inside.catalog.place(*partition_name(partition))
        shard: LogShard = self._world.inside.runtime.shard(placed.shard)
        head = shard.durable_head(placed.ref.ordinal)
        assert head is not None
        return head.log_start_offset

    def check_out_of_range(self, partition: str, offset: int) -> None:
        """No reader is shown what lies below a log start."""
        try:
            shown = self._world.read(partition, fetch_offset=offset)
        except Refused as refusal:
            if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return
            raise
        raise AssertionError(f"{partition} begins at {self.log_start(partition)}, and {offset} is read: {shown}")

    def delete(self) -> None:
        """A client deletes records, or tries to delete what is not there."""
        partition = self._rng.choice(self._partitions)
        read = self._world.read(partition, fetch_offset=self.log_start(partition))
        asked = self._rng.choice((-1, self._rng.randrange(read.high_watermark + 3)))
        deletion = Deletion(self._now(), partition, asked, read.high_watermark)
        self._history.deletions.append(deletion)
        life = self._world.lives
        wanted = RecordsToDelete(partition_name(partition), asked)

        def answered(settled: Pending[list[DeleteRecordsResult]]) -> None:
            if life != self._world.lives:
                return
            try:
                (result,) = settled.result()
            except UnknownOutcome:
                # The disk failed: it was done, or not, as with a life that ended.
                return
            deletion.answered_at = self._now()
            deletion.error = result.error.code.name if isinstance(result.error, CoordinatorError) else ""
            deletion.low_watermark, deletion.held_back = result.low_watermark, result.held_back

        self._world.inside.log.delete_records(DeleteRecords([wanted]), ANYBODY).on_settled(answered)

    def hold(self) -> None:
        """A reader begins with old records, or is done with them. What is staged becomes durable first."""
        partition = self._rng.choice(self._partitions)
        ordinal = self._world.inside.catalog.resolve(*partition_name(partition)).ordinal
        leases = self._world.inside.core.log.snapshots.leases
        if partition in self._held:
            lease, lease_id = self._held.pop(partition)
            lease.ended_at = self._now()
            leases.release(lease_id)
            return
        self._world.settle()
        start = self.log_start(partition)
        lease = Lease(partition, start + self._rng.randrange(4), self._now())
        self._held[partition] = lease, leases.take(HeldRecords((), {ordinal: lease.offset}), LEASE_MS_MAX)
        self._history.leases.append(lease)

    def copy_rest(self) -> None:
        """Copy what lies below the log starts and was not removed yet."""
        for partition in self._partitions:
            self._copy(partition)

    def _on_removed(self, event: RowsRemoved) -> None:
        partition = self._world.partition_of(event.ordinal)
        # Also where no client has seen yet that the partition is there.
        if partition.startswith("t-"):
            self._copy(partition)

    def _copy(self, partition: str) -> None:
        start, copied_to = self.log_start(partition), self._copied_to[partition]
        assert start >= copied_to, f"the log start of {partition} went back from {copied_to} to {start}"
        ordinal = self._world.inside.catalog.resolve(*partition_name(partition)).ordinal
        went = stored_entries(self._world.shelf.store, ordinal, copied_to, start)
        self._history.removed.setdefault(partition, []).extend(map(self._plain, went))
        self._copied_to[partition] = start
