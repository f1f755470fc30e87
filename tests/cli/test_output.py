"""The output of commands: the same values for people and for programs, and nothing that could steer a terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness import forked
from txnctl import output
from txnctl.output import Column, OutputFormat, RowStream, Value, print_list, to_yaml

FULL = Path("/dev/full")
ROWS: list[Any] = [
    {"name": "a", "size_bytes": 7, "at_ms": None},
    {"name": "b\x1b[2J", "size_bytes": 1234567, "at_ms": 0},
]
COLUMNS = (
    Column("NAME", "name"),
    Column("SIZE", "size_bytes", output.size, is_number=True),
    Column("AT", "at_ms", output.moment),
)


def test_a_table_has_titles_and_aligned_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(ROWS[:1], COLUMNS, OutputFormat.TABLE, empty="")
    titles, ruler, row = capsys.readouterr().out.splitlines()
    assert titles.split() == ["NAME", "SIZE", "AT"]
    assert set(ruler) == {"─"}
    assert row.split() == ["a", "7", "B", "-"]


def test_a_table_in_a_pipe_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    print_list([{"name": "x" * 500}], (Column("NAME", "name"),), OutputFormat.TABLE, empty="")
    assert "x" * 500 in capsys.readouterr().out


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(ROWS, COLUMNS, OutputFormat.TABLE, empty="")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "b\\x1b[2J" in shown


def test_square_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_list([{"name": "[red]x[/red]"}], (Column("NAME", "name"),), OutputFormat.TABLE, empty="")
    assert "[red]x[/red]" in capsys.readouterr().out


def test_an_empty_table_says_so_beside_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    print_list([], COLUMNS, OutputFormat.TABLE, empty="nothing there")
    assert capsys.readouterr() == ("", "txnctl: nothing there\n")


def test_an_empty_document_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_list([], COLUMNS, OutputFormat.JSON, empty="nothing there")
    print_list([], COLUMNS, OutputFormat.YAML, empty="nothing there")
    assert capsys.readouterr() == ("[]\n[]\n", "")


def test_json_carries_the_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(ROWS, COLUMNS, OutputFormat.JSON, empty="")
    assert json.loads(capsys.readouterr().out) == ROWS


def test_json_in_a_terminal_steers_nothing_and_ends_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(map(chr, range(0x250))) + "\u2028\u2029é"
    output.print_document([text], OutputFormat.JSON)
    shown = capsys.readouterr().out
    assert json.loads(shown) == [text]
    assert len(shown.splitlines()) == 3
    assert "é" in shown
    assert not set(shown) & {"\x1b", "\x7f", "\x9b"}


def test_yaml_of_a_list_of_things() -> None:
    value: Value = [
        {"name": "plain words", "partitions": [{"topic": "a", "partition": 0}, {"topic": "b", "partition": 1}]},
        {"name": "yes", "count": 3, "open": True, "nothing": None, "empty": [], "none": {}, "at": "12:30"},
    ]
    assert to_yaml(value) == (
        "- name: plain words\n"
        "  partitions:\n"
        "    - topic: a\n"
        "      partition: 0\n"
        "    - topic: b\n"
        "      partition: 1\n"
        '- name: "yes"\n'
        "  count: 3\n"
        "  open: true\n"
        "  nothing: null\n"
        "  empty: []\n"
        "  none: {}\n"
        '  at: "12:30"\n'
    )


@pytest.mark.parametrize(
    "text",
    ["", " x", "x ", "true", "No", "NULL", "~", "1", "1e3", "0x1", "- a", "a: b", "a #b", "[a", "{a", "&a", "*a", "!a",
     "%a", "@a", "'a", '"a', "a\nb", "a\tb", "\u0085", "\x7f", "\u2028", "\U000e0001", "2026-01-01", ".5", "-", "?"],
)  # fmt: skip
def test_text_that_yaml_would_misread_is_quoted(text: str) -> None:
    (line,) = to_yaml(text).split("\n")[:-1]
    assert line.startswith('"')
    assert line.isprintable()
    if "\\U" not in line:
        assert json.loads(line) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_one_line_of_yaml_and_means_itself(text: str) -> None:
    (line,) = to_yaml(text).splitlines()
    if line.startswith('"') and "\\U" not in line:
        assert json.loads(line) == text
    elif "\\U" not in line:
        assert line == text


@pytest.mark.parametrize(
    ("span_ms", "shown"),
    [(0, "0ms"), (999, "999ms"), (1_000, "1.0s"), (59_940, "59.9s"), (245_000, "4m05s"), (7_800_000, "2h10m"),
     (273_600_000, "3d04h"), (-1, "-"), (None, "-")],
)  # fmt: skip
def test_time_spans_in_two_units(span_ms: int | None, shown: str) -> None:
    assert output.duration(span_ms) == shown


@pytest.mark.parametrize(
    ("wall_ms", "shown"),
    [(0, "1970-01-01 00:00:00.000Z"), (1_795_258_620_243, "2026-11-21 10:57:00.243Z"), (-1, "-"), (None, "-"),
     (2**62, f"{2**62} ms")],
)  # fmt: skip
def test_times_in_utc(wall_ms: int | None, shown: str) -> None:
    assert output.moment(wall_ms) == shown


def test_a_stream_of_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert RowStream(OutputFormat.JSON, str).add_all([ROWS[:1], ROWS[1:]], None) == 2
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_a_stream_of_yaml_is_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    RowStream(OutputFormat.YAML, str).add_all([ROWS[:1], ROWS[:1]], None)
    assert capsys.readouterr().out == "- name: a\n  size_bytes: 7\n  at_ms: null\n" * 2


def test_a_stream_stops_at_the_number_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    def batches() -> Any:
        yield ROWS
        raise AssertionError("nothing more may be read")

    assert RowStream(OutputFormat.TABLE, lambda row: str(row["size_bytes"])).add_all(batches(), 2) == 2
    assert capsys.readouterr().out == "7\n1234567\n"


def test_a_terminal_without_unicode_is_shown_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    output.write("né\n")
    output.print_document(["né"], OutputFormat.JSON)
    assert raw.getvalue() == b'n\\xe9\n[\n  "n\\u00e9"\n]\n'


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_said_to_be_one() -> None:
    with FULL.open("wb") as full:
        words = [sys.executable, "-m", "txnctl", "config", "show", "-o", "json"]
        ended = forked.run(words, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert ended.stderr == b"txnctl: the result cannot be written to stdout: No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["output.write('x')", "output.end_if_reader_left()"])
def test_a_reader_that_left_ends_the_program_quietly(call: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = f"from txnctl import output\n{call}\nraise AssertionError('it went on')"
    ended = forked.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
