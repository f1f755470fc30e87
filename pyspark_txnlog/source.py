"""The format `txnlog`: its schema, and the choice of a reader or writer for a query."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.options import FORMAT, Report, SourceOptions, parse_either, parse_options
from pyspark_txnlog.read.reading import NarrowedReader, RangeReader, settle_planner, told_shortly
from pyspark_txnlog.write.sink import BatchWriter, StreamWriter, check_columns
from pyspark_txnlog.write.sink_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The schema is built of objects: parsing text needs a SparkSession, which Spark's workers do not have.
_RECORD_TYPES: Final[Mapping[str, DataType]] = MappingProxyType(
    {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    }
)
_RANGE_TYPES: Final[Mapping[str, DataType]] = MappingProxyType(
    {
        "topic": StringType(),
        "partition": IntegerType(),
        "startOffset": LongType(),
        "endOffset": LongType(),
        "rows": LongType(),
        "abortedRecords": LongType(),
        "controlRecords": LongType(),
        "corruptBatches": LongType(),
        "corruptOffsets": LongType(),
        "leaderEpoch": IntegerType(),
    }
)


class DefaultSource(DataSource):
    """Topics of a transaction coordinator as a table; committed records only by default.

    Spark finds this class by its name in a module called `pyspark_*`. So `spark.read.format("txnlog")` needs no
    registration where this package is installed.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @told_shortly
    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source, or the chosen columns. Raises: InvalidOption."""
        found = schema_of(parse_either(self.options))
        settle_planner()
        return found

    @told_shortly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises InvalidOption, also for a schema set by the user."""
        options = self._checked(schema, is_stream=False)
        return NarrowedReader(options) if options.is_pushed_down else RangeReader(options)

    @told_shortly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream. Raises: InvalidOption, also for a schema set by the user; ImportError if Spark
        is older than 4.2."""
        options = self._checked(schema, is_stream=True)
        try:
            from pyspark_txnlog.read.stream_source import StreamReader
        except ImportError as error:
            raise ImportError(
                f"a stream of txnlog needs Spark 4.2 or newer ({error}); spark.read works with this one"
            ) from error
        return StreamReader(options)

    @told_shortly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query. Raises: InvalidOption, also for the mode overwrite."""
        return BatchWriter(self._write_options(schema, is_overwriting=overwrite, is_stream=False))

    @told_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream. Raises: InvalidOption, also for the output mode complete."""
        return StreamWriter(self._write_options(schema, is_overwriting=overwrite, is_stream=True))

    def _write_options(self, schema: StructType, *, is_overwriting: bool, is_stream: bool) -> WriteOptions:
        if is_overwriting:
            raise InvalidOption(
                "a log is only ever appended to: use mode('append'), or of a stream outputMode append or update; what"
                " is there goes by retention"
            )
        options = parse_write_options(self.options, is_stream=is_stream)
        check_columns(schema, options)
        return options

    def _checked(self, schema: StructType, *, is_stream: bool) -> SourceOptions:
        options = parse_options(self.options, is_stream=is_stream)
        if schema != schema_of(options):
            raise InvalidOption(
                "the columns of this source are fixed, so schema() cannot change them: choose some with the option "
                "columns, and cast in the query"
            )
        return options


def schema_of(options: SourceOptions) -> StructType:
    """Return the columns of a read."""
    if options.report is Report.RANGES:
        return StructType([StructField(name, kind) for name, kind in _RANGE_TYPES.items()])
    return StructType([StructField(name, _RECORD_TYPES[name]) for name in options.columns])


def register(spark: SparkSession) -> None:
    """Register the format with a SparkSession that cannot find it by itself, because the package came as a zip.

    Raises: ImportError if this Python lacks a dependency of the source.
    """
    spark.dataSource.register(DefaultSource)


def read_committed(spark: SparkSession, endpoint: str, topics: str, **options: str) -> DataFrame:
    """Return the committed records of topics (names separated by commas) as a table.

    `options` are further options of the source. The end is the last stable offset of each partition when a query is
    planned. Raises an AnalysisException that names the wrong option.
    """
    reader = spark.read.format(FORMAT).option("endpoint", endpoint).option("subscribe", topics)
    return reader.options(**options).load()
