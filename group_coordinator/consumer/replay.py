"""What the records of consumer groups do to a shard."""

from __future__ import annotations

from typing import Any

from group_coordinator.consumer import records
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.shard import GroupShard, Replays

_MAKES_GROUP = (records.GroupEpochBumped, records.MemberChanged)
_MOVES_GROUP = (
    records.MemberForgotten,
    records.TargetEpochReached,
    records.TargetEpochForgotten,
    records.AssignmentChanged,
    records.AssignmentForgotten,
)
"""These may bring the group into another state."""
_CHANGES_GROUP = (
    records.TargetChanged,
    records.TargetForgotten,
    records.RegexResolved,
    records.RegexForgotten,
    records.MetadataChecked,
    records.RegexesChecked,
    records.RebalanceNoted,
    records.RejoinAwaited,
)


class ConsumerGroups:
    """Implements `group_coordinator.shard.PartState`. A consumer group is an object that its records change."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def replays(self) -> Replays:
        return {
            **dict.fromkeys(_MAKES_GROUP, self._make),
            **dict.fromkeys(_MOVES_GROUP, self._move),
            **dict.fromkeys(_CHANGES_GROUP, self._change),
            records.ConsumerGroupForgotten: self._forget,
        }

    def _make(self, record: records.GroupEpochBumped | records.MemberChanged) -> None:
        groups = self._shard.groups
        if record.group_id not in groups:
            groups.put(record.group_id, ConsumerGroup(record.group_id, self._shard.journal))
        self._move(record)

    def _move(self, record: Any) -> None:  # noqa: ANN401  one of `_MOVES_GROUP`, or `_MAKES_GROUP`
        self._change(record)
        self._shard.standings.look(record.group_id)

    def _change(self, record: Any) -> None:  # noqa: ANN401  one of any
        self._existing(record.group_id).replay(record)

    def _forget(self, record: records.ConsumerGroupForgotten) -> None:
        assert self._existing(record.group_id).is_empty, "members go before their group"
        self._shard.groups.remove(record.group_id)
        self._shard.standings.look(record.group_id)

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._shard.groups.get(group_id)
        assert isinstance(group, ConsumerGroup), f"{group_id!r} is a consumer group"
        return group
