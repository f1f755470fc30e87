"""A damaged block costs its readers what it held, and not the store: compaction leaves its file alone."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from coordinator_runtime.store import CommitGroup, Family, StoreDamaged, StoreFailed, StoreUnreadable

SHARDS = 4
OPTIONS = StoreOptions(write_buffer_bytes=512 * 1024)
"""Small, so that sorted files come and are compacted often."""
GROUPS_ENOUGH = 200
"""Number of commit groups: of 100 kB each, they fill dozens of files. RocksDB takes no more than 36 that are not
compacted, if it compacts."""


def fill(store: RocksStore, groups: int) -> None:
    """Write rows that overlap with all others, so that a compaction must look into them."""
    for _ in range(groups):
        version = store.version() + 1
        rows = [(Family.LOG, n.to_bytes(4, "big") + version.to_bytes(8, "big"), bytes(500)) for n in range(200)]
        store.write([CommitGroup(version, rows)])
    store.sync()


def opened(path: Path) -> RocksStore:
    return open_store(path, shard_count=SHARDS, options=OPTIONS)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A directory with a damaged block in a sorted file that the next compaction would read."""
    store = opened(tmp_path)
    value = b"what was written" * 20
    store.write([CommitGroup(1, [(Family.LOG, n.to_bytes(4, "big"), value + b"%d" % n) for n in range(400)])])
    store.close()
    opened(tmp_path).close()
    [file] = [path for path in (tmp_path / "store").glob("*.sst") if value in path.read_bytes()]
    stored = file.read_bytes()
    file.write_bytes(stored.replace(value + b"200", value.upper() + b"200"))
    return tmp_path


def note_of(path: Path) -> list[str]:
    return (path / "damaged_files").read_text().split()


@pytest.mark.slow
def test_damage_that_a_reader_met_never_ends_the_store(damaged: Path) -> None:
    store = opened(damaged)
    with pytest.raises(StoreDamaged):
        store.get(Family.LOG, (200).to_bytes(4, "big"))
    assert store.statistics().damaged_files == 1
    assert note_of(damaged)[1:] == ["LOG"]
    for _ in range(2):
        fill(store, GROUPS_ENOUGH)
        store.close()
        store = opened(damaged)
    assert store.get(Family.LOG, (2).to_bytes(4, "big")) is not None
    store.close()


@pytest.mark.long
@pytest.mark.slow
def test_damage_that_a_compaction_meets_first_ends_the_store_once(damaged: Path) -> None:
    store = opened(damaged)
    with pytest.raises(StoreFailed, match="checksum mismatch"):
        fill(store, GROUPS_ENOUGH)
    store.close()
    assert note_of(damaged)[1:] == ["*"]
    store = opened(damaged)
    fill(store, GROUPS_ENOUGH)
    store.close()


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "damaged_files").write_text("000999.sst LOG\n")
    store = opened(tmp_path)
    assert store.damaged_files.names == []
    assert not any(map(store.damaged_files.spares, Family))
    store.close()


@pytest.mark.parametrize(("noted", "spared"), [("LOG", [Family.LOG]), ("*", list(Family))])
def test_only_the_family_of_the_file_is_left_alone_if_that_is_known(
    tmp_path: Path, noted: str, spared: list[Family]
) -> None:
    opened(tmp_path).close()
    (tmp_path / "store" / "000999.sst").touch()
    (tmp_path / "damaged_files").write_text(f"000999.sst {noted}\n")
    store = opened(tmp_path)
    assert [family for family in Family if store.damaged_files.spares(family)] == spared
    store.close()


def test_a_sorted_file_that_cannot_be_opened_for_lack_of_handles_is_not_damaged(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write([CommitGroup(1, [(family, b"key", b"value") for family in Family])])
    store.close()
    # Made files of the log, and then without any of them open but the first few.
    for _ in range(2):
        store = open_store(tmp_path, shard_count=SHARDS, options=replace(OPTIONS, open_files_max=20))
        store.close()
    store = open_store(tmp_path, shard_count=SHARDS, options=replace(OPTIONS, open_files_max=20))
    met: list[StoreUnreadable] = []
    with no_more_handles():
        for family in Family:
            try:
                store.get(family, b"key")
            except StoreUnreadable as error:
                met.append(error)
    assert met
    assert not any(isinstance(error, StoreDamaged) for error in met), met
    assert store.damaged_files.names == []
    assert [store.get(family, b"key") for family in Family] == [b"value"] * len(Family)
    store.close()


@contextmanager
def no_more_handles() -> Iterator[None]:
    """The process may open no file besides those that it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
