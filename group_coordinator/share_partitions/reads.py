"""Reads of a log in the form of `acquiring.acquire`, and the batches of them that an answer needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.wire import Buffer
from coordinator_runtime.record_log import AbortedRange, LogBatches
from group_coordinator.share_partitions.acquiring import AcquiredRange, Content, Read, Span

Batches = tuple[tuple[BatchHeader, Buffer], ...]


def read_of(found: LogBatches, first_offset: int, *, end_offset: int | None = None) -> Read:
    """Return the contents of a read that began at an offset. `end_offset`: no record from here on may be acquired."""
    return Read(first_offset, tuple(_spans(found, first_offset)), end_offset)


def _spans(found: LogBatches, first_offset: int) -> Iterator[Span]:
    at = first_offset
    aborted: dict[int, list[AbortedRange]] = {}
    for each in found.aborted:
        aborted.setdefault(each.producer_id, []).append(each)
    for header, _encoded in found.batches:
        yield Span(header.base_offset, header.last_offset, _content(header, aborted.get(header.producer_id, ())))
        at = header.last_offset + 1
    if found.next_offset > at:
        # Everything up to the end of the read was seen, and there is no batch.
        yield Span(at, found.next_offset - 1, Content.NOTHING)


def _content(header: BatchHeader, aborted: Sequence[AbortedRange]) -> Content:
    """Return the content of a batch, whose producer has aborted these transactions."""
    if header.is_control or not header.record_count:
        return Content.NOTHING
    if header.is_transactional and any(
        ended.first_offset <= header.last_offset < ended.marker_offset for ended in aborted
    ):
        return Content.ABORTED
    return Content.RECORDS


def batches_with(ranges: Sequence[AcquiredRange], batches: Batches) -> Batches:
    """Return the batches that have offsets in the ranges. Both ascend."""
    kept: list[tuple[BatchHeader, Buffer]] = []
    at = 0
    for batch in batches:
        header = batch[0]
        while at < len(ranges) and ranges[at].last_offset < header.base_offset:
            at += 1
        if at < len(ranges) and ranges[at].first_offset <= header.last_offset:
            kept.append(batch)
    return tuple(kept)
