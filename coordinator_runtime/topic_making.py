"""Port of the group coordinator to the log, for topics that groups need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext


class TopicToMake(NamedTuple):
    """A topic that the server makes because a group needs it."""

    name: str
    partition_count: int
    config: Mapping[str, str]


class TopicMaker(Protocol):
    """Makes topics with the rights of a caller."""

    def make(self, topics: Sequence[TopicToMake], context: CallContext) -> Pending[list[CoordinatorError | None]]:
        """Create topics, each with all its partitions or not at all; durable when answered. The reply has the error of
        each, or None."""
