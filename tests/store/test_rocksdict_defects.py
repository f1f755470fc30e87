"""Defects of the rocksdict we use, pinned: a test that fails here says that `coordinator_runtime/rocks` may drop a
precaution, or needs another one. The last tests show that the precautions work."""

from __future__ import annotations

import gc
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import AccessType, Options, Rdict, RdictIter, ReadOptions, WriteBatch

from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.store import CommitGroup, Family
from tests.harness import forked
from tests.store.damage import GROUPS, built

ROWS = 20
BOUND = 7


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Rdict]:
    opened = Rdict(str(tmp_path / "raw"), Options(raw_mode=True))
    for number in range(ROWS):
        opened.put(key(number), b"value")
    yield opened
    opened.close()


def key(number: int) -> bytes:
    return b"key%02d" % number


def rows_left(iterator: RdictIter) -> int:
    count = 0
    while iterator.valid():
        count += 1
        iterator.next()
    return count


UPPER_BOUND_TRIES = 200


def churn() -> list[bytes]:
    """Takes the memory that was just freed."""
    gc.collect()
    return [b"\xffzz%03d" % number for number in range(100)]


def test_the_lower_bound_still_sets_the_upper_one(database: Rdict) -> None:
    options = ReadOptions()
    options.set_iterate_lower_bound(key(BOUND))
    iterator = database.iter(options)
    iterator.seek_to_first()
    assert rows_left(iterator) == BOUND


def test_the_upper_bound_is_still_lost_with_its_owners(database: Rdict) -> None:
    """The memory where the bound was holds random bytes, now and then the bound itself: so it is tried more than
    once."""

    def rows_seen() -> int:
        def bounded() -> RdictIter:
            options = ReadOptions()
            options.set_iterate_upper_bound(key(BOUND))
            return database.iter(options)

        iterator = bounded()
        occupied = churn()
        iterator.seek_to_first()
        assert occupied
        return rows_left(iterator)

    assert any(rows_seen() != BOUND for _ in range(UPPER_BOUND_TRIES))


def test_the_iterator_of_a_snapshot_still_ignores_it(database: Rdict) -> None:
    snapshot = database.snapshot()
    database.put(b"later", b"")
    assert b"later" in list(snapshot.keys())
    del snapshot


def test_a_failed_write_still_uses_up_its_batch(database: Rdict, tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    reader = Rdict(str(tmp_path / "raw"), options, access_type=AccessType.read_only(False))
    batch = WriteBatch(raw_mode=True)
    batch.put(b"a", b"b")
    with pytest.raises(Exception, match="read only mode"):
        reader.write(batch)
    with pytest.raises(Exception, match="already consumed"):
        database.write(batch)
    reader.close()


def test_close_still_keeps_the_lock_while_a_family_is_alive(tmp_path: Path) -> None:
    options = Options(raw_mode=True)
    first = Rdict(str(tmp_path), options)
    family = first.create_column_family("family", Options(raw_mode=True))
    first.close()
    families = {"family": options}
    with pytest.raises(Exception, match="lock hold by current process"):
        Rdict(str(tmp_path), options, column_families=families)
    del family
    Rdict(str(tmp_path), options, column_families=families).close()


def test_items_still_end_silently_at_a_damaged_block(tmp_path: Path) -> None:
    written = Rdict(str(tmp_path), Options(raw_mode=True))
    for number in range(2000):
        written.put(number.to_bytes(4, "big"), bytes(range(100)))
    written.flush()
    written.close()
    [file] = tmp_path.glob("*.sst")
    stored = bytearray(file.read_bytes())
    middle = len(stored) // 2
    stored[middle : middle + 64] = b"\xff" * 64
    file.write_bytes(stored)
    damaged = Rdict(str(tmp_path), Options(raw_mode=True))
    assert len(list(damaged.items())) < 2000
    iterator = damaged.iter()
    iterator.seek_to_first()
    assert rows_left(iterator) < 2000
    with pytest.raises(Exception, match="block checksum mismatch"):
        iterator.status()
    del iterator
    damaged.close()


READER = """
import sys
from rocksdict import AccessType, Options, Rdict
families = {name: Options(raw_mode=True) for name in Rdict.list_cf(sys.argv[1]) if name != "default"}
options = Options(raw_mode=True)
options.create_if_missing(False)
Rdict(sys.argv[1], options, column_families=families, access_type=AccessType.read_only(False))
"""


def test_to_read_a_store_with_tracked_logs_without_the_option_still_ends_the_process(tmp_path: Path) -> None:
    built(tmp_path)
    read = forked.run([sys.executable, "-c", READER, str(tmp_path / "live" / "store")])
    assert read.returncode == -signal.SIGSEGV
    store = open_read_only(tmp_path / "live")
    assert store.version() == GROUPS
    store.close()


def test_options_from_a_file_of_options_are_still_raw_and_still_track_the_logs(tmp_path: Path) -> None:
    open_store(tmp_path, shard_count=1).close()
    [written] = (tmp_path / "store").glob("OPTIONS-*")
    assert "  track_and_verify_wals_in_manifest=true\n" in written.read_text()
    assert (tmp_path / "store" / "rocksdict-config.json").read_text().startswith('{"raw_mode":true')


class Neighbour:
    """A thread that takes the interpreter only when it is let go of, and counts how often."""

    def __init__(self) -> None:
        self.turns = 0
        self._is_over = False
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Neighbour:
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        self._thread.start()
        self._is_running.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def _run(self) -> None:
        while not self._is_over:
            self.turns += 1
            self._is_running.set()
            select.select([], [], [], 0)

    def runs_during(self, call: Callable[[], object]) -> bool:
        before = self.turns
        call()
        return self.turns != before


def test_writes_and_reads_still_hold_the_interpreter_and_only_the_sync_lets_go(database: Rdict) -> None:
    def write() -> None:
        batch = WriteBatch(raw_mode=True)
        batch.put(b"large", bytes(1024 * 1024))
        database.write(batch)

    def write_and_sync() -> None:
        write()
        database.flush_wal(True)

    with Neighbour() as neighbour:
        assert not any(neighbour.runs_during(write) for _ in range(20))
        assert not any(neighbour.runs_during(lambda: database.get(b"large")) for _ in range(20))
        # One sync may be over before the neighbour wakes, but not all of them.
        assert any(neighbour.runs_during(write_and_sync) for _ in range(100))


def test_our_scan_keeps_its_bound(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=64)
    store.write([CommitGroup(1, [(Family.LOG, key(number), b"value") for number in range(ROWS)])])
    rows = store.scan(Family.LOG, key(2), key(BOUND))
    occupied = churn()
    assert [found for found, _ in rows] == [key(number) for number in range(2, BOUND)]
    assert occupied
    store.close()


def test_our_sync_lets_the_loop_run(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=64)

    def write_and_sync() -> None:
        store.write([CommitGroup(store.version() + 1, [(Family.LOG, b"large", bytes(1024 * 1024))])])
        store.sync()

    with Neighbour() as neighbour:
        assert any(neighbour.runs_during(write_and_sync) for _ in range(100))
    store.close()
