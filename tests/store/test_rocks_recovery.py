"""The store on RocksDB after a crash: the groups that it finds, the files that it refuses to open, and those that a
refusal leaves untouched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from rocksdict import Options, Rdict

from coordinator_runtime.incarnation import FIRST, IncarnationCause
from coordinator_runtime.rocks import FORMAT_VERSION, RocksStore, StoreOptions, open_read_only, open_store, opening
from coordinator_runtime.rocks.durable_mark import DurableMark, Marked
from coordinator_runtime.store import CommitGroup, Family, StoreDamaged, StoreRefused

SHARDS = 64
FAMILIES = [family for family in Family if family is not Family.META]
GROUPS = 400

random_bytes = Random(7).randbytes
"""Random bytes, so that nothing can be compressed."""


def write_groups(store: RocksStore, count: int) -> None:
    """Groups that put their version into every family, so that a family which misses one gives itself away."""
    for version in range(store.version() + 1, store.version() + count + 1):
        row = version.to_bytes(8, "big")
        store.write([CommitGroup(version, [(family, row, row * 10) for family in FAMILIES])])


def copy_of_crashed(tmp_path: Path, *, durable: int, groups: int = GROUPS) -> Path:
    """Make the files that a kill leaves: those of an open store, `groups` of them synced, `durable` of them in the
    mark."""
    crashed = tmp_path / "crashed"
    store = open_store(tmp_path / "running", shard_count=SHARDS)
    write_groups(store, groups)
    store.sync()
    store.durable_mark.write(Marked(durable))
    shutil.copytree(tmp_path / "running", crashed)
    store.close()
    return crashed


def log_file(directory: Path) -> Path:
    return max((directory / "store").glob("*.log"), key=lambda path: path.stat().st_size)


def cut(path: Path, byte_count: int) -> None:
    stored = path.read_bytes()
    path.write_bytes(stored[: len(stored) - byte_count])


def damage_middle(path: Path) -> None:
    stored = bytearray(path.read_bytes())
    middle = len(stored) // 2
    stored[middle : middle + 64] = b"\xff" * 64
    path.write_bytes(stored)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the lock, which an attempt to open may touch."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path != directory / "LOCK"
    }


def test_a_killed_process_loses_nothing_it_has_written(tmp_path: Path) -> None:
    store = open_store(copy_of_crashed(tmp_path, durable=GROUPS), shard_count=SHARDS)
    assert store.version() == GROUPS
    store.close()


@pytest.mark.parametrize("byte_count", [1, 100, 50_000])
def test_a_cut_log_gives_a_clean_prefix_over_all_families(tmp_path: Path, byte_count: int) -> None:
    crashed = copy_of_crashed(tmp_path, durable=0)
    cut(log_file(crashed), byte_count)
    store = open_store(crashed, shard_count=SHARDS)
    recovered = store.version()
    assert 0 < recovered < GROUPS
    expected = [version.to_bytes(8, "big") for version in range(1, recovered + 1)]
    for family in FAMILIES:
        assert [key for key, _ in store.scan(family, b"", b"\xff" * 9)] == expected, family
    store.close()


@pytest.mark.parametrize("harm", [lambda path: cut(path, 100), damage_middle], ids=["cut", "damaged"])
def test_less_than_was_durable_is_refused_and_left_as_it_is(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    crashed = copy_of_crashed(tmp_path, durable=GROUPS)
    harm(log_file(crashed))
    before = contents(crashed)
    message = rf"recovered up to group version \d+, but version {GROUPS} had been durable.* --accept-data-loss"
    for _ in range(2):
        with pytest.raises(StoreRefused, match=message):
            open_store(crashed, shard_count=SHARDS)
    assert contents(crashed) == before


def test_a_loss_that_is_accepted_once_is_accepted_for_good(tmp_path: Path) -> None:
    crashed = copy_of_crashed(tmp_path, durable=GROUPS)
    damage_middle(log_file(crashed))
    store = open_store(crashed, shard_count=SHARDS, accept_data_loss=True)
    recovered, incarnation = store.version(), store.incarnation
    assert recovered < GROUPS
    assert (incarnation.number > 0, incarnation.cause) == (True, IncarnationCause.DATA_LOSS)
    write_groups(store, 1)
    store.close()
    store = open_store(crashed, shard_count=SHARDS)
    assert (store.version(), store.incarnation) == (recovered + 1, incarnation)
    store.close()


@pytest.mark.parametrize("vanished", [False, True], ids=["damaged", "vanished"])
def test_a_loss_whose_acceptance_was_cut_short_must_be_accepted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vanished: bool
) -> None:
    """Otherwise the store would go on in its old line, as if nothing had been lost."""
    crashed = copy_of_crashed(tmp_path, durable=GROUPS)
    if vanished:
        shutil.rmtree(crashed / "store")
    else:
        damage_middle(log_file(crashed))
    for step in ("_accept_lost_segments", "_write_down", "RocksStore"):
        monkeypatch.setattr(opening, step, _dies)
        with pytest.raises(_Died):
            open_store(crashed, shard_count=SHARDS, accept_data_loss=True, wall_ms=lambda: 1_800_000_000_000)
        monkeypatch.undo()
        with pytest.raises(StoreRefused, match="--accept-data-loss"):
            open_store(crashed, shard_count=SHARDS)
    store = open_store(crashed, shard_count=SHARDS, accept_data_loss=True, wall_ms=lambda: 1_800_000_000_000)
    assert store.incarnation.number == 64_310_403
    store.close()
    open_store(crashed, shard_count=SHARDS).close()


class _Died(BaseException):
    pass


def _dies(*_args: object) -> None:
    raise _Died


def test_accepting_a_loss_where_there_is_none_changes_nothing(tmp_path: Path) -> None:
    store = open_store(copy_of_crashed(tmp_path, durable=GROUPS), shard_count=SHARDS, accept_data_loss=True)
    assert store.version() == GROUPS
    assert store.incarnation == FIRST
    assert store.durable_mark.read().version == GROUPS
    store.close()


def test_a_store_that_vanished_is_a_loss(tmp_path: Path) -> None:
    crashed = copy_of_crashed(tmp_path, durable=7, groups=7)
    shutil.rmtree(crashed / "store")
    with pytest.raises(StoreRefused, match="recovered up to group version 0, but version 7 had been durable"):
        open_store(crashed, shard_count=SHARDS)
    store = open_store(crashed, shard_count=SHARDS, accept_data_loss=True)
    assert store.version() == 0
    store.close()


def test_without_a_durable_mark_a_store_is_refused(tmp_path: Path) -> None:
    crashed = copy_of_crashed(tmp_path, durable=7, groups=7)
    (crashed / "durable_mark").unlink()
    with pytest.raises(StoreRefused, match=r"durable mark .* is missing.* --accept-data-loss"):
        open_store(crashed, shard_count=SHARDS)
    store = open_store(crashed, shard_count=SHARDS, accept_data_loss=True)
    assert store.version() == store.durable_mark.read().version == 7
    store.close()


def test_closing_brings_the_durable_mark_up_to_date(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    write_groups(store, 5)
    store.close()
    mark = DurableMark(tmp_path / "durable_mark")
    assert mark.read().version == 5
    mark.close()


def test_another_number_of_shards_is_refused_with_both_numbers(tmp_path: Path) -> None:
    open_store(tmp_path, shard_count=SHARDS).close()
    with pytest.raises(StoreRefused, match="made with 64 shards and cannot be opened with 16"):
        open_store(tmp_path, shard_count=16)
    open_store(tmp_path, shard_count=SHARDS).close()


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    newer = FORMAT_VERSION + 1
    store.write([CommitGroup(1, [(Family.META, b"format_version", newer.to_bytes(8, "big"))])])
    store.close()
    before = contents(tmp_path)
    with pytest.raises(StoreRefused, match=f"has format {newer}, this program knows formats up to {FORMAT_VERSION}"):
        open_store(tmp_path, shard_count=SHARDS)
    with pytest.raises(StoreRefused, match=f"has format {newer}"):
        open_read_only(tmp_path)
    assert contents(tmp_path) == before


def test_a_store_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    mark = DurableMark(tmp_path / "durable_mark")
    mark.write(Marked(0))
    mark.close()
    bare = Rdict(str(tmp_path / "store"), Options(raw_mode=True))
    bare.create_column_family("META", Options(raw_mode=True))
    bare.close()
    (tmp_path / "LOCK").touch()
    with pytest.raises(StoreRefused, match="no finished store"):
        open_read_only(tmp_path)
    store = open_store(tmp_path, shard_count=SHARDS)
    write_groups(store, 1)
    store.close()
    store = open_store(tmp_path, shard_count=SHARDS)
    assert store.version() == 1
    store.close()


def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefused, match="cannot be made or used"):
        open_store(tmp_path / "file" / "store", shard_count=SHARDS)


def test_a_damaged_block_is_told_to_its_readers_and_nothing_else_fails(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    for version in range(1, 5):
        rows = [(Family.LOG, (version * 1000 + n).to_bytes(4, "big"), bytes(200)) for n in range(500)]
        store.write([CommitGroup(version, rows)])
    store.close()
    # Recovery moves the log into sorted files.
    open_store(tmp_path, shard_count=SHARDS).close()
    damage_middle(max((tmp_path / "store").glob("*.sst"), key=lambda path: path.stat().st_size))
    store = open_store(tmp_path, shard_count=SHARDS)
    for rows in (store.scan, store.scan_backwards):
        with pytest.raises(StoreDamaged, match="block checksum mismatch") as damage:
            list(rows(Family.LOG, b"", b"\xff" * 5))
        assert (damage.value.family, damage.value.key) == (Family.LOG, None)
    assert store.get(Family.LOG, (1000).to_bytes(4, "big")) == bytes(200)
    store.write([CommitGroup(5, [(Family.LOG, b"a", b"")])])
    store.sync()
    assert store.get(Family.LOG, b"a") == b""
    store.close()


def test_rows_of_a_damaged_block_can_be_read_unverified_and_never_reach_the_cache(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    rows = [(Family.LOG, n.to_bytes(4, "big"), n.to_bytes(200, "big")) for n in range(2_000)]
    store.write([CommitGroup(1, rows)])
    store.close()
    open_store(tmp_path, shard_count=SHARDS).close()
    [file] = [path for path in (tmp_path / "store").glob("*.sst") if rows[1_000][2] in path.read_bytes()]
    stored = file.read_bytes()
    flipped = rows[1_000][2][:-3] + b"\x01" + rows[1_000][2][-2:]
    file.write_bytes(stored.replace(rows[1_000][2], flipped, 1))
    store = open_store(tmp_path, shard_count=SHARDS)
    for _ in range(2):
        found = dict(store.scan_unverified(Family.LOG, b"", b"\xff" * 5))
        assert found.pop(rows[1_000][1]) == flipped
        assert found.items() == {(key, value) for _, key, value in rows if key != rows[1_000][1]}
        with pytest.raises(StoreDamaged):
            store.get(Family.LOG, rows[1_000][1])
    store.close()


def test_statistics_tell_where_the_bytes_are(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    empty = store.statistics()
    store.write([CommitGroup(1, [(Family.LOG, b"a", bytes(100_000))])])
    written = store.statistics()
    assert written.wal_bytes >= empty.wal_bytes + 100_000
    assert written.memtable_bytes > empty.memtable_bytes
    assert written.write_stalls == 0
    store.close()
    store = open_store(tmp_path, shard_count=SHARDS)
    assert store.statistics().sst_bytes >= 100_000
    store.close()


def test_what_is_kept_of_sorted_files_lies_in_the_cache_and_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Indexes and filters of a file are about a hundredth of it. Beside the cache they would stay for ever."""
    kept_bytes_max = 64 * 1024
    options = StoreOptions(write_buffer_bytes=4 << 20, block_cache_bytes=4 << 20)
    store = open_store(tmp_path, shard_count=SHARDS, options=options)
    for version in range(1, 101):
        key = version.to_bytes(4, "big")
        rows = [(Family.LOG, key + number.to_bytes(4, "big"), bytes(1) + random_bytes(1_000)) for number in range(200)]
        rows += [(Family.PRODUCERS, random_bytes(12), bytes(40)) for _ in range(200)]
        store.write([CommitGroup(version, rows)])
    store.sync()
    store.close()
    store = open_store(tmp_path, shard_count=SHARDS, options=options)
    assert sum(1 for _ in store.scan(Family.LOG, b"", bytes([255] * 8))) == 20_000
    statistics = store.statistics()
    assert statistics.sst_bytes > 20_000_000
    assert statistics.table_readers_bytes < kept_bytes_max
    assert 0 < statistics.block_cache_bytes <= options.block_cache_bytes
    store.close()
