"""Warns of topics that were subscribed to by name and do not exist: once each, and again where they come and go.

A topic may be created after it was subscribed to, so it is no error, and `poll` goes on; but a mistyped name would be
polled in vain for ever, without a word. So the names are looked up with the first poll, and again every
`metadata_max_age_ms`. A pattern may match nothing, and nobody is warned.

Source: Kafka's consumer, which warns of UNKNOWN_TOPIC_OR_PARTITION at every refresh of its metadata and polls on.
"""

from __future__ import annotations

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.consumer.backoff import Backoff
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.topics import ask_topics
from coordinator_client.errors import TransactionError, known_code
from coordinator_client.log import Told
from coordinator_client.rules import TOPIC_GONE


class AbsentTopics:
    """Looks up the subscribed names of one consumer."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._told = Told()
        self._backoff = Backoff(context.random_source)
        self._names: frozenset[str] = frozenset()
        self._flight: int | None = None
        self._due_ms = 0

    def subscribe(self, names: frozenset[str], now_ms: int) -> None:
        """Look these names up from now on; none: stop looking."""
        if names == self._names:
            return
        self._names, self._due_ms = names, now_ms
        self._context.flights.cancel(self._flight)
        self._flight = None

    def advance(self, now_ms: int) -> None:
        """Send the next look-up, if it is due."""
        wake_ms = self.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            self._flight = ask_topics(self._context, self._names, self._seen, now_ms)

    def wake_ms(self) -> int | None:
        """Return when the next look-up is due; None: not before something changes."""
        return self._due_ms if self._names and self._flight is None else None

    def _seen(self, end: log.DescribeTopicsResponse | TransactionError, now_ms: int) -> None:
        self._flight = None
        if isinstance(end, TransactionError):
            self._due_ms = now_ms + self._backoff.next_ms()
            return
        self._backoff.reset()
        age_ms = self._context.config.metadata_max_age_ms
        self._due_ms = now_ms + age_ms
        for topic in end.topics:
            if known_code(topic.error_code) in TOPIC_GONE:
                self._told.warn(
                    topic.name,
                    f"the group {self._context.group_id!r} subscribes to the topic {topic.name!r}, "
                    "which does not exist: "
                    f"nothing can be read of it until it is created (looked up again every {age_ms:,} ms)",
                )
            elif not topic.error_code:
                self._told.over(topic.name, f"the topic {topic.name!r} exists now")
