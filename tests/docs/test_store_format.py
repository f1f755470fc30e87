"""The page of the store format says of every row what the code says."""

from __future__ import annotations

import ast
import inspect
import re
import struct
from collections.abc import Iterator

import pytest

from coordinator_api.storage.v1 import group_pb2, log_pb2, runtime_pb2, share_pb2, transaction_pb2
from coordinator_protocol import marker
from coordinator_runtime import incarnation, own_rows, rows, store
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.rocks import segment_rows, segments
from coordinator_runtime.store import Family
from coordinator_runtime.unknown_rows import IGNORABLE_FROM
from partition_log import codec, compaction_rows, epoch_rows, forgotten_rows, index_rows
from partition_log.load_checks import UNKNOWN_KINDS_FROM
from tests.docs.fences import ROOT
from txnctl.stopped import known_rows

PAGE = (ROOT / "docs" / "store-format.md").read_text()
MESSAGES = (group_pb2, log_pb2, runtime_pb2, share_pb2, transaction_pb2)

CODES = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}
FIELD = re.compile(r"\b([ui](?:8|16|32|64))\b(?: = (\d+))?")

LAYOUTS = {
    ("LOG", "batch"): (codec._ORDINAL_AND_NUMBER, segments._REFERENCE),
    ("LOG", "marker tail"): (codec._ORDINAL_AND_NUMBER, struct.Struct(marker._TAIL.format + "I")),
    ("STRETCHES", "stretch"): (index_rows._STRETCH_KEY, index_rows._STRETCH),
    ("ABORTED", "aborted transaction"): (index_rows._ABORTED_KEY, index_rows._ABORTED_VALUE),
    ("PARTITIONS", "head"): (codec._HEAD_KEY, codec._HEAD),
    ("PARTITIONS", "leader epoch"): (epoch_rows._KEY, epoch_rows._VALUE),
    ("PARTITIONS", "forgotten csn"): (forgotten_rows._FORGOTTEN_KEY, forgotten_rows._FORGOTTEN),
    ("PARTITIONS", "compaction"): (compaction_rows._KEY, compaction_rows._FIXED),
    ("PRODUCERS", "producer"): (codec._PRODUCER_KEY, codec._PRODUCER),
    ("PRODUCERS", "remembered end"): (forgotten_rows._REMEMBERED_KEY, forgotten_rows._REMEMBERED),
}
"""Packers of key and value, by family and row. What follows a row's fixed part is in `REPEATED`."""
REPEATED = {
    ("PRODUCERS", "producer"): codec._CACHED_BATCHES[1],
    ("PARTITIONS", "compaction"): compaction_rows._PASS,
}


def tables(heading: str) -> Iterator[list[str]]:
    """The rows of all tables under a heading, without their titles."""
    section = re.search(rf"^#+ {re.escape(heading)}.*?$(.*?)(?=^#)", PAGE + "\n#", re.MULTILINE | re.DOTALL)
    assert section is not None, f"no heading {heading}"
    for table in re.findall(r"^\| --- .*\n((?:\|.*\n)*)", section[1], re.MULTILINE):
        for line in table.splitlines():
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def form(fields: str) -> str:
    """The format of a packer that packs these fields."""
    return ">" + "".join(CODES[kind] for kind, _ in FIELD.findall(fields))


def normal(packer: struct.Struct) -> str:
    """The format of a packer, with the pad byte that is a kind written as the byte that it is."""
    return re.sub(r"(\d*)c", "B", packer.format.replace("x", "B"))


PARTITION_ROWS = list(tables("LOG, STRETCHES, ABORTED, PARTITIONS, PRODUCERS"))


def test_every_family_has_its_rows() -> None:
    told = {family.strip("`") for family, *_ in PARTITION_ROWS} | {"META", "COORDINATOR_STATE", "HISTORY"}
    assert told == {family.name for family in Family}
    assert {name for name in re.findall(r"^### ([A-Z_, ]+):", PAGE, re.MULTILINE) for name in name.split(", ")} == told


def test_the_families_are_documented_with_the_keys_that_they_have() -> None:
    """The docstrings below the members of `Family`, which the interpreter throws away."""
    (family,) = (
        node
        for node in ast.parse(inspect.getsource(store)).body
        if isinstance(node, ast.ClassDef) and node.name == Family.__name__
    )
    told = [ast.unparse(node) for node in family.body[1:]]
    found = {
        name.split(" = ")[0]: re.findall(r"(?:^|; *(?:\\n *)?)\(([^)]+)\)(?= ->)", text.strip("'\""), re.MULTILINE)
        for name, text in zip(told[::2], told[1::2], strict=True)
    }
    documented: dict[str, list[str]] = {}
    for name, row, key, _value in PARTITION_ROWS:
        if row != "marker tail":  # It lies in the row of its batch.
            documented.setdefault(name.strip("`"), []).append(key)
    for name, keys in documented.items():
        assert sorted(found[name]) == sorted(keys), name
    assert found["COORDINATOR_STATE"] == ["coordinator u8, shard u16, type u8, key"]
    assert found["HISTORY"] == [key for _row, key, _value in tables("HISTORY")]


