"""Isolation levels in Kafka's numbers, which are not those of the core."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from partition_log.state import Isolation

_ISOLATIONS: Final = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)


def isolation_of(number: int) -> Isolation:
    """Return the isolation level. Raises Refused INVALID_REQUEST for an unknown one."""
    if not 0 <= number < len(_ISOLATIONS):
        text = f"isolation level {number} is neither read_uncommitted (0) nor read_committed (1)"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    return _ISOLATIONS[number]
