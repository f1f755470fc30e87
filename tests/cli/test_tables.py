"""Tables fit into a terminal, and no UUID, time or number is cut in one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from txnctl import output
from txnctl.output import COLOR, ColorChoice, Column, OutputFormat, Row, marked_if, marked_words, moment, print_list
from txnctl.tables import GAP, CellMark, TableColumn, fold, table_lines

UUID = "b6b5f283-67ca-4759-a373-ea41286976c7"
TOPICS = (
    Column("TOPIC", "topic"),
    Column("PARTITIONS", "partitions", is_number=True),
    Column("OFFSETS", "offsets", is_number=True),
    Column("UNDECIDED", "undecided", is_number=True),
    Column("OPEN TXNS", "open", is_number=True),
    Column("TOPIC ID", "topic_id"),
)
TOPIC: Row = {
    "topic": "customer-orders-2026-emea",
    "partitions": 12,
    "offsets": 123456,
    "undecided": 0,
    "open": 3,
    "topic_id": UUID,
}


def lines(width: int | None, row: Row = TOPIC, columns: Sequence[Column] = TOPICS) -> list[str]:
    return table_lines([column.below([row]) for column in columns], width)


def test_a_uuid_is_whole_at_80_columns() -> None:
    assert lines(80) == [
        "           PARTI-             UNDEC-  OPEN",
        "TOPIC       TIONS  OFFSETS      IDED  TXNS  TOPIC ID",
        "─" * 80,
        f"customer-      12   123456         0     3  {UUID}",
        "orders-",
        "2026-emea",
    ]


def test_a_time_is_whole_at_80_columns() -> None:
    columns = (
        Column("TRANSACTIONAL ID", "id"),
        Column("STATE", "state"),
        Column("PRODUCER ID", "producer", is_number=True),
        Column("OPENED", "at", moment),
        Column("AGE", "age", output.duration, is_number=True),
    )
    row: Row = {
        "id": "billing-service-production-eu-west-1-0007",
        "state": "PrepareCommit",
        "producer": 1234567,
        "at": 0,
        "age": 86_400_000,
    }
    shown = lines(80, row, columns)
    assert max(map(cell_len, shown)) <= 80
    assert "1970-01-01 00:00:00.000Z" in "\n".join(shown)


def test_a_terminal_too_narrow_for_the_table_gets_a_block_of_lines_for_each_row() -> None:
    assert lines(60)[:2] == ["TOPIC       customer-orders-2026-emea", "PARTITIONS  12"]
    assert lines(60)[-1] == f"TOPIC ID    {UUID}"


def test_titles_are_folded_before_texts() -> None:
    columns = (Column("NAME", "name"), Column("LONGEST AGE SO FAR", "age", is_number=True))
    assert lines(21, {"name": "word-by-word", "age": 7}, columns) == [
        "              LONGEST",
        "               AGE SO",
        "NAME              FAR",
        "─" * 21,
        "word-by-word        7",
    ]


WORDS = st.lists(
    st.sampled_from(["a", "orders-", "日本語", "x" * 30, UUID, "2026-11-21 12:08:26.553Z", " "]), max_size=5
)


@given(
    st.lists(st.tuples(WORDS.map("".join), WORDS.map(" ".join), st.integers(0, 10**12)), min_size=1, max_size=4),
    st.integers(1, 130),
)
def test_no_table_is_wider_than_its_terminal_and_none_loses_a_letter(
    rows: list[tuple[str, str, int]], width: int
) -> None:
    columns = [
        TableColumn("NAME", [row[0] for row in rows], [None] * len(rows)),
        TableColumn("NAME OF MORE WORDS", [row[1] for row in rows], [None] * len(rows)),
        TableColumn("NUMBER", [str(row[2]) for row in rows], [None] * len(rows), is_right=True, is_whole=True),
    ]
    shown = table_lines(columns, width)
    is_table = any(set(line) == {"─"} for line in shown)
    assert not is_table or max(map(cell_len, shown)) <= width
    text = "\n".join(shown)
    assert all(str(row[2]) in text for row in rows)
    assert text.count(UUID) == sum(cell.count(UUID) for row in rows for cell in row[:2])


@given(WORDS.map(" ".join), st.integers(1, 40))
def test_folding_keeps_every_letter(text: str, width: int) -> None:
    assert "".join("".join(fold(text, width)).split()) == "".join(text.split())


class Screen(io.StringIO):
    """A terminal of 80 columns."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Screen()


STATES = (Column("STATE", "state", mark=marked_words(bad=["failed"], warning=["loading"])),)


def show_states(stream: io.StringIO, form: OutputFormat = OutputFormat.TABLE) -> None:
    with contextlib.redirect_stdout(stream):
        print_list([{"state": "failed"}, {"state": "loading"}, {"state": "active"}], STATES, form, empty="")


def test_what_is_wrong_has_a_colour_in_a_terminal(screen: Screen) -> None:
    show_states(screen)
    assert screen.getvalue().splitlines()[2:] == ["\x1b[31mfailed\x1b[0m", "\x1b[33mloading\x1b[0m", "active"]


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_environment_turns_colours_off(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    show_states(screen)
    assert "\x1b" not in screen.getvalue()


def test_an_option_turns_colours_on_and_off(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    pipe = io.StringIO()
    before = COLOR.set(ColorChoice.ALWAYS)
    show_states(pipe)
    COLOR.set(ColorChoice.NEVER)
    monkeypatch.delenv("NO_COLOR")
    show_states(screen)
    COLOR.reset(before)
    assert ["\x1b" in pipe.getvalue(), "\x1b" in screen.getvalue()] == [True, False]


def test_json_and_a_pipe_have_no_colours(screen: Screen) -> None:
    pipe = io.StringIO()
    show_states(screen, OutputFormat.JSON)
    show_states(pipe)
    assert "\x1b" not in screen.getvalue() + pipe.getvalue()


def test_a_colour_takes_no_room() -> None:
    columns = [TableColumn("A", ["x"], [CellMark.BAD]), TableColumn("B", ["y"], [None])]
    assert table_lines(columns, None, is_coloured=True)[2] == f"\x1b[31mx\x1b[0m{' ' * GAP}y"


def test_numbers_above_a_limit_and_texts_that_are_not_empty_are_marked() -> None:
    assert [marked_if(CellMark.BAD, above=2)(value) for value in (2, 3, None, "", "x", [], ["x"])] == [
        *(None, CellMark.BAD, None),
        *(None, CellMark.BAD, None, CellMark.BAD),
    ]
