"""The format `txnlog`: its schema, and which reader does the work."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader
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

from pyspark_txnlog.batch_scan import RangeReader
from pyspark_txnlog.options import InvalidOption, ReadOptions, Report, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "txnlog"

# A schema is built of objects, not of text: parsing text needs a SparkSession, and Spark's workers have none.
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
    }
)


class DefaultSource(DataSource):
    """Topics of a transaction coordinator as a table; committed records only, unless asked otherwise.

    Spark finds this class by its name in a module called `pyspark_*`, so that `spark.read.format("txnlog")` needs no
    registration where this package is installed.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source, or those the options choose. Raises: InvalidOption."""
        return schema_of(parse_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises: InvalidOption, also for a schema of the user's own."""
        options = parse_options(self.options)
        if schema != schema_of(options):
            raise InvalidOption(
                "the columns of this source are fixed, so schema() cannot change them: choose some with the option "
                "columns, and cast in the query"
            )
        return RangeReader(options)


def schema_of(options: ReadOptions) -> StructType:
    """Return the columns of a read."""
    if options.report is Report.RANGES:
        return StructType([StructField(name, kind) for name, kind in _RANGE_TYPES.items()])
    return StructType([StructField(name, _RECORD_TYPES[name]) for name in options.columns])


def register(spark: SparkSession) -> None:
    """Register the format with a SparkSession that cannot find it by itself, because the package came as a zip.

    Raises: ImportError where this Python lacks what the source needs.
    """
    spark.dataSource.register(DefaultSource)


def read_committed(spark: SparkSession, endpoint: str, topics: str, **options: str) -> DataFrame:
    """Return the committed records of some topics (names with commas between them) as a table.

    `options` are further options of the source. The end is the last stable offset of each partition when a query is
    planned. Raises: an AnalysisException that names the wrong option.
    """
    reader = spark.read.format(FORMAT).option("endpoint", endpoint).option("subscribe", topics)
    return reader.options(**options).load()
