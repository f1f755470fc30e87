"""The batch reader: ranges are fixed once on the driver, each is read by one task and ends where it was told to.

Nothing here opens a connection before `partitions` or `read` runs: Spark pickles readers, and forks its workers.
Source: spec spark 2 and 9.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from coordinator_protocol.allocation import keep_freed_memory
from pyspark_txnlog.options import ReadOptions, Report
from pyspark_txnlog.ranges import OffsetRange, split_ranges

SKIP_ADVICE: Final = (
    "Restore the partition from a copy; or do without these records, with the option onCorruptBatch=skip, which counts "
    "them."
)

if TYPE_CHECKING:
    import pyarrow as pa

    from coordinator_client.batch_reader import BatchReader
    from coordinator_client.fetched_batch import FetchedBatch


class RangeReader(DataSourceReader):
    """Reads what the options ask for; `InputPartition.value` is an `OffsetRange`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    # The declared result is Sequence; Spark itself refuses anything but a list.
    def partitions(self) -> list[InputPartition]:
        """Return the work: each range of offsets that has any. Called once, when the query is planned.

        Raises: UnknownTopic, InvalidOption, DataLoss; TransactionError where the server refuses or is out of reach;
        ImportError where this Python lacks what it takes.
        """
        check_dependencies()
        from pyspark_txnlog.planning import plan_read, shared_connection

        planned = plan_read(shared_connection(self._options.endpoint), self._options)
        if self._options.report is Report.RANGES:
            return [InputPartition(found) for found in planned]
        return [InputPartition(piece) for piece in split_ranges(planned, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range. Where nothing was planned, Spark asks for the range None, which is empty.

        Raises while iterating: TransactionError where the server refuses, stays out of reach, or sends damaged bytes.
        """
        if partition.value is None:
            return iter(())
        assert isinstance(partition.value, OffsetRange), f"planned by something else: {partition!r}"
        check_dependencies()
        # A worker of Spark does nothing else meanwhile, and would give every answer's memory back to the system page by
        # page.
        keep_freed_memory()
        rows = self._count if self._options.report is Report.RANGES else self._rows
        return _advised(rows(partition.value))

    def _rows(self, scanned: OffsetRange) -> Iterator[pa.RecordBatch]:
        from pyspark_txnlog.arrow_rows import spark_batches

        yield from spark_batches(_batches(self._open(scanned)), self._options.columns)

    def _count(self, scanned: OffsetRange) -> Iterator[pa.RecordBatch]:
        from pyspark_txnlog.arrow_rows import report_batch

        reader = self._open(scanned)
        rows = sum(batch.record_count for batch in _batches(reader))
        yield report_batch(scanned, rows=rows, hidden=reader.hidden, skipped=reader.skipped)

    def _open(self, scanned: OffsetRange) -> BatchReader:
        from pyspark_txnlog.planning import open_range, shared_connection

        return open_range(shared_connection(self._options.endpoint), self._options, scanned)


def _advised(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows. Where a batch cannot be read, the error names the option that a reader has here."""
    from coordinator_client.errors import CorruptBatch

    try:
        yield from rows
    except CorruptBatch as error:
        error.action = SKIP_ADVICE
        raise


def _batches(reader: BatchReader) -> Iterable[FetchedBatch]:
    """Return the batches that the reader reads. Where it skips what cannot be read, every payload is opened once more,
    even by tasks that need none of it, so that all tasks agree on what can be read."""
    return (batch for batch, _ in reader.decoded(lambda batch: batch.as_arrow())) if reader.skips else reader


def check_dependencies() -> None:
    """Check that this Python can read. Raises: ImportError that says what to install, and for which Python."""
    for module in ("pyarrow", "grpc", "google.protobuf", "coordinator_api", "coordinator_client"):
        try:
            import_module(module)
        except ImportError as error:
            raise ImportError(
                f"the source txnlog needs {module}, and {sys.executable} cannot import it ({error}): install "
                "txn-coordinator[spark] there, or set PYSPARK_PYTHON to a Python that has it"
            ) from error
