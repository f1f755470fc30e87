"""A look into one partition: some records, each with the result of its transaction.

The look has a bounded number of offsets and bytes, so a large topic costs no more than a small one. Aborted records and
markers are read, too, to tell them apart from the committed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import DESCRIBE_PRODUCERS, Deadlines
from coordinator_client.encodings import FetchedBatch
from coordinator_client.reading.batch_reader import AbortedTransaction, BatchReader, FetchOptions, PartitionRange
from coordinator_client.reading.reader import list_offsets, topic_of
from coordinator_client.settings import EARLIEST_MS, LATEST_MS, SKIP
from coordinator_client.transport.connection import Connection
from coordinator_client.values import Headers

OFFSETS_MAX: Final = 20_000
"""Largest number of offsets of one look, for searches by key."""
FETCH_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LookWanted:
    """Parameters of a look."""

    topic: str
    partition: int
    start_offset: int | None = None
    """First offset; None: from a time, or the last records."""
    start_ms: int | None = None
    """Time from which records are shown."""
    key: bytes | None = None
    """Only records with this key."""
    count: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """One record or marker."""

    offset: int
    fate: str
    """committed, aborted, open, plain; waiting: committed behind an open transaction, and not visible yet. For a marker
    commit or abort."""
    timestamp_ms: int
    producer_id: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLook:
    """The records of a look, and the positions around them."""

    records: tuple[LookedAt, ...]
    start_offset: int
    next_offset: int
    """Offset after the last one that was looked at."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    skipped_batches: int = 0
    """Number of batches that cannot be read."""


def look_into(connection: Connection, wanted: LookWanted, deadlines: Deadlines) -> TopicLook:
    """Return some records of a partition. Raises: TransactionError."""
    topic = topic_of(connection, wanted.topic, deadlines=deadlines)

    def offset_at(time_ms: int, isolation: str) -> int:
        found = list_offsets(connection, topic, {wanted.partition: time_ms}, isolation=isolation, deadlines=deadlines)
        return found[wanted.partition]

    earliest, latest = offset_at(EARLIEST_MS, "read_uncommitted"), offset_at(LATEST_MS, "read_uncommitted")
    stable = offset_at(LATEST_MS, "read_committed")
    if wanted.start_ms is not None:
        found = offset_at(wanted.start_ms, "read_uncommitted")
        start = latest if found < 0 else found
    elif wanted.start_offset is not None:
        start = wanted.start_offset
    else:
        start = latest - (wanted.count if wanted.key is None else OFFSETS_MAX)
    start = min(max(start, earliest), latest)
    end = min(latest, start + OFFSETS_MAX)
    reader = BatchReader(
        connection,
        [
            PartitionRange(
                topic=topic.name,
                topic_id=topic.topic_id,
                partition=wanted.partition,
                start_offset=start,
                end_offset=end,
            )
        ],
        FetchOptions(
            isolation="read_uncommitted",
            is_raw=True,
            max_bytes=FETCH_BYTES_MAX,
            on_corrupt_batch=SKIP,
            patience_ms=deadlines.total_ms,
        ),
    )
    open_from = _open_from(connection, wanted, deadlines) if stable < latest else {}
    records: list[LookedAt] = []
    next_offset = start
    if start < end:
        for record in _looked_at(reader, stable, open_from):
            next_offset = record.offset + 1
            if wanted.key is None or record.key == wanted.key:
                records.append(record)
            if len(records) == wanted.count:
                break
        else:
            next_offset = end
    return TopicLook(
        records=tuple(records),
        start_offset=start,
        next_offset=next_offset,
        log_start_offset=earliest,
        last_stable_offset=stable,
        high_watermark=latest,
        skipped_batches=reader.skipped.batches,
    )


def _looked_at(reader: BatchReader, stable: int, open_from: Mapping[int, int]) -> Iterator[LookedAt]:
    for batch, (offsets, rows) in reader.decoded(FetchedBatch.placed):
        header, marker = batch.header, batch.marker
        if marker is not None:
            yield LookedAt(
                offset=batch.first_offset,
                fate=marker.outcome.name.lower(),
                timestamp_ms=header.base_timestamp_ms,
                producer_id=header.producer_id,
            )
            continue
        fate = _fate(batch, reader.aborted_transactions, stable, open_from)
        for offset, (key, value, timestamp_ms, headers) in zip(offsets, rows, strict=True):
            yield LookedAt(
                offset=offset,
                fate=fate,
                timestamp_ms=timestamp_ms,
                producer_id=header.producer_id,
                key=key,
                value=value,
                headers=headers,
            )


def _open_from(connection: Connection, wanted: LookWanted, deadlines: Deadlines) -> dict[int, int]:
    """Return the first offset of each open transaction, by producer id."""
    request = log.DescribeProducersRequest(header=connection.header())
    request.topics.add(topic=wanted.topic, partitions=[wanted.partition])
    reply = connection.ask(DESCRIBE_PRODUCERS, request, deadlines=deadlines, items=lambda reply: reply.partitions)
    return {
        producer.producer_id: producer.current_txn_start_offset
        for result in reply.partitions
        for producer in result.producers
        if producer.HasField("current_txn_start_offset")
    }


def _fate(batch: FetchedBatch, aborted: set[AbortedTransaction], stable: int, open_from: Mapping[int, int]) -> str:
    header = batch.header
    if not header.is_transactional:
        return "plain"
    for ended in aborted:
        if ended.producer_id == header.producer_id and ended.first_offset <= header.base_offset < ended.marker_offset:
            return "aborted"
    if header.base_offset >= open_from.get(header.producer_id, header.base_offset + 1):
        return "open"
    return "committed" if header.base_offset < stable else "waiting"
