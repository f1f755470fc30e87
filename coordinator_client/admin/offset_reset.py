"""Rules for resetting the offsets of a group, without any I/O.

An offset outside the log is moved to the nearer end, as Kafka's tool does. "Latest" is the last stable offset: records
of open transactions are not readable for a consumer yet, and must not be skipped.

Source: Kafka's `kafka-consumer-groups --reset-offsets` (KIP-122).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coordinator_client.descriptions.group_offsets import PartitionPositions, PlannedOffset
from coordinator_client.errors import rejected
from coordinator_client.settings import timestamp_ms
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode


class ResetTo(StrEnum):
    """Ways to choose the new offset."""

    EARLIEST = "earliest"
    """Start of the log."""
    LATEST = "latest"
    """Last stable offset."""
    CURRENT = "current"
    """Committed offset, moved into the log; the last stable offset if nothing is committed."""
    OFFSET = "offset"
    """The number itself."""
    SHIFT = "shift"
    """Committed offset plus the number, which may be negative."""
    TIME = "time"
    """First record at this time or later (Unix ms); the last stable offset if there is none."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A rule. `number` is an offset, a distance or a time, depending on `to`."""

    to: ResetTo
    number: int = 0

    def __post_init__(self) -> None:
        """Check the number.

        Raises: Rejected for a negative offset or time; TypeError for a time that is not an integer.
        """
        if self.to is ResetTo.TIME:
            timestamp_ms("number", self.number)
        if self.to is ResetTo.OFFSET and self.number < 0:
            raise rejected(ErrorCode.INVALID_REQUEST, f"the {self.to} to reset to is {self.number}, and below 0")


def planned(
    partition: TopicPartition, reset: OffsetReset, positions: PartitionPositions, offset_at_time: int | None = None
) -> PlannedOffset:
    """Return the new offset of a partition. `offset_at_time` is the log's answer for a TIME; None = no record is that
    new.

    Raises: Rejected for a SHIFT if nothing is committed.
    """
    wanted = _wanted(partition, reset, positions, offset_at_time)
    return PlannedOffset(
        partition=partition,
        committed_offset=positions.committed_offset,
        offset=min(max(wanted, positions.log_start_offset), positions.high_watermark),
        wanted_offset=wanted,
        topic_id=positions.topic_id,
        is_behind_all=reset.to is ResetTo.TIME and offset_at_time is None,
    )


def _wanted(
    partition: TopicPartition, reset: OffsetReset, positions: PartitionPositions, offset_at_time: int | None
) -> int:
    latest, committed = positions.last_stable_offset, positions.committed_offset
    match reset.to:
        case ResetTo.EARLIEST:
            return positions.log_start_offset
        case ResetTo.LATEST:
            return latest
        case ResetTo.CURRENT:
            return latest if committed is None else committed
        case ResetTo.OFFSET:
            return reset.number
        case ResetTo.TIME:
            return latest if offset_at_time is None else offset_at_time
        case ResetTo.SHIFT:
            if committed is None:
                raise rejected(
                    ErrorCode.INVALID_REQUEST,
                    f"{partition.topic}-{partition.partition}: nothing is committed that could be shifted; leave the "
                    "partition out, or name an offset",
                )
            return committed + reset.number
