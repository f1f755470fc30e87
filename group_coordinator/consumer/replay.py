"""What the records of consumer groups do to the groups of a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.consumer import records
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.state import Group

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


def consumer_replays(
    groups: TimelineMap[str, Group], journal: Journal, on_moved: Callable[[str], None]
) -> dict[type, Callable[[Any], None]]:
    """By class of record value. `on_moved`: is told of groups that may be in another state, or gone."""

    def make(record: records.GroupEpochBumped | records.MemberChanged) -> None:
        if record.group_id not in groups:
            groups.put(record.group_id, ConsumerGroup(record.group_id, journal))
        move(record)

    def move(record: Any) -> None:  # noqa: ANN401  one of `_MOVES_GROUP`, or `_MAKES_GROUP`
        change(record)
        on_moved(record.group_id)

    def change(record: Any) -> None:  # noqa: ANN401  one of any
        _existing(groups, record.group_id).replay(record)

    def forget(record: records.ConsumerGroupForgotten) -> None:
        assert _existing(groups, record.group_id).is_empty, "members go before their group"
        groups.remove(record.group_id)
        on_moved(record.group_id)

    return {
        **dict.fromkeys(_MAKES_GROUP, make),
        **dict.fromkeys(_MOVES_GROUP, move),
        **dict.fromkeys(_CHANGES_GROUP, change),
        records.ConsumerGroupForgotten: forget,
    }


def _existing(groups: TimelineMap[str, Group], group_id: str) -> ConsumerGroup:
    group = groups.get(group_id)
    assert isinstance(group, ConsumerGroup), f"{group_id!r} is a consumer group"
    return group
