"""Times on the command line mean records, in every encoding and compression; and how far ahead these may lie."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from coordinator_client import Admin, Consumer, Producer, Rejected
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server

T0 = 1_700_000_000_000
MINUTE_MS = 60_000
YEAR_MS = 365 * 24 * 60 * MINUTE_MS
SHAPES = [("records", "none"), ("records", "gzip"), ("arrow", "none"), ("arrow", "zstd")]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that takes no timestamps further ahead than a year, and a topic in each shape with one batch of ten
    minutes."""
    with threaded_server(default_timestamp_after_max_ms=YEAR_MS) as address:
        with Admin(address) as admin:
            for shape in SHAPES:
                admin.create_topic("-".join(shape))
                write(address, *shape)
        yield address


def write(server: str, encoding: str, compression: str) -> None:
    if encoding == "arrow":
        pytest.importorskip("pyarrow")
    settings = {"transactional_id": "writer", "encoding": encoding, "compression": compression}
    with Producer(server, **settings) as producer, producer.transaction() as transaction:
        for number in range(10):
            transaction.send(f"{encoding}-{compression}", b"%d" % number, timestamp_ms=T0 + number * MINUTE_MS)


def moment(minutes: int) -> str:
    return datetime.fromtimestamp((T0 + minutes * MINUTE_MS) / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize("topic", ["-".join(shape) for shape in SHAPES])
def test_a_time_is_the_first_record_of_it_or_later(ask: Terminal, server: str, topic: str) -> None:
    with Consumer(server) as consumer:
        assert consumer.offsets_for_times({(topic, 0): T0 + 5 * MINUTE_MS - 1}) == {(topic, 0): 5}
        assert consumer.offsets_for_times({(topic, 0): T0 + 9 * MINUTE_MS + 1}) == {(topic, 0): None}
    reset = ask("group", "reset-offsets", "g", "--topic", topic, "--to-datetime", moment(5), "-o", "json").well()
    assert [row["offset"] for row in reset.document] == [5]
    for words in (["consume", topic], ["consume", topic, "--raw"], ["log", "dump", topic, "--show", "records"]):
        shown = ask(*words, "--from", moment(5), "-o", "json").well().objects
        assert [row["value"] for row in shown if "value" in row] == ["5", "6", "7", "8", "9"]


def test_where_no_record_is_that_new_it_is_said(ask: Terminal) -> None:
    topic, later = "records-none", moment(10)
    reset = ["group", "reset-offsets", "g", "--topic", topic, "-o", "json"]
    for words in (["--to-datetime", later], ["--by-duration", "1ms"], ["--to-datetime", later, "--execute"]):
        planned = ask(*reset, *words).well()
        assert [row["offset"] for row in planned.document] == [11]
        assert f"{topic}-0: no record is that new, offset 11 is taken, behind all that can be read" in planned.stderr
    assert "no record is that new" not in ask(*reset, "--to-latest").well().stderr
    for words in (["consume", topic], ["log", "dump", topic]):
        nothing = ask(*words, "--from", later, "-o", "json").well()
        assert (nothing.objects, nothing.stderr.splitlines()[0]) == (
            [],
            f"txnctl: no record of {topic} is as new as --from",
        )


def test_how_far_ahead_timestamps_may_lie_is_set_shown_and_enforced(ask: Terminal, server: str) -> None:
    ask("topic", "create", "bounded", "--timestamp-after-max-ms", str(MINUTE_MS)).well()
    ask("topic", "create", "inherits").well()
    shown = {topic: ask("topic", "configs", topic, "-o", "json").well().document for topic in ("bounded", "inherits")}
    values = {
        topic: next((row["value"], row["origin"]) for row in rows if row["name"] == "timestamp_after_max_ms")
        for topic, rows in shown.items()
    }
    assert values == {"bounded": (str(MINUTE_MS), "topic"), "inherits": (str(YEAR_MS), "server")}
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    for topic, ahead_ms in (("bounded", 2 * MINUTE_MS), ("inherits", 2 * YEAR_MS)):
        plain = Producer(server)
        plain.send(topic, b"x", timestamp_ms=now_ms + ahead_ms)
        with pytest.raises(Rejected, match=r"INVALID_TIMESTAMP \(32\)"):
            plain.close()
        producer = Producer(server, transactional_id="t")
        with pytest.raises(Rejected, match="INVALID_TIMESTAMP"), producer, producer.transaction() as transaction:
            transaction.send(topic, b"x", timestamp_ms=now_ms + ahead_ms)
    ask("topic", "alter", "bounded", "--set", "timestamp_after_max_ms=3m").well()
    with Producer(server) as producer:
        producer.send("bounded", b"x", timestamp_ms=now_ms + 2 * MINUTE_MS)
    with Consumer(server) as consumer:
        assert consumer.end_offsets([("bounded", 0), ("inherits", 0)]) == {("bounded", 0): 1, ("inherits", 0): 0}
