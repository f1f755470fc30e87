"""Histories of transactions over several partitions, with snapshots taken in between, for the tests of snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from coordinator_protocol.cuts import Committed, UnreadStretch, greatest_cut
from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.marker import Outcome
from coordinator_protocol.snapshots import PartitionView, Scan, scan_of, scans_between
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from partition_log.measuring import ShownPart
from partition_log.requests import (
    AskedRange,
    DeleteRecords,
    DeleteRecordsResult,
    Fetch,
    FetchItem,
    ListCommitted,
    MeasureQuery,
    MeasureRecords,
    RecordsToDelete,
)
from partition_log.snapshots import LeasedSnapshot, TakeSnapshot
from tests.harness.calls import called, partition_name
from tests.harness.entries import Reading, entries_of
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity

PARTITIONS = ("t-0", "t-1", "t-2")
CLIENTS = ("a", "b", "c")
STEPS = (
    *("produce",) * 8,
    *("commit", "commit", "abort"),
    *("flush",) * 6,
    *("snapshot", "snapshot", "unload", "load", "load", "tick"),
)
Step: TypeAlias = tuple[str, int, int]
"""The kind of a step, its client, and its partition."""
Shown: TypeAlias = dict[str, list[str]]
"""Values by partition."""


@dataclass
class Client:
    """One transactional id, which does one thing after the other."""

    name: str
    identity: Identity
    transaction: int = 0
    is_open: bool = False
    sequences: dict[str, int] = field(default_factory=dict)
    waits_for: Pending[object] | None = None

    @property
    def is_busy(self) -> bool:
        return self.waits_for is not None and not self.waits_for.is_settled


@dataclass
class Taken:
    """A snapshot, what it showed at once, and what a vector of last stable offsets and a cut showed at the same
    moment."""

    snapshot: LeasedSnapshot
    shown: Shown
    up_to_lso: Shown
    cut: dict[str, int]
    """The greatest cut from the one before on."""
    up_to_cut: Shown


class SnapshotHistory:
    """A server with three partitions and three clients."""

    def __init__(self, *, split: bool) -> None:
        two_phase = TwoPhase.SPLIT if split else TwoPhase.FUSED
        self.world = World(WorldOptions(two_phase=two_phase, shard_count=4))
        self.world.create_topic("t", len(PARTITIONS))
        self.clients = [self._client(name) for name in CLIENTS]
        self.taken: list[Taken] = []
        self.away: set[str] = set()

    def _client(self, name: str) -> Client:
        begun = self.world.init(name)
        self.world.settle()
        return Client(name, begun.result())

    def play(self, steps: Sequence[Step]) -> None:
        """Do all of it; what cannot be done at its moment is left out."""
        for what, number, place in steps:
            client, partition = self.clients[number % len(CLIENTS)], PARTITIONS[place % len(PARTITIONS)]
            match what:
                case "produce" if not client.is_busy and partition not in self.away:
                    self.produce(client, partition)
                case "commit" | "abort" if client.is_open and not client.is_busy:
                    self.end(client, Outcome.COMMIT if what == "commit" else Outcome.ABORT)
                case "flush":
                    self.world.flush(1)
                case "tick":
                    self.world.tick(20)
                case "unload" if partition not in self.away:
                    self.away.add(partition)
                    called(partial(self.world.unload, partition))
                case "load":
                    self.load()
                case "snapshot":
                    self.take()

    def produce(self, client: Client, partition: str) -> None:
        if partition not in client.sequences:
            client.sequences[partition] = 0
        sequence, value = client.sequences[partition], f"{client.name}{client.transaction}.{partition}"
        client.is_open = True

        def on_done(done: Pending[object]) -> None:
            try:
                result = done.result()
            except CoordinatorError:
                return
            if getattr(result, "error", None) is None:
                client.sequences[partition] = sequence + 1

        values = [f"{value}.{sequence}"]
        client.waits_for = self.world.produce(client.name, client.identity, partition, values, sequence=sequence)
        client.waits_for.on_settled(on_done)

    def end(self, client: Client, outcome: Outcome) -> None:
        def on_done(done: Pending[object]) -> None:
            try:
                ended = done.result()
            except CoordinatorError:
                return
            client.identity = ended.next_identity  # type: ignore[attr-defined]  # the reply to EndTxn
            client.transaction += 1
            client.is_open = False
            client.sequences = {}

        client.waits_for = self.world.end(client.name, client.identity, outcome)
        client.waits_for.on_settled(on_done)

    def load(self) -> None:
        """Read again what was let go of. Markers for these partitions come later than those for others."""
        for partition in sorted(self.away):
            called(partial(self.world.load, partition))
        self.away.clear()
        self.world.settle()

    def take(self, lease_ms: int = 0) -> Taken | None:
        """Take a snapshot and read it; None where a partition or a coordinator is away."""
        reply = ask_to_take(self.world, PARTITIONS, lease_ms)
        try:
            snapshot = reply.result() if reply.is_settled else None
        except Refused:
            snapshot = None
        if snapshot is None:
            return None
        cut = cut_of(self.world, snapshot, self.taken[-1].cut if self.taken else dict.fromkeys(PARTITIONS, 0))
        read = {each: self.world.read(each) for each in PARTITIONS}
        up_to_cut = {each: read_before(found, cut[each]) for each, found in read.items()}
        taken = Taken(
            snapshot, self.read_all(snapshot), {each: found.values for each, found in read.items()}, cut, up_to_cut
        )
        self.taken.append(taken)
        return taken

    def calm(self) -> Taken:
        """Everything that is under way ends, open transactions are committed, and a last snapshot is taken."""
        self.load()
        for _ in range(20):
            self.world.settle()
            self.world.tick(1_500)
        for client in self.clients:
            if client.is_open:
                self.end(client, Outcome.COMMIT)
        for _ in range(20):
            self.world.settle()
            self.world.tick(1_500)
        taken = self.take()
        assert taken is not None
        return taken

    def read_all(self, snapshot: LeasedSnapshot) -> Shown:
        return read_of(self.world, snapshot)

    def views(self, taken: Taken) -> dict[str, PartitionView]:
        return dict(named(taken.snapshot))

    def measure(self, partition: str, view: PartitionView) -> Sequence[ShownPart]:
        """Return the positions of a snapshot's records, in the smallest steps."""
        scan = scan_of(view)
        query = MeasureQuery(partition_name(partition), scan.start_offset, scan.end_offset, scan.shown)
        (result,) = self.world.inside.core.log.ranges.measure_records(MeasureRecords([query], 1), ANYBODY).result()
        assert result.measured.next_offset == scan.end_offset
        return result.measured.steps

    def delete(self, partition: str) -> DeleteRecordsResult:
        """A request to delete all records of a partition."""
        command = DeleteRecords([RecordsToDelete(partition_name(partition), -1)])
        deleted = self.world.inside.log.delete_records(command, ANYBODY)
        self.world.settle()
        return deleted.result()[0]

    def delta(self, before: LeasedSnapshot, after: LeasedSnapshot) -> Shown:
        return delta_of(self.world, before, after)


