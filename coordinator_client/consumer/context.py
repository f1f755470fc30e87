"""What the parts of one consumer share: its settings, its partitions, and the way to the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.consumer.config import ConsumerConfig
from coordinator_client.consumer.owned import Assignment, OwnedPartition
from coordinator_client.corrupt import Skipped
from coordinator_client.errors import TransactionError
from coordinator_client.flights import Flights
from coordinator_client.random_source import RandomSource
from coordinator_client.retrying_call import Deadlines
from coordinator_protocol.errors import Method


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """Handed to every part of one consumer, so that none of them needs to know the others."""

    config: ConsumerConfig
    client_id: str
    random_source: RandomSource
    flights: Flights
    assignment: Assignment
    skipped: Skipped = field(default_factory=Skipped)
    """Counts the batches that could not be read, where `on_corrupt_batch` is `skip`."""

    @property
    def group_id(self) -> str:
        """The group. Only members of one ask."""
        assert self.config.group_id is not None, "only consumers with a group are members"
        return self.config.group_id

    def header(self) -> RequestHeader:
        """Return the header of a new request."""
        return RequestHeader(client_id=self.client_id)

    def accepted(self, method: Method, partition: OwnedPartition) -> None:
        """Tell the application's log that the server accepted a request for this partition."""
        answers = self.flights.answers
        if answers is not None and answers.is_troubled:
            answers.accepted(_subject(method, partition))

    def refused(self, method: Method, partition: OwnedPartition, error: TransactionError, now_ms: int) -> None:
        """Tell the application's log that the server refused a request for this partition."""
        if self.flights.answers is not None:
            self.flights.answers.refused(_subject(method, partition), error, now_ms)

    def once(self, *, wait_ms: int = 0) -> Deadlines:
        """Return the deadlines of a request that is attempted once, because it is written anew after a failure. The
        server may hold it for `wait_ms`."""
        attempt_ms = self.config.request_timeout_ms + wait_ms
        return Deadlines(total_ms=attempt_ms, attempt_ms=attempt_ms, attempts_max=1)


def _subject(method: Method, partition: OwnedPartition) -> str:
    return f"{method} of {partition.name.topic}-{partition.name.partition}"
