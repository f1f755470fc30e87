"""Sizes of all topics and lag of all groups at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_client import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server


@pytest.fixture
def server() -> Iterator[str]:
    with threaded_server() as address:
        yield address


def test_nothing_is_listed_with_advice(ask: Terminal) -> None:
    assert "`txnctl topic create NAME` makes one" in ask("topic", "list", "--sizes").well().stderr
    assert "no group matches" in ask("group", "list", "--lag").well().stderr


def test_records_and_bytes_of_all_topics_are_shown_with_their_sums(ask: Terminal, server: str) -> None:
    with Admin(server) as admin:
        admin.create_topic("empty", 1)
        admin.create_topic("orders", 3)
    with Producer(server, transactional_id="p") as producer:
        with producer.transaction() as txn:
            txn.send("orders", b"a", partition=0)
            txn.send("orders", b"b" * 5_000, partition=2)
        with producer.transaction() as txn:
            txn.send("orders", b"open", partition=2)
            txn.flush()
            shown = ask("topic", "list", "--sizes").well()
            empty, orders = ask("topic", "list", "--sizes", "-o", "json").well().document
    assert (empty["records"], empty["size_bytes"], empty["unserved_partitions"]) == (0, 0, 0)
    assert (orders["partitions"], orders["records"], orders["offsets"]) == (3, 3, 5), "two offsets are markers"
    assert (orders["undecided_offsets"], orders["open_transactions"]) == (1, 1)
    assert orders["size_bytes"] > 5_000
    assert "in all 2 topics, 4 partitions, 3 records, 5." in shown.stderr
    assert "KiB" in shown.lines[-1]


def test_the_lag_of_all_groups_is_shown_by_topic_and_in_sum(ask: Terminal, server: str) -> None:
    with Admin(server) as admin:
        for topic in ("orders", "refunds"):
            admin.create_topic(topic, 2)
        with Producer(server) as producer:
            for number in range(6):
                producer.send("orders", b"%d" % number, partition=number % 2)
            producer.send("refunds", b"r", partition=0)
        admin.alter_group_offsets("done", {TopicPartition("refunds", 0): 1})
        behind = {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0, TopicPartition("refunds", 0): 0}
        admin.alter_group_offsets("behind", behind)
        admin.alter_group_configs("workers", {"share_auto_offset_reset": "earliest"})
        with ShareConsumer(server, group_id="workers") as consumer:
            consumer.subscribe(["refunds"])
            while not consumer.poll(timeout_ms=1_000):
                pass
            by_id = {row["group_id"]: row for row in ask("group", "list", "--lag", "-o", "json").well().document}
            table = ask("group", "list", "--lag").well()
    lags = {name: (row["partitions"], row["lag_to_last_stable_offset"]) for name, row in by_id.items()}
    assert lags == {"behind": (3, 6), "done": (1, 0), "workers": (2, 1)}
    assert by_id["behind"]["topics"] == [
        {"topic": "orders", "partitions": 2, "lag_to_last_stable_offset": 5, "lag_to_high_watermark": 5},
        {"topic": "refunds", "partitions": 1, "lag_to_last_stable_offset": 1, "lag_to_high_watermark": 1},
    ]
    assert table.lines[-3].split() == ["behind", "classic", "Empty", "3", "6", "6", "-"]
    assert "in all 3 groups, 7 records to read now, 7 up to the end" in table.stderr
    assert [row["group_id"] for row in ask("group", "list", "--lag", "--type", "share", "-o", "json").document] == [
        "workers"
    ]


def test_a_group_that_waits_for_a_transaction_names_it(ask: Terminal, server: str) -> None:
    with Admin(server) as admin:
        admin.create_topic("orders", 1)
    with (
        Producer(server, transactional_id="billing-1") as producer,
        Consumer(server, group_id="billing", enable_auto_commit=False) as consumer,
    ):
        consumer.assign([("orders", 0)])
        with producer.transaction() as txn:
            txn.commit_offsets(consumer, {TopicPartition("orders", 0): 0})
            txn.flush()
            (row,) = ask("group", "list", "--lag", "-o", "json").well().document
    assert row["waits_for"] == ["billing-1"]
    assert (row["partitions"], row["lag_to_last_stable_offset"]) == (1, None), "nothing is committed yet"
