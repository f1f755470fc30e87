"""One shard of groups: the groups of both kinds, their offsets and their settings, and how records change them.

What is decided on it stands in the parts: `classic`, `consumer`, `committed`, `administration`, each with its
`decisions`. They read the maps here and return Decisions; only `replay` changes the maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator_runtime.decision import Decision, ShardEpoch, ShardKey, Turn
from coordinator_runtime.ports import TopicMetadata
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.config import GroupConfig
from group_coordinator.state import Group


class GroupShard:
    """See the module. A group that only has offsets has no entry in `groups`."""

    def __init__(self, key: ShardKey, journal: Journal, *, topics: TopicMetadata, config: GroupConfig) -> None:
        self.key = key
        self.journal = journal
        self.topics = topics
        self.config = config
        self.coordinator_epoch = 0
        self.groups: TimelineMap[str, Group] = TimelineMap(journal)
        self._replays: dict[type, Callable[[Any], None]] = {ShardEpoch: self._open}
        """What each class of record value does. Every part adds its own."""

    def replay(self, value: object) -> None:
        self._replays[type(value)](value)

    def _open(self, opened: ShardEpoch) -> None:
        self.coordinator_epoch = opened.coordinator_epoch

    def on_loaded(self, turn: Turn) -> Decision:
        """Timers of members and of expiry; what was parked is gone with the process that parked it."""
        return Decision()
