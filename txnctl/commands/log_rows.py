"""Rows for batches, markers and records, as `consume` and `log dump` print them from a running or a stopped server."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from coordinator_client.errors import CorruptBatch
from coordinator_client.progress import WorkProgress
from coordinator_client.values import Row as RecordRow
from coordinator_protocol.batch import NO_PRODUCER_ID, BatchHeader
from coordinator_protocol.marker import Marker
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.output import NOTHING, Row, Value, moment, printable, size

Placed = tuple[Sequence[int], list[RecordRow]]
"""Offsets, and the records at these offsets."""


class Fate(StrEnum):
    """Visibility of the records of a batch: the result of their transaction, as far as known."""

    PLAIN = "plain"
    """Written outside transactions: visible at once."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The transaction has no marker here yet."""
    UNDECIDED = "undecided"
    """The batch lies behind the last stable offset, which committed readers do not pass yet. Its own transaction may
    have ended."""


BASE64: Final = "base64"
"""Key of the JSON object for bytes that are not UTF-8 text."""


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One batch of a partition, with the part of it that was requested."""

    topic: str
    partition: int
    header: BatchHeader
    marker: Marker | None
    fate: Fate
    size_bytes: int
    first_offset: int
    """Offset of the first requested record. Batches are read whole, so the batch may begin earlier."""
    records: Callable[[], Placed]
    """Decodes the requested records; there are none for a marker. Raises CorruptBatch."""


_Found = TypeVar("_Found", bound=LoggedBatch | CorruptBatch)


def watched(batches: Iterable[_Found], starts: Mapping[int, int], progress: WorkProgress) -> Iterator[_Found]:
    """Yield the batches, and report how many offsets they and those before them have. `starts` has the first offset of
    each partition."""
    if not progress.is_shown:
        yield from batches
        return
    done = dict.fromkeys(starts, 0)
    for batch in batches:
        yield batch
        # The extent of damage may be unknown, so that the batch after it tells how far the work is.
        if isinstance(batch, LoggedBatch):
            done[batch.partition] = batch.header.last_offset + 1 - starts[batch.partition]
            progress.reach(sum(done.values()))


def chosen_partitions(topic: str, partition_count: int, asked: list[int] | None) -> list[int]:
    """Return the partitions to read, all if none is named. Raises CommandFailed for one that does not exist."""
    wrong = [partition for partition in asked or () if partition >= partition_count]
    if wrong:
        raise CommandFailed(
            ExitStatus.PROBLEM, f"{topic} has the partitions 0 to {partition_count - 1}, and {wrong[0]} was asked for"
        )
    return sorted(set(asked)) if asked else list(range(partition_count))


def batch_row(batch: LoggedBatch) -> Row:
    """Return the row for a batch of records or for a marker."""
    header = batch.header
    row: dict[str, Value] = {
        "topic": batch.topic,
        "partition": batch.partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "kind": "data" if batch.marker is None else "marker",
        "fate": batch.fate if batch.marker is None else None,
        "record_count": header.record_count,
        **_producer(header),
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "encoding": header.encoding.name.lower(),
        "compression": header.compression.name.lower(),
        "size_bytes": batch.size_bytes,
    }
    if batch.marker is not None:
        row["marker"] = _marker(batch.marker)
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecords:
    """Choice of the records to show, and of their parts. A choice by keys leaves markers out."""

    is_raw: bool
    """Show fate and producer of each record, and markers."""
    key: bytes | None = None
    """Only records with this key; None = all records."""
    keys_only: bool = False
    """Leave values and headers out."""

    @property
    def has_markers(self) -> bool:
        """True if markers have a place among the records."""
        return self.key is None and not self.keys_only


def chosen_rows(batch: LoggedBatch, chosen: ShownRecords) -> Iterator[Row]:
    """Yield the rows for the chosen records of a batch, as `record_rows` does."""
    if batch.marker is not None and not chosen.has_markers:
        return
    for row in record_rows(batch, is_raw=chosen.is_raw, key=chosen.key):
        yield {name: row[name] for name in row if name not in _VALUE_PARTS} if chosen.keys_only else row


_VALUE_PARTS: Final = frozenset({"value", "headers"})


def record_rows(batch: LoggedBatch, *, is_raw: bool, key: bytes | None = None) -> Iterator[Row]:
    """Yield the rows for the records of a batch, or one for its marker. `is_raw` adds fate and producer to each
    record. `key` limits them to records with this key."""
    details: dict[str, Value] = {"fate": batch.fate, **_producer(batch.header)} if is_raw else {}
    if batch.marker is not None:
        yield {
            "topic": batch.topic,
            "partition": batch.partition,
            "offset": batch.first_offset,
            "timestamp_ms": batch.header.base_timestamp_ms,
            **_producer(batch.header),
            "marker": _marker(batch.marker),
        }
        return
    for offset, (found_key, value, timestamp_ms, headers) in zip(*batch.records(), strict=True):
        if key is not None and found_key != key:
            continue
        yield {
            "topic": batch.topic,
            "partition": batch.partition,
            "offset": offset,
            "timestamp_ms": timestamp_ms,
            "key": text_or_base64(found_key),
            "value": text_or_base64(value),
            "headers": [{"key": name, "value": text_or_base64(content)} for name, content in headers],
            **details,
        }


def corrupt_row(error: CorruptBatch) -> Row:
    """Return the row for a batch that cannot be read, in its place among the others."""
    return {
        "topic": error.topic,
        "partition": error.partition,
        "offset": error.offset,
        "next_offset": error.next_offset,
        "corrupt": error.reason,
    }


def _corrupt_line(row: Row) -> str:
    place = f"{row['topic']}-{row['partition']}@{row['offset']}"
    return printable(f"{place:<20} !!! cannot be read, goes on at {row['next_offset']}: {row['corrupt']} !!!")


def batch_line(row: Row) -> str:
    """Return a row of `batch_row` or `corrupt_row` as a line of text."""
    if "corrupt" in row:
        return _corrupt_line(row)
    place = f"{row['topic']}-{row['partition']}"
    span = f"{row['base_offset']}..{row['last_offset']}"
    when = moment(row["base_timestamp_ms"])
    if "marker" in row:
        return f"{place:<20} {span:>14}  {marker_words(row)}  {when}"
    sequences = NOTHING if row["base_sequence"] is None else f"{row['base_sequence']}..{row['last_sequence']}"
    return (
        f"{place:<20} {span:>14}  {row['record_count']} records  {row['fate']}  producer {_producer_words(row)}"
        f"  sequence {sequences}  {row['encoding']}/{row['compression']}  {size(row['size_bytes'])}  {when}"
    )


def record_line(row: Row) -> str:
    """Return a row of `record_rows` or `corrupt_row` as a line of text."""
    if "corrupt" in row:
        return _corrupt_line(row)
    place = f"{row['topic']}-{row['partition']}@{row['offset']}"
    if "marker" in row:
        return f"{place:<20} {marker_words(row)}"
    fate = f"{row['fate']:<10}" if "fate" in row else ""
    headers = row["headers"]
    assert isinstance(headers, list)
    named = (
        "  " + " ".join(f"{header['key']}={_content_words(header['value'])}" for header in headers) if headers else ""
    )
    key = "" if row["key"] is None else f"{_content_words(row['key'])} => "
    return printable(f"{place:<20} {fate}{moment(row['timestamp_ms'])}  {key}{_content_words(row['value'])}{named}")


def key_line(row: Row) -> str:
    """Return the key of a row of `chosen_rows` as a line of text."""
    return printable(_content_words(row["key"]))


def marker_words(row: Row) -> str:
    """Return the marker of a row as text."""
    marker = row["marker"]
    assert isinstance(marker, dict)
    return (
        f"=== {str(marker['outcome']).upper()} producer {row['producer_id']}, epoch {marker['txn_epoch']} ->"
        f" {marker['next_epoch']}, csn {marker['csn']}, coordinator epoch {marker['coordinator_epoch']} ==="
    )


def text_or_base64(content: bytes | None) -> Value:
    """Return bytes as JSON can carry them without loss: text, null, or {"base64": ...} for bytes that are not UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode()}


def bytes_of(value: Value) -> bytes | None:
    """Invert `text_or_base64`. Any other JSON value becomes its compact text. Raises ValueError."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded), **rest} if not rest:
            return base64.b64decode(encoded, validate=True)
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _content_words(value: Value) -> str:
    match value:
        case None:
            return "null"
        case {"base64": str(encoded)}:
            return f"0x{base64.b64decode(encoded).hex()}"
        case _:
            return str(value)


def _producer(header: BatchHeader) -> dict[str, Value]:
    if header.producer_id == NO_PRODUCER_ID:
        return {"producer_id": None, "producer_epoch": None, "base_sequence": None, "last_sequence": None}
    has_sequence = not header.is_control
    return {
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence if has_sequence else None,
        "last_sequence": header.last_sequence if has_sequence else None,
    }


def _producer_words(row: Row) -> str:
    return NOTHING if row["producer_id"] is None else f"{row['producer_id']}/{row['producer_epoch']}"


def _marker(marker: Marker) -> Row:
    return {
        "outcome": marker.outcome.name.lower(),
        "csn": marker.csn,
        "coordinator_shard": marker.coordinator_shard,
        "txn_epoch": marker.txn_epoch,
        "next_epoch": marker.next_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
    }
