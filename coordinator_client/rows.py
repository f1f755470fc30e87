"""A record as the SDK handles it: before it is encoded, and after it is decoded."""

from __future__ import annotations

from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
"""One record: key, value, timestamp in Unix milliseconds, headers."""
