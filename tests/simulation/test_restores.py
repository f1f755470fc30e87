"""Backups and restores in the middle of storms; bugs in them are caught.

A failing seed is run again with `pytest tests/simulation/test_restores.py --seed N`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs

from coordinator_protocol import snapshots as protocol_snapshots
from coordinator_protocol.snapshots import PartitionView, Scan
from coordinator_runtime.backups import BackupRefused
from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.rocks import StoreOptions, checkpoint, opening
from coordinator_runtime.rocks import store as rocks_store
from coordinator_runtime.rocks.segments import SegmentOptions, SegmentWriter, segments_in
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_runtime.store import CommitGroup
from partition_log import shard as log_shard
from tests.harness import memory_store
from tests.harness.memory_store import MemoryStore
from tests.harness.of_commit import seeds
from tests.harness.rocks_shelf import RocksShelf
from tests.simulation.auditor import Auditor
from tests.simulation.restores import RestoringSimulation, options_of
from txn_coordinator.counters import CountersShard

FAST_SEEDS = 15
SLOW_SEEDS = 400
ROCKS_SEEDS = 4

SMALL_SEGMENTS = StoreOptions(segments=SegmentOptions(value_bytes_min=70, segment_bytes_max=2_000))
"""Every batch lies in a segment, and there are several."""


def run(seed: int) -> int:
    """Returns how many restores there were."""
    print(options_of(seed))
    history = RestoringSimulation(options_of(seed)).run()
    Auditor(history).check()
    return len(history.restores)


def run_on_rocks(seed: int, directory: Path) -> None:
    directory.mkdir()
    shelf = RocksShelf(directory / "store", SMALL_SEGMENTS)
    try:
        Auditor(RestoringSimulation(options_of(seed), shelf).run()).check()
    finally:
        shelf.close()


def test_storms_with_restores(request: pytest.FixtureRequest) -> None:
    restores = [run(seed) for seed in seeds(request.config, FAST_SEEDS)]
    assert any(restores)


def test_a_delta_from_before_a_restore_may_lack_what_a_lost_compaction_took() -> None:
    assert run(177_122) == 2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("chunk", range(4))
def test_many_storms_with_restores(chunk: int, request: pytest.FixtureRequest) -> None:
    size = SLOW_SEEDS // 4
    for seed in seeds(request.config, size, behind=FAST_SEEDS + chunk * size):
        run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROCKS_SEEDS))
def test_storms_with_restores_on_rocksdb(seed: int, tmp_path: Path) -> None:
    run_on_rocks(seed, tmp_path / "rocks")


Change = Callable[[pytest.MonkeyPatch], None]


def no_new_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_store, "next_incarnation", lambda before, _cause, _wall_ms: before)


def no_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_shard, "raised", lambda *_arguments: None)


def csns_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Incarnation, "least_csn", 0)


def producer_ids_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Incarnation, "least_producer_id", 0)


def markers_of_lost_lines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CountersShard, "check_incarnation", lambda _counters, _producer_id: None)


def deltas_across_lost_lines(patch: pytest.MonkeyPatch) -> None:
    between = protocol_snapshots.scans_between

    def without_epochs(before: PartitionView, after: PartitionView) -> list[Scan]:
        of_one_line = structs.replace(before, leader_epoch=after.leader_epoch)
        return [structs.replace(scan, start_epoch=None) for scan in between(of_one_line, after)]

    patch.setattr(protocol_snapshots, "scans_between", without_epochs)


def last_group_missing(patch: pytest.MonkeyPatch) -> None:
    """A backup of an earlier version than what was acknowledged before it."""
    write, stale = MemoryStore.write, [MemoryStore()]

    def also_keep(store: MemoryStore, groups: Sequence[CommitGroup]) -> None:
        stale[0] = copy(store)
        write(store, groups)

    copy = MemoryStore.copy
    patch.setattr(MemoryStore, "write", also_keep)
    patch.setattr(MemoryStore, "copy", lambda store: copy(stale[0]) if stale[0]._version else copy(store))


@pytest.mark.parametrize(
    "bug",
    [
        no_new_line,
        pytest.param(no_leader_epoch, marks=[pytest.mark.slow, pytest.mark.long]),
        producer_ids_again,
        pytest.param(csns_again, marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param(markers_of_lost_lines, marks=[pytest.mark.slow, pytest.mark.long]),
        deltas_across_lost_lines,
        pytest.param(last_group_missing, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_bug_in_what_a_new_line_raises_is_caught(bug: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with redirect_stdout(StringIO()), pytest.raises(AssertionError):
        run_all(run, range(300))


def run_all(run_one: Callable[[int], object], seeds: range) -> None:
    for seed in seeds:
        run_one(seed)


def segment_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint, "segments_in", lambda path: {*sorted(segments_in(path))[1:]})


def no_segment_is_closed(patch: pytest.MonkeyPatch) -> None:
    """What is written after the backup goes into files that the backup has, too."""
    patch.setattr(SegmentWriter, "close", lambda _writer: None)


def version_in_between(patch: pytest.MonkeyPatch) -> None:
    """RocksDB as of the first backup, segments and mark as of now."""
    kept: list[Path] = []
    link = checkpoint.link_files

    def link_old_ones(database: object, directory: StoreDirectory) -> None:
        link(database, directory)  # type: ignore[arg-type]
        if kept:
            shutil.rmtree(directory.checkpoint.store_path)
            shutil.copytree(kept[0], directory.checkpoint.store_path)
        else:
            kept.append(directory.path.with_name("kept"))
            shutil.copytree(directory.checkpoint.store_path, kept[0])

    patch.setattr(rocks_store, "link_files", link_old_ones)


def line_not_begun(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "begin_incarnation", lambda *_arguments: None)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "bug", [segment_missing, no_segment_is_closed, version_in_between, line_not_begun], ids=lambda bug: bug.__name__
)
def test_a_bug_in_making_or_restoring_backups_is_caught(
    bug: Change, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The product refuses such a backup, or the auditor catches it."""
    bug(monkeypatch)
    with pytest.raises((AssertionError, BackupRefused)):
        run_all(lambda seed: run_on_rocks(seed, tmp_path / str(seed)), range(60))
