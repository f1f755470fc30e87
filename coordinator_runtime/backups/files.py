"""Files of a backup: read, copied and checked in pieces, so that the caller sees progress and can end the work."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coordinator_runtime.rocks.store_directory import with_advice

_PIECE_BYTES: Final = 1 << 20
"""Size of a piece: large enough that the disk is the limit, and small enough that the interpreter is never held for
long."""


class BackupRefused(Exception):
    """A backup cannot be made, is none, does not verify or cannot be restored. The message has the reason and advice.
    Nothing was changed, and nothing incomplete is left."""


class CopyProgress:
    """Progress of long work on files. Made and read on any thread."""

    def __init__(self, on_step: Callable[[CopyProgress], None] = lambda _progress: None) -> None:
        """`on_step` is called after every piece. An error that it raises ends the work, which then leaves nothing."""
        self.total_bytes = 0
        self.done_bytes = 0
        self._on_step = on_step

    def advance(self, size_bytes: int) -> None:
        """Add to the bytes that are done."""
        self.done_bytes += size_bytes
        self._on_step(self)


@contextmanager
def refused_in_words(what: str) -> Iterator[None]:
    """Raise errors of the system within the block as BackupRefused, with advice."""
    try:
        yield
    except OSError as error:
        raise BackupRefused(f"{what}: {with_advice(error)}") from error


def checksum_of(source: Path, progress: CopyProgress) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            progress.advance(len(piece))
    return digest.hexdigest()


def copy_file(source: Path, target: Path, progress: CopyProgress) -> str:
    """Copy into a file that must not exist yet; on disk when this returns. Return the checksum of the copied bytes.

    Raises OSError."""
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        while piece := reader.read(_PIECE_BYTES):
            digest.update(piece)
            left = memoryview(piece)
            while left:
                left = left[writer.write(left) :]
            progress.advance(len(piece))
        os.fsync(writer.fileno())
    times = source.stat()
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    return digest.hexdigest()


def link_if_possible(source: Path, target: Path) -> bool:
    """Make a hard link to a file; return False if these two places cannot share one. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    return True


def write_file(target: Path, content: bytes) -> None:
    """Make a small file that must not exist yet; on disk when this returns. Raises OSError."""
    with target.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """Hold an existing file or directory, so that no other process of ours does so at the same time.

    Raises BackupRefused with `busy` if one does; OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupRefused(busy) from error
        yield
    finally:
        os.close(descriptor)
