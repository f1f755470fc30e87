"""Partitions as messages of Kafka name them: grouped by topic, and from some version on by topic id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.ports import PartitionName
from coordinator_server.kafka_front.exchange import KafkaExchange

_OFFSETS_BY_ID_SINCE: Final = 10
"""First OffsetCommit and OffsetFetch with topic ids instead of names."""

_REFUSED_BY_NAME: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Refusals of a partition because of its name, before its group is asked."""

T = TypeVar("T")
Refusals = Iterable[tuple[PartitionName, CoordinatorError | None]]


def named(topic: str, partitions: Iterable[int]) -> list[PartitionName]:
    """Return partitions of a topic that is named without its id."""
    return [PartitionName(topic, b"", partition) for partition in partitions]


def topic_id_of(topic_id: bytes, exchange: KafkaExchange) -> bytes:
    """Return the topic id in a request about offsets; empty if its version has none."""
    return topic_id if exchange.version >= _OFFSETS_BY_ID_SINCE else b""


def without_repetitions(names: Iterable[PartitionName]) -> tuple[PartitionName, ...]:
    """Return each name once, in order. Kafka takes repetitions, and the core refuses them."""
    return tuple(dict.fromkeys(names))


def by_topic(items: Iterable[tuple[PartitionName, T]]) -> dict[tuple[str, bytes], list[tuple[int, T]]]:
    """Return the values of partitions by topic name and topic id, in the order given."""
    grouped: dict[tuple[str, bytes], list[tuple[int, T]]] = {}
    for (topic, topic_id, partition), value in items:
        grouped.setdefault((topic, topic_id), []).append((partition, value))
    return grouped


def is_refused_by_name(error: CoordinatorError | None) -> bool:
    """Return True if a partition was refused before its group was asked."""
    return error is not None and error.code in _REFUSED_BY_NAME


def in_kafkas_order(errors: Refusals) -> Refusals:
    """Return the partitions as Kafka orders them in answers about offsets: those first of which it asks no group."""
    return sorted(errors, key=lambda each: not is_refused_by_name(each[1]))
