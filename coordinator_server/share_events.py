"""Observers of events of share partitions.

Records that were rejected or delivered too often have a line, because they were not processed. So has a lock that
expired, since its member may not know. All else is only counted, because it is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from coordinator_runtime.decision import Turn
from coordinator_server.metrics.shares import ShareNumbers
from group_coordinator.share_partitions.draft import ArchiveReason
from group_coordinator.share_partitions.events import (
    LockExpired,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsArchived,
    RecordsPending,
    RecordsSettled,
)

_log = structlog.get_logger("groups")


def share_tellers(numbers: ShareNumbers) -> Mapping[type, Callable[[Any, Turn], None]]:
    """Return the handlers of events, by type."""

    def expired(event: LockExpired, _turn: Turn) -> None:
        numbers.expired(event)
        _log.info(
            "lock_expired",
            group_id=event.group_id,
            ordinal=event.ordinal,
            member_id=event.member_id,
            records=event.record_count,
        )

    def archived(event: RecordsArchived, _turn: Turn) -> None:
        numbers.archived(event)
        if event.reason is ArchiveReason.DELIVERY_LIMIT:
            _log.warning(
                "records_given_up",
                **_fields(event),
                deliveries=event.deliveries,
                advice="no member acknowledged them: see in the group's consumers why, and handle the records by hand",
            )
        elif event.reason is ArchiveReason.REJECTED:
            _log.info("records_rejected", **_fields(event))

    return {
        RecordsAcquired: lambda event, _turn: numbers.acquired(event),
        RecordsAcknowledged: lambda event, _turn: numbers.acknowledged(event),
        RecordsPending: lambda event, _turn: numbers.acknowledged(event),
        RecordsSettled: lambda event, _turn: numbers.settled(event),
        LockExpired: expired,
        RecordsArchived: archived,
    }


def _fields(event: RecordsArchived) -> dict[str, object]:
    return {
        "group_id": event.group_id,
        "ordinal": event.ordinal,
        "offset": event.first_offset,
        "next_offset": event.end_offset,
    }
