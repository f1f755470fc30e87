"""Readers of snapshots while everything else goes on: what they take, hold, read piece by piece, and follow by deltas;
and the cuts for a reader that keeps offsets only.

A snapshot is its reader's, so it outlives crashes; its lease does not. What was read goes into the history, with what a
vector of last stable offsets would have shown at the moment when the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from msgspec.structs import replace

from coordinator_protocol import cuts
from coordinator_protocol import snapshots as protocol
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.snapshots import PartitionView, Scan, scan_of
from coordinator_runtime.ports import PartitionName
from partition_log.leadership import Diverged
from partition_log.requests import AskedRange, Fetch, FetchItem, ListCommitted
from partition_log.snapshots import LeasedSnapshot, ReleaseSnapshot, RenewSnapshot, TakeSnapshot
from tests.harness.calls import called, partition_name
from tests.harness.entries import entries_of
from tests.harness.group_calls import ANYBODY
from tests.harness.payloads import EVERY_ENCODING
from tests.harness.world import World
from tests.simulation.history import Entry, History, ShownDelta, ShownSnapshot
from tests.simulation.passing import Passing
from tests.simulation.translation import plain_entry

_LEASES_MS: Final = (0, 0, 300, 5_000, 60_000)
_READERS_MAX: Final = 4
_PASSES: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""A shard is away at this moment; the reader comes again."""
_TOPIC_WENT: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class _Gone(Exception):
    """What the reader still wanted is not there any more, and it was told so."""


@dataclass(slots=True)
class _Piece:
    """A range that is being read."""

    partition: str
    name: PartitionName
    scan: Scan
    next_offset: int


@dataclass(slots=True)
class _Held:
    """A snapshot, and until when its records are held."""

    snapshot: LeasedSnapshot
    seen: ShownSnapshot
    life: int
    """Which life of the server it was: leases end with it."""
    views: dict[str, tuple[PartitionName, PartitionView]]
    """By what the partitions are called in the history."""
    held_until_ms: int | None = None
    """None: they are not."""

    def covers(self, piece: _Piece) -> bool:
        """Whether it shows, and so holds, what is left of a piece."""
        start_offset = self.seen.starts.get(piece.partition)
        return start_offset is not None and start_offset <= piece.next_offset


@dataclass(slots=True)
class _Reader:
    """A reader that follows a log by snapshots: all of the first, and what each of the next ones adds."""

    number: int
    before: _Held | None = None
    """The one whose records it has."""
    now: _Held | None = None
    pieces: list[_Piece] = field(default_factory=list)
    found: dict[str, list[Entry]] = field(default_factory=dict)
    is_rereading: bool = False
    """It reads `now` as a whole, whatever it has of it."""
    cut: dict[str, int] = field(default_factory=dict)
    """The last cut that it has asked for."""
    is_checked: bool = True
    """True if it asks for a refusal of records that were compacted since the snapshot was taken."""

    def view(self, view: PartitionView) -> PartitionView:
        """One partition of a snapshot, as the reader keeps it."""
        return view if self.is_checked else replace(view, compaction=None)

    def begin_anew(self) -> None:
        self.before = self.now = None
        self.cut = {}
        self.pieces, self.found, self.is_rereading = [], {}, False


