"""Which topics may be created: pure checks.

Source: design 6 (limits, reserved names), Kafka's `CreateTopics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.names import check_topic_name


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic as somebody wants it."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)


def check_new_topic(topic: NewTopic, limits: Limits) -> None:
    """Return only if a topic may be created like this, as far as can be said without the catalog.

    Raises Refused: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_CONFIG."""
    check_topic_name(topic.name)
    if not 1 <= topic.partition_count <= limits.partitions_per_topic_max:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic {topic.name} cannot have {topic.partition_count} partitions: choose 1 to "
            f"{limits.partitions_per_topic_max}",
        )
    if topic.config:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"topics have no configuration yet, so {min(topic.config)!a:.80} cannot be set; leave it out",
        )


def repeated_names(topics: Sequence[NewTopic]) -> frozenset[str]:
    """Names that one request uses more than once: nobody can say which of them was meant."""
    seen: set[str] = set()
    return frozenset(topic.name for topic in topics if topic.name in seen or seen.add(topic.name))  # type: ignore[func-returns-value]
