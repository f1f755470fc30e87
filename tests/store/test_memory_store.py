"""Abilities of the memory store beyond the port: it crashes and fails, as a disk would."""

from __future__ import annotations

import errno

import pytest

from coordinator_runtime.store import CommitGroup, Family, StoreFailed
from tests.harness.memory_store import MemoryStore

EIO = OSError(errno.EIO, "Input/output error")
ENOSPC = OSError(errno.ENOSPC, "No space left on device")


def group(version: int) -> CommitGroup:
    """Adds one key, changes another, deletes a third and a range: everything that a crash must take back."""
    return CommitGroup(
        version,
        [
            (Family.LOG, b"log%03d" % version, b"row"),
            (Family.PRODUCERS, b"producer", b"%d" % version),
            (Family.PARTITIONS, b"gone%03d" % (version - 1), None),
            (Family.PARTITIONS, b"gone%03d" % version, b"%d" % version),
        ],
        [(Family.LOG, b"log000", b"log%03d" % (version - 1))],
    )


def contents(store: MemoryStore) -> dict[Family, list[tuple[bytes, bytes]]]:
    return {family: list(store.scan(family, b"", b"\xff")) for family in Family}


def written(count: int) -> MemoryStore:
    store = MemoryStore()
    for version in range(1, count + 1):
        store.write([group(version)])
    return store


def test_a_crash_loses_what_was_not_synced() -> None:
    store = written(3)
    store.sync()
    store.write([group(4), group(5)])
    found = store.crash()
    assert found.version() == 3
    assert contents(found) == contents(written(3))


@pytest.mark.parametrize("kept", range(5))
def test_a_crash_may_keep_any_prefix_of_what_was_not_synced(kept: int) -> None:
    store = written(2)
    store.sync()
    store.write([group(version) for version in range(3, 7)])
    assert store.unsynced_groups == 4
    found = store.crash(kept_groups=kept)
    assert found.version() == 2 + kept
    assert contents(found) == contents(written(2 + kept))


def test_what_a_restart_found_is_on_disk() -> None:
    found = written(3).crash(kept_groups=2)
    assert found.unsynced_groups == 0
    assert found.crash().version() == 2


def test_a_crashed_store_is_of_no_use() -> None:
    store = written(1)
    store.sync()
    left_open = store.scan(Family.LOG, b"", b"\xff")
    store.crash()
    with pytest.raises(StoreFailed, match="has crashed"):
        store.get(Family.PRODUCERS, b"producer")
    with pytest.raises(StoreFailed, match="has crashed"):
        store.write([group(2)])
    assert list(left_open) == []


@pytest.mark.parametrize("error", [EIO, ENOSPC])
def test_after_a_failed_sync_nothing_works_and_anything_may_be_on_disk(error: OSError) -> None:
    store = written(1)
    store.sync()
    store.write([group(2)])
    store.fail_next_sync(error)
    for call in (store.sync, store.version, lambda: store.write([group(3)]), lambda: store.last(Family.LOG, b"")):
        with pytest.raises(StoreFailed) as failure:
            call()
        assert failure.value.__cause__ is error
    store.close()
    assert store.unsynced_groups == 1
    assert store.crash(kept_groups=1).version() == 2


@pytest.mark.parametrize("kept", [0, 1])
def test_a_failed_write_may_have_been_written(kept: int) -> None:
    store = written(1)
    store.sync()
    store.fail_next_write(ENOSPC)
    with pytest.raises(StoreFailed, match="No space left"):
        store.write([group(2)])
    with pytest.raises(StoreFailed, match="No space left"):
        store.sync()
    assert store.crash(kept_groups=kept).version() == 1 + kept