def ask_to_take(world: World, partitions: Sequence[str], lease_ms: int = 0) -> Pending[LeasedSnapshot]:
    """Take a snapshot of these partitions."""
    command = TakeSnapshot([partition_name(each) for each in partitions], lease_ms)
    return called(lambda: world.inside.core.log.snapshots.take(command, ANYBODY))


def read_of(world: World, snapshot: LeasedSnapshot) -> Shown:
    """Everything that a snapshot shows. Raises Refused."""
    return {_text(name): scan_in(world, name, scan_of(view)) for name, view, _head in snapshot.views}


def delta_of(world: World, before: LeasedSnapshot, after: LeasedSnapshot) -> Shown:
    """Return the records that a reader adds to those of the first snapshot to have the second. Raises Refused."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for (name, earlier, _), (_same, later, _) in zip(before.views, after.views, strict=True):
        for each in scans_between(earlier, later):
            found[_text(name)] += scan_in(world, name, each)
    return found


def cut_of(world: World, snapshot: LeasedSnapshot, starts: Mapping[str, int]) -> dict[str, int]:
    """The greatest cut of a snapshot that is nowhere before these offsets."""
    stretches = {}
    for (partition, view), (_name, _view, head) in zip(named(snapshot), snapshot.views, strict=True):
        at, committed = starts[partition], list[Committed]()
        while at < view.end_offset:
            command = ListCommitted([AskedRange(partition_name(partition), at, view.end_offset)])
            (result,) = world.inside.core.log.ranges.list_committed(command, ANYBODY).result()
            if result.error is not None:
                raise result.error
            committed += result.commits.transactions
            at = result.commits.next_offset
        stretches[partition] = UnreadStretch(starts[partition], head.last_stable_offset, view.excluded, committed)
    return greatest_cut(stretches)


def read_before(reading: Reading, end_offset: int) -> list[str]:
    """The values before an offset."""
    return [entry.value for entry in reading.entries if entry.marker is None and entry.offset < end_offset]


def scan_in(world: World, partition: str | PartitionName, scan: Scan) -> list[str]:
    """Read a range of a snapshot: of the very topic, where the name has its id. Raises Refused."""
    name = partition_name(partition) if isinstance(partition, str) else partition
    at, values, epoch = scan.start_offset, list[str](), scan.start_epoch
    while at < scan.end_offset or epoch is not None:
        item = FetchItem(
            name,
            at,
            scan.end_offset,
            last_read_epoch=epoch,
            end_epoch=scan.end_epoch,
            shown=scan.shown,
        )
        (result,) = world.inside.log.fetch(Fetch((item,)), ANYBODY).result()
        if result.error is not None:
            raise result.error
        values += [entry.value for header, stored in result.batches for entry in entries_of(header, stored)]
        assert result.next_offset > at or at == scan.end_offset
        at, epoch = result.next_offset, None
    return values


def named(snapshot: LeasedSnapshot) -> list[tuple[str, PartitionView]]:
    """The partitions of a snapshot by name, as `t-0`."""
    return [(_text(name), view) for name, view, _head in snapshot.views]


def _text(name: PartitionName) -> str:
    return f"{name.topic}-{name.partition}"


def by_transaction(shown: Shown) -> dict[str, list[str]]:
    """Values by transaction, each sorted."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for values in shown.values():
        for value in values:
            found[value.partition(".")[0]].append(value)
    return {transaction: sorted(values) for transaction, values in found.items()}


def torn(shown: Shown, whole: Shown) -> list[str]:
    """The transactions of which some records are shown and others are not."""
    all_of = by_transaction(whole)
    return [transaction for transaction, values in by_transaction(shown).items() if values != all_of.get(transaction)]
