"""Records by key, their keys alone, and formats of the user: `txnctl consume --key`, `--keys-only`, `--format`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_client import Admin, Producer
from coordinator_server.exits import CommandFailed
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server
from txnctl.commands.record_format import RecordFormat

ROW: dict[str, Any] = {
    "topic": "orders",
    "partition": 1,
    "offset": 42,
    "timestamp_ms": 1_700_000_000_000,
    "key": "alice",
    "value": {"base64": "AP8b"},
    "headers": [{"key": "trace", "value": "17"}, {"key": "none", "value": None}],
}
BARE = ROW | {"key": None, "value": None, "headers": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%t %p %o %k %T %h\n", b"orders 1 42 alice 1700000000000 trace=17,none=\n"),
        ("%v|%s", b"\x00\xff\x1b|\x00\xff\x1b"),
        (r"%K %S %%\t\\\x41\0\r", b"5 3 %\t\\A\0\r"),
        ("über %k", "über alice".encode()),
        ("", b""),
    ],
)
def test_a_format_is_filled_with_the_stored_bytes(text: str, expected: bytes) -> None:
    assert RecordFormat(text).record(ROW, is_terminal=False) == expected


def test_null_is_empty_and_its_length_is_below_zero() -> None:
    assert RecordFormat("[%k][%v][%h]%K,%S").record(BARE, is_terminal=False) == b"[][][]-1,-1"


def test_content_cannot_control_a_terminal() -> None:
    assert RecordFormat(r"%v\n").record(ROW, is_terminal=True) == rb"\x00\xff\x1b" + b"\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%t %q", "--format: '%q' at character 4 means nothing; there is %t topic"),
        ("%", "--format: '%' at character 1 means nothing; there is %t topic"),
        (r"%o\q", r"--format: '\q' at character 3 means nothing; there is \n"),
        (r"%o\x4", r"--format: '\x' at character 3 means nothing"),
        ("%o\\", "--format: '\\' at character 3 means nothing"),
    ],
)
def test_a_wrong_part_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        RecordFormat(text)
    assert caught.value.message.startswith(said)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with threaded_server() as address:
        with Admin(address) as admin:
            admin.create_topic("t", 2)
        with Producer(address, transactional_id="p") as producer:
            with producer.transaction() as txn:
                for number, key in enumerate([b"a", b"b", None, b"\xff"]):
                    txn.send("t", b"v%d" % number, key=key, partition=number % 2, headers=[("h", b"%d" % number)])
            aborted = producer.begin()
            aborted.send("t", b"gone", key=b"a", partition=0)
            aborted.flush()
            aborted.abort()
        yield address


def test_records_are_chosen_by_key(ask: Terminal) -> None:
    (found,) = ask("consume", "t", "--key", "a", "-o", "json").well().objects
    assert (found["value"], found["key"]) == ("v0", "a")
    fates = [row["fate"] for row in ask("consume", "t", "--key", "a", "--raw", "-o", "json").well().objects]
    assert fates == ["committed", "aborted"], "no markers"
    assert [row["value"] for row in ask("consume", "t", "--key-hex", "FF", "-o", "json").well().objects] == ["v3"]
    assert "0 shown" in ask("consume", "t", "--key", "nobody").well().stderr
    ask("consume", "t", "--key", "a", "--key-hex", "61").refused(2, "leave one of them out")
    ask("consume", "t", "--key-hex", "6").refused(2, "pairs of hexadecimal digits")


def test_keys_are_shown_alone(ask: Terminal) -> None:
    assert sorted(ask("consume", "t", "--keys-only").well().lines) == ["0xff", "a", "b", "null"]
    (first, *_) = ask("consume", "t", "--keys-only", "-p", "1", "-o", "json").well().objects
    assert first.keys() == {"topic", "partition", "offset", "timestamp_ms", "key"}


def test_records_are_printed_in_a_format(ask: Terminal) -> None:
    shown = ask("consume", "t", "-p", "0", "--format", r"%o:%k=%v(%h)\n").well()
    assert (shown.stdout, shown.stderr) == ("0:a=v0(h=0)\n1:=v2(h=2)\n", "")
    assert ask("consume", "t", "-p", "0", "-n", "1", "--format", "%v;").well().stdout == "v0;"
    assert ask("consume", "t", "--key", "b", "--format", r"%p\n").well().stdout == "1\n"


def test_a_format_excludes_other_forms(ask: Terminal) -> None:
    ask("consume", "t", "--format", "%q").refused(2, "'%q' at character 1")
    ask("consume", "t", "--format", "%v", "-o", "json").refused(2, "choose one")
    ask("consume", "t", "--format", "%v", "--raw").refused(2, "leave --raw out")
    ask("consume", "t", "--format", "%v", "--keys-only").refused(2, "leave --keys-only out")
