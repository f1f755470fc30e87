"""Topics full of transactions, one in ten of them aborted, which several cases read. Each is written once per
server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.arena import Arena

if TYPE_CHECKING:
    from bench.kafka.broker import Broker
    from bench.server import OwnServer


@dataclass(frozen=True, slots=True)
class FullTopic:
    """A topic full of transactions, and its size."""

    name: str
    label: str
    value_bytes: int
    records: int
    """Number of records, including aborted ones."""
    records_per_transaction: int


def full_topics(arena: Arena) -> Sequence[FullTopic]:
    """Return the topics with the two record sizes."""
    return (
        FullTopic("full-1k", "records of 1 KiB", 1_024, arena.scale.records_1k, 300),
        FullTopic("full-100", "records of 100 B", 100, arena.scale.records_100, 3_000),
    )


ENCODING: Final = "arrow"
"""Encoding of our stored records. Spark and programs that work on columns read it without looking at a record."""


def fill_own(arena: Arena, topic: FullTopic) -> OwnServer:
    """Return our shared server with the full topic. Raises: LoadFailed."""
    server = arena.own()
    arena.once(
        "ours",
        topic.name,
        lambda: arena.load(
            "fill",
            server,
            topic=topic.name,
            records=topic.records,
            value_bytes=topic.value_bytes,
            records_per_transaction=topic.records_per_transaction,
            encoding=ENCODING,
        ),
    )
    return server


def fill_kafka(arena: Arena, broker: Broker, topic: FullTopic) -> Broker:
    """Return the broker with the full topic. Raises: LoadFailed."""
    arena.once(
        f"Kafka ({broker.profile.name})",
        topic.name,
        lambda: broker.load(
            "fill",
            topic=topic.name,
            records=topic.records,
            bytes=topic.value_bytes,
            records_per_transaction=topic.records_per_transaction,
        ),
    )
    return broker
