"""What the records of consumer groups do to the groups of a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.consumer import records
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.state import Group

_MAKES_GROUP = (records.GroupEpochBumped, records.MemberChanged)
_CHANGES_GROUP = (
    records.MemberForgotten,
    records.TargetChanged,
    records.TargetForgotten,
    records.TargetEpochReached,
    records.TargetEpochForgotten,
    records.AssignmentChanged,
    records.AssignmentForgotten,
    records.RegexResolved,
    records.RegexForgotten,
    records.MetadataChecked,
    records.RegexesChecked,
    records.RejoinAwaited,
)


def consumer_replays(groups: TimelineMap[str, Group], journal: Journal) -> dict[type, Callable[[Any], None]]:
    """By class of record value."""

    def make(record: records.GroupEpochBumped | records.MemberChanged) -> None:
        if record.group_id not in groups:
            groups.put(record.group_id, ConsumerGroup(record.group_id, journal))
        _existing(groups, record.group_id).replay(record)

    def change(record: Any) -> None:  # noqa: ANN401  one of `_CHANGES_GROUP`
        _existing(groups, record.group_id).replay(record)

    def forget(record: records.ConsumerGroupForgotten) -> None:
        assert _existing(groups, record.group_id).is_empty, "members go before their group"
        groups.remove(record.group_id)

    return {
        **dict.fromkeys(_MAKES_GROUP, make),
        **dict.fromkeys(_CHANGES_GROUP, change),
        records.ConsumerGroupForgotten: forget,
    }


def _existing(groups: TimelineMap[str, Group], group_id: str) -> ConsumerGroup:
    group = groups.get(group_id)
    assert isinstance(group, ConsumerGroup), f"{group_id!r} is a consumer group"
    return group
