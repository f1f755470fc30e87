"""Readers of ranges, which run in the tasks of a query and before that on the driver.

Nothing here opens a connection before `partitions` or `read` runs: Spark pickles readers, and forks its workers.
Source: docs/spark.md.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from coordinator_protocol.allocation import keep_freed_memory
from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.options import Report, SourceOptions
from pyspark_txnlog.read.ranges import DataLoss, OffsetRange
from pyspark_txnlog.read.stream_offsets import InvalidCheckpoint, lose

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from coordinator_client.encodings import FetchedBatch
    from coordinator_client.reading.batch_reader import BatchReader


SKIP_ADVICE: Final = (
    "Restore the partition from a copy; or do without these records, with the option onCorruptBatch=skip, which counts "
    "them."
)

STALE_ADVICE: Final = (
    "Load the DataFrame again: that takes a new snapshot. Persist it for a second action: the lease of its snapshot "
    "ends with the first."
)

_LOADED_BY_TASKS: Final = (
    "pyspark_txnlog.connections",
    "pyspark_txnlog.read.arrow_rows",
    "pyspark_txnlog.read.planning",
    "pyspark_txnlog.read.snapshot_leases",
)

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def told_shortly(work: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
    """Return the function with the traceback removed from errors that the user can fix.

    Spark shows the traceback before the reason. To hide tracebacks altogether:
    `spark.sql.execution.pyspark.udf.hideTraceback.enabled`."""

    @wraps(work)
    def telling(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Answer:
        try:
            return work(*args, **kwargs)
        except Exception as error:
            from coordinator_client.errors import TransactionError

            mendable = (InvalidOption, InvalidCheckpoint, DataLoss, LookupError, ImportError, TransactionError)
            if isinstance(error, mendable):
                raise error.with_traceback(None) from None
            raise

    return telling


class PlannedPartition(InputPartition):
    """Work of one task, with the addresses of servers that its planner knew.

    A new worker process knows only the option `endpoint`, whose server may be lost by then."""

    def __init__(self, value: OffsetRange | tuple[OffsetRange, ...], known_servers: tuple[str, ...]) -> None:
        super().__init__(value)
        self.known_servers = known_servers


class RangeReader(DataSourceReader):
    """Reader of the partitions and offsets in the options; `InputPartition.value` is an `OffsetRange`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    # The declared result is Sequence, but Spark accepts only a list.
    @told_shortly
    def partitions(self) -> list[InputPartition]:
        """Return the work: every range that has offsets. Called once, when the query is planned.

        Raises: UnknownTopic, InvalidOption, DataLoss; TransactionError if the server refuses or is out of reach;
        ImportError if this Python lacks a dependency.
        """
        check_dependencies()
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import plan_read
        from pyspark_txnlog.read.snapshot_leases import give_up, numbered

        planned = self._narrowed(plan_read(shared_connection(self._options), self._options))
        if self._options.report is Report.RANGES:
            return [InputPartition(found) for found in planned]
        connection = shared_connection(self._options)
        pieces = self._split(planned)
        if not pieces:
            give_up(connection, self._options, planned)
        settle_planner()
        return [PlannedPartition(piece, connection.known_servers) for piece in numbered(pieces)]

    def _narrowed(self, planned: list[OffsetRange]) -> list[OffsetRange]:
        return planned

    def _split(self, planned: list[OffsetRange]) -> list[OffsetRange]:
        """Return the work of each task. If the options allow losses, topics are left out that were deleted since the
        planning."""
        from coordinator_client.errors import TransactionError
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.deleted_topics import without_deleted
        from pyspark_txnlog.read.planning import split_read

        connection = shared_connection(self._options)
        try:
            return split_read(connection, self._options, planned)
        except TransactionError as error:
            left = without_deleted(connection, self._options, planned, error)
        for topic in sorted({found.topic for found in planned} - {found.topic for found in left}):
            lose(self._options, f"the topic {topic} is gone: it was deleted after the read was planned")
        return self._split(left)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range. If nothing was planned, Spark requests the range None, which is empty.

        Raises while iterating: TransactionError if the server refuses, stays out of reach, or sends damaged bytes.
        """
        if partition.value is None:
            return iter(())
        assert isinstance(partition.value, OffsetRange), f"planned by something else: {partition!r}"
        self.prepare(partition)
        return self.rows(partition.value)

    def prepare(self, partition: InputPartition) -> None:
        """Prepare this process for the work of a task. Raises ImportError if this Python lacks a dependency."""
        check_dependencies()
        settle_worker()
        if isinstance(partition, PlannedPartition):
            from pyspark_txnlog.connections import shared_connection

            shared_connection(self._options).add_known_servers(partition.known_servers)

    def rows(self, scanned: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, as `read` does."""
        rows = self._count if self._options.report is Report.RANGES else self._rows
        return advised(scanned, rows(scanned))

    def _rows(self, scanned: OffsetRange) -> Iterator[pa.RecordBatch]:
        from pyspark_txnlog.read.arrow_rows import spark_batches

        yield from spark_batches(self._batches(scanned, []), self._options.columns)

    def _count(self, scanned: OffsetRange) -> Iterator[pa.RecordBatch]:
        from pyspark_txnlog.read.arrow_rows import report_batch

        readers: list[BatchReader] = []
        rows = sum(batch.record_count for batch in self._batches(scanned, readers))
        yield report_batch(scanned, rows, readers)

    def _batches(self, scanned: OffsetRange, readers: list[BatchReader]) -> Iterator[FetchedBatch]:
        """Yield the batches of a range, and add the used readers to `readers`.

        There is one reader, unless records of the range are deleted meanwhile and the options allow to read the
        rest."""
        from coordinator_client.errors import TOPIC_GONE, TransactionError
        from coordinator_protocol.errors import ErrorCode
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import open_range, what_is_left
        from pyspark_txnlog.read.snapshot_leases import while_held

        connection = shared_connection(self._options)
        left: OffsetRange | None = scanned
        refusal = ErrorCode.UNKNOWN_TOPIC_ID
        while left is not None:
            reader = open_range(connection, self._options, left)
            readers.append(reader)
            try:
                yield from while_held(connection, self._options, left, _batches(reader))
                return
            except TransactionError as error:
                if error.code in TOPIC_GONE:
                    refusal = ErrorCode(error.code)
                    break
                position = reader.positions.get((left.topic, left.partition), left.start_offset)
                left = what_is_left(connection, self._options, left, position, error)
                if left is None:
                    raise
        lose(
            self._options,
            f"{scanned.topic}-{scanned.partition} is gone while it was read: the topic with the id "
            f"{scanned.topic_id.hex()} was deleted ({refusal.name})",
        )


