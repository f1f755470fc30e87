"""Values as text for people."""

from __future__ import annotations

import pytest

from txnctl.page import words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve ☃ id", "naïve ☃ id"),
        ("a\nb\tc\x00", "a\\nb\\tc\\x00"),
        ("\u202edlog", "\\u202edlog"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        (5, "5"),
    ],
)
def test_nothing_in_a_text_hides(text: object, shown: str) -> None:
    assert words.visible(text) == shown


def test_a_block_keeps_its_lines() -> None:
    assert words.visible("a\nb\r", is_block=True) == "a\nb\\r"


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, words.NOTHING),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h 0 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations(ms: int | None, shown: str) -> None:
    assert words.duration(ms) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, words.NOTHING), (0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes(value: int | None, shown: str) -> None:
    assert words.size(value) == shown


def test_numbers_and_times() -> None:
    assert [words.number(value) for value in (None, 12_345, 0.25, 1_234.5, 2.0)] == [
        words.NOTHING,
        "12,345",
        "0.2",
        "1,234",
        "2",
    ]
    assert words.moment(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert words.iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert words.moment(-1) == words.NOTHING
    assert words.moment(2**62).endswith(" ms"), "a client may have written any number"


def test_contents_in_every_form() -> None:
    assert words.content(None, "text") == "null"
    assert words.content(b"a\x00b", "text") == "a\\x00b"
    assert words.content(b"\xff\x01", "text") == "0xff01"
    assert words.content(b"\xff\x01", "hex") == "ff 01"
    assert words.content(b'{"b":1}', "json") == '{\n  "b": 1\n}'
    assert words.content(b"[" * 100_000, "json").startswith("[[[")
    assert words.content(b"x" * 5_000, "text").endswith("3,000 more bytes")
    assert words.content("é".encode() * 3_000, "text").endswith("4,000 more bytes")


def test_facts_begin_with_those_that_say_most() -> None:
    told = {"zone": "z", "advice": "x", "codes": "[]", "request": "{}", "result": "done", "method": "CreateTopics"}
    assert [name for name, _value in words.facts(told)] == ["method", "result", "request", "zone"]
