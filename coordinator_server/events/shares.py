"""Observers of events of share partitions.

Records that were rejected or delivered too often have a line, because they were not processed, and so have their
letters. A lock that expired has one, since its member may not know. All else is only counted, because it is too much.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from coordinator_runtime.decision import Turn
from coordinator_server.metrics.shares import ShareNumbers
from group_coordinator.share_partitions.draft import ArchiveReason, LetterEnd
from group_coordinator.share_partitions.events import (
    LettersDelayed,
    LettersDropped,
    LockExpired,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsArchived,
    RecordsPending,
    RecordsSettled,
)

PartitionFields = Callable[[int], Mapping[str, object]]
"""Returns the fields of a line that name a partition, by its ordinal."""

_log = structlog.get_logger("groups")

_LETTER_LINES: Final[Mapping[LetterEnd, tuple[int, str, Mapping[str, str]]]] = {
    LetterEnd.WRITTEN: (logging.INFO, "letters_written", {}),
    LetterEnd.BARE: (logging.WARNING, "letters_written_bare", {"advice": "the headers of each letter say why"}),
    LetterEnd.OWN_TOPIC: (
        logging.WARNING,
        "letters_lost",
        {"advice": "the group reads its own dead-letter topic: read that with another group"},
    ),
    LetterEnd.REMOVED: (
        logging.WARNING,
        "letters_lost",
        {"advice": "the records were removed from the log first: see letters_delayed for what held the letters up"},
    ),
}
"""Level, name and advice of the lines about letters, by what became of them."""


def share_tellers(numbers: ShareNumbers, partition: PartitionFields) -> Mapping[type, Callable[[Any, Turn], None]]:
    """Return the handlers of events, by type."""

    def expired(event: LockExpired, _turn: Turn) -> None:
        numbers.expired(event)
        _log.info(
            "lock_expired",
            group_id=event.group_id,
            **partition(event.ordinal),
            member_id=event.member_id,
            records=event.record_count,
        )

    def archived(event: RecordsArchived, _turn: Turn) -> None:
        numbers.archived(event)
        if event.letter in _LETTER_LINES:
            level, line, advice = _LETTER_LINES[event.letter]
            _log.log(level, line, **_fields(event, partition), reason=event.reason.value, **advice)
        elif event.reason is ArchiveReason.DELIVERY_LIMIT:
            _log.warning(
                "records_given_up",
                **_fields(event, partition),
                deliveries=event.deliveries,
                advice="no member acknowledged them: see in the group's consumers why, and handle the records by hand",
            )
        elif event.reason is ArchiveReason.REJECTED:
            _log.info("records_rejected", **_fields(event, partition))

    def delayed(event: LettersDelayed, _turn: Turn) -> None:
        _log.warning(
            "letters_delayed",
            group_id=event.group_id,
            **partition(event.ordinal),
            dead_letter_topic=event.topic,
            letters=event.letter_count,
            why=event.why,
        )

    def dropped(event: LettersDropped, _turn: Turn) -> None:
        numbers.dropped(event)
        _log.warning(
            "letters_dropped",
            group_id=event.group_id,
            **partition(event.ordinal),
            letters=event.letter_count,
        )

    return {
        LettersDelayed: delayed,
        LettersDropped: dropped,
        RecordsAcquired: lambda event, _turn: numbers.acquired(event),
        RecordsAcknowledged: lambda event, _turn: numbers.acknowledged(event),
        RecordsPending: lambda event, _turn: numbers.acknowledged(event),
        RecordsSettled: lambda event, _turn: numbers.settled(event),
        LockExpired: expired,
        RecordsArchived: archived,
    }


def _fields(event: RecordsArchived, partition: PartitionFields) -> dict[str, object]:
    return {
        "group_id": event.group_id,
        **partition(event.ordinal),
        "offset": event.first_offset,
        "next_offset": event.end_offset,
    }
