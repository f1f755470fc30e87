"""Topics that the server makes for its groups, as if their members had created them.

Implements `coordinator_runtime.topic_making.TopicMaker` with the use case of the partition log. So the permissions of
the caller and the limits of topics hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.topic_making import TopicToMake
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics
from partition_log.topics import TopicService


class LogTopicMaker:
    """Maker of topics in the log of this server."""

    def __init__(self, topics: TopicService) -> None:
        self._topics = topics

    def make(self, topics: Sequence[TopicToMake], context: CallContext) -> Pending[list[CoordinatorError | None]]:
        """Create topics, each with all its partitions or not at all; durable when answered."""
        wanted = [NewTopic(each.name, each.partition_count, dict(each.config)) for each in topics]
        # The authorizer is asked what CreateTopics asks.
        asking = replace(context, method=Method.CREATE_TOPICS.value)
        created = self._topics.create_topics(CreateTopics(wanted), asking)
        return created.map(lambda results: [each.error for each in results])
