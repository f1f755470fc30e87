"""Batches on the fast path: their form, an upper bound of their size, and the rules for a common one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.marker import Marker
from coordinator_runtime.ports import GroupOffsets
from partition_log.catalog.state import PlacedPartition
from partition_log.partition_state import PartitionDraft
from partition_log.rules import appending, marking
from partition_log.rules.appending import AppendVerdict
from partition_log.rules.marking import MarkerVerdict

# Module-level aliases: enum attribute lookup is slow on CPython 3.11.
_APPEND: Final = AppendVerdict.APPEND
_ADMIT: Final = AppendVerdict.ADMIT
_APPEND_MARKER: Final = MarkerVerdict.APPEND

CALL_BYTES: Final = 1_024
PART_BYTES: Final = 512
"""Upper bounds of the bytes that a transaction stages besides ids, payloads and metadata: in all, and for each batch or
offset."""
ID_BYTES: Final = 16
"""Upper bound of the staged bytes per character of an id or of metadata, in all rows that repeat it."""

FastName = tuple[str, bytes, int]
"""Topic, topic id and partition number, as the request names a partition."""

FastBatch = tuple[FastName, BatchHeader, bytes, int | None]
"""Partition, header, payload, and checksum if there is one."""

Target = tuple[PlacedPartition, PartitionDraft]
"""A partition that is written to, with its draft."""


def may_append_and_end(draft: PartitionDraft, batch: BatchHeader, marker: Marker) -> bool:
    """Return True if a batch and the marker behind it are appended, and nothing else happens. The transaction
    coordinator has admitted the batch. It must be appended before the producer's next batch is judged. Raises Refused
    as `appending.judge_append` and `marking.judge_marker`."""
    entry, head = draft.entry(marker.producer_id), draft.head
    return (
        (entry is None or entry.open_transaction is None)
        and appending.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset) is _APPEND
        and marking.judge_marker(entry, marker, forgotten=head.forgotten) is _APPEND_MARKER
    )


def admits_at_once(draft: PartitionDraft, batch: BatchHeader) -> bool | None:
    """Return True if a batch of an open transaction is appended at once. False means that the transaction coordinator
    must admit it first; None means that something else happens. It must be appended before the producer's next batch is
    judged. Raises Refused as `appending.judge_append`."""
    entry, log_start_offset = draft.entry(batch.producer_id), draft.head.log_start_offset
    verdict = appending.judge_append(entry, batch, is_admitted=False, log_start_offset=log_start_offset)
    if verdict is not _ADMIT:
        return True if verdict is _APPEND else None
    verdict = appending.judge_append(entry, batch, is_admitted=True, log_start_offset=log_start_offset)
    return False if verdict is _APPEND else None


def size_bytes_of(name: str, batches: Sequence[FastBatch] = (), groups: Sequence[GroupOffsets] = ()) -> int:
    """Return an upper bound of the bytes that a call stages."""
    size_bytes = CALL_BYTES + ID_BYTES * len(name)
    for batch in batches:
        size_bytes += PART_BYTES + len(batch[2])
    for group in groups:
        for offset in group.offsets:
            size_bytes += PART_BYTES + ID_BYTES * (len(group.group_id) + len(offset.metadata))
    return size_bytes
