"""Notices topics that come, go and grow, and lets the groups know that subscribe to them.

Source: spec groups 3.4 (step 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_runtime.decision import CATALOG_KEY, Coordinator, ShardKey
from coordinator_runtime.ports import TopicMetadata, TopicShape
from coordinator_runtime.runtime import Runtime
from group_coordinator.consumer.regexes import topics_changed
from group_coordinator.shard import GroupShard


class TopicWatch:
    """Listens to the durable changes of the catalog. A shard of groups that is not there finds the difference by
    itself: after a load its groups compare the topics with what they knew."""

    def __init__(self, runtime: Runtime, topics: TopicMetadata) -> None:
        self._runtime = runtime
        self._topics = topics
        self._known = self._shapes()
        runtime.on_durable_change(self._look, of=CATALOG_KEY)

    def _shapes(self) -> Mapping[str, TopicShape | None]:
        return {name: self._topics.shape(name) for name in self._topics.topic_names()}

    def _look(self, _changed: Iterable[ShardKey]) -> None:
        before, self._known = self._known, self._shapes()
        names = frozenset(
            name for name in before.keys() | self._known.keys() if before.get(name) != self._known.get(name)
        )
        if names:
            shards: list[GroupShard] = self._runtime.shards(Coordinator.GROUPS)
            for shard in shards:
                self._runtime.write(topics_changed(shard, names))
