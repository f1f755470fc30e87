"""Kafka's own clients in loads, which any server that speaks Kafka's protocol can take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC
from bench.contenders import JAVA
from bench.results import Run

if TYPE_CHECKING:
    from bench.kafka.kafka_server import KafkaServer

LIBRDKAFKA: Final = "librdkafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Duration of a load."""

    warm_up_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """Load programs of one client."""

    transactions: Callable[[KafkaServer, int, int, Times], Run]
    """Commits transactions of one record to each partition: producers, and size of a record. Raises: CannotRun,
    LoadFailed."""
    consume: Callable[[KafkaServer, str, int], Run]
    """Reads the committed records of a topic, with their size. Raises: CannotRun, LoadFailed."""


def _java_transactions(server: KafkaServer, producers: int, value_bytes: int, times: Times) -> Run:
    return server.load(
        "transactions",
        producers=producers,
        bytes=value_bytes,
        committed=True,
        topic=TOPIC,
        warm_up=times.warm_up_s,
        measured=times.measured_s,
    )


def _java_consume(server: KafkaServer, topic: str, value_bytes: int) -> Run:
    return server.load("consume", topic=topic, bytes=value_bytes)


def _librdkafka_transactions(server: KafkaServer, producers: int, value_bytes: int, times: Times) -> Run:
    return server.load_by_librdkafka(
        "librdkafka_transactions",
        producers=producers,
        value_bytes=value_bytes,
        topic=TOPIC,
        warm_up_s=times.warm_up_s,
        measured_s=times.measured_s,
    )


def _librdkafka_consume(server: KafkaServer, topic: str, value_bytes: int) -> Run:
    return server.load_by_librdkafka("librdkafka_consume", topic=topic, value_bytes=value_bytes)


KAFKA_CLIENTS: Final[Mapping[str, KafkaClient]] = MappingProxyType(
    {
        JAVA: KafkaClient(_java_transactions, _java_consume),
        LIBRDKAFKA: KafkaClient(_librdkafka_transactions, _librdkafka_consume),
    }
)
"""Java uses version 2 of transactions (KIP-890), librdkafka version 1."""
