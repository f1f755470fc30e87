"""The account of a job, as numbers and as a table."""

from __future__ import annotations

from pyspark_txnlog.job import first_cause
from pyspark_txnlog.job_parts.account import PartitionSummary, Summary


def partition(
    number: int, *, rows: int | None, aborted: int | None, control: int | None, corrupt: int | None = 0
) -> PartitionSummary:
    return PartitionSummary(
        topic="flights",
        partition=number,
        start_offset=0,
        end_offset=1_200,
        last_stable_offset=1_200,
        high_watermark=1_300,
        rows=rows,
        aborted_records=aborted,
        control_records=control,
        corrupt_offsets=corrupt,
        written=rows,
    )


def summary(*partitions: PartitionSummary) -> Summary:
    return Summary(isolation="read_committed", partitions=partitions, elapsed_ms=5)


def test_the_table_accounts_for_every_partition_and_the_whole() -> None:
    counted = summary(
        partition(0, rows=993, aborted=190, control=10, corrupt=7), partition(1, rows=1_190, aborted=0, control=10)
    )
    assert counted.table().splitlines() == [
        "topic    partition  start    end    LSO  high watermark   read  hidden  aborted  markers  corrupt  written",
        "-------  ---------  -----  -----  -----  --------------  -----  ------  -------  -------  -------  -------",
        "flights          0      0  1,200  1,200           1,300    993     207      190       10        7      993",
        "flights          1      0  1,200  1,200           1,300  1,190      10        0       10        0    1,190",
        "-------  ---------  -----  -----  -----  --------------  -----  ------  -------  -------  -------  -------",
        "total                                                    2,183     217      190       20        7    2,183",
    ]
    assert [found.hidden_records for found in counted.partitions] == [207, 10]


def test_an_unknown_count_is_not_called_zero() -> None:
    unknown = summary(partition(0, rows=None, aborted=None, control=None, corrupt=None))
    assert (unknown.rows, unknown.aborted_records, unknown.partitions[0].hidden_records) == (None, None, None)
    assert unknown.table().splitlines()[2].split()[-6:] == ["-"] * 6


def test_an_empty_read_has_an_account_too() -> None:
    assert summary().table().splitlines()[-1].split() == ["total", *["0"] * 6]


def test_the_line_where_python_raised_stands_for_a_long_spark_error() -> None:
    message = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed when reading: Traceback (most recent call last):\n"
        '  File "reader.py", line 3, in read\n'
        "    raise KeyError\n"
        "ImportError: first\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "coordinator_client.errors.Rejected: OFFSET_OUT_OF_RANGE (1): offset 7 is gone\n"
        " SQLSTATE: 38000\n\tat org.apache.spark.Foo: bar"
    )
    assert first_cause(message) == "Rejected: OFFSET_OUT_OF_RANGE (1): offset 7 is gone"


def test_an_error_of_the_jvm_is_told_by_what_it_threw() -> None:
    message = "An error occurred while calling o48.save.\n: java.lang.NoClassDefFoundError: org/TimeAdd\n\tat org.Foo"
    assert first_cause(message) == "java.lang.NoClassDefFoundError: org/TimeAdd"


def test_a_spark_error_of_its_own_is_told_by_its_first_line() -> None:
    assert first_cause("[PATH_ALREADY_EXISTS] Path exists.\n\tat org.apache") == "[PATH_ALREADY_EXISTS] Path exists."
