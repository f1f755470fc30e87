"""The manifest of a backup: its store, its version, and the size and checksum of every file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from coordinator_runtime.backups.files import BackupRefused, refused_in_words, write_file

MANIFEST_NAME: Final = "manifest.json"
CHECKSUM_NAME: Final = f"{MANIFEST_NAME}.sha256"
LAYOUT: Final = 1
"""Version of the layout. Grows with every change of backups that an older program would misread."""


class BackedUpFile(Struct, frozen=True):
    """One file of a backup."""

    path: str
    """Path relative to the directory of the backup, with slashes."""
    size_bytes: int
    sha256: str
    """Checksum, in hexadecimal digits."""
    modified_ns: int
    """Time of the last change of its content. With name and size it tells whether the next backup has the same file."""


class Manifest(Struct, frozen=True):
    """Description of a backup."""

    layout: int
    name: str
    created_ms: int
    """Wall time at which the version was taken."""
    store_id: str
    """Id of the store, as `txnctl store inspect` shows it."""
    incarnation: int
    """Incarnation of the store (`coordinator_runtime/incarnation.py`)."""
    version: int
    """Version of the newest commit group in it. All writes acknowledged before the backup was requested are
    included."""
    format_version: int
    shard_count: int
    writer: str
    """Version of the newest program that wrote to the store."""
    files: tuple[BackedUpFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes that a copy of all files takes. Links may share some of them with other backups."""
        return sum(file.size_bytes for file in self.files)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest into the directory of its backup; on disk when this returns. Raises OSError."""
    stored = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    write_file(directory / MANIFEST_NAME, stored)
    write_file(directory / CHECKSUM_NAME, _checksum_line(stored))


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a backup, verified by its checksum. Raises BackupRefused."""
    with refused_in_words(f"{directory} cannot be read as a backup"):
        if not (directory / MANIFEST_NAME).is_file():
            within = sorted(path.parent.name for path in directory.glob(f"*/{MANIFEST_NAME}"))
            advice = f"; name one that lies in it, such as {directory / within[-1]}" if within else ""
            raise BackupRefused(f"{directory} is no backup: there is no {MANIFEST_NAME} in it{advice}")
        stored = (directory / MANIFEST_NAME).read_bytes()
        expected = (directory / CHECKSUM_NAME).read_bytes()
    if _checksum_line(stored) != expected:
        raise BackupRefused(
            f"{directory / MANIFEST_NAME} or {CHECKSUM_NAME} beside it is damaged: they do not fit. Use another backup"
        )
    try:
        manifest = msgspec.json.decode(stored, type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupRefused(f"{directory / MANIFEST_NAME} cannot be read: {error}") from error
    if manifest.layout > LAYOUT:
        raise BackupRefused(
            f"{directory} has layout {manifest.layout}, this program knows {LAYOUT}: use the version that made it"
        )
    return manifest


def paths_in(directory: Path) -> Sequence[str]:
    """Return every file of a backup but the manifest, sorted, as the manifest names them. Raises OSError."""
    found = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())
    return sorted(path for path in found if path not in (MANIFEST_NAME, CHECKSUM_NAME))


def _checksum_line(stored: bytes) -> bytes:
    return f"{hashlib.sha256(stored).hexdigest()}  {MANIFEST_NAME}\n".encode()
