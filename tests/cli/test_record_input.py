"""Lines of stdin as records: what is taken, and what is said about the rest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.batch import BatchHeader, Encoding
from txnctl.commands.log_rows import Fate, LoggedBatch, bytes_of, record_rows, text_or_base64
from txnctl.commands.record_input import InputRecord, InputRefused, json_records, plain_records


def test_a_line_is_a_value_and_keeps_its_bytes() -> None:
    lines = [b"a\n", b"\xff\xfe \n", b"\n", b"windows\r\n", b"last"]
    assert [record.value for record in plain_records(lines, None)] == [b"a", b"\xff\xfe ", b"", b"windows", b"last"]


def test_a_line_with_a_separator_has_a_key() -> None:
    (record,) = plain_records([b"alice::42::x\n"], b"::")
    assert (record.key, record.value) == (b"alice", b"42::x")


def test_a_line_without_the_separator_is_named() -> None:
    records = plain_records([b"a=1\n", b"b\n"], b"=")
    assert next(records).key == b"a"
    with pytest.raises(InputRefused, match=r"line 2 has no key: '=' is not in it"):
        next(records)


def test_an_object_with_everything() -> None:
    line = (
        b'{"key": "k", "value": "v", "headers": {"h": "1", "n": null}, "partition": 3, "timestamp_ms": 7, "offset": 9}'
    )
    (record,) = json_records([b"\n", line])
    assert record == InputRecord(key=b"k", value=b"v", headers=(("h", b"1"), ("n", None)), partition=3, timestamp_ms=7)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("null", None),
        ('"x"', b"x"),
        ('{"base64": "/w=="}', b"\xff"),
        ("5", b"5"),
        ('{"a": [1, "\u00e9"]}', '{"a":[1,"\u00e9"]}'.encode()),
    ],
)
def test_values_that_are_no_text_become_compact_json(value: str, stored: bytes | None) -> None:
    (record,) = json_records([f'{{"value": {value}}}'.encode()])
    assert record.value == stored


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"oops", "line 1: this is no JSON (Expecting value, column 1): write an object such as"),
        (b"\xff", "line 1: "),
        (b"[]", "a record is an object"),
        (b'{"valu": 1}', "'valu' is no part of a record; did you mean value?"),
        (b'{"value": 1, "zzz": 1}', "'zzz' is no part of a record; a record has key, value"),
        (b'{"key": "k"}', "the record has no value; write null"),
        (b'{"value": "v", "partition": "1"}', "partition is '1' and must be a whole number"),
        (b'{"value": "v", "partition": -1}', "partition is -1"),
        (b'{"value": "v", "partition": true}', "partition is True"),
        (b'{"value": "v", "headers": "x"}', "headers are an object"),
        (b'{"value": "v", "headers": [1]}', "headers are a list of objects"),
        (b'{"value": {"base64": "%"}}', "the value is no text that can be stored"),
        (b'{"value": "\\ud800"}', "the value is no text that can be stored"),
    ],
)
def test_a_line_that_is_no_record_is_refused_in_words(line: bytes, said: str) -> None:
    with pytest.raises(InputRefused) as refusal:
        list(json_records([line]))
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("line 1: ")


CONTENT = (
    st.none() | st.binary(max_size=20) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(str.encode)
)
HEADERS = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), CONTENT), max_size=3)


@given(CONTENT)
def test_bytes_survive_json(content: bytes | None) -> None:
    assert bytes_of(json.loads(json.dumps(text_or_base64(content)))) == content


@given(CONTENT, CONTENT, HEADERS, st.integers(0, 2**40))
def test_what_consume_prints_produce_takes_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    header = BatchHeader(
        base_offset=5, record_count=1, base_timestamp_ms=0, max_timestamp_ms=0, encoding=Encoding.RECORDS_V1
    )
    row = (key, value, timestamp_ms, tuple(headers))
    batch = LoggedBatch("t", 2, header, None, Fate.PLAIN, 64, 5, lambda: ([5], [row]))
    (shown,) = record_rows(batch, is_raw=False)
    (record,) = json_records([json.dumps(shown).encode()])
    assert record == InputRecord(key=key, value=value, headers=tuple(headers), partition=2, timestamp_ms=timestamp_ms)
