"""Where the log of a partition may begin, and where it should.

The log start only goes ahead, and is durable before anything behind it is removed. It never passes the last stable
offset, so the head of an open transaction stays, and never what a lease holds.

Source: docs/store-format.md, "Removal below a log start"; spec log-and-runtime 1.8; Kafka's DeleteRecords.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from partition_log.state import PartitionHead

HIGH_WATERMARK: Final = -1
"""Stands for the durable end of the log, in requests."""


class MovedLogStart(Struct, frozen=True, gc=False):
    """Where a log begins, after somebody wanted it to begin elsewhere."""

    log_start_offset: int
    held_back: str = ""
    """What kept it from where it was wanted, and what to do about it; empty: nothing did."""


def move_log_start(head: PartitionHead, wanted: int, *, high_watermark: int, leased_from: int | None) -> MovedLogStart:
    """The log start as near to what is wanted as it may be; it never goes back. `leased_from`: the first offset that
    somebody holds.

    Raises Refused OFFSET_OUT_OF_RANGE."""
    offset = high_watermark if wanted == HIGH_WATERMARK else wanted
    if not 0 <= offset <= high_watermark:
        raise Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records cannot be deleted up to offset {offset}: choose one from {head.log_start_offset} to the high "
            f"watermark {high_watermark}, or {HIGH_WATERMARK} for that",
        )
    start, stable = head.log_start_offset, head.last_stable_offset
    allowed = min(offset, stable) if leased_from is None else min(offset, stable, leased_from)
    held_back = ""
    if max(start, allowed) < offset:
        held_back = (
            f"a transaction that began at offset {stable} is open: try again when it has ended; `txnctl explain` tells "
            "whose it is"
            if allowed == stable
            else f"a reader holds what lies from offset {leased_from} on: try again when it is done"
        )
    return MovedLogStart(max(start, allowed), held_back)
