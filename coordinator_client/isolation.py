"""Which offsets a request asks for: the isolation levels by name, and the two ends that stand in place of a time."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from coordinator_api.v1.common_pb2 import (
    ISOLATION_LEVEL_READ_COMMITTED,
    ISOLATION_LEVEL_READ_UNCOMMITTED,
    IsolationLevel,
)
from coordinator_client.errors import wrong_argument

EARLIEST_MS: Final = -2
LATEST_MS: Final = -1
"""Two values that ListOffsets takes in place of a time."""

_ISOLATION_LEVELS: Final = MappingProxyType(
    {
        "read_committed": ISOLATION_LEVEL_READ_COMMITTED,
        "read_uncommitted": ISOLATION_LEVEL_READ_UNCOMMITTED,
    }
)


def isolation_level(isolation: str) -> IsolationLevel.ValueType:
    """Return the wire's number for a name. Raises: Rejected (INVALID_REQUEST)."""
    found = _ISOLATION_LEVELS.get(isolation)
    if found is None:
        raise wrong_argument("isolation", isolation, f"must be one of {', '.join(_ISOLATION_LEVELS)}")
    return found
