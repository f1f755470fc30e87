"""Columns that the sink takes, and its message about others before anything is written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.write.sink import check_columns
from pyspark_txnlog.write.sink_options import parse_write_options
from pyspark_txnlog.write.sink_rows import InvalidRows, as_records

OPTIONS = parse_write_options({"endpoint": "h:1", "topic": "t"})
TEXT, BYTES = StringType(), BinaryType()


def headers_of(**fields: DataType) -> DataType:
    return ArrayType(StructType([StructField(name, kind) for name, kind in fields.items()]))


def check(**columns: DataType) -> None:
    fields = [StructField(name, kind) for name, kind in ({"value": BYTES} | columns).items()]
    check_columns(StructType(fields), OPTIONS)


@pytest.mark.parametrize(
    "headers",
    [
        headers_of(key=TEXT, value=BYTES),
        headers_of(value=TEXT, key=BYTES),
        headers_of(key=TEXT, value=NullType()),
        ArrayType(NullType()),
    ],
)
def test_headers_are_keys_that_are_text_and_values_that_are_bytes(headers: DataType) -> None:
    check(headers=headers)


@pytest.mark.parametrize(
    ("headers", "found", "example"),
    [
        (TEXT, "string", "array(struct('name' as key, cast('text' as binary) as value))"),
        (ArrayType(TEXT), "array<string>", "array(struct('name' as key, cast('text' as binary) as value))"),
        (MapType(TEXT, TEXT), "map<string,string>", "map_entries(cast(headers as map<string,binary>))"),
        (
            headers_of(k=TEXT, v=BYTES),
            "array<struct<k:string,v:binary>>",
            "transform(headers, h -> struct(cast(h.k as string) as key, cast(h.v as binary) as value))",
        ),
        (
            headers_of(key=TEXT, value=IntegerType()),
            "array<struct<key:string,value:int>>",
            (
                "transform(headers, h -> struct(cast(h.key as string) as key, cast(cast(h.value as string) as binary)"
                " as value))"
            ),
        ),
        (
            headers_of(more=TEXT, key=TEXT, value=BYTES),
            "array<struct<more:string,key:string,value:binary>>",
            "transform(headers, h -> struct(cast(h.key as string) as key, cast(h.value as binary) as value))",
        ),
    ],
)
def test_headers_of_another_type_are_refused_with_both_types_and_a_cast(
    headers: DataType, found: str, example: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        check(headers=headers)
    wanted = "array<struct<key:string,value:binary>>"
    assert str(refused.value) == (
        f"the column headers is {found} and must be {wanted}; make it so, as with {example} as headers"
    )


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (
            "value",
            IntegerType(),
            "the column value is int and must be binary or string; cast it, as with cast(value as",
        ),
        ("key", headers_of(key=TEXT), "the column key is array<struct<key:string>> and must be binary or string"),
        ("topic", BYTES, "the column topic is binary and must be string; cast it, as with cast(topic as string)"),
        ("partition", LongType(), "the column partition is bigint and must be int; cast it, as with cast(partition as"),
    ],
)
def test_other_columns_of_another_type_are_refused_with_both_types_and_a_cast(
    column: str, kind: DataType, message: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        check(**{column: kind})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (pa.array([[{"key": b"\xff", "value": b"1"}]]), "a key that is not UTF-8 in some rows"),
        (
            pa.array(
                [[{"key": None, "value": b"1"}]], pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))
            ),
            "a header without a key",
        ),
        (pa.array([[None]], pa.list_(pa.null())), "a header without a key"),
    ],
)
def test_what_the_type_cannot_tell_of_headers_is_told_of_the_rows(headers: pa.Array, message: str) -> None:
    with pytest.raises(InvalidRows, match=message):
        as_records(pa.record_batch({"value": pa.array([b"a"]), "headers": headers}), 5)


def test_an_empty_array_is_no_header() -> None:
    (row,) = as_records(
        pa.record_batch({"value": pa.array([b"a"]), "headers": pa.array([[]], pa.list_(pa.null()))}), 5
    ).to_pylist()
    assert row["headers"] == []
