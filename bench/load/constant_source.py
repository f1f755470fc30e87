"""Spark source that yields the same Arrow batch repeatedly: the limit for sources written in Python."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "constant"

_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_BATCH_BYTES: Final = 640 * 1024
"""Size of a batch (bytes), the same as of our source's batches."""
_ROW_BYTES: Final = 40
"""Bytes of a row besides its value."""


class ConstantSource(DataSource):
    """Source with the options `rows` of each partition, `valueBytes` and `partitions`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the columns of our source."""
        return _COLUMNS

    def reader(self, schema: object) -> DataSourceReader:
        """Return a reader that needs no server."""
        return _Reader(*(int(self.options[name]) for name in ("rows", "valueBytes", "partitions")))


class _Reader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int, partition_count: int) -> None:
        self._rows, self._value_bytes, self._partition_count = rows, value_bytes, partition_count

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch(max(1, _BATCH_BYTES // (self._value_bytes + _ROW_BYTES)), self._value_bytes)
        for _ in range(self._rows // batch.num_rows):
            yield batch
        yield batch.slice(0, self._rows % batch.num_rows)


def _batch(row_count: int, value_bytes: int) -> pa.RecordBatch:
    import pyarrow as pa

    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    columns = {
        "key": pa.nulls(row_count, pa.binary()),
        "value": pa.array([bytes(value_bytes)] * row_count, pa.binary()),
        "topic": pa.repeat("constant", row_count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), row_count),
        "offset": pa.array(range(row_count), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(when, pa.timestamp("us", tz="UTC")), row_count),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), row_count),
    }
    return pa.RecordBatch.from_pydict(columns)
