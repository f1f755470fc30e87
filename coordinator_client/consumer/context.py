"""State that the parts of one consumer share: its settings, its partitions, and access to the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator_client.consumer.config import ConsumerConfig
from coordinator_client.consumer.owned import OwnedPartition, OwnedPartitions
from coordinator_client.errors import TransactionError
from coordinator_client.groups.backoff import BACKOFF_MS_FIRST, BACKOFF_MS_MAX
from coordinator_client.groups.context import LookingContext
from coordinator_client.log import Told
from coordinator_client.settings import Skipped
from coordinator_protocol.methods import Method


@dataclass(frozen=True, slots=True)
class ConsumerContext(LookingContext):
    """Passed to every part of one consumer, so that none of them needs to know the others."""

    config: ConsumerConfig
    assignment: OwnedPartitions
    skipped: Skipped = field(default_factory=Skipped)
    """Counts of batches that could not be read, if `on_corrupt_batch` is `skip`."""
    told: Told = field(default_factory=Told)
    """Topics that the application's log reports as gone."""

    def found(self, partition: OwnedPartition) -> None:
        """Note that the server finds the topic of a partition."""
        partition.is_gone = False
        if self.told:
            self.told.over(partition.name.topic, f"the topic {partition.name.topic!r} is read again")

    def accepted(self, method: Method, partition: OwnedPartition) -> None:
        """Log that the server accepted a request for this partition."""
        answers = self.flights.answers
        if answers is not None and answers.is_troubled:
            answers.accepted(_subject(method, partition))

    def refused(self, method: Method, partition: OwnedPartition, error: TransactionError, now_ms: int) -> None:
        """Log that the server refused a request for this partition."""
        if self.flights.answers is not None:
            self.flights.answers.refused(_subject(method, partition), error, now_ms)

    def gone(self, partition: OwnedPartition, error: TransactionError, now_ms: int) -> None:
        """Note that the server does not find the topic of a partition, or finds another one of the same name. A group
        takes the partition away as soon as it knows. Partitions assigned by hand stay, and poll raises."""
        partition.is_gone = True
        if not self.assignment.is_manual:
            if partition.topic_id:
                self.told.warn(
                    partition.name.topic,
                    f"the topic {partition.name.topic!r} that the group {self.group_id!r} reads was deleted, or made "
                    f"again ({error.reason}); waiting for the group to assign its partitions anew",
                )
            partition.retry_at_ms = now_ms + BACKOFF_MS_MAX
            return
        partition.retry_at_ms = now_ms + BACKOFF_MS_FIRST
        partition.problem = error
        if partition.topic_id:
            error.action = (
                "The topic that was read is gone with its offsets. To read the one that has its name now, assign() the "
                "partition again, or seek() in it."
            )


def _subject(method: Method, partition: OwnedPartition) -> str:
    return f"{method} of {partition.name.topic}-{partition.name.partition}"
