"""The directory of an embedded store: its layout and its lock.

```
<dir>/LOCK           held with flock by the one process that may write; has its process id
<dir>/durable_mark   see `coordinator_runtime.rocks.durable_mark`
<dir>/damaged_files  see `coordinator_runtime.rocks.files`; there only once damage was met
<dir>/store/         RocksDB's own files
<dir>/segments/      see `coordinator_runtime.rocks.segments`
<dir>/RESTORING      there only while a backup is being restored; such a directory must not be opened
<dir>/checkpoint/    there only while a backup is being made: the store and its segments as of one version
```
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_runtime.store import StoreFailed, StoreRefused, StoreUnreadable


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """Paths inside the directory of a store."""

    path: Path

    @property
    def lock_path(self) -> Path:
        return self.path / "LOCK"

    @property
    def durable_mark_path(self) -> Path:
        return self.path / "durable_mark"

    @property
    def store_path(self) -> Path:
        return self.path / "store"

    @property
    def segments_path(self) -> Path:
        return self.path / "segments"

    @property
    def damaged_files_path(self) -> Path:
        return self.path / "damaged_files"

    @property
    def restoring_path(self) -> Path:
        return self.path / "RESTORING"

    @property
    def checkpoint(self) -> StoreDirectory:
        return StoreDirectory(self.path / "checkpoint")

    def remove(self) -> None:
        """Remove the directory with all its content, if it exists. Raises OSError."""
        if self.path.exists():
            shutil.rmtree(self.path)

    def create(self) -> None:
        """Make the directories that are missing; they survive a power cut. Raises OSError."""
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.store_path.mkdir(parents=True, exist_ok=True)
        for path in {self.path, *(path.parent for path in missing)}:
            sync_directory(path)

    def sync(self) -> None:
        """Make the names of newly created files durable. Raises OSError."""
        sync_directory(self.path)


_ADVICE: Final = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room, or raise the quota of the user that runs the server",
    errno.EACCES: "give the user that runs the server read and write access to it and to everything in it",
    errno.EPERM: "give the user that runs the server read and write access to it and to everything in it",
    errno.EROFS: "mount the disk for writing, or choose another directory",
    errno.EMFILE: "allow the process more open files (ulimit -n)",
    errno.ENFILE: "the system has too many open files",
}


@contextmanager
def refused_in_words(directory: Path) -> Iterator[None]:
    """Raise errors of the system within the block as StoreRefused, with advice.

    No client was promised anything yet, so the operator may repair the cause and start again."""
    try:
        yield
    except StoreRefused:
        raise
    except (OSError, StoreFailed) as error:
        raise StoreRefused(f"the directory {directory} cannot be made or used: {with_advice(error)}") from error
    except StoreUnreadable as damage:
        raise StoreRefused(f"the store in {directory} cannot be read: {with_advice(damage)}") from damage


def with_advice(error: BaseException) -> str:
    """Return the text of the error on one line, with advice if the system caused it.

    RocksDB reports such a cause only in its text, in the system's words."""
    said = " ".join(str(error).split())
    found = [advice for number, advice in _ADVICE.items() if os.strerror(number) in said]
    return f"{said}; {found[0]}, then start again" if found else said


def bytes_of_files(path: Path, suffix: str) -> int:
    """Return the size of the files in a directory with this suffix; 0 if there is no such directory."""
    size_bytes = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    with suppress(FileNotFoundError):  # Deleted between the listing and now.
                        size_bytes += entry.stat().st_size
    except FileNotFoundError:
        return 0
    return size_bytes


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DirectoryLock:
    """Keeps other processes off the directory while this one lives; the kernel releases the lock when it ends.

    RocksDB has its own lock, but it cannot name the holder, and does not keep a reading tool and a server apart."""

    __slots__ = ("_file", "_is_shared")

    def __init__(self, directory: StoreDirectory, *, shared: bool) -> None:
        """Take the lock: exclusive for a writer, shared for tools that only read a stopped directory.

        Raises StoreRefused with the holder's process id; OSError."""
        self._is_shared = shared
        flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        if directory.store_path.is_dir() and not directory.lock_path.exists():
            # A copy of a directory may lack the file, and nothing is in it.
            flags |= os.O_CREAT
        try:
            self._file = os.open(directory.lock_path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError as error:
            raise StoreRefused(f"there is no store in {directory.path}") from error
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            refusal = StoreRefused(f"{self._holder()} has the directory {directory.path} open; stop it first")
            os.close(self._file)
            raise refusal from error
        if not shared:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def _holder(self) -> str:
        """Describe the holder of the lock. The file has the id of the last writer; a reading tool leaves none."""
        if not self._is_shared:
            try:
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                return "another process that reads (txnctl)"
        process_id = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
        return f"another process (pid {process_id})" if process_id else "another process"

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._file < 0:
            return
        if not self._is_shared:
            os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1
