"""Sizes as text, for the tables."""

from __future__ import annotations

from coordinator_protocol.limits import KIBI, MEBI


def in_words(size: int) -> str:
    """Return a size as text: 1 KiB instead of 1,024 bytes."""
    for unit, name in ((MEBI, "MiB"), (KIBI, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
