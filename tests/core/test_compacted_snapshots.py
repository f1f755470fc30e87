"""A snapshot of a compacted topic shows the same records whenever it is read, or its reader is refused."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_protocol.snapshots import CompactionProgress, PartitionView, scan_of, scans_between
from partition_log.compaction import chunks
from partition_log.requests import MeasureQuery, MeasureRecords
from partition_log.rules.compacting import is_as_taken
from partition_log.snapshots import LeasedSnapshot, ReleaseSnapshot
from partition_log.state import Compaction
from tests.core.snapshot_history import Shown, ask_to_take, delta_of, read_of, scan_in
from tests.harness.calls import partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.state import Identity

PARTITIONS = ("t-0", "t-1")
LOOK_MS = 100
OPTIONS = WorldOptions(
    compaction_interval_ms=LOOK_MS, index_interval_batches=1, writes_records=True, key_counts={"t": 1}
)
CONFIG = {"cleanup_policy": "compact", "min_dirty_ratio": "0", "delete_retention_ms": "0"}


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS_MAX", 1)


class Compacted(World):
    """Two partitions of a topic with one key. Every batch is a stretch, and a chunk of a pass."""

    def __init__(self) -> None:
        super().__init__(OPTIONS)
        self.create_topic("t", len(PARTITIONS), config=CONFIG)

    def write(self, *values: str, partition: str = "t-0") -> None:
        for value in values:
            self.produce(None, Identity(-1, -1), partition, [value], sequence=-1)
            self.settle()

    def commit(self, value: str) -> None:
        """A transaction with a record in each partition."""
        begun = self.init("a")
        self.settle()
        for partition in PARTITIONS:
            self.produce("a", begun.result(), partition, [value], sequence=0)
            self.settle()
        self.end("a", begun.result(), Outcome.COMMIT)
        self.settle()

    def compact(self) -> None:
        for _ in range(20):
            self.tick(LOOK_MS)
            self.settle()

    def compact_to(self, position: int) -> None:
        """Go on with a pass over the first partition until it has come to an offset, or behind it."""
        for _ in range(1_000):
            if self.progress.end_offset > 0 and self.progress.position >= position:
                return
            self.tick(1)
            self.flush(1)
        raise AssertionError(f"no pass came to {position}")

    @property
    def progress(self) -> CompactionProgress:
        standing = self.inside.log.standing(partition_name("t-0"), ANYBODY)
        assert not isinstance(standing, Refused)
        return standing.head.compaction.progress

    def take(self, lease_ms: int = 0) -> LeasedSnapshot:
        reply = ask_to_take(self, PARTITIONS, lease_ms)
        self.settle()
        return reply.result()

    def measured(self, view: PartitionView) -> int:
        """The number of records that a snapshot shows of the first partition. Raises Refused."""
        scan = scan_of(view)
        query = MeasureQuery(partition_name("t-0"), scan.start_offset, scan.end_offset, scan.shown)
        (result,) = self.inside.core.log.ranges.measure_records(MeasureRecords([query], 1), ANYBODY).result()
        if result.error is not None:
            raise result.error
        return sum(step.records for step in result.measured.steps)


def check_refused(world: Compacted, snapshot: LeasedSnapshot) -> None:
    for ask in (partial(read_of, world, snapshot), partial(world.measured, snapshot.views[0][1])):
        with pytest.raises(Refused, match="compacted since the snapshot was taken: take a new one") as refusal:
            ask()
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_pass_after_a_snapshot_without_a_lease_is_told_to_its_readers() -> None:
    """The second transaction lies behind the snapshot. Its records replace those that the snapshot shows."""
    world = Compacted()
    world.commit("first")
    snapshot = world.take()
    shown: Shown = {partition: ["first"] for partition in PARTITIONS}
    world.commit("second")
    assert read_of(world, snapshot) == shown, "nothing was compacted"
    world.compact()
    check_refused(world, snapshot)
    assert read_of(world, world.take())["t-0"] == ["second"]


def test_a_lease_keeps_passes_away_until_it_ends() -> None:
    for ends in ("released", "over", "lost"):
        world = Compacted()
        world.commit("first")
        snapshot = world.take(60_000)
        world.commit("second")
        world.compact()
        assert read_of(world, snapshot)["t-0"] == ["first"]
        assert world.measured(snapshot.views[0][1]) == 1
        if ends == "released":
            world.inside.core.log.snapshots.release(ReleaseSnapshot(snapshot.snapshot_id), ANYBODY)
        elif ends == "over":
            world.tick(60_000)
        else:
            world.restart()
        world.compact()
        check_refused(world, snapshot)


def test_a_pass_that_is_under_way_when_a_snapshot_is_taken_stops_for_its_lease() -> None:
    world = Compacted()
    world.write(*"abcdefgh")
    world.compact_to(3)
    snapshot, unheld = world.take(60_000), world.take()
    shown, progress = read_of(world, snapshot), world.progress
    assert progress.position < progress.end_offset, "the pass has not ended"
    assert shown["t-0"][-1] == "h"
    world.write("i")
    world.compact()
    assert (read_of(world, snapshot), world.progress) == (shown, progress)
    world.inside.core.log.snapshots.release(ReleaseSnapshot(snapshot.snapshot_id), ANYBODY)
    assert read_of(world, unheld) == shown
    world.compact()
    check_refused(world, snapshot)
    check_refused(world, unheld)


def test_a_snapshot_is_answered_once_the_step_that_is_being_written_is_durable() -> None:
    """Rows that go with it are still there until then, and its reader would see them once."""
    world = Compacted()
    world.write(*"abcdefgh")
    world.compact_to(3)
    for _ in range(1_000):
        waiting = ask_to_take(world, PARTITIONS, 60_000)
        if not waiting.is_settled:
            break
        world.inside.core.log.snapshots.release(ReleaseSnapshot(waiting.result().snapshot_id), ANYBODY)
        world.flush(1)
        world.tick(1)
    assert not waiting.is_settled, "no step was being written"
    before = world.progress
    world.settle()
    snapshot = waiting.result()
    assert before < world.progress == snapshot.views[0][1].compaction
    shown = read_of(world, snapshot)
    world.compact()
    assert read_of(world, snapshot) == shown


def test_what_lies_behind_a_pass_is_read_without_a_lease() -> None:
    world = Compacted()
    world.write("a", "b")
    opened = world.init("open")
    world.settle()
    world.produce("open", opened.result(), "t-0", ["never"], sequence=0)
    world.write("c", "d")
    snapshot = world.take()
    scan = scan_of(snapshot.views[0][1])
    world.compact()
    assert world.progress.end_offset == 2
    assert scan_in(world, "t-0", replace(scan, start_offset=2)) == ["c", "d"]
    check_refused(world, snapshot)


def test_a_delta_is_refused_where_the_later_snapshot_is() -> None:
    world = Compacted()
    world.write("a", "b")
    before = world.take()
    world.write("c", "d")
    after = world.take()
    assert delta_of(world, before, after)["t-0"] == ["c", "d"]
    world.write("e")
    world.compact()
    with pytest.raises(Refused, match="compacted since"):
        delta_of(world, before, after)


def test_a_reader_that_does_not_mind_is_shown_what_is_left() -> None:
    world = Compacted()
    world.write("a", "b")
    snapshot = world.take()
    (_, view, _), _ = snapshot.views
    world.write("c")
    world.compact()
    unminding = PartitionView(view.start_offset, view.end_offset, view.leader_epoch, view.excluded)
    assert scan_in(world, "t-0", scan_of(unminding)) == []
    assert scans_between(unminding, unminding) == ()


@pytest.mark.parametrize(
    ("clean_to", "end", "position", "since", "changed_to"),
    [
        (0, 0, 0, (0, 0), 0),
        (9, 9, 9, (9, 9), 0),
        # The pass of that moment is at 4, and then has ended; or stands where it was.
        (5, 9, 4, (9, 4), 0),
        (5, 9, 6, (9, 4), 6),
        (9, 9, 9, (9, 4), 9),
        # Another one has begun: alone, or behind the rest of that pass.
        (9, 20, 3, (9, 9), 3),
        (9, 20, 3, (9, 4), 9),
        (20, 20, 20, (9, 9), 20),
        (20, 30, 2, (9, 9), 20),
        (20, 30, 25, (9, 9), 25),
        # The store was restored to an earlier moment.
        (5, 5, 5, (9, 9), 0),
    ],
)
def test_where_a_log_is_as_it_was(
    clean_to: int, end: int, position: int, since: tuple[int, int], changed_to: int
) -> None:
    compaction = Compaction(clean_to, end, position)
    shown = scan_of(PartitionView(0, 40, 0, {}, CompactionProgress(*since))).shown
    assert compaction.changed_to(CompactionProgress(*since)) == changed_to
    for offset in (changed_to - 1, changed_to):
        assert is_as_taken(compaction, shown, offset) is (offset >= changed_to)
