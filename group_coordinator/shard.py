"""One shard of groups: the groups of both kinds, their offsets and their settings, and how records change them.

What is decided on it stands in the parts: `classic`, `consumer`, `committed`, `administration`, each with its
`decisions`. They read the maps here and return Decisions; only `replay` changes the maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from coordinator_runtime.decision import Decision, Operation, ShardEpoch, ShardKey, Turn
from coordinator_runtime.ports import TopicMetadata
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.administration.records import GroupConfigChanged
from group_coordinator.administration.rules import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.classic.records import ClassicGroupForgotten, ClassicGroupRemembered, ClassicGroupStored
from group_coordinator.classic.state import ClassicGroup, ClassicState
from group_coordinator.committed.offsets import Offsets
from group_coordinator.config import GroupConfig
from group_coordinator.consumer.replay import consumer_replays
from group_coordinator.state import Group, GroupKind
from group_coordinator.tally import Standing, Standings

Owed = Callable[["GroupShard", Turn], Decision]
"""What one part owes after a load (`loading` names them all): timers of members, and of what expires."""

_SIMPLE = Standing(GroupKind.CLASSIC, ClassicState.EMPTY.value)
"""Where a group stands that only has offsets."""


class GroupShard:
    """See the module. A group that only has offsets has no entry in `groups`."""

    def __init__(
        self,
        key: ShardKey,
        journal: Journal,
        *,
        topics: TopicMetadata,
        config: GroupConfig,
        owed: Sequence[Owed] = (),
        assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS,
    ) -> None:
        self.key = key
        self.journal = journal
        self.topics = topics
        self.config = config
        self.coordinator_epoch = 0
        self._owed = owed
        self.groups: TimelineMap[str, Group] = TimelineMap(journal)
        self.standings = Standings(journal, self._standing)
        self.offsets = Offsets(journal, on_turned=self.standings.look)
        self.assignors = assignors
        self.overrides: TimelineMap[str, Mapping[str, int]] = TimelineMap(journal)
        """Settings of single groups."""
        self._replays: dict[type, Callable[[Any], None]] = {
            ShardEpoch: self._open,
            ClassicGroupStored: self._keep_classic,
            ClassicGroupRemembered: self._keep_classic,
            ClassicGroupForgotten: self._forget_classic,
            GroupConfigChanged: self._keep_config,
            **consumer_replays(self.groups, journal, self.standings.look),
            **self.offsets.replays(),
        }
        """What each class of record value does. Every part adds its own."""

    def group(self, group_id: str) -> Group | None:
        """A group that exists, live; one that only has offsets is an Empty classic group."""
        group = self.groups.get(group_id)
        if group is None and self.offsets.has(group_id):
            return self._simple_group(group_id)
        return group

    def durable_group(self, group_id: str) -> Group | None:
        """A group that exists, as it is on disk. A consumer group is one object for both readings: what is durable of
        it, it says itself."""
        group = self.groups.durable(group_id)
        if group is None and self.offsets.of(group_id).has_durable:
            return self._simple_group(group_id)
        return group

    def _standing(self, group_id: str) -> Standing | None:
        group = self.groups.get(group_id)
        if group is not None:
            return Standing(group.kind, group.live_state_name)
        return _SIMPLE if self.offsets.has(group_id) else None

    def _simple_group(self, group_id: str) -> Group:
        return ClassicGroup(shard=self.key, group_id=group_id, state_timestamp_ms=0)

    def consumer_session_timeout_ms(self, group_id: str) -> int:
        """Silence after which a member of a consumer group is removed."""
        return self._setting(group_id, SESSION_TIMEOUT_MS, self.config.consumer_session_timeout_ms)

    def consumer_heartbeat_interval_ms(self, group_id: str) -> int:
        """Pause that members of a consumer group are told to make."""
        return self._setting(group_id, HEARTBEAT_INTERVAL_MS, self.config.consumer_heartbeat_interval_ms)

    def _setting(self, group_id: str, name: str, default: int) -> int:
        overrides = self.overrides.get(group_id)
        return default if overrides is None else overrides.get(name, default)

    def replay(self, value: object) -> None:
        self._replays[type(value)](value)

    def _open(self, opened: ShardEpoch) -> None:
        self.coordinator_epoch = opened.coordinator_epoch

    def _keep_classic(self, record: ClassicGroupStored | ClassicGroupRemembered) -> None:
        group = record.group if record.group.shard == self.key else replace(record.group, shard=self.key)
        self.groups.put(group.group_id, group)
        self.standings.look(group.group_id)

    def _forget_classic(self, record: ClassicGroupForgotten) -> None:
        self.groups.remove(record.group_id)
        self.standings.look(record.group_id)

    def _keep_config(self, record: GroupConfigChanged) -> None:
        if record.overrides:
            self.overrides.put(record.group_id, record.overrides)
        else:
            self.overrides.remove(record.group_id)

    def on_loaded(self, _turn: Turn) -> Decision:
        """What the parts owe; what was parked is gone with the process that parked it."""
        return Decision(joins=tuple(Operation(self.key, owed) for owed in self._owed))
