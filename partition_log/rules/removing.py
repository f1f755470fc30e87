"""Rules for the producers that a partition forgets, and for the records behind its log start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import EndIdentity
from partition_log.state import (
    HIGH_WATERMARK,
    NO_OFFSET,
    ForgottenProducers,
    MovedLogStart,
    PartitionHead,
    ProducerEntry,
    RememberedEnd,
)


def head_after_forgetting(head: PartitionHead, forgotten: Iterable[ProducerEntry]) -> PartitionHead:
    """Return the positions of the partition once these producers, which have nothing open, are forgotten. Their newest
    csns are kept per coordinator shard, so that late markers are still recognised."""
    csns = dict(head.forgotten.csns)
    for entry in forgotten:
        assert entry.open_transaction is None, "an open transaction needs its producer until its marker"
        if entry.last_marker is not None:
            csns[entry.coordinator_shard] = max(csns.get(entry.coordinator_shard, 0), entry.last_marker.csn)
    return replace(head, forgotten=ForgottenProducers(head.log_end_offset, tuple(sorted(csns.items()))))


def remembered_ends(forgotten: Mapping[int, ProducerEntry]) -> tuple[RememberedEnd, ...]:
    """Return the ends that stay known of forgotten producers: the first offsets of their last transactions, if those
    had records here."""
    return tuple(
        RememberedEnd(EndIdentity(entry.coordinator_shard, marker.csn, producer_id), marker.first_offset)
        for producer_id, entry in forgotten.items()
        if (marker := entry.last_marker) is not None and marker.first_offset != NO_OFFSET
    )


def move_log_start(head: PartitionHead, wanted: int, *, high_watermark: int, leased_from: int | None) -> MovedLogStart:
    """Return the log start as near to the wanted offset as the last stable offset and leases allow. It never goes back.
    `leased_from`: first offset that a lease holds.

    Raises Refused OFFSET_OUT_OF_RANGE."""
    offset = high_watermark if wanted == HIGH_WATERMARK else wanted
    if not 0 <= offset <= high_watermark:
        raise Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records cannot be deleted up to offset {offset}: choose one from {head.log_start_offset} to the high "
            f"watermark {high_watermark}, or {HIGH_WATERMARK} for that",
        )
    start, stable = head.log_start_offset, head.last_stable_offset
    due = max(start, min(offset, stable))
    allowed = due if leased_from is None else min(due, leased_from)
    held_back = ""
    if max(start, allowed) < offset:
        held_back = (
            f"a transaction that began at offset {stable} is open: try again when it has ended; `txnctl explain` tells "
            "whose it is"
            if allowed == stable
            else f"a reader holds what lies from offset {leased_from} on: try again when it is done"
        )
    return MovedLogStart(max(start, allowed), held_back, due)
