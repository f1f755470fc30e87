"""What the store itself keeps in META beside what others do: unsigned big-endian integers by name."""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 3
"""Grows with every change that an older program would misread. 1 and 2 were never released."""

FORMAT_VERSION_KEY: Final = b"format_version"
SHARD_COUNT_KEY: Final = b"shard_count"
GROUP_VERSION_KEY: Final = b"group_version"

_NUMBER_BYTES: Final = 8


def stored_number(value: int) -> bytes:
    """The value of such a row."""
    return value.to_bytes(_NUMBER_BYTES, "big")


def number_of(stored: bytes | None) -> int:
    """The integer in such a row, 0 where there is none."""
    return int.from_bytes(stored or b"", "big")
