"""Signature of a file, by which programs notice that it was replaced or rewritten."""

from __future__ import annotations

from pathlib import Path

FileSignature = tuple[int, int, int]


def signature_of(file: Path) -> FileSignature | None:
    """Return the file's modification time (ns), inode and size; None if there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
