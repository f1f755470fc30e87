"""How Kafka is set up: everything that differs from its defaults has its name here, and is printed with the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""The version in `java/pom.xml`."""
SPARK_VERSION: Final = "4.2.0"
"""The version in `spark/`: the newest for which Spark's Kafka source could be had."""
HEAP: Final = "1g"
JVM_OPTIONS: Final = (
    # As Kafka's own start script does.
    f"-Xms{HEAP}",
    f"-Xmx{HEAP}",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

ONE_NODE: Final = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "message.max.bytes": "10485760",
        "socket.request.max.bytes": "104857600",
    }
)
"""Settings that a broker needs to be alone and to take batches of 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to run Kafka."""

    name: str
    durability: str
    broker: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    """Settings of clients that send in bulk; transactions are sent with linger.ms=0 in all profiles."""
    consumer: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """Return everything that the profile sets, in words."""
        parts = {"broker": self.broker, "bulk producer": self.producer, "consumer": self.consumer}
        said = [f"{who} {', '.join(f'{k}={v}' for k, v in what.items())}" for who, what in parts.items() if what]
        return f"{'; '.join(said) or 'defaults'}; {self.durability}"


_PAGE_CACHE: Final = "page cache, nothing flushed"

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(name="stock", durability=_PAGE_CACHE),
            Profile(
                name="tuned",
                durability=_PAGE_CACHE,
                # How long the broker holds the first batch of a transaction while the markers of the one before are
                # not written yet; the default of 20 ms is most of what a producer that commits back to back waits for.
                broker={"add.partitions.to.txn.retry.backoff.ms": "1"},
                producer={"batch.size": "262144"},
                consumer={"max.poll.records": "5000"},
            ),
            Profile(
                name="flushed",
                durability="fsync at every append",
                # The only durability of one node that is comparable to ours, though not what Kafka is meant for.
                broker={"log.flush.interval.messages": "1"},
            ),
        )
    }
)
