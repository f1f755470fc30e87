"""Repeated lookups of topics and partition counts: for the leader of a classic group, and for patterns.

`TopicWatch` looks for changes: new topics that match a pattern, and, for the leader, topics that were added, deleted,
recreated or have more partitions. A topic is identified by its id, not by its name. Every member also looks up topics
that the server does not find for one of its partitions, and rejoins if one was recreated. In the consumer protocol the
server watches.

Source: spec groups 7.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import DESCRIBE_GROUPS, RetryingCall
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.descriptions.groups import described_classic
from coordinator_client.errors import TransactionError, rejected
from coordinator_client.groups.backoff import BACKOFF_MS_MAX
from coordinator_client.groups.topics import LookUp, topics_in
from coordinator_client.values import TopicPartition, TopicPartitionCount
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.names import RESERVED_PREFIX


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern for topic names. Raises: Rejected (INVALID_REGULAR_EXPRESSION)."""
    try:
        return re.compile(pattern)
    except re.error as why:
        raise rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression: {why}") from None


def matching(pattern: re.Pattern[str], topics: Collection[str]) -> frozenset[str]:
    """Return the topics whose whole names match, except internal ones."""
    return frozenset(
        topic for topic in topics if pattern.fullmatch(topic) is not None and not topic.startswith(RESERVED_PREFIX)
    )


class TopicWatch(LookUp):
    """Watches the topics of a classic member, and of its group if it leads."""

    def __init__(self, context: ConsumerContext, on_changed: Callable[[str], None]) -> None:
        """Watch nothing yet. `on_changed` is called with the reason why the member should join again."""
        super().__init__(context)
        self._assignment = context.assignment
        self.subscribed: frozenset[str] = frozenset()
        """Topics that the member wants, including those that its pattern matches."""
        self._on_changed = on_changed
        self._pattern: re.Pattern[str] | None = None
        self.is_resolved = True
        """True if the matches of the pattern are known."""
        self._group_topics: frozenset[str] | None = None
        """Topics that the leader watches; None = this member does not lead."""
        self._check_flight: int | None = None
        self._is_checked = False
        """True if the assignment kept by the group was compared. This is done once, as an assignor may leave out
        partitions."""
        self._known: Mapping[str, TopicPartitionCount] | None = None
        """Topics and partition counts that the assignment was computed for; None = not looked up yet."""

    @property
    def _is_needed(self) -> bool:
        return self._pattern is not None or self._group_topics is not None

    @property
    def _asked(self) -> frozenset[str] | None:
        if self._pattern is not None:
            return None
        return (self._group_topics or frozenset()) | self._assignment.gone_topics

    def wake_ms(self) -> int | None:
        due_ms = super().wake_ms()
        if self._flight is not None or not self._assignment.gone_topics:
            return due_ms
        again_ms = self._asked_ms + BACKOFF_MS_MAX
        return again_ms if due_ms is None else min(due_ms, again_ms)

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now_ms: int) -> None:
        """Watch these topics from now on."""
        self.stop()
        self._names = self.subscribed = topics
        self._pattern = pattern
        self.is_resolved = pattern is None
        self._due_ms = now_ms

    def lead(self, topics: frozenset[str], known: Mapping[str, TopicPartitionCount] | None, now_ms: int) -> None:
        """Watch the topics of the whole group. `known` are those that the assignment was computed for. None = the group
        kept the assignment while its leader was away, and it is compared with the existing topics."""
        self._group_topics, self._known = topics, known
        self._due_ms = now_ms + self._context.config.metadata_max_age_ms if known is not None else now_ms

    def follow(self) -> None:
        """Stop watching for the group, because another member leads."""
        self._group_topics = self._known = None
        self._context.flights.cancel(self._check_flight)
        self._check_flight = None

    def stop(self) -> None:
        """Stop watching."""
        self.follow()
        self._pattern = None
        self.subscribed = self._names = frozenset()
        self._cancel()

    def _seen(self, found: log.DescribeTopicsResponse, now_ms: int) -> None:
        there = topics_in(found)
        if self._assignment.note_topics({name: topic.topic_id for name, topic in there.items()}):
            self._on_changed("a topic was deleted and made again")
        if self._pattern is not None:
            wanted = self._names | matching(self._pattern, there)
            if wanted != self.subscribed and self.is_resolved:
                self._on_changed("topics that match the pattern came or went")
            self.subscribed, self.is_resolved = wanted, True
        if self._group_topics is not None:
            seen = {name: topic for name, topic in there.items() if name in self._group_topics}
            if self._known is not None and seen != self._known:
                self._on_changed("the topics of the group changed")
            if self._known is None and not self._is_checked:
                self._is_checked = True
                self._check_assignment(seen, now_ms)
            self._known = seen

    def _check_assignment(self, seen: Mapping[str, TopicPartitionCount], now_ms: int) -> None:
        """Look up the partitions that the group has assigned. While its leader was away, a topic may have been
        recreated with more of them. If the lookup fails, the existing topics count as known."""
        there = {
            TopicPartition(name, number) for name, topic in seen.items() for number in range(topic.partition_count)
        }

        def described(end: group.DescribeGroupsResponse | TransactionError, _: int) -> None:
            self._check_flight = None
            if isinstance(end, TransactionError):
                return
            members = described_classic(end.groups[0]).members
            if {name for member in members for name in member.assignment} != there:
                self._on_changed("the assignment is not for the topics that there are")

        request = group.DescribeGroupsRequest(header=self._context.header(), group_ids=[self._context.group_id])
        call = RetryingCall(
            DESCRIBE_GROUPS,
            request,
            deadlines=self._context.once(),
            now_ms=now_ms,
            items=lambda reply: reply.groups,
        )
        self._check_flight = self._context.flights.start(call, described)
