"""A process that dies before any chosen step of what it writes: `python -m tests.store.dying DIR`.

It goes through one story of a store, which makes everything that is written outside of rows or beside them: the making,
groups with values in segments (one of them with a marker's tail), the removal of a segment, a second directory for a
backup, marks, an end in order, a newer program, a loss that is accepted. Each call by which Python changes a file, or
has RocksDB change one, is a step, found by watching the interpreter: so a step that is added to the product is one here
too. One child goes through all of the story and tells its steps. For every step another goes through it up to that one
and dies, and a third opens what is left as a server does, and tells what it finds. A step is known by its place in the
product and by how often it was passed there, because RocksDB's threads and those of the store change the order a
little.

Printed is a line of JSON for each step: where in the product it is, what it calls, and what is wrong where a process
died before it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn
from unittest.mock import patch

from coordinator_protocol.batch import HEADER_BYTES_COUNTED, BatchHeader, Encoding, encode_offsetless, pack_place
from coordinator_protocol.marker import Marker, Outcome, marker_row
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store, opening
from coordinator_runtime.rocks.segment_rows import NAMED_PREFIX, named_of
from coordinator_runtime.rocks.segments import SegmentOptions, segment_path, segments_in
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_runtime.running_version import running_version
from coordinator_runtime.store import CommitGroup, Family, Mutation, StoreRefused, StoreUnreadable
from partition_log.codec import log_key, partition_key

SHARDS: Final = 4
OPTIONS: Final = StoreOptions(segments=SegmentOptions(value_bytes_min=2_000, segment_bytes_max=9_000))
NEWER: Final = "9999.1"
"""The version of a newer program."""
CHANGES: Final = frozenset(
    {"open", "write", "writev", "pwrite", "fsync", "fdatasync", "ftruncate", "truncate", "mkdir", "rename", "replace"}
    | {"unlink", "remove", "rmdir", "utime", "chmod", "link", "symlink"}
)
"""Calls of `os` that change a file, or may."""
LOOKS: Final = frozenset(
    {
        "stat",
        "lstat",
        "fstat",
        "scandir",
        "listdir",
        "pread",
        "read",
        "close",
        "fspath",
        "getpid",
        "strerror",
        "urandom",
    }
    | {"fsdecode", "access", "getcwd", "register_at_fork", "lseek", "isatty"}
)
ROCKSDB_CHANGES: Final = frozenset(
    {"write", "put", "delete", "flush_wal", "flush", "create_checkpoint", "close", "create_column_family"}
    | {"set_options", "compact_range"}
)
"""Calls of rocksdict that change a file, or may. That it opens a database is no call that can be watched: the step
before it stands for that."""
ROCKSDB_LOOKS: Final = frozenset(
    {"get", "iter", "seek", "valid", "key", "value", "next", "status", "get_column_family", "get_column_family_handle"}
    | {
        "list_cf",
        "load_latest",
        "property_int_value",
        "items",
        "seek_for_prev",
        "prev",
        "path",
        "cancel_all_background",
    }
)

_Died: Final = 77
_LARGE: Final = range(2, 8)
"""Groups with a large row."""
_LOST: Final = range(5, 8)
"""Groups whose values lie in the segment that is lost at the end."""
_LAST_VERSION: Final = 10


Step = tuple[str, str, str, int]
"""File and function of the product, what it calls, and how often it was passed."""


class Watch:
    """Tells of every step, or dies before one of them."""

    def __init__(self, last: Step | None, note: Callable[[str], None]) -> None:
        self._passed: Counter[tuple[str, str, str]] = Counter()
        self._last = last
        self._note = note

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        name, module = called.__name__, getattr(called, "__module__", None)
        owner = type(getattr(called, "__self__", None))
        if module == "posix" and name not in LOOKS:
            assert name in CHANGES, f"os.{name}: say in {__name__} whether it changes a file"
            self._pass(frame, f"os.{name}")
        elif owner.__module__.startswith(("rocksdict", "builtins")) and owner.__name__ in {
            "Rdict",
            "RdictIter",
            "Checkpoint",
        }:
            if name in ROCKSDB_CHANGES:
                self._pass(frame, f"RocksDB {name}")
            else:
                assert name in ROCKSDB_LOOKS, f"{owner.__name__}.{name}: say in {__name__} whether it changes a file"
        elif module in {"_io", "io"} and name == "open":
            self._pass(frame, "open")

    def _pass(self, frame: FrameType | None, what: str) -> None:
        while frame is not None and "coordinator_runtime" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None:
            return
        place = (Path(frame.f_code.co_filename).name, frame.f_code.co_name, what)
        self._passed[place] += 1
        step = (*place, self._passed[place])
        if self._last is None:
            self._note(json.dumps(step))
        elif step == self._last:
            sys.setprofile(None)
            os._exit(_Died)


def _large_row(offset: int) -> bytes:
    """The row of a whole transaction that lies in a segment, with its marker behind it."""
    header = BatchHeader(
        base_offset=offset - 1,
        record_count=1,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
        is_transactional=True,
    )
    rest, payload = encode_offsetless(header, bytes([offset]) * 3_000)
    batch = pack_place(offset - 1, HEADER_BYTES_COUNTED + len(payload), 0) + rest + payload
    marker = Marker(
        producer_id=7,
        txn_epoch=0,
        next_epoch=1,
        coordinator_shard=0,
        coordinator_epoch=1,
        outcome=Outcome.COMMIT,
        csn=1,
    )
    return marker_row(marker, first_offset=offset - 1, offset=offset, leader_epoch=0, now_ms=1, behind=batch)


def _large_key(version: int) -> bytes:
    return log_key(1 + version % 2, 2 * version)


def group(version: int) -> CommitGroup:
    """One that puts its version into every family. Some have a large row of one of two partitions, and one removes what
    lies in the first segment."""
    small = version.to_bytes(8, "big")
    families = (family for family in Family if family not in (Family.META, Family.LOG))
    rows: list[Mutation] = [(family, b"\xf0" + small, small) for family in families]
    rows.append((Family.LOG, log_key(9, version), small))
    if version in _LARGE:
        rows.append((Family.LOG, _large_key(version), _large_row(2 * version)))
    deleted: tuple[tuple[Family, bytes, bytes], ...] = ()
    if version == 8:
        deleted = tuple((Family.LOG, partition_key(each), log_key(each, 10)) for each in (1, 2))
    return CommitGroup(version, rows, deleted, size_bytes=sum(len(row or b"") for _, _, row in rows))


def rows_up_to(version: int) -> dict[tuple[Family, bytes], bytes]:
    """All rows but those of META."""
    rows: dict[tuple[Family, bytes], bytes] = {}
    for number in range(1, version + 1):
        each = group(number)
        rows.update({(family, key): value for family, key, value in each.mutations if value is not None})
        for family, start, end in each.deleted_ranges:
            rows = {place: row for place, row in rows.items() if place[0] is not family or not start <= place[1] < end}
    return rows


def tell(directory: Path, note: Callable[[str], None], watch: Watch) -> None:
    """The story. What is durable by now is noted, unwatched."""

    def noted(what: str) -> None:
        sys.setprofile(None)
        note(what)
        sys.setprofile(watch)

    def write_up_to(store: RocksStore, version: int) -> None:
        for number in range(store.version() + 1, version + 1):
            store.write([group(number)])
            store.sync()
            noted(f"durable {number}")

    # A checkout asks git, once in a process, which is no step of the store.
    running_version()
    sys.setprofile(watch)
    store = open_store(directory, shard_count=SHARDS, options=OPTIONS)
    write_up_to(store, 4)
    store.mark_durable(4)
    write_up_to(store, 8)
    store.checkpoint().remove()
    store.close()
    # A file that no row names, as a death leaves behind.
    sys.setprofile(None)
    segment_path(StoreDirectory(directory).segments_path, 9).touch()
    sys.setprofile(watch)
    with patch.object(opening, "running_version", lambda: NEWER):
        store = open_store(directory, shard_count=SHARDS, options=OPTIONS)
        noted("newer")
        write_up_to(store, 9)
        store.close()
    noted("losing")
    sys.setprofile(None)
    found = StoreDirectory(directory)
    found.durable_mark_path.unlink()
    (lost,) = segments_in(found.segments_path)
    segment_path(found.segments_path, lost).unlink()
    sys.setprofile(watch)
    store = open_store(directory, shard_count=SHARDS, options=OPTIONS, accept_data_loss=True)
    noted("accepted")
    write_up_to(store, _LAST_VERSION)
    store.close()
    sys.setprofile(None)


def look(directory: Path, noted: list[str]) -> str:
    """Describe a fault of the store that is left; "" = none."""
    told = [int(each.split()[1]) for each in noted if each.startswith("durable")]
    acknowledged = max(told, default=0)
    is_losing = "losing" in noted
    try:
        store = open_store(directory, shard_count=SHARDS, options=OPTIONS)
    except StoreRefused as refusal:
        if not is_losing or "accepted" in noted or "--accept-data-loss" not in str(refusal):
            return f"refused: {refusal}"
        store = open_store(directory, shard_count=SHARDS, options=OPTIONS, accept_data_loss=True)
    version = store.version()
    if not acknowledged <= version <= acknowledged + 1:
        return f"version {version}, and {acknowledged} was durable"
    if is_losing != (store.incarnation.cause is IncarnationCause.DATA_LOSS):
        return f"in {store.incarnation}"
    wrong = _wrong_rows(store, version, is_losing=is_losing) or _wrong_files(store)
    if "newer" in noted and store.get(Family.META, b"writer") != NEWER.encode():
        return "the newest writer is forgotten"
    if store.get(Family.META, b"writer") not in (NEWER.encode(), running_version().encode()):
        return "it was never written"
    store.write([group(version + 1)])
    store.sync()
    store.close()
    store = open_store(directory, shard_count=SHARDS, options=OPTIONS)
    wrong = wrong or _wrong_rows(store, version + 1, is_losing=is_losing)
    store.close()
    return wrong


def _wrong_rows(store: RocksStore, version: int, *, is_losing: bool) -> str:
    expected = rows_up_to(version)
    for family in Family:
        if family is Family.META:
            continue
        keys = [key for key, _value in store.scan_headers(family, b"", b"\xff" * 20)]
        if keys != sorted(key for of, key in expected if of is family):
            return f"rows of {family.name} at version {version}: {keys}"
    for (family, key), value in expected.items():
        try:
            found = store.get(family, key)
        except StoreUnreadable as lost:
            if not is_losing or key not in map(_large_key, _LOST):
                return str(lost)
        else:
            if found != value:
                return f"{family.name} {key.hex()} at version {version} is {found!r}"
    return ""


def _wrong_files(store: RocksStore) -> str:
    rows = store.scan(Family.META, NAMED_PREFIX, NAMED_PREFIX + b"\xff" * 9)
    named, there = {named_of(key)[0] for key, _ in rows}, segments_in(StoreDirectory(store.directory).segments_path)
    return "" if named == there else f"segments {there}, and rows name {named}"


def _in_a_child(work: Callable[[Callable[[str], None]], None]) -> tuple[int, list[str]]:
    """Its exit status and what it noted."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            with os.fdopen(write, "w", buffering=1) as pipe:
                work(partial(print, file=pipe))
            _end(0)
        finally:
            # The work failed, with the reason on stderr.
            traceback.print_exc()
            _end(1)
    os.close(write)
    with os.fdopen(read) as notes:
        noted = notes.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), noted


