"""Records and markers of a partition as plain values, in worlds where a record is a word of its batch's payload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator_protocol.batch import BatchHeader, payload_of
from coordinator_protocol.marker import MarkerPayload, control_batch, decode_marker_payload
from coordinator_protocol.wire import Buffer
from coordinator_runtime.store import Store
from partition_log.batches import batches
from tests.harness.payloads import placed_values


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One record or marker of a partition, as a reader got it."""

    offset: int
    value: str
    producer_id: int
    producer_epoch: int
    marker: MarkerPayload | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One fetch of one partition."""

    entries: tuple[LogEntry, ...]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    aborted_records_hidden: int
    log_start_offset: int = 0
    last_read_epoch: int | None = None
    """The leader epoch of what lies before `next_offset`."""

    @property
    def values(self) -> list[str]:
        return [entry.value for entry in self.entries if entry.marker is None]


def entries_of(header: BatchHeader, stored: Buffer) -> list[LogEntry]:
    """The records of a batch, or its marker."""
    if header.is_control:
        marker = decode_marker_payload(bytes(payload_of(stored)))
        return [LogEntry(header.base_offset, "", header.producer_id, header.producer_epoch, marker)]
    placed = placed_values(header, stored)
    assert len(placed) == header.record_count
    return [LogEntry(offset, value, header.producer_id, header.producer_epoch) for offset, value in placed]


def stored_entries(store: Store, ordinal: int, start_offset: int, end_offset: int) -> Iterator[LogEntry]:
    """Everything that a store holds at these offsets of a partition, visible or not."""
    for header, stored in batches(store, ordinal, start_offset):
        if header.base_offset >= end_offset:
            return
        encoded = control_batch(header, stored) if header.is_control else stored
        yield from (each for each in entries_of(header, encoded) if start_offset <= each.offset < end_offset)
