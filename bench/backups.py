"""Measures backups by the amount written since the previous one: `python -m bench.backups`.

A store is filled, and backed up repeatedly while it is open, as a server does it. The first backup reads everything,
for the checksums. Each later one reads only what the previous one does not have.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from random import Random
from time import perf_counter, time_ns
from typing import Final

from coordinator_runtime.backups import create_backup
from coordinator_runtime.rocks import RocksStore, open_store
from coordinator_runtime.store import CommitGroup, Family
from partition_log.codec import log_key

_MIB: Final = 1 << 20
_WRITTEN_SINCE_MIB: Final = (1, 24, 192)
_LARGE_BYTES: Final = 64 << 10
"""Size of large rows, which go to a segment. The other half of the written bytes are small rows, which RocksDB
keeps."""
_SMALL_BYTES: Final = 1_024
_GROUP_BYTES: Final = 1 * _MIB


def main() -> None:
    """Print one line for each backup."""
    parser = argparse.ArgumentParser(prog="python -m bench.backups", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=1_024, help="how much is in the store at first [1024]")
    parser.add_argument("--shelf", type=Path, help="where backups go, on another file system say [beside the store]")
    asked = parser.parse_args()
    print("| written since, MiB | checkpoint, s | then, s | of it read, MiB |")
    print("| --- | --- | --- | --- |")
    with (
        tempfile.TemporaryDirectory(prefix="bench-backups-") as directory,
        tempfile.TemporaryDirectory(prefix="bench-backups-", dir=asked.shelf) as shelf,
    ):
        store = open_store(Path(directory) / "data", shard_count=8)
        try:
            for mib in (asked.mib, *_WRITTEN_SINCE_MIB):
                _write(store, mib * _MIB)
                print(f"| {mib} | {_backed_up(store, Path(shelf))} |", flush=True)
        finally:
            store.close()


def _write(store: RocksStore, size_bytes: int) -> None:
    random_bytes, version = Random(size_bytes).randbytes, store.version()
    for _ in range(size_bytes // _GROUP_BYTES):
        version += 1
        small = [random_bytes(_SMALL_BYTES) for _ in range(_GROUP_BYTES // 2 // _SMALL_BYTES)]
        large = [random_bytes(_LARGE_BYTES) for _ in range(_GROUP_BYTES // 2 // _LARGE_BYTES)]
        rows = [
            (Family.LOG, log_key(1, version * 10_000 + number), b"\0" + value)
            for number, value in enumerate((*small, *large))
        ]
        store.write([CommitGroup(version, rows, size_bytes=_GROUP_BYTES)])
        store.sync()


def _backed_up(store: RocksStore, shelf: Path) -> str:
    begin = perf_counter()
    checkpoint = store.checkpoint()
    taken = perf_counter()
    try:
        manifest = create_backup(checkpoint, shelf, now_ms=time_ns() // 1_000_000)
    finally:
        checkpoint.remove()
    done = perf_counter()
    names = sorted(
        each.name for each in shelf.iterdir() if (each / "manifest.json").exists() and each.name < manifest.name
    )
    before = {file.stat().st_ino for file in (shelf / names[-1]).rglob("*")} if names else set()
    new = [file for file in (shelf / manifest.name).rglob("*") if file.is_file() and file.stat().st_ino not in before]
    read_mib = sum(file.stat().st_size for file in new) / _MIB
    return f"{taken - begin:.2f} | {done - taken:.2f} | {read_mib:.0f}"


if __name__ == "__main__":
    main()
