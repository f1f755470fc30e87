"""`txnctl topic delete-records` by time and for whole topics."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from coordinator_client import Admin, Producer
from tests.cli.terminal import Terminal

HOUR_MS = 3_600_000
DELETE = ("topic", "delete-records")


@pytest.fixture
def server(shared: str) -> Iterator[str]:
    """Partition 0 has records of the hours 1, 2, 1, 3; partition 1 has one of hour 1; partition 2 is empty."""
    with Admin(shared) as admin:
        admin.create_topic("t", 3)
        with Producer(shared) as producer:
            for partition, hour in ((0, 1), (0, 2), (0, 1), (0, 3), (1, 1)):
                producer.send("t", b"%d" % hour, partition=partition, timestamp_ms=hour * HOUR_MS)
        yield shared
        admin.delete_topic("t")


def left(ask: Terminal) -> list[tuple[int, str]]:
    rows = ask("consume", "t", "-o", "json").well().objects
    return [(row["partition"], row["value"]) for row in rows]


@pytest.mark.parametrize(
    ("hour", "remaining"),
    [
        (1, [(0, "1"), (0, "2"), (0, "1"), (0, "3"), (1, "1")]),
        (2, [(0, "2"), (0, "1"), (0, "3")]),
        (3, [(0, "3")]),
        (4, []),
    ],
)
def test_records_before_a_time_are_deleted_in_a_whole_topic(
    ask: Terminal, hour: int, remaining: list[tuple[int, str]]
) -> None:
    before = (*DELETE, "--topic", "t", "--before-time", f"1970-01-01T0{hour}:00")
    planned = ask(*before, "--dry-run", "-o", "json").well().document
    assert len(left(ask)) == 5
    done = ask(*before, "--yes", "-o", "json").well().document
    assert left(ask) == remaining
    assert {row["result"] for row in done} == {"deleted"}
    for key in ("partition", "offsets", "log_start_offset"):
        assert [row[key] for row in done] == [row[key] for row in planned]


def test_records_older_than_a_span_are_deleted(ask: Terminal, server: str) -> None:
    with Producer(server) as producer:
        producer.send("t", b"now", partition=0, timestamp_ms=time.time_ns() // 1_000_000)
    told = ask(*DELETE, "t-0", "--older-than", "1h", "--yes").well()
    assert left(ask) == [(0, "now"), (1, "1")]
    assert "up to the first that is not" in told.stderr
    assert ask(*DELETE, "t-1", "--older-than", "500000h", "--yes", "-o", "json").well().document[0]["offsets"] == 0


def test_the_question_names_a_whole_topic_once(ask: Terminal) -> None:
    asked = ask(*DELETE, "--topic", "t", "--all", stdin="n\n")
    assert asked.status == 2
    assert "t: 5 offsets in 3 partitions" in asked.stderr
    assert "t-0" not in asked.stderr
    assert len(left(ask)) == 5
    ask(*DELETE, "--topic", "t", "t-1", "--all", stdin="y\n").well()
    assert left(ask) == []


def test_open_records_hold_a_deletion_back(ask: Terminal, server: str) -> None:
    with Producer(server, transactional_id="p") as producer, producer.transaction() as txn:
        txn.send("t", b"open", partition=1, timestamp_ms=HOUR_MS)
        txn.flush()
        rows = ask(*DELETE, "--topic", "t", "--before-time", "1970-01-02", "--dry-run", "-o", "json").well().document
    assert [row["held_back"] for row in rows] == ["", "a transaction is open", ""]
    assert [row["log_start_offset"] for row in rows] == [4, 1, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "t"], "say once where to stop: --before OFFSET, --before-time TIME"),
        (["--topic", "t", "--all", "--older-than", "1d"], "--older-than and --all were given, not both"),
        (["--all"], "name partitions as in orders-0, or whole topics with --topic"),
        (["--topic", "t", "--older-than", "soon"], "is no time span"),
    ],
)
def test_what_makes_no_sense_is_refused(txnctl: Terminal, words: list[str], said: str) -> None:
    ended = txnctl(*DELETE, *words)
    assert ended.status == 2
    assert said in " ".join(ended.stderr.split())


def test_a_topic_that_does_not_exist_changes_nothing(ask: Terminal) -> None:
    ask(*DELETE, "--topic", "t", "--topic", "nowhere", "--all", "--yes").refused(1, "there is no topic 'nowhere'")
    assert len(left(ask)) == 5
