"""Lookups of topics for members of groups, and warnings of mistyped names.

`AbsentTopics` warns of subscribed names that do not exist: once each, and again if they appear and disappear. A topic
may be created after the subscription, so it is no error, and `poll` continues. But a mistyped name would be polled
forever without a word. So the names are looked up with the first poll, and again every `metadata_max_age_ms`. A pattern
without a match causes no warning.

Source: Kafka's consumer, which warns of UNKNOWN_TOPIC_OR_PARTITION at every refresh of its metadata and continues
polling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import DESCRIBE_TOPICS, RetryingCall
from coordinator_client.errors import TOPIC_GONE, TransactionError, known_code
from coordinator_client.groups.backoff import BACKOFF_MS_MAX, Backoff
from coordinator_client.groups.context import LookingContext
from coordinator_client.log import Told
from coordinator_client.values import TopicPartitionCount

OnTopics = Callable[[log.DescribeTopicsResponse | TransactionError, int], None]
"""Called with the descriptions of the topics, or the failure, and the time."""


def ask_topics(context: LookingContext, topics: Collection[str] | None, on_end: OnTopics, now_ms: int) -> int:
    """Look up these topics, or all; return the number of the flight."""
    request = log.DescribeTopicsRequest(header=context.header())
    for topic in sorted(topics or ()):
        request.topics.add(name=topic)
    call = RetryingCall(DESCRIBE_TOPICS, request, deadlines=context.once(), now_ms=now_ms)
    return context.flights.start(call, on_end)


def topics_in(described: log.DescribeTopicsResponse) -> dict[str, TopicPartitionCount]:
    """Return the topics that exist, by name."""
    return {
        topic.name: TopicPartitionCount(name=topic.name, topic_id=topic.topic_id, partition_count=len(topic.partitions))
        for topic in sorted(described.topics, key=lambda topic: topic.name)
        if not topic.error_code
    }


class LookUp(ABC):
    """Looks up topics every `metadata_max_age_ms`, one request at a time, as long as there is something to look up."""

    def __init__(self, context: LookingContext) -> None:
        self._context = context
        self._backoff = Backoff(context.random_source)
        self._names: frozenset[str] = frozenset()
        self._flight: int | None = None
        self._due_ms = 0
        self._asked_ms = -BACKOFF_MS_MAX
        """Time of the last lookup (ms)."""

    @property
    def _is_needed(self) -> bool:
        return bool(self._names)

    @property
    def _asked(self) -> frozenset[str] | None:
        """Topics to look up; None = all."""
        return self._names

    @abstractmethod
    def _seen(self, found: log.DescribeTopicsResponse, now_ms: int) -> None:
        """Process the descriptions of the topics."""

    def advance(self, now_ms: int) -> None:
        """Send the next lookup, if it is due."""
        wake_ms = self.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            self._asked_ms = now_ms
            self._flight = ask_topics(self._context, self._asked, self._answered, now_ms)

    def wake_ms(self) -> int | None:
        """Return the time of the next lookup; None = not before something changes."""
        return self._due_ms if self._is_needed and self._flight is None else None

    def _cancel(self) -> None:
        self._context.flights.cancel(self._flight)
        self._flight = None

    def _answered(self, end: log.DescribeTopicsResponse | TransactionError, now_ms: int) -> None:
        self._flight = None
        if isinstance(end, TransactionError):
            self._due_ms = now_ms + self._backoff.next_ms()
            return
        self._backoff.reset()
        self._due_ms = now_ms + self._context.config.metadata_max_age_ms
        self._seen(end, now_ms)


class AbsentTopics(LookUp):
    """Looks up the subscribed names of one consumer."""

    def __init__(self, context: LookingContext) -> None:
        super().__init__(context)
        self._told = Told()

    def subscribe(self, names: frozenset[str], now_ms: int) -> None:
        """Look up these names from now on; none = stop."""
        if names != self._names:
            self._names, self._due_ms = names, now_ms
            self._cancel()

    def _seen(self, found: log.DescribeTopicsResponse, now_ms: int) -> None:
        age_ms = self._context.config.metadata_max_age_ms
        for topic in found.topics:
            if known_code(topic.error_code) in TOPIC_GONE:
                self._told.warn(
                    topic.name,
                    f"the group {self._context.group_id!r} subscribes to the topic {topic.name!r}, "
                    "which does not exist: "
                    f"nothing can be read of it until it is created (looked up again every {age_ms:,} ms)",
                )
            elif not topic.error_code:
                self._told.over(topic.name, f"the topic {topic.name!r} exists now")
