"""What an application can be told of partitions that come and go: derive from one of these and override what matters.

Every call is made in the application's thread (or task), inside `poll`, `unsubscribe` or `close`. An exception stops
nothing: the assignment is applied, the other calls are made, then the first exception is raised.

Source: spec groups 7.4; Kafka's `ConsumerRebalanceListener`.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator_client.consumer.state import TopicPartition


class RebalanceListener:
    """For `Consumer`."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These were added; may be none. Their records come after this call, so `seek` here decides which."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These are about to go: they are still this member's, so commit now what was processed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These are gone already: nothing can be committed for them. By default `on_partitions_revoked` is called."""
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener:
    """For `AsyncConsumer`."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These were added; may be none. Their records come after this call, so `seek` here decides which."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These are about to go: they are still this member's, so commit now what was processed."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These are gone already: nothing can be committed for them. By default `on_partitions_revoked` is called."""
        await self.on_partitions_revoked(partitions)
