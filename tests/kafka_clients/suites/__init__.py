"""The suites, in the order of a run."""

from __future__ import annotations

from typing import Final

from tests.kafka_clients.suite import Suite
from tests.kafka_clients.suites import (
    connect,
    debezium,
    flink,
    kafka_integration,
    kafka_tools,
    kgo,
    librdkafka,
    mirror,
    spark,
    stories,
    streams,
    streams_protocol,
    takeover,
)

SUITES: Final[tuple[Suite, ...]] = (
    *stories.SUITES,
    kgo.SUITE,
    kafka_integration.SUITE,
    kafka_integration.REQUESTS,
    kafka_integration.SHARES,
    kafka_integration.STREAMS,
    kafka_tools.SUITE,
    streams.SUITE,
    streams_protocol.SUITE,
    connect.SUITE,
    mirror.SUITE,
    debezium.SUITE,
    *librdkafka.SUITES,
    spark.SUITE,
    flink.SUITE,
    *takeover.SUITES,
)
