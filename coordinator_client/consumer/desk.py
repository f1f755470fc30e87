"""What the parts of one consumer share, and how long they wait before they ask again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.consumer.config import ConsumerConfig
from coordinator_client.consumer.owned import Assignment, OwnedPartition
from coordinator_client.corrupt import Skipped
from coordinator_client.errors import TransactionError
from coordinator_client.exchange import Deadlines
from coordinator_client.flights import Flights
from coordinator_client.identity import Chance
from coordinator_protocol.errors import Method

BACKOFF_MS_FIRST: Final = 100
BACKOFF_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Desk:
    """Settings, chance, requests on their way and partitions: one consumer has one of it."""

    config: ConsumerConfig
    client_id: str
    chance: Chance
    flights: Flights
    assignment: Assignment
    skipped: Skipped = field(default_factory=Skipped)
    """Batches that could not be read, if the settings say that they are skipped."""

    @property
    def group_id(self) -> str:
        """The group; only members ask."""
        assert self.config.group_id is not None, "only consumers with a group are members"
        return self.config.group_id

    def header(self) -> RequestHeader:
        """Return the header of a request."""
        return RequestHeader(client_id=self.client_id)

    def accepted(self, method: Method, partition: OwnedPartition) -> None:
        """Note a good answer for a partition, for the log."""
        answers = self.flights.answers
        if answers is not None and answers.is_troubled:
            answers.accepted(_subject(method, partition))

    def refused(self, method: Method, partition: OwnedPartition, error: TransactionError, now_ms: int) -> None:
        """Note a refusal for a partition, for the log."""
        if self.flights.answers is not None:
            self.flights.answers.refused(_subject(method, partition), error, now_ms)

    def once(self, *, wait_ms: int = 0) -> Deadlines:
        """Deadlines of a request that is written anew after a failure; the server may hold it for `wait_ms`."""
        attempt_ms = self.config.request_timeout_ms + wait_ms
        return Deadlines(total_ms=attempt_ms, attempt_ms=attempt_ms, attempts_max=1)


def _subject(method: Method, partition: OwnedPartition) -> str:
    return f"{method} of {partition.name.topic}-{partition.name.partition}"


class Backoff:
    """Pauses after failures in a row: 100 ms to 1 s, jittered (spec groups 7.1)."""

    __slots__ = ("_chance", "_failures")

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._failures = 0

    def next_ms(self) -> int:
        """Return the pause after one more failure."""
        longest_ms = min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return max(1, round(longest_ms * (1 + self._chance.fraction()) / 2))

    def reset(self) -> None:
        """Note a success."""
        self._failures = 0
