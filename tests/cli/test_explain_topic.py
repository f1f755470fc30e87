"""`txnctl explain TOPIC`: why readers of a topic see no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_client import Admin, PartitionBlocker, PartitionListing, Producer
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server
from txnctl.commands.explain_topic import topic_explanation


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with threaded_server() as address, Admin(address) as admin:
        admin.create_topic("orders", 3, config={"retention_ms": "604800000"})
        admin.create_topic("orders-7", 1)
        yield address


def test_nothing_in_the_way_is_said_with_sizes_and_retention(ask: Terminal) -> None:
    told = ask("explain", "orders").well()
    assert "Retention               7d00h (topic), no size limit (default), delete (default)\n" in told.stdout
    assert "nothing is in the way: readers get up to the end; `txnctl group list --lag`" in told.stderr


def test_the_transaction_in_the_way_is_named_once_with_its_partitions(ask: Terminal, server: str) -> None:
    with Producer(server, transactional_id="billing-1") as producer:
        transaction = producer.begin()
        for partition in (0, 2):
            transaction.send("orders", b"open", partition=partition)
        transaction.flush()
        told = ask("explain", "orders").well()
        row = ask("explain", "orders", "-o", "json").well().document
        transaction.abort()
    assert [line.split()[0] for line in told.lines[-2:]] == ["0", "2"]
    assert all("billing-1" in line and "Ongoing" in line for line in told.lines[-2:])
    assert (row["blocked_partitions"], row["undecided_offsets"], len(row["blockers"])) == ([0, 2], 2, 1)
    assert all(each["time_left_ms"] > 0 and each["age_ms"] >= 0 for each in row["blocked"])
    (step,) = row["next"]
    assert "the server aborts it in" in step
    assert step.endswith("`txnctl abort billing-1` does it now")


def test_a_topic_with_the_name_of_a_partition_is_found(ask: Terminal) -> None:
    assert ask("explain", "orders-7", "-o", "json").well().document["topic"] == "orders-7"
    assert ask("explain", "orders-1", "-o", "json").well().document["partition"] == 1
    ask("explain", "orders-9").refused(1, "orders has the partitions 0 to 2, and 9 was asked for")
    ask("explain", "order").refused(1, "there is no topic 'order'", "did you mean orders?")


def listing(partition: int, **changes: Any) -> PartitionListing:
    known: dict[str, Any] = {
        "topic": "t",
        "topic_id": b"",
        "partition": partition,
        "is_served": True,
        "log_start_offset": 0,
        "last_stable_offset": 5,
        "high_watermark": 5,
        "open_transactions": 0,
        "records": 5,
        "size_bytes": 500,
        "blocker": None,
    }
    return PartitionListing(**known | changes)


def test_a_partition_that_is_not_served_comes_first() -> None:
    row = topic_explanation("t", [listing(0), listing(1, is_served=False)], [], {})
    assert row["unserved_partitions"] == [1]
    assert row["next"] == ["1 partitions are not served, so they cannot be read: `txnctl shard list log` shows why"]


def test_records_that_retention_removed_are_told() -> None:
    row = topic_explanation("t", [listing(0, log_start_offset=5, records=0)], [], {})
    steps = row["next"]
    assert isinstance(steps, list)
    assert "all records are gone by retention or deletion: `txnctl topic configs t`" in str(steps[-1])


def test_transactions_that_were_not_looked_at_are_counted() -> None:
    blocker = PartitionBlocker(start_offset=2, start_ms=0, age_ms=9, transactional_id="", owner_hidden=True, state="")
    row = topic_explanation("t", [listing(0, last_stable_offset=2, blocker=blocker)], [], {})
    blocked, steps = row["blocked"], row["next"]
    assert isinstance(blocked, list)
    assert isinstance(steps, list)
    (found,) = blocked
    assert isinstance(found, dict)
    assert (found["transactional_id"], found["age_ms"], found["time_left_ms"]) == ("(hidden)", 9, None)
    assert str(steps[0]).startswith("1 more transactions are in the way")