class NarrowedReader(RangeReader):
    """Reader of the ranges that remain after the conditions of the query.

    A separate class, because Spark reports an error if `pushFilters` exists while its own switch is off."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Store the conditions, and return all of them: Spark checks them again row by row."""
        self._filters = filters
        return filters

    def _narrowed(self, planned: list[OffsetRange]) -> list[OffsetRange]:
        from pyspark_txnlog.connections import shared_connection
        from pyspark_txnlog.read.planning import first_offsets_since
        from pyspark_txnlog.read.pushdown import narrowed, narrowing_of

        wanted = narrowing_of(self._filters)
        since_ms, left = wanted.since_ms, narrowed(planned, wanted, {})
        if since_ms is None or not left:
            return left
        connection = shared_connection(self._options)
        return narrowed(left, wanted, first_offsets_since(connection, self._options, left, since_ms))


def advised(scanned: OffsetRange, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. For an unreadable batch, the error names the option to skip it. If records of a
    snapshot are gone, it asks for a new one."""
    from coordinator_client.errors import CorruptBatch, TransactionError
    from coordinator_protocol.errors import ErrorCode

    try:
        yield from rows
    except TransactionError as error:
        if isinstance(error, CorruptBatch):
            error.action = SKIP_ADVICE
        elif error.code == ErrorCode.OFFSET_OUT_OF_RANGE and scanned.shown is not None:
            error.action = STALE_ADVICE
        raise error.with_traceback(None) from None


def _batches(reader: BatchReader) -> Iterable[FetchedBatch]:
    """Return the batches of the reader.

    If it skips unreadable batches, every payload is decoded, even for tasks that do not need it. So all tasks agree on
    the readable batches."""
    return (batch for batch, _ in reader.decoded(lambda batch: batch.as_arrow())) if reader.skips else reader


@cache
def settle_worker() -> None:
    """Prepare this worker process of Spark for many tasks. Loads the modules that readers need, then exempts all loaded
    objects from garbage collection."""
    for module in _LOADED_BY_TASKS:
        import_module(module)
    # Otherwise the memory of every reply would be returned to the system page by page.
    keep_freed_memory()
    # Modules loaded later stay visible to the collector: `pyarrow.compute` alone took an eighth of the time of a task
    # that reads much.
    _pass_over_what_is_loaded()


@cache
def settle_planner() -> None:
    """Prepare a process in which Spark plans many queries, after the first plan, which has loaded all modules."""
    _pass_over_what_is_loaded()


def _pass_over_what_is_loaded() -> None:
    # Spark has these processes collect garbage after each task and each plan. Scanning all modules for that takes
    # longer than a small task, or than any plan.
    gc.collect()
    gc.freeze()


def check_dependencies() -> None:
    """Check that this Python has the dependencies. Raises ImportError with the package to install, and the path of this
    Python."""
    for module in ("pyarrow", "grpc", "google.protobuf", "coordinator_api", "coordinator_client"):
        try:
            import_module(module)
        except ImportError as error:
            raise ImportError(
                f"the source txnlog needs {module}, and {sys.executable} cannot import it ({error}): install "
                "txn-coordinator[spark] there, or set PYSPARK_PYTHON to a Python that has it"
            ) from error
