"""Large values lie in segment files: no reader and no crash shows it."""

from __future__ import annotations

import errno
import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_runtime.rocks import RocksStore, StoreOptions, open_read_only, open_store, segments
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.store import (
    CommitGroup,
    Family,
    KeyRange,
    Mutation,
    StoreDamaged,
    StoreFailed,
    StoreRefused,
    StoreUnreadable,
)
from partition_log.codec import log_key, partition_key
from tests.harness import forked
from tests.store.reclaiming import finish_reclaiming

LARGE = b"\0" + b"large" * 20
SMALL = b"\0small"
OPTIONS = StoreOptions(segments=SegmentOptions(value_bytes_min=100, segment_bytes_max=250))
END = b"\xff" * 12


class Shelf:
    """A store in a directory, with the groups counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = self._opened()

    def _opened(self) -> RocksStore:
        return open_store(self.path, shard_count=64, options=OPTIONS)

    def write(self, *mutations: Mutation, deleted: tuple[KeyRange, ...] = ()) -> None:
        size = sum(len(value or b"") for _, _, value in mutations)
        self.store.write([CommitGroup(self.store.version() + 1, mutations, deleted, size)])

    def commit(self, *mutations: Mutation, deleted: tuple[KeyRange, ...] = ()) -> None:
        self.write(*mutations, deleted=deleted)
        self.store.sync()

    def put(self, partition: int, offset: int, value: bytes = LARGE) -> None:
        self.commit((Family.LOG, log_key(partition, offset), value))

    def delete(self, partition: int) -> None:
        self.commit(deleted=((Family.LOG, partition_key(partition), partition_key(partition + 1)),))

    def rows(self) -> list[tuple[bytes, bytes]]:
        return list(self.store.scan(Family.LOG, b"", END))

    def files(self) -> list[str]:
        """The files that are left once those are gone that may go."""
        finish_reclaiming(self.store)
        return sorted(path.name for path in (self.path / "segments").glob("*"))

    def reopen(self) -> None:
        self.store.close()
        self.store = self._opened()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "data")
    yield shelf
    shelf.store.close()


def test_every_way_to_read_gives_the_value(shelf: Shelf) -> None:
    key, small_key = log_key(1, 5), log_key(1, 6)
    shelf.commit((Family.LOG, key, LARGE), (Family.LOG, small_key, SMALL), (Family.META, b"m", LARGE))
    shelf.put(2, 0, LARGE + b"!")
    for _ in range(2):
        assert shelf.store.get(Family.LOG, key) == LARGE
        assert shelf.rows() == [(key, LARGE), (small_key, SMALL), (log_key(2, 0), LARGE + b"!")]
        assert list(shelf.store.scan_backwards(Family.LOG, b"", END)) == shelf.rows()[::-1]
        assert shelf.store.last(Family.LOG, partition_key(2)) == (log_key(2, 0), LARGE + b"!")
        assert shelf.store.get(Family.META, b"m") == LARGE
        assert shelf.files()
        shelf.reopen()


def test_tools_read_them_in_a_stopped_store(shelf: Shelf) -> None:
    shelf.put(1, 5)
    shelf.store.close()
    looking = open_read_only(shelf.path)
    assert list(looking.scan(Family.LOG, b"", END)) == [(log_key(1, 5), LARGE)]
    looking.close()


def test_their_size_is_told(shelf: Shelf) -> None:
    assert shelf.store.statistics().segment_bytes == 0
    shelf.put(1, 0)
    assert shelf.store.statistics().segment_bytes == len(LARGE)


def test_small_values_make_no_file(shelf: Shelf) -> None:
    shelf.commit((Family.LOG, log_key(1, 5), SMALL))
    assert shelf.files() == []


def test_many_values_of_several_groups_go_in_one_write(shelf: Shelf) -> None:
    groups = [
        CommitGroup(
            version, [(Family.LOG, log_key(version, offset), LARGE) for offset in range(400)], size_bytes=40_000
        )
        for version in (1, 2, 3)
    ]
    shelf.store.write(groups)
    assert [value for _, value in shelf.rows()] == [LARGE] * 1_200


def test_a_file_that_is_full_is_followed_by_another(shelf: Shelf) -> None:
    for offset in range(5):
        shelf.put(1, offset)
    assert len(shelf.files()) == 2
    assert [value for _, value in shelf.rows()] == [LARGE] * 5


def test_no_start_appends_to_an_old_file(shelf: Shelf) -> None:
    shelf.put(1, 0)
    before = (shelf.path / "segments" / shelf.files()[0]).stat().st_size
    shelf.reopen()
    shelf.put(1, 1)
    assert len(shelf.files()) == 2
    assert (shelf.path / "segments" / shelf.files()[0]).stat().st_size == before


def test_the_room_of_deleted_partitions_comes_back_once_the_file_is_not_needed(shelf: Shelf) -> None:
    shelf.put(1, 0)
    shelf.put(2, 0)
    shelf.reopen()
    shelf.put(3, 0)
    shelf.delete(1)
    assert len(shelf.files()) == 2
    shelf.delete(2)
    assert len(shelf.files()) == 1
    assert shelf.rows() == [(log_key(3, 0), LARGE)]


def test_a_file_is_kept_until_the_deletion_is_durable(shelf: Shelf) -> None:
    shelf.put(1, 0)
    shelf.reopen()
    shelf.write(deleted=((Family.LOG, partition_key(1), partition_key(2)),))
    assert len(shelf.files()) == 1
    shelf.store.sync()
    assert shelf.files() == []


def test_the_file_that_is_written_goes_when_the_next_one_begins(shelf: Shelf) -> None:
    shelf.put(1, 0, LARGE * 3)
    shelf.delete(1)
    assert shelf.files() == ["0000000001.segment"]
    shelf.put(2, 0)
    assert shelf.files() == ["0000000002.segment"]


def test_what_no_row_names_is_gone_after_a_start(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(1, 0)
    shelf.reopen()
    monkeypatch.setattr(RocksStore, "_written", _cut_off)
    with pytest.raises(StoreFailed, match="cut off"):
        shelf.put(1, 1)
    monkeypatch.undo()
    assert len(shelf.files()) == 2
    shelf.reopen()
    assert len(shelf.files()) == 1
    assert shelf.rows() == [(log_key(1, 0), LARGE)]


def _cut_off(_store: RocksStore, _batch: object) -> bool:
    raise OSError("cut off")


def test_a_value_is_on_disk_before_the_row_that_names_it_is_written(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync_data, sync_any, written = os.fdatasync, os.fsync, RocksStore._written

    def note_data(file: int) -> None:
        done.append(f"data of {os.fstat(file).st_size} bytes")
        sync_data(file)

    def note_name(file: int) -> None:
        done.append("name")
        sync_any(file)

    def note_row(store: RocksStore, batch: object) -> bool:
        done.append("row")
        return written(store, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(segments.os, "fdatasync", note_data)
    monkeypatch.setattr(segments.os, "fsync", note_name)
    monkeypatch.setattr(RocksStore, "_written", note_row)
    shelf.write((Family.LOG, log_key(1, 0), LARGE))
    assert done == ["name", "name", f"data of {len(LARGE)} bytes", "row"]


@pytest.mark.parametrize("failing", ["writev", "fdatasync", "open"])
def test_a_broken_disk_stops_the_store_and_nothing_is_there(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    shelf.put(1, 0, SMALL)

    def broken(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(segments.os, failing, broken)
    with pytest.raises(StoreFailed, match="Input/output error"):
        shelf.put(1, 1)
    monkeypatch.undo()
    with pytest.raises(StoreFailed):
        shelf.put(1, 2, SMALL)
    shelf.reopen()
    assert shelf.rows() == [(log_key(1, 0), SMALL)]


def test_short_writes_are_finished(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    write_some = os.write
    monkeypatch.setattr(segments.os, "writev", lambda file, buffers: write_some(file, b"".join(buffers)[:70]))
    monkeypatch.setattr(segments.os, "write", lambda file, buffer: write_some(file, bytes(buffer[:50])))
    shelf.commit(*((Family.LOG, log_key(1, offset), LARGE + bytes([offset])) for offset in range(3)))
    assert [value for _, value in shelf.rows()] == [LARGE + bytes([offset]) for offset in range(3)]


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_damage_is_said_and_never_read(shelf: Shelf, damage: str) -> None:
    shelf.put(1, 0)
    file = shelf.path / "segments" / shelf.files()[0]
    match damage:
        case "cut":
            os.truncate(file, len(LARGE) - 1)
        case "changed":
            file.write_bytes(file.read_bytes().replace(b"large", b"LARGE", 1))
        case _:
            file.unlink()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"0000000001\.segment") as told:
            shelf.rows()
        assert (told.value.family, told.value.key) == (Family.LOG, log_key(1, 0))
    with pytest.raises(StoreDamaged):
        shelf.store.get(Family.LOG, log_key(1, 0))
    with pytest.raises(StoreDamaged):
        shelf.store.last(Family.LOG, partition_key(1))
    assert shelf.store.last_key(Family.LOG, partition_key(1)) == log_key(1, 0), "it does not lie there"
    shelf.put(1, 1, SMALL)
    assert shelf.store.get(Family.LOG, log_key(1, 1)) == SMALL, "everything else is read and written"


def test_a_lack_of_file_handles_is_no_damage(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(1, 0)

    def exhausted(*_arguments: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(segments.os, "open", exhausted)
    with pytest.raises(StoreUnreadable, match="cannot be read now") as told:
        shelf.rows()
    assert not isinstance(told.value, StoreDamaged)
    monkeypatch.undo()
    assert shelf.rows() == [(log_key(1, 0), LARGE)]


@pytest.mark.parametrize("row", [b"\xff", b"\xff" + struct.pack(">IQII", 1, 0, 2**32 - 1, 7), b"\xff" * 21])
def test_a_reference_that_was_damaged_itself_is_not_followed_far(shelf: Shelf, row: bytes) -> None:
    shelf.put(1, 0)
    shelf.write((Family.LOG, log_key(1, 1), row))
    with pytest.raises(StoreDamaged) as told:
        shelf.rows()
    assert told.value.key == log_key(1, 1)


@pytest.mark.parametrize("older", [1, 2])
def test_a_store_of_before_the_first_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: int
) -> None:
    monkeypatch.setattr("coordinator_runtime.own_rows.FORMAT_VERSION", older)
    Shelf(tmp_path / "data").store.close()
    monkeypatch.undo()
    with pytest.raises(StoreRefused, match=f"has format {older}, which no release ever wrote"):
        Shelf(tmp_path / "data")


DOOMED = """
import os, signal, sys
from pathlib import Path
from coordinator_runtime import rocks
from coordinator_runtime.rocks import segments
from tests.store.test_segments import LARGE, Shelf
from coordinator_runtime.store import Family
from partition_log.codec import log_key

def dying(before, after):
    def call(*arguments):
        if before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = after(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

shelf = Shelf(Path(sys.argv[1]))
shelf.put(1, 0)
where, name, before = sys.argv[2:]
owner = {"os": segments.os, "store": rocks.RocksStore}[where]
setattr(owner, name, dying(before == "before", getattr(owner, name)))
shelf.put(1, 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "moment", "is_there"),
    [
        ("os", "writev", "before", False),
        ("os", "writev", "after", False),
        ("os", "fdatasync", "after", False),
        ("store", "_written", "after", True),
        ("store", "sync", "after", True),
    ],
)
def test_killed_at_any_step_it_has_the_value_or_no_row(
    tmp_path: Path, where: str, name: str, moment: str, is_there: bool
) -> None:
    dead = forked.run([sys.executable, "-c", DOOMED, str(tmp_path / "data"), where, name, moment])
    assert dead.returncode == -signal.SIGKILL
    shelf = Shelf(tmp_path / "data")
    assert shelf.rows() == [(log_key(1, offset), LARGE) for offset in range(1 + is_there)]
    shelf.put(1, 1)
    assert len(shelf.rows()) == 2
    shelf.store.close()