@pytest.mark.parametrize("row", PARTITION_ROWS, ids=lambda row: row[1])
def test_keys_and_values_of_partitions_have_these_fields(row: list[str]) -> None:
    family, name, key, value = row[0].strip("`"), *row[1:]
    key_packer, value_packer = LAYOUTS[family, name]
    assert form(key) == normal(key_packer)
    fixed, *repeated = value.split("; then ")
    assert form(fixed.rpartition("reference:")[2]) == normal(value_packer)
    assert bool(repeated) == ((family, name) in REPEATED)
    if repeated:
        assert form(repeated[0]) == normal(REPEATED[family, name])
    kinds = known_rows.KINDS_BY_BYTE.get(Family[family], {})
    assert re.findall(r"kind u8 = (\d+)", key) == [str(number) for number, known in kinds.items() if known == name]
    versions = re.findall(r"^version u8 = (\d+)", value)
    assert versions == ([] if family == "LOG" else [str(codec.VALUE_VERSION)])


def test_all_rows_of_partitions_are_told() -> None:
    told = {(family.strip("`"), name) for family, name, *_ in PARTITION_ROWS}
    assert told == LAYOUTS.keys()
    of_a_kind = {(kind.family.name, kind.name) for kind in known_rows.KINDS if kind.family in known_rows.KINDS_BY_BYTE}
    assert of_a_kind == {each for each in told if each[0] in {"PARTITIONS", "PRODUCERS"}}
    for family, first in UNKNOWN_KINDS_FROM.items():
        assert first == 1 + max(known_rows.KINDS_BY_BYTE[family])


def test_names_in_meta_are_told() -> None:
    told = {name.strip("`"): (key, value) for name, key, value in tables("META")}
    assert told.keys() == {*known_rows.META_NAMES.values()}
    for name, (packer, key_packer) in {
        "segment/": (segment_rows._NUMBER, segment_rows._NAMED),
        "segment_length/": (segment_rows._NUMBER, segment_rows._SEGMENT),
    }.items():
        assert (form(told[name][0]), form(told[name][1])) == (key_packer.format, packer.format)
    assert form(told["incarnation"][1]) == incarnation._STORED.format
    assert form(told["format_version"][1]) == ">Q"
    assert len(own_rows.stored_number(1)) == struct.calcsize(">Q")


def test_record_types_are_told_by_number_and_with_their_messages() -> None:
    told: dict[Coordinator, dict[int, str]] = {coordinator: {} for coordinator in known_rows.RECORD_TYPES}
    for name, coordinator, number, _key, message in tables("COORDINATOR_STATE"):
        of = Coordinator[coordinator.split()[1].upper()]
        assert of == int(coordinator.split()[0])
        told[of][int(number)] = name.strip("`")
        assert any(hasattr(module, message.strip("`")) for module in MESSAGES), message
    assert told == known_rows.RECORD_TYPES
    assert rows._STATE_PREFIX.format == form("coordinator u8, shard u16, type u8")
    assert "coordinator u8, shard u16, type u8" in PAGE


def test_rows_of_history_are_told() -> None:
    ((_name, key, value),) = tables("HISTORY")
    assert form(key) == rows._HISTORY_KEY.format
    fields = re.sub(r"\([^)]*\)", "", value.removeprefix("MessagePack:")).split(",")
    assert len(fields) == len(rows._StoredRow.__struct_fields__)
    (step,) = re.findall(r"steps of \((.*)\)", value)
    assert len(step.split(", ")) == len(rows._StoredStep.__struct_fields__)


def test_every_row_has_a_writer() -> None:
    told = " ".join(row for row, _when in tables("Writers of rows"))
    for family, name in LAYOUTS:
        assert f"`{family}` {name}" in told
    for family in Family:
        assert f"`{family.name}`" in told


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"**Format {own_rows.FORMAT_VERSION}." in PAGE
    assert f"below {IGNORABLE_FROM:#x}" in PAGE
    assert f"every multiple of {index_rows.ABORTED_STRIDE:,}" in PAGE
    assert segments.SegmentOptions().value_bytes_min == 32 * 1024
    assert "rows of 32 KiB or more" in PAGE
