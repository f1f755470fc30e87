"""Topics full of transactions, one in ten of them aborted, that several cases read. Each is written once per server."""

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
    """A topic full of transactions, and what is in it."""

    name: str
    label: str
    value_bytes: int
    records: int
    """How many records, the aborted ones included."""
    records_per_transaction: int


def full_topics(arena: Arena) -> Sequence[FullTopic]:
    """The two sizes of records."""
    return (
        FullTopic("full-1k", "records of 1 KiB", 1_024, arena.scale.records_1k, 300),
        FullTopic("full-100", "records of 100 B", 100, arena.scale.records_100, 3_000),
    )


ENCODING: Final = "arrow"
"""How our records are stored; Spark and programs that work on columns read this encoding without looking at a
record."""


def fill_own(arena: Arena, topic: FullTopic) -> OwnServer:
    """Our shared server, the topic full. Raises: LoadFailed."""
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
    """The broker, the topic full. Raises: LoadFailed."""
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
