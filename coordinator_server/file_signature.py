"""What of a file changes when it is replaced, or written again: how programs that take files up again notice."""

from __future__ import annotations

from pathlib import Path

FileSignature = tuple[int, int, int]


def signature_of(file: Path) -> FileSignature | None:
    """None: there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
