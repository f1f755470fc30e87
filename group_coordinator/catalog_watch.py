"""Changes of topics and of permissions, which groups of all kinds learn of at once.

Source: spec groups 3.4 (step 5), 3.11, 6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from coordinator_runtime.decision import CATALOG_KEY, Coordinator, Operation, ShardKey
from coordinator_runtime.ports import TopicMetadata, TopicShape
from coordinator_runtime.runtime import Runtime
from group_coordinator.shard import GroupShard


class CatalogWatch:
    """Listener for durable changes of the catalog. Shards of groups that are not loaded find changes on their own:
    after a load their groups compare the topics with their stored hash."""

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
            self._tell(names)

    def hold_patterns_again(self) -> None:
        """Resolve all patterns again, because the permissions of members changed."""
        self._tell(frozenset())

    def _tell(self, names: frozenset[str]) -> None:
        shards: list[GroupShard] = self._runtime.shards(Coordinator.GROUPS)
        for shard in shards:
            self._runtime.write(Operation(shard.key, partial(GroupShard.decide_topics_changed, names=names)))
