"""Verification of a backup: every byte of it, no file missing and no file added."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coordinator_runtime.backups.files import CopyProgress, checksum_of
from coordinator_runtime.backups.manifest import Manifest, paths_in, read_manifest
from coordinator_runtime.rocks.store_directory import with_advice


def verify_backup(path: Path, progress: CopyProgress | None = None) -> tuple[Manifest, Sequence[str]]:
    """Read the whole backup. Return its manifest and a description of each problem, by file.

    Raises BackupRefused if it has no readable manifest."""
    progress = progress or CopyProgress()
    manifest = read_manifest(path)
    progress.total_bytes = manifest.size_bytes
    problems = wrong_names(path, manifest)
    for file in manifest.files:
        try:
            size_bytes = (path / file.path).stat().st_size
            if size_bytes != file.size_bytes:
                problems.append(f"{file.path} has {size_bytes} bytes, and had {file.size_bytes}")
            elif checksum_of(path / file.path, progress) != file.sha256:
                problems.append(f"{file.path} is damaged: its checksum is not that in the manifest")
        except FileNotFoundError:
            continue  # `wrong_names` reported it.
        except OSError as error:
            problems.append(f"{file.path} cannot be read: {with_advice(error)}")
    return manifest, problems


def wrong_names(path: Path, manifest: Manifest) -> list[str]:
    """Return descriptions of missing files, and of files that are not in the manifest."""
    there, expected = {*paths_in(path)}, {file.path for file in manifest.files}
    return [
        *(f"{name} is missing" for name in sorted(expected - there)),
        *(f"{name} is not in the manifest" for name in sorted(there - expected)),
    ]
