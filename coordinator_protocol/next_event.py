"""The next event of the transaction that committed readers of a partition wait for."""

from __future__ import annotations

from enum import IntEnum


class NextEvent(IntEnum):
    """Kinds of next events. The numbers are on the wire."""

    UNSPECIFIED = 0
    """Not reported, or reported by a newer server in a way that is not known here."""
    NOTHING_IN_THE_WAY = 1
    """No transaction is open: committed readers get up to the high watermark."""
    CLIENT_OR_TIMEOUT = 2
    """Its client ends it, or the server aborts it at its timeout."""
    OUTSIDE_DECISION = 3
    """It waits for an outside decision, for as long as that takes."""
    MARKER_BEING_WRITTEN = 4
    """Its outcome is final, and its marker is on the way to the partition."""
    HANGING = 5
    """No event: no transactional id owns it, so it will not end by itself."""
    OWNER_UNKNOWN = 6
    """Unknown: it may belong to a transactional id whose shard does not serve, or that only a newer server can read."""

    @classmethod
    def _missing_(cls, value: object) -> NextEvent:
        return cls.UNSPECIFIED
