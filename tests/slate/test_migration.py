"""A store moves from a directory into a bucket and back, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from coordinator_runtime import migration
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.migration import migrate_to_bucket, migrate_to_directory
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import open_slate_stopped, open_slate_store
from coordinator_runtime.store import CommitGroup, Family, Store, StoreFenced, StoreReads, StoreRefused
from partition_log.codec import log_key
from tests.harness.manual_clock import ManualClock
from tests.harness.object_store import ObjectServer

SHARDS = 4
END = b"\xff" * 16
LARGE = b"\x00" + b"large" * 20_000
"""A value that lies in a segment of RocksDB."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ms=1_800_000_000_000)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A stopped store with rows in all families, a large one and a deleted range."""
    path = tmp_path / "original"
    store = open_store(path, shard_count=SHARDS)
    rows = [(family, log_key(1, number), b"value") for family in Family for number in range(20)]
    store.write([CommitGroup(1, [each for each in rows if each[0] is not Family.META])])
    removed = (Family.LOG, log_key(1, 0), log_key(1, 5))
    store.write([CommitGroup(2, [(Family.LOG, log_key(1, 20), LARGE)], [removed])])
    store.close()
    return path


def write_late(store: Store) -> None:
    store.write([CommitGroup(store.version() + 1, [(Family.PRODUCERS, b"late", b"")])])
    store.sync()


def rows_of(store: StoreReads) -> dict[Family, list[tuple[bytes, bytes]]]:
    return {family: list(store.scan(family, b"", END)) for family in Family if family is not Family.META}


def test_a_store_goes_into_a_bucket_and_back(directory: Path, address: str, tmp_path: Path, clock: ManualClock) -> None:
    location = parse_location(address)
    count, there = migrate_to_bucket(directory, location, clock=clock, pause=clock.advance)
    clock.advance(5_000)
    _count, back = migrate_to_directory(location, tmp_path / "back", clock=clock, pause=clock.advance)
    with (
        closing(open_read_only(directory)) as original,
        closing(open_slate_stopped(location)) as in_bucket,
        closing(open_read_only(tmp_path / "back")) as returned,
    ):
        assert rows_of(original) == rows_of(in_bucket) == rows_of(returned)
        assert count >= sum(map(len, rows_of(original).values()))
        assert original.identity.store_id == in_bucket.identity.store_id == returned.identity.store_id
        assert (in_bucket.incarnation, returned.incarnation) == (there, back)
        assert original.incarnation.number < there.number < back.number
        assert there.cause is IncarnationCause.RESTORE
        assert returned.loss is None
    open_store(tmp_path / "back", shard_count=SHARDS).close()


def test_a_server_of_the_bucket_is_fenced_before_its_store_is_copied(
    directory: Path, address: str, tmp_path: Path, clock: ManualClock
) -> None:
    location = parse_location(address)
    migrate_to_bucket(directory, location, clock=clock, pause=clock.advance)
    serving = open_slate_store(location, shard_count=SHARDS, clock=clock)
    migrate_to_directory(location, tmp_path / "back", clock=clock, pause=clock.advance)
    with pytest.raises(StoreFenced):
        write_late(serving)


def test_a_copy_that_was_cut_short_is_opened_by_no_program(
    directory: Path, address: str, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = parse_location(address)
    whole = migration._rows_of

    def cut_short(store: StoreReads) -> Iterator[tuple[Family, bytes, bytes]]:
        yield next(whole(store))
        raise KeyboardInterrupt

    monkeypatch.setattr(migration, "_rows_of", cut_short)
    with pytest.raises(KeyboardInterrupt):
        migrate_to_bucket(directory, location, clock=clock, pause=clock.advance)
    with pytest.raises(StoreRefused, match=r"the row '!unfinished_copy' in META"):
        open_slate_store(location, shard_count=SHARDS, clock=clock)
    with pytest.raises(StoreRefused, match=r"there is a store at .* or a part of one: name another prefix"):
        migrate_to_bucket(directory, location, clock=clock, pause=clock.advance)


def test_a_copy_into_a_directory_that_was_cut_short_is_not_opened(
    directory: Path, address: str, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = parse_location(address)
    migrate_to_bucket(directory, location, clock=clock, pause=clock.advance)
    monkeypatch.setattr(migration, "_copied", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        migrate_to_directory(location, tmp_path / "back", clock=clock, pause=clock.advance)
    with pytest.raises(StoreRefused, match="was cut short"):
        open_store(tmp_path / "back", shard_count=SHARDS)


def test_what_differs_is_found(
    directory: Path, address: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = migration._rows_of
    calls: list[int] = []

    def spoilt(store: StoreReads) -> Iterator[tuple[Family, bytes, bytes]]:
        calls.append(1)
        rows = list(whole(store))
        return iter(rows[:-1] if len(calls) == 1 else rows)

    monkeypatch.setattr(migration, "_rows_of", spoilt)
    with pytest.raises(StoreRefused, match=r"differs at .* of HISTORY: it cannot be opened; remove it"):
        migrate_to_bucket(directory, parse_location(address), clock=clock, pause=clock.advance)


def test_a_directory_that_is_not_empty_is_refused(
    server: ObjectServer, address: str, tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreRefused, match="is not empty"):
        migrate_to_directory(parse_location(address), tmp_path, clock=clock, pause=clock.advance)
