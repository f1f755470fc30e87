"""Endpoints of a streams group: the processes that answer queries of the state of the application.

Source: KIP-1071, spec groups 6.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import group_pb2 as group
from coordinator_client.values import TopicPartition


class StreamsEndpoint(NamedTuple):
    """Endpoint of one process, and the partitions whose state is there."""

    host: str
    port: int
    active: frozenset[TopicPartition]
    """Partitions that active tasks of the process read."""
    standby: frozenset[TopicPartition]
    """Partitions of which it keeps a copy of the state."""


def endpoints_of(given: group.StreamsEndpointInformation) -> tuple[StreamsEndpoint, ...]:
    """Return the endpoints of an answer."""
    return tuple(
        StreamsEndpoint(
            each.user_endpoint.host,
            each.user_endpoint.port,
            _partitions(each.active_partitions),
            _partitions(each.standby_partitions),
        )
        for each in given.endpoints
    )


def _partitions(topics: Iterable[common.TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, partition) for each in topics for partition in each.partitions)
