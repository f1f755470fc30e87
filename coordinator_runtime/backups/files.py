"""Files of a backup: read, copied and checked in pieces, so that whoever waits sees progress and can end it."""

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
"""Long enough that the disk is the limit; short enough that the interpreter is never kept for long."""


class BackupRefused(Exception):
    """A backup cannot be made, is none, does not verify or cannot be restored. The message says why and what to do.
    Nothing was changed, and nothing half is left."""


class CopyProgress:
    """How far a long piece of work on files has come. Made and read on any thread."""

    def __init__(self, on_step: Callable[[CopyProgress], None] = lambda _progress: None) -> None:
        """`on_step` is called after every piece; what it raises ends the work, which leaves nothing."""
        self.total_bytes = 0
        self.done_bytes = 0
        self._on_step = on_step

    def advance(self, size_bytes: int) -> None:
        """Note that so much more is done."""
        self.done_bytes += size_bytes
        self._on_step(self)


@contextmanager
def refused_in_words(what: str) -> Iterator[None]:
    """What the system refuses meanwhile is raised as BackupRefused, with what to do about it."""
    try:
        yield
    except OSError as error:
        raise BackupRefused(f"{what}: {with_advice(error)}") from error


def checksum_of(source: Path, progress: CopyProgress) -> str:
    """SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            progress.advance(len(piece))
    return digest.hexdigest()


def copy_file(source: Path, target: Path, progress: CopyProgress) -> str:
    """Copy into a file that must not be there yet, on disk when this returns. Returns the checksum of what was
    copied. Raises OSError."""
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
    """Let another name stand for a file; False where these two places cannot share one. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    return True


def write_file(target: Path, content: bytes) -> None:
    """Make a small file that must not be there yet, on disk when this returns. Raises OSError."""
    with target.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """Hold a file or directory that exists, so that no other process of ours does at the same time. Raises
    BackupRefused with `busy` if one does; OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupRefused(busy) from error
        yield
    finally:
        os.close(descriptor)
