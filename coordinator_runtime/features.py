"""Features of a store: names in META of stored things that an older program must not overlook.

An older program refuses a store with a feature that it does not know. A server adds the name durably before it stages
the first row of that kind (`store_features`). A feature never ends.

Source: docs/store-format.md, "Unknown things".
"""

from __future__ import annotations

from typing import Final, Protocol

from coordinator_runtime.pending import Pending

FEATURES_KEY: Final = b"features"
"""Key in META of the names, separated by commas."""

KAFKA_BATCHES: Final = "kafka_v2"
"""Batches of the encoding KAFKA_V2, whose checksum leaves out bytes that an older program counts."""

COMPACT_TOPICS: Final = "compact_topics"
"""Topics that no limit of retention applies to (`cleanup_policy=compact`). An older program would apply its own, and
remove records."""

SHARE_GROUPS: Final = "share_groups"
"""Share groups and the states of their partitions. An older program would serve neither, and remove records that they
have not delivered."""

STREAMS_GROUPS: Final = "streams_groups"
"""Streams groups. An older program would not know that their members hold tasks, and give their group ids away."""

COMPACTED_LOGS: Final = "compacted_logs"
"""Logs that were compacted. An older program would not go on with a pass that has begun."""

KNOWN_FEATURES: Final[frozenset[str]] = frozenset(
    {KAFKA_BATCHES, COMPACT_TOPICS, COMPACTED_LOGS, SHARE_GROUPS, STREAMS_GROUPS}
)


def features_of(stored: bytes | None) -> tuple[str, ...]:
    """Return the names in the row of features; none if there is no row."""
    return tuple(filter(None, (stored or b"").decode("utf-8", "replace").split(",")))


class Features(Protocol):
    """Features of one store, as code that needs one sees them (`store_features.StoreFeatures`)."""

    def has(self, name: str) -> bool:
        """True if the store durably has the feature."""

    def begin(self, name: str) -> Pending[None]:
        """Add a feature to the store. The reply comes when it is durable."""
