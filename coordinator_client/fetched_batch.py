"""A fetched batch, verified: its checksum, its shape, and the number of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from coordinator_client.encodings import checked_header, decode_rows, marker_of, unpack
from coordinator_client.errors import CorruptBatch, Rejected, TransactionError, corrupt
from coordinator_client.fetch_reply import Payload, WireBatch
from coordinator_client.state import Row
from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.marker import Marker

if TYPE_CHECKING:
    import pyarrow as pa


class FetchedBatch(Struct, frozen=True, kw_only=True):
    """A verified batch, and the part of it that lies in the requested range."""

    topic: str
    partition: int
    header: BatchHeader
    content: Payload
    """The unpacked payload. Where it was not compressed it is a view, which keeps the whole answer that it came in in
    memory."""
    marker: Marker | None
    first_offset: int
    """Offset of the first record in the range. Batches come whole, so it may be above the first offset of the batch."""
    end_offset: int
    """Offset behind the last record in the range."""

    @property
    def payload(self) -> bytes:
        """A copy of the unpacked payload."""
        return bytes(self.content)

    @property
    def record_count(self) -> int:
        """Number of records of the batch that lie in the range."""
        return self.end_offset - self.first_offset

    @property
    def where(self) -> str:
        """Where the batch lies, for messages."""
        return place_of(self.topic, self.partition, self.header.base_offset)

    def rows(self) -> list[Row]:
        """Return the records in the range; none for a marker. Raises: CorruptBatch."""
        if self.marker is not None:
            return []
        try:
            rows = decode_rows(self.content, self.header.encoding, self.header.record_count, self.where)
        except Rejected as why:
            raise self._corrupt(why) from why
        return rows[self.first_offset - self.header.base_offset : self.end_offset - self.header.base_offset]

    def as_arrow(self) -> pa.RecordBatch:
        """Return the records in the range as one Arrow batch of the fixed schema (`arrow_encoding.SCHEMA`).

        An Arrow payload is viewed, not copied. Raises: CorruptBatch, ImportError without pyarrow.
        """
        from coordinator_client.arrow_encoding import decode_arrow, rows_to_arrow

        if self.marker is not None or self.header.encoding is not Encoding.ARROW_V1:
            return rows_to_arrow(self.rows())
        try:
            batch = decode_arrow(self.content, self.where)
        except Rejected as why:
            raise self._corrupt(why) from why
        if batch.num_rows != self.header.record_count:
            counted = f"it says that it holds {self.header.record_count} records and holds {batch.num_rows}"
            raise self._corrupt(corrupt(f"{self.where}: {counted}"))
        return batch.slice(self.first_offset - self.header.base_offset, self.record_count)

    def _corrupt(self, why: TransactionError) -> CorruptBatch:
        return corrupt_at(self.topic, self.partition, self.header.base_offset, self.header.last_offset + 1, why)


def checked_batch(
    topic: str, partition: int, batch: WireBatch, *, start_offset: int, end_offset: int | None
) -> FetchedBatch | None:
    """Return the part of a batch that lies in the range, unpacked; None where no record does.

    Raises: CorruptBatch.
    """
    fields, payload = batch.fields, batch.payload
    where = place_of(topic, partition, fields.base_offset)
    try:
        header = checked_header(fields, payload, where)
        content = payload if header.is_control else unpack(payload, header.compression, where)
    except Rejected as why:
        # The number of records is all that is left to go by.
        behind = fields.base_offset + max(1, fields.record_count)
        raise corrupt_at(topic, partition, max(fields.base_offset, start_offset), behind, why) from why
    first = max(header.base_offset, start_offset)
    after = header.last_offset + 1 if end_offset is None else min(header.last_offset + 1, end_offset)
    if first >= after:
        return None
    return FetchedBatch(
        topic=topic,
        partition=partition,
        header=header,
        content=content,
        marker=marker_of(fields),
        first_offset=first,
        end_offset=after,
    )


def corrupt_at(topic: str, partition: int, offset: int, next_offset: int, why: TransactionError) -> CorruptBatch:
    """Return the error for what cannot be read from `offset` up to `next_offset`."""
    return CorruptBatch(
        why.code, why.reason, topic=topic, partition=partition, offset=offset, next_offset=max(next_offset, offset + 1)
    )


def place_of(topic: str, partition: int, offset: int) -> str:
    """Return the name of an offset of a partition, for messages."""
    return f"{topic}-{partition} at offset {offset}"