class Snapshots:
    """All readers of snapshots."""

    def __init__(
        self,
        world: World,
        seed: int,
        history: History,
        *,
        partitions: Callable[[], list[str]],
        passing: Passing,
        now: Callable[[], int],
    ) -> None:
        """`partitions`: those that are there and stay."""
        self._world = world
        self._rng = Random(f"snapshots {seed}")
        self._history = history
        self._partitions = partitions
        self._passing = passing
        self._now = now
        self._readers: list[_Reader] = []
        self._sequences = 0
        self._taken = 0

    def step(self) -> None:
        """Some reader does something."""
        if (len(self._readers) < _READERS_MAX and self._rng.random() < 0.1) or not self._readers:
            sequence = self._next_sequence()
            self._readers.append(_Reader(sequence, is_checked=sequence % 4 != 0))
        reader = self._rng.choice(self._readers)
        try:
            self._act(reader)
        except _Gone:
            self._begin_anew(reader)

    def _next_sequence(self) -> int:
        self._sequences += 1
        return self._sequences

    def _begin_anew(self, reader: _Reader) -> None:
        self._release(reader.before)
        self._release(reader.now)
        reader.begin_anew()
        reader.number = self._next_sequence()

    def _act(self, reader: _Reader) -> None:
        if reader.now is None:
            self._take(reader)
        elif self._rng.random() < 0.1:
            self._renew(self._rng.choice([each for each in (reader.before, reader.now) if each is not None]))
        elif reader.pieces:
            self._read_on(reader)
        else:
            self._finish(reader)

    # What readers do

    def _take(self, reader: _Reader, lease_ms: int | None = None) -> None:
        names = self._partitions()
        had_passing = reader.before is not None and any(
            self._passing.has(name) for name, _ in reader.before.views.values()
        )
        if reader.before is None and self._rng.random() < 0.3:
            names = self._rng.sample(names, self._rng.randrange(1, len(names) + 1))
        elif reader.before is not None:
            names = [each for each in names if each in reader.before.views or self._rng.random() < 0.7]
        if self._passing.topic_id() and (had_passing or self._rng.random() < 0.7):
            names.append(self._passing.partition)
        lease_ms = self._rng.choice(_LEASES_MS) if lease_ms is None else lease_ms
        command = TakeSnapshot([partition_name(each) for each in names], lease_ms)
        reply = called(lambda: self._world.inside.core.log.snapshots.take(command, ANYBODY))
        try:
            snapshot = reply.result() if reply.is_settled else None
        except Refused as refusal:
            self._check_refusal(refusal, [], names)
            return
        if snapshot is None:
            reply.cancel()
            return
        self._taken += 1
        text = self._passing.text
        seen = ShownSnapshot(
            self._taken,
            self._now(),
            starts={text(name): view.start_offset for name, view, _ in snapshot.views},
            ends={text(name): view.end_offset for name, view, _ in snapshot.views},
            last_stable={text(name): head.last_stable_offset for name, _, head in snapshot.views},
            compacted={text(name): view.compaction.end_offset for name, view, _ in snapshot.views if view.compaction},
            is_checked=reader.is_checked,
        )
        views = {text(name): (name, reader.view(view)) for name, view, _ in snapshot.views}
        for name, view in views.values():
            self._passing.copy(name, view)
        until = self._world.clock.monotonic_ms() + lease_ms if lease_ms else None
        reader.now = _Held(snapshot, seen, self._world.lives, views, until)
        self._history.snapshots.append(seen)
        self._cut(reader)
        self._plan(reader)

    def _cut(self, reader: _Reader) -> None:
        """Ask for the next cut too, as a reader would that keeps offsets only."""
        assert reader.now is not None
        seen, stretches = reader.now.seen, {}
        if any(offset > seen.ends.get(partition, offset) for partition, offset in reader.cut.items()):
            assert self._history.restores, f"{reader.cut} was a cut before {seen}"
            reader.cut = {}
        for name, view, head in reader.now.snapshot.views:
            partition = self._passing.text(name)
            start_offset = max(reader.cut.get(partition, 0), view.start_offset)
            committed = self._committed(name, start_offset, view.end_offset)
            if committed is None:
                return
            stretches[partition] = cuts.UnreadStretch(start_offset, head.last_stable_offset, view.excluded, committed)
        seen.cut_starts = {partition: each.start_offset for partition, each in stretches.items()}
        seen.cut = reader.cut = cuts.greatest_cut(stretches)

    def _committed(self, name: PartitionName, start_offset: int, end_offset: int) -> list[cuts.Committed] | None:
        """What was committed there; None where that cannot be said now."""
        found: list[cuts.Committed] = []
        while start_offset < end_offset:
            command = ListCommitted([AskedRange(name, start_offset, end_offset)])
            reply = called(lambda command=command: self._world.inside.core.log.ranges.list_committed(command, ANYBODY))
            if not reply.is_settled:
                reply.cancel()
                return None
            (result,) = reply.result()
            if result.error is not None:
                self._check_refusal(result.error, [], [name.topic])
                return None
            found += result.commits.transactions
            start_offset = result.commits.next_offset
        return found

    def _plan(self, reader: _Reader) -> None:
        """What of the snapshot the reader does not have yet. A topic that went is told: some readers begin anew then,
        others go on with what is left. One that was made again is another one, of which they have nothing."""
        assert reader.now is not None
        before = {} if reader.before is None or reader.is_rereading else reader.before.views
        if before.keys() - reader.now.views.keys() and self._rng.random() < 0.5:
            raise _Gone
        reader.found = {}
        for partition, (name, view) in reader.now.views.items():
            reader.found[partition] = []
            if partition not in before:
                scans: tuple[Scan, ...] = (scan_of(view),)
            else:
                _name, view_before = before[partition]
                if view.end_offset < view_before.end_offset:
                    # A line was lost, or an answer is wrong.
                    assert self._history.restores, f"{name}: {view} came after {view_before}"
                    raise _Gone
                scans = protocol.scans_between(view_before, view)
            reader.pieces += [_Piece(partition, name, scan, scan.start_offset) for scan in scans]

    def _read_on(self, reader: _Reader) -> None:
        """One more answer."""
        assert reader.now is not None
        piece = self._rng.choice(reader.pieces)
        item = FetchItem(
            piece.name,
            piece.next_offset,
            piece.scan.end_offset,
            last_read_epoch=piece.scan.start_epoch if piece.next_offset == piece.scan.start_offset else None,
            end_epoch=piece.scan.end_epoch,
            shown=piece.scan.shown,
        )
        bytes_max = self._rng.choice((1, 200, 1 << 20))
        fetch = Fetch((item,), bytes_max=bytes_max, accepted_encodings=EVERY_ENCODING)
        reply = called(lambda: self._world.inside.log.fetch(fetch, ANYBODY))
        if not reply.is_settled:
            reply.cancel()
            return
        try:
            (result,) = reply.result()
            if result.error is not None:
                raise result.error
        except CoordinatorError as error:
            held = [each for each in (reader.before, reader.now) if each is not None and self._is_held(each)]
            covering = [each for each in held if each.covers(piece)]
            self._check_refusal(error, covering, [piece.name.topic], piece)
            return
        entries = [plain_entry(entry) for header, stored in result.batches for entry in entries_of(header, stored)]
        end_offset = min(result.next_offset, piece.scan.end_offset)
        wanted = [each for each in entries if piece.next_offset <= each.offset < end_offset]
        reader.found[piece.partition] += wanted
        piece.next_offset = result.next_offset
        if piece.next_offset >= piece.scan.end_offset:
            reader.pieces.remove(piece)

    def _finish(self, reader: _Reader) -> None:
        """All was read: keep it, perhaps read it again, and go on to the next snapshot."""
        assert reader.now is not None
        shown = {partition: tuple(sorted(found, key=_offset)) for partition, found in reader.found.items()}
        seen = reader.now.seen
        if reader.before is None or reader.is_rereading:
            seen.readings.append(shown)
            seen.is_held.append(self._is_held(reader.now))
        if not reader.is_rereading:
            self._history.deltas.append(ShownDelta(reader.number, self._now(), seen, shown))
            if self._rng.random() < 0.5:
                reader.is_rereading = True
                self._plan(reader)
                return
        reader.is_rereading = False
        self._release(reader.before)
        reader.before, reader.now = reader.now, None

    def _renew(self, held: _Held) -> None:
        lease_ms = self._rng.choice(_LEASES_MS[2:])
        asked = RenewSnapshot(held.snapshot.snapshot_id, lease_ms)
        if self._ask(held, lambda: self._world.inside.core.log.snapshots.renew(asked, ANYBODY)):
            held.held_until_ms = self._world.clock.monotonic_ms() + lease_ms

    def _release(self, held: _Held | None) -> None:
        if held is not None and held.snapshot.snapshot_id:
            asked = ReleaseSnapshot(held.snapshot.snapshot_id)
            if self._rng.random() < 0.3:
                # As two readers do who share it.
                for part in (1, 1):
                    one = ReleaseSnapshot(held.snapshot.snapshot_id, part, 2)
                    self._ask(held, lambda one=one: self._world.inside.core.log.snapshots.release(one, ANYBODY))
                asked = ReleaseSnapshot(held.snapshot.snapshot_id, 0, 2)
            self._ask(held, lambda: self._world.inside.core.log.snapshots.release(asked, ANYBODY))
            held.held_until_ms = None

    def _ask(self, held: _Held, call: Callable[[], None]) -> bool:
        """Ask something about a lease; returns whether it is there, which must be what the reader believes."""
        error = ""
        try:
            call()
        except Refused as refusal:
            error = refusal.code.name
        expected = "" if self._is_held(held) else "SNAPSHOT_NOT_FOUND"
        assert error == expected, f"asked about its lease, the server says {error!r}: {held}"
        return not error

    def _is_held(self, held: _Held) -> bool:
        if held.held_until_ms is None or held.life != self._world.lives:
            return False
        return self._world.clock.monotonic_ms() < held.held_until_ms

    def _check_refusal(
        self, error: CoordinatorError, held: list[_Held], asked: list[str], piece: _Piece | None = None
    ) -> None:
        """Return where it passes. Raises _Gone where the reader must begin anew and was told so rightly. `held`: the
        snapshots that hold what was asked for, in partitions, or a topic, of these names."""
        if error.code in _PASSES:
            return
        if error.code in _TOPIC_WENT:
            assert any(self._passing.partition.startswith(name) for name in asked), f"{asked} is there: {error}"
            assert piece is None or piece.name.topic_id != self._passing.topic_id(), f"{piece} is there: {error}"
            raise _Gone
        if isinstance(error, Diverged):
            assert self._history.restores, f"no line was lost, and {piece} is refused: {error}"
            raise _Gone
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and piece is not None:
            assert not held, f"records went that snapshots hold: {held}: {error}"
            raise _Gone
        raise AssertionError(f"{piece} is refused: {error!r}") from error

    # The calm

    def check_calm(self) -> None:
        """Every reader gets to the end, and has everything."""
        for reader in self._readers:
            for _ in range(2):
                self._read_to_the_end(reader)
            assert reader.before is not None
            seen = reader.before.seen
            assert seen.cut == seen.ends, f"nothing is open, and a cut waits: {seen}"
            self._history.caught_up.add(reader.number)

    def _read_to_the_end(self, reader: _Reader) -> None:
        is_through = False
        while not is_through:
            try:
                if reader.now is None:
                    self._take(reader, 0)
                    assert reader.now is not None, "no snapshot is taken although all is calm"
                while reader.pieces:
                    self._read_on(reader)
                self._finish(reader)
                is_through = reader.now is None
            except _Gone:
                self._begin_anew(reader)


def _offset(entry: Entry) -> int:
    return entry.offset
