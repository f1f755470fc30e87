"""Wrong calls of a producer, refused before anything is sent."""

from __future__ import annotations

import pytest

from coordinator_client import Misconfigured, Producer, Rejected, TransactionError
from coordinator_protocol.methods import Method
from tests.client.producers import producer_in
from tests.client.world import World


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"transactional_id": ""}, Rejected, "the transactional id is empty"),
        ({"transactional_id": "a\0b"}, Rejected, "contains NUL"),
        ({"transactional_id": "x" * 1_001}, Rejected, "1001 bytes"),
        (
            {"transaction_timeout_ms": 2**31},
            Misconfigured,
            "transaction_timeout_ms is 2147483648 and must be between 1 and",
        ),
        ({"transaction_timeout_ms": 0}, Misconfigured, "INVALID_TRANSACTION_TIMEOUT"),
        ({"delivery_timeout_ms": 0}, Misconfigured, "must be between 1 and"),
        ({"encoding": "avro"}, Misconfigured, "encoding is 'avro' and must be one of records, arrow"),
        (
            {"compression": "brotli"},
            Misconfigured,
            "must be one of none, gzip, snappy, lz4, zstd",
        ),
        ({"batch_bytes": 16 * 1_048_576}, Misconfigured, "must be between 4096 and 16711680"),
        ({"batch_bytes": 8_192, "buffer_bytes": 4_096}, Misconfigured, "at least batch_bytes"),
        ({"client_id": "a\0"}, Rejected, "client id"),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(options, kind: type[TransactionError], message: str) -> None:
    with pytest.raises(kind, match=message):
        Producer("127.0.0.1:7070", **options)


@pytest.mark.parametrize("endpoint", ["", "localhost", "localhost:", "localhost:0", "localhost:70000", "a b:1", ":1"])
def test_a_wrong_address_is_refused_at_construction(endpoint: str) -> None:
    with pytest.raises(Rejected, match="is no address of a server"):
        Producer(endpoint)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"topic": "no topic!"}, Rejected, "'no topic!' is no topic name"),
        ({"topic": "__internal"}, Rejected, "is reserved"),
        ({"topic": "unknown"}, Rejected, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"value": "text"}, TypeError, "value must be bytes or None, not str; encode it first"),
        ({"key": 7}, TypeError, "key must be bytes or None, not int"),
        ({"headers": [(b"a", b"b")]}, TypeError, "the name of a header must be str, not bytes"),
        ({"headers": [("a", "b")]}, TypeError, "the content of the header 'a' must be bytes or None"),
        ({"headers": [("\ud800", None)]}, Rejected, "half a character"),
        ({"timestamp_ms": -1}, Rejected, "timestamp_ms is -1"),
        ({"timestamp_ms": 2**63}, Rejected, "timestamp_ms is"),
        ({"partition": 3}, Rejected, "t has the partitions 0 to 2, and 3 was named"),
        ({"partition": -1}, Rejected, "and -1 was named"),
        ({"value": b"x" * 16_711_680}, Rejected, "MESSAGE_TOO_LARGE"),
    ],
)
def test_a_wrong_record_is_refused_before_it_is_sent(
    world: World, arguments, kind: type[Exception], message: str
) -> None:
    producer = producer_in(world)
    with pytest.raises(kind, match=message), producer.transaction() as txn:
        txn.send(**({"topic": "t", "value": b"x"} | arguments))
    assert Method.PRODUCE not in world.methods()


def test_the_two_ways_to_send_are_not_mixed(world: World) -> None:
    with pytest.raises(Rejected, match="sends inside a transaction"):
        producer_in(world).send("t", b"x")
    with pytest.raises(Rejected, match="has no transactions"):
        producer_in(world, None).transaction()
    producer = producer_in(world)
    with producer.transaction(), pytest.raises(Rejected, match="a transaction is open already"), producer.transaction():
        pass
