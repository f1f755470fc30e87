"""The rows of `report=ranges`: what a reader sees of each range, and what is hidden from it and why.

So an empty read can be told from a read of aborted transactions, and a result can be audited: rows, aborted and
control records of a range, and offsets skipped as corrupt, add up to its offsets. Source: spec spark 8 (complaints).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from coordinator_client.batch_reader import Hidden
from coordinator_client.corrupt import Skipped
from pyspark_txnlog.ranges import OffsetRange

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("startOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("rows", pa.int64()),
        ("abortedRecords", pa.int64()),
        ("controlRecords", pa.int64()),
        ("corruptBatches", pa.int64()),
        ("corruptOffsets", pa.int64()),
    ]
)


def report_batch(scanned: OffsetRange, *, rows: int, hidden: Hidden, skipped: Skipped) -> pa.RecordBatch:
    """Return the one row about a range."""
    numbers = [scanned.partition, scanned.start_offset, scanned.end_offset, rows, hidden.aborted, hidden.control]
    numbers += [skipped.batches, skipped.offsets]
    columns = [[scanned.topic], *([number] for number in numbers)]
    return pa.record_batch(
        [pa.array(column, declared.type) for column, declared in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
