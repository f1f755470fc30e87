"""Computation of the target of a consumer group (`group_coordinator.computing`).

Source: spec groups 3.5; design 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator_protocol.assignors.values import MemberSpec, TopicSpec
from group_coordinator.assignors import ServerAssignor
from group_coordinator.computing import MemberRow, TargetResult, changed_shares, member_rows, members_of


@dataclass(frozen=True, slots=True)
class TargetTask:
    """Everything that a computation needs, so that it can be done in any process."""

    group_id: str
    group_epoch: int
    assignor_name: str
    members: Mapping[str, MemberSpec[bytes]]
    topics: Mapping[bytes, TopicSpec]

    def __reduce__(self) -> tuple[Any, ...]:
        topics = [(topic_id, each.partition_count, each.racks) for topic_id, each in self.topics.items()]
        rows = member_rows(self.members)
        return _unpacked, (self.group_id, self.group_epoch, self.assignor_name, rows, topics)


_TopicRow = tuple[bytes, int, tuple[frozenset[str], ...]]


def _unpacked(
    group_id: str, group_epoch: int, assignor_name: str, members: Iterable[MemberRow], topics: Iterable[_TopicRow]
) -> TargetTask:
    sizes = {topic_id: TopicSpec(partition_count, racks) for topic_id, partition_count, racks in topics}
    return TargetTask(group_id, group_epoch, assignor_name, members_of(members), sizes)


def compute(task: TargetTask, assignor: ServerAssignor) -> TargetResult:
    """Call the assignor. Raises Refused UNKNOWN_SERVER_ERROR if it fails, or leaves a member out."""
    changed = changed_shares(
        task.members,
        lambda: assignor(task.members, task.topics),
        group_id=task.group_id,
        assignor_name=task.assignor_name,
    )
    return TargetResult(task.group_id, task.group_epoch, task.assignor_name, changed)


def compute_away(asked: tuple[TargetTask, ServerAssignor]) -> TargetResult:
    """Call the assignor in a worker process, which gets a single argument."""
    return compute(*asked)
