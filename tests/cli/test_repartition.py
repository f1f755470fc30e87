"""The dump of a topic, loaded into one with another number of partitions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

from coordinator_client import Admin, Producer, read
from coordinator_protocol.hashing import partition_for
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server

KEYS = [b"k%d" % number for number in range(7)]
SOURCES = 5


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Five partitions with rounds of all keys, records without a key between, and an aborted round."""
    with threaded_server() as address:
        with Admin(address) as admin:
            admin.create_topic("source", SOURCES)
        with Producer(address, transactional_id="p") as producer:
            for count in range(3):
                transaction = producer.begin()
                for key in KEYS:
                    transaction.send("source", b"%s:%d" % (key, count), key=key)
                for number in range(4):
                    transaction.send("source", b"bare", partition=number, headers=[("h", b"1")], timestamp_ms=7)
                if count == 1:
                    transaction.flush()
                    transaction.abort()
                else:
                    transaction.commit()
        yield address


def topic_of(server: str, partitions: int) -> str:
    name = f"of-{partitions}"
    with Admin(server) as admin:
        admin.create_topic(name, partitions)
    return name


def by_key(server: str, topic: str) -> dict[bytes, Sequence[tuple[int, bytes]]]:
    found = defaultdict(list)
    for record in read(topic, server):
        if record.key is not None:
            found[record.key].append((record.partition, record.value or b""))
    return dict(found)


@pytest.mark.parametrize("partitions", [2, 8])
def test_each_key_gets_the_partition_of_producers_and_keeps_its_order(
    ask: Terminal, server: str, partitions: int
) -> None:
    topic = topic_of(server, partitions)
    dump = ask("consume", "source", "-o", "json").well().stdout
    load = ("produce", topic, "--format", "json", "--repartition")
    planned = ask(*load, "--dry-run", "-o", "json", stdin=dump).well()
    assert planned.document["records"] == 22
    done = ask(*load, "--commit-every", "6", stdin=dump).well()
    assert "records of a key are in the order of the input; offsets, transactions" in done.stderr
    assert by_key(server, topic) == {
        key: [(partition_for(key, partitions), b"%s:%d" % (key, count)) for count in (0, 2)] for key in KEYS
    }
    bare = [record for record in read(topic, server) if record.key is None]
    spread = [sum(record.partition == number for record in bare) for number in range(partitions)]
    assert (sum(spread), max(spread) - min(spread)) == (8, 0), "in turn"
    assert {(record.value, record.headers, record.timestamp_ms) for record in bare} == {(b"bare", (("h", b"1"),), 7)}


def test_a_load_that_keeps_partitions_says_what_fits_and_what_does_not(ask: Terminal, server: str) -> None:
    dump = ask("consume", "source", "-o", "json").well().stdout
    small, large = topic_of(server, 3), topic_of(server, 9)
    refused = ask("produce", small, "--format", "json", stdin=dump)
    refused.refused(1, "was named", "--repartition chooses partitions by key")
    assert list(read(small, server)) == []
    done = ask("produce", large, "--format", "json", stdin=dump).well()
    assert "has 9: producers may choose others for the same keys; --repartition does as they do" in done.stderr
    bare = json.dumps({"value": "v", "partition": 0})
    assert ask("produce", large, "--format", "json", stdin=bare).well().stderr == ""


def test_a_raw_dump_is_not_loaded(ask: Terminal, server: str) -> None:
    for words in (("consume", "source", "--raw"), ("log", "dump", "source", "--show", "records")):
        dump = ask(*words, "-o", "json").well().stdout
        ask("produce", "source", "--format", "json", "--repartition", stdin=dump).refused(
            2, "line 1: a raw dump has aborted records and markers, too"
        )
