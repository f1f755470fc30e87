"""Watches the topics of a classic group for changes: new ones that match a pattern, and, for the leader, more
partitions.

Source: spec groups 7.3; in the consumer protocol the server watches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from coordinator_client.consumer.backoff import Backoff
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.topics import ask_partition_counts, matching
from coordinator_client.errors import TransactionError


class TopicWatch:
    """Looks at topics every `metadata_max_age_ms`, as long as there is something to look for."""

    def __init__(self, context: ConsumerContext, on_changed: Callable[[str], None]) -> None:
        """`on_changed` is called with the reason why the member should join again."""
        self.subscribed: frozenset[str] = frozenset()
        """The topics that the member wants, including those that its pattern matches."""
        self._context = context
        self._on_changed = on_changed
        self._backoff = Backoff(context.random_source)
        self._names: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.is_resolved = True
        """Whether it is known what the pattern matches."""
        self._group_topics: frozenset[str] | None = None
        """The topics that the leader watches; None = this member does not lead."""
        self._counts: Mapping[str, int] | None = None
        """The numbers of their partitions, as the assignment knows them; None = not looked at yet."""
        self._flight: int | None = None
        self._due_ms = 0

    @property
    def _is_needed(self) -> bool:
        return self._pattern is not None or self._group_topics is not None

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now_ms: int) -> None:
        """Watch for these from now on."""
        self.stop()
        self._names = self.subscribed = topics
        self._pattern = pattern
        self.is_resolved = pattern is None
        self._due_ms = now_ms

    def lead(self, topics: frozenset[str], counts: Mapping[str, int] | None, now_ms: int) -> None:
        """Watch the topics of the whole group. `counts` is what the assignment was made for; None = whatever is
        there."""
        self._group_topics, self._counts = topics, counts
        self._due_ms = now_ms + self._context.config.metadata_max_age_ms if counts is not None else now_ms

    def follow(self) -> None:
        """Stop watching for the group, because another member leads."""
        self._group_topics = self._counts = None

    def stop(self) -> None:
        """Stop watching."""
        self.follow()
        self._pattern = None
        self.subscribed = self._names = frozenset()
        self._context.flights.cancel(self._flight)
        self._flight = None

    def advance(self, now_ms: int) -> None:
        """Send the next look-up, if it is due."""
        wake_ms = self.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            topics = None if self._pattern is not None else self._group_topics
            self._flight = ask_partition_counts(self._context, topics, self._seen, now_ms)

    def wake_ms(self) -> int | None:
        """Return when the next look-up is due; None: not before something changes."""
        return self._due_ms if self._is_needed and self._flight is None else None

    def _seen(self, counts: Mapping[str, int] | TransactionError, now_ms: int) -> None:
        self._flight = None
        if isinstance(counts, TransactionError):
            self._due_ms = now_ms + self._backoff.next_ms()
            return
        self._backoff.reset()
        self._due_ms = now_ms + self._context.config.metadata_max_age_ms
        if self._pattern is not None:
            wanted = self._names | matching(self._pattern, counts)
            if wanted != self.subscribed and self.is_resolved:
                self._on_changed("topics that match the pattern came or went")
            self.subscribed, self.is_resolved = wanted, True
        if self._group_topics is not None:
            seen = {topic: counts[topic] for topic in sorted(self._group_topics) if topic in counts}
            if self._counts is not None and seen != self._counts:
                self._on_changed("the topics of the group changed")
            self._counts = seen
