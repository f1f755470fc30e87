"""State that the parts of one consumer share: its settings, its partitions, access to the server, and the backoff after
failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import Deadlines
from coordinator_client.consumer.config import ConsumerConfig
from coordinator_client.consumer.owned import OwnedPartition, OwnedPartitions
from coordinator_client.errors import TransactionError
from coordinator_client.flights import Flights
from coordinator_client.log import Told
from coordinator_client.random_source import RandomSource
from coordinator_client.settings import Skipped
from coordinator_protocol.methods import Method

BACKOFF_MS_FIRST: Final = 100
BACKOFF_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10


class Backoff:
    """Pauses that grow with consecutive failures, from 100 ms to 1 s, jittered (spec groups 7.1)."""

    __slots__ = ("_failures", "_random_source")

    def __init__(self, random_source: RandomSource) -> None:
        self._random_source = random_source
        self._failures = 0

    def next_ms(self) -> int:
        """Return the pause after one more failure."""
        longest_ms = min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return max(1, round(longest_ms * (1 + self._random_source.fraction()) / 2))

    def reset(self) -> None:
        """Note a success."""
        self._failures = 0


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """Passed to every part of one consumer, so that none of them needs to know the others."""

    config: ConsumerConfig
    client_id: str
    random_source: RandomSource
    flights: Flights
    assignment: OwnedPartitions
    skipped: Skipped = field(default_factory=Skipped)
    """Counts of batches that could not be read, if `on_corrupt_batch` is `skip`."""
    told: Told = field(default_factory=Told)
    """Topics that the application's log reports as gone."""

    @property
    def group_id(self) -> str:
        """Id of the group; only for consumers that have one."""
        assert self.config.group_id is not None, "only consumers with a group are members"
        return self.config.group_id

    def found(self, partition: OwnedPartition) -> None:
        """Note that the server finds the topic of a partition."""
        partition.is_gone = False
        if self.told:
            self.told.over(partition.name.topic, f"the topic {partition.name.topic!r} is read again")

    def header(self) -> RequestHeader:
        """Return the header of a new request."""
        return RequestHeader(client_id=self.client_id)

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

    def once(self, *, wait_ms: int = 0) -> Deadlines:
        """Return the deadlines of a request that is attempted once, because it is rebuilt after a failure. The server
        may hold it for `wait_ms`."""
        attempt_ms = self.config.request_timeout_ms + wait_ms
        return Deadlines(total_ms=attempt_ms, attempt_ms=attempt_ms, attempts_max=1)


def _subject(method: Method, partition: OwnedPartition) -> str:
    return f"{method} of {partition.name.topic}-{partition.name.partition}"
