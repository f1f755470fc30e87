"""A store that was killed, copies of its files from before, and what can happen to a file.

`python -m tests.store.damage build DIR` makes `DIR/live`, which a process left behind when it died without a word, and
`DIR/earlier` and `DIR/before`, copies of its files. `... look DIR...` opens directories one after the other and prints
what it finds in each; a RocksDB that crashes takes only that process with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.store import CommitGroup, Family, StoreRefused, StoreUnreadable
from tests.harness import forked

ROOT: Final = Path(__file__).parents[2]
SHARDS: Final = 64
FAMILIES: Final = [family for family in Family if family is not Family.META]
OPTIONS: Final = StoreOptions(
    write_buffer_bytes=200_000,
    wal_bytes_max=2_000_000,
    segments=SegmentOptions(value_bytes_min=8_000, segment_bytes_max=40_000),
)
"""Small, so that there are many files: LOG is flushed often, and the others keep many logs alive."""

GROUPS_BEFORE: Final = 100
"""Groups of the first process, which ended in order."""
GROUPS_EARLIER: Final = 250
"""Groups when the second process was copied."""
GROUPS_MARKED: Final = 500
GROUPS: Final = 510
"""Groups when the second process died, all of them synced."""

UNKEPT: Final = frozenset({"LOCK", "rocksdict-config.json"})
"""Files that an attempt to open may touch: nothing is kept in them. So it may the text log of RocksDB, LOG."""


def log_value(version: int) -> bytes:
    """Return the value that group `version` appends to LOG; one of twenty lies in a segment."""
    return version.to_bytes(8, "big") * (1_250 if version % 20 == 0 else 150)


def group(version: int) -> CommitGroup:
    """One that puts its version into every family, so that a family which misses a group gives itself away."""
    # Twelve bytes, as keys of LOG have.
    key = version.to_bytes(12, "big")
    rows = [(family, key, log_value(version) if family is Family.LOG else key) for family in FAMILIES]
    return CommitGroup(version, rows, size_bytes=sum(len(row) for _, _, row in rows))


def write_up_to(store: RocksStore, version: int) -> None:
    for number in range(store.version() + 1, version + 1):
        store.write([group(number)])
        if number % 10 == 0:
            store.sync()


def _build(directory: Path) -> None:
    live = directory / "live"
    store = open_store(live, shard_count=SHARDS, options=OPTIONS)
    write_up_to(store, GROUPS_BEFORE)
    store.close()
    shutil.copytree(live, directory / "before")
    store = open_store(live, shard_count=SHARDS, options=OPTIONS)
    write_up_to(store, GROUPS_EARLIER)
    store.sync()
    store.mark_durable(GROUPS_EARLIER)
    # RocksDB deletes files on threads of its own. Stop while `built` copies.
    os.kill(os.getpid(), signal.SIGSTOP)
    write_up_to(store, GROUPS_MARKED)
    store.sync()
    store.mark_durable(GROUPS_MARKED)
    write_up_to(store, GROUPS)
    store.sync()
    os._exit(0)


def built(directory: Path) -> None:
    """Make `live`, `earlier` and `before` below the directory."""
    with subprocess.Popen([sys.executable, "-m", "tests.store.damage", "build", str(directory)], cwd=ROOT) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it was to stop in the middle"
        shutil.copytree(directory / "live", directory / "earlier")
        process.send_signal(signal.SIGCONT)
    assert process.returncode == 0


Verdict: TypeAlias = tuple[str, str]
"""Result of opening, and the words or the version with it:

`refused`; `whole`: every family is the same prefix of the written groups; `told`: a read named the damage; `WRONG`:
something else was read, without a word; `crashed`: the process ended by a signal or with a traceback."""


def look(directory: Path, *, accept_data_loss: bool = False) -> Verdict:
    """Open the directory as a server does, and read everything."""
    try:
        store = open_store(directory, shard_count=SHARDS, options=OPTIONS, accept_data_loss=accept_data_loss)
    except StoreRefused as refusal:
        return "refused", str(refusal)
    version = store.version()
    keys = [number.to_bytes(12, "big") for number in range(1, version + 1)]
    told = ""
    try:
        for family in FAMILIES:
            rows = list(store.scan(family, b"", b"\xff" * 9))
            values = [log_value(number) for number in range(1, version + 1)] if family is Family.LOG else keys
            if rows != list(zip(keys, values, strict=True)):
                return "WRONG", f"{family.name}: {len(rows)} rows, version {version}"
    except StoreUnreadable as failure:
        told = str(failure)
    finally:
        store.close()
    return ("told", told) if told else ("whole", str(version))


def looked(directories: list[Path]) -> list[Verdict]:
    """Return the verdicts of another process, which RocksDB may crash."""
    verdicts: list[Verdict] = []
    while len(verdicts) < len(directories):
        rest = [str(directory) for directory in directories[len(verdicts) :]]
        arguments = [sys.executable, "-m", "tests.store.damage", "look", *rest]
        ended = forked.run(arguments, cwd=ROOT, capture_output=True, text=True)
        verdicts += [(name, words) for name, words in map(json.loads, ended.stdout.splitlines())]
        if ended.returncode != 0:
            verdicts.append(("crashed", f"status {ended.returncode}: {ended.stderr[-500:]}"))
    return verdicts


def _flipped_at(share: float) -> Callable[[Path, Path], None]:
    def flip(path: Path, _earlier: Path) -> None:
        stored = bytearray(path.read_bytes())
        if stored:
            stored[int(share * (len(stored) - 1))] ^= 0x55
        path.write_bytes(stored)

    return flip


HARMS: Final[dict[str, Callable[[Path, Path], object]]] = {
    "missing": lambda path, _earlier: path.unlink(),
    "emptied": lambda path, _earlier: path.write_bytes(b""),
    "cut in half": lambda path, _earlier: os.truncate(path, path.stat().st_size // 2),
    "cut by one byte": lambda path, _earlier: os.truncate(path, max(0, path.stat().st_size - 1)),
    "first byte flipped": _flipped_at(0),
    "middle byte flipped": _flipped_at(0.5),
    "last byte flipped": _flipped_at(1),
    "older copy": lambda path, earlier: shutil.copyfile(earlier, path) if earlier.exists() else None,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One act of damage to one file of the live store."""

    file: str
    harm: str

    def made(self, base: Path, at: Path) -> Path:
        """A copy of the live store with the damage done."""
        directory = at / f"{self.file}-{self.harm}".replace("/", "-").replace(" ", "-")
        shutil.copytree(base / "live", directory)
        HARMS[self.harm](directory / self.file, base / "earlier" / self.file)
        return directory


def files_of(directory: Path) -> Iterator[str]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(directory))


def kept(directory: Path) -> dict[str, bytes]:
    """Every file that something is kept in."""
    return {
        name: (directory / name).read_bytes()
        for name in files_of(directory)
        if Path(name).name not in UNKEPT and not Path(name).name.startswith("LOG")
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", directory]:
            _build(Path(directory))
        case ["look", *directories]:
            for directory in directories:
                print(json.dumps(look(Path(directory))), flush=True)