def _tell_up_to(directory: Path, step: Step | None, note: Callable[[str], None]) -> None:
    tell(directory, note, Watch(step, note))


def _look(directory: Path, noted: list[str], note: Callable[[str], None]) -> None:
    note(look(directory, noted))


def _end(status: int) -> NoReturn:
    sys.setprofile(None)
    os._exit(status)


def deaths(scratch: Path) -> Iterator[tuple[str, str, str, str]]:
    """A death before each step: file and function of the product, what it calls, and what is wrong afterwards."""
    status, told = _in_a_child(partial(_tell_up_to, scratch / "whole", None))
    if status != 0:
        yield "", "", "", f"the story ended with {status}: {told}"
        return
    steps: list[Step] = [tuple(json.loads(line)) for line in told if line.startswith("[")]
    for number, step in enumerate(steps):
        directory, (file, function, what, _passed) = scratch / str(number), step
        status, noted = _in_a_child(partial(_tell_up_to, directory, step))
        if status == 0:
            # This time it was not passed so often.
            continue
        if status != _Died:
            yield file, function, what, f"the story ended with {status}: {noted}"
            continue
        status, found = _in_a_child(partial(_look, directory, noted))
        yield file, function, what, "\n".join(found) if status == 0 else f"status {status}: {found}"


if __name__ == "__main__":
    for death in deaths(Path(sys.argv[1])):
        print(json.dumps(death), flush=True)
