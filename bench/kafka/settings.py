"""Settings of Kafka. Everything that differs from its defaults has a name here, and is printed with the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""Version in `java/pom.xml`."""
LIBRDKAFKA_VERSION: Final = "2.16.1"
"""Version in `librdkafka/`. Confluent's client has the number of the librdkafka inside."""
SPARK_VERSION: Final = "4.2.0"
"""Version in `spark/`: the newest with an available Kafka source for Spark."""
HEAP: Final = "1g"
JVM_OPTIONS: Final = (
    # The same options as in Kafka's own start script.
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
        # A broker that is paused while others are measured must not be fenced by itself.
        "broker.session.timeout.ms": "3600000",
        "message.max.bytes": "10485760",
        "socket.request.max.bytes": "104857600",
    }
)
"""Settings for a single broker that may be paused, and for batches of 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One configuration of Kafka."""

    name: str
    durability: str
    broker: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    """Settings of clients that send in bulk. Transactions are sent with linger.ms=0 in all profiles."""
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
                # Time that the broker holds the first batch of a transaction while the previous transaction's markers
                # are not written. With the default of 20 ms it is most of the wait of a producer that commits back to
                # back.
                broker={"add.partitions.to.txn.retry.backoff.ms": "1"},
                producer={"batch.size": "262144"},
                consumer={"max.poll.records": "5000"},
            ),
            Profile(
                name="flushed",
                durability="fsync at every append",
                # The only durability of one node that is comparable to ours, though Kafka is not made for it.
                broker={"log.flush.interval.messages": "1"},
            ),
        )
    }
)
