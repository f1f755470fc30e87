"""Asks which topics exist and how many partitions they have: for the leader of a classic group, for patterns, and for
names that may be mistyped."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.errors import TransactionError, rejected
from coordinator_client.methods import DESCRIBE_TOPICS
from coordinator_client.retrying_call import RetryingCall
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.names import RESERVED_PREFIX

OnCounts = Callable[[Mapping[str, int] | TransactionError, int], None]
"""Called with the number of partitions of each topic that exists, or why that is not known, and the time."""


OnTopics = Callable[[log.DescribeTopicsResponse | TransactionError, int], None]
"""Called with what is known of each topic, or why nothing is, and the time."""


def ask_partition_counts(
    context: ConsumerContext, topics: Collection[str] | None, on_end: OnCounts, now_ms: int
) -> int:
    """Ask for these topics, or for all; return the number of the flight."""

    def ended(end: log.DescribeTopicsResponse | TransactionError, at_ms: int) -> None:
        if isinstance(end, TransactionError):
            on_end(end, at_ms)
        else:
            on_end({topic.name: len(topic.partitions) for topic in end.topics if not topic.error_code}, at_ms)

    return ask_topics(context, topics, ended, now_ms)


def ask_topics(context: ConsumerContext, topics: Collection[str] | None, on_end: OnTopics, now_ms: int) -> int:
    """Ask for these topics, or for all; return the number of the flight."""
    request = log.DescribeTopicsRequest(header=context.header())
    for topic in sorted(topics or ()):
        request.topics.add(name=topic)
    call = RetryingCall(DESCRIBE_TOPICS, request, deadlines=context.once(), now_ms=now_ms)
    return context.flights.start(call, on_end)


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern for names of topics. Raises: Rejected (INVALID_REGULAR_EXPRESSION)."""
    try:
        return re.compile(pattern)
    except re.error as why:
        raise rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression: {why}") from None


def matching(pattern: re.Pattern[str], topics: Collection[str]) -> frozenset[str]:
    """Return the topics whose whole names match, the system's own left out."""
    return frozenset(
        topic for topic in topics if pattern.fullmatch(topic) is not None and not topic.startswith(RESERVED_PREFIX)
    )
