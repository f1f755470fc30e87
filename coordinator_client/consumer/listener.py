"""Callbacks for partitions that come and go: derive from one of these classes and override what matters.

Every call is made in the application's thread (or task), inside `poll`, `unsubscribe` or `close`. An exception stops
nothing: the assignment is applied, the other calls are made, then the first exception is raised.

Source: spec groups 7.4; Kafka's `ConsumerRebalanceListener`.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator_client.consumer.state import TopicPartition


class RebalanceListener:
    """Callbacks for a `Consumer`."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that were added, which may be none. Their records come after this call, so `seek`
        here decides which."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that are about to go. They are still this member's: commit now what was
        processed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that are gone already: nothing can be committed for them. By default it calls
        `on_partitions_revoked`."""
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener:
    """Callbacks for an `AsyncConsumer`."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that were added, which may be none. Their records come after this call, so `seek`
        here decides which."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that are about to go. They are still this member's: commit now what was
        processed."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called with the partitions that are gone already: nothing can be committed for them. By default it calls
        `on_partitions_revoked`."""
        await self.on_partitions_revoked(partitions)
