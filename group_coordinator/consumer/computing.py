"""Computation of a target, from values to values, in any process.

The worker process imports only this module and the needs of an assignor, so that it starts quickly and stays small.

Source: spec groups 3.5; design 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator_protocol.assignors.values import MemberSpec, Share, TopicSpec
from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.assignors import ServerAssignor


@dataclass(frozen=True, slots=True)
class TargetTask:
    """Everything that a computation needs, so that it can be done in any process."""

    group_id: str
    group_epoch: int
    assignor_name: str
    members: Mapping[str, MemberSpec[bytes]]
    topics: Mapping[bytes, TopicSpec]

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain tuples pickle several times as fast as frozen classes, and the loop is blocked meanwhile.
        members = [
            (member_id, each.topics, each.instance_id, each.rack_id, each.owned, each.generation)
            for member_id, each in self.members.items()
        ]
        topics = [(topic_id, each.partition_count, each.racks) for topic_id, each in self.topics.items()]
        return _unpacked, (self.group_id, self.group_epoch, self.assignor_name, members, topics)


_MemberRow = tuple[str, frozenset[bytes], str | None, str | None, Share[bytes], int]
_TopicRow = tuple[bytes, int, tuple[frozenset[str], ...]]


def _unpacked(
    group_id: str, group_epoch: int, assignor_name: str, members: Iterable[_MemberRow], topics: Iterable[_TopicRow]
) -> TargetTask:
    specs = {
        member_id: MemberSpec(
            topics=wanted, instance_id=instance_id, rack_id=rack_id, owned=owned, generation=generation
        )
        for member_id, wanted, instance_id, rack_id, owned, generation in members
    }
    sizes = {topic_id: TopicSpec(partition_count, racks) for topic_id, partition_count, racks in topics}
    return TargetTask(
        group_id=group_id, group_epoch=group_epoch, assignor_name=assignor_name, members=specs, topics=sizes
    )


@dataclass(frozen=True, slots=True)
class TargetResult:
    """Result of an assignor, limited to its changes."""

    group_id: str
    group_epoch: int
    assignor_name: str
    changed: Mapping[str, Share[bytes]]
    """New shares by member id. A member that is missing keeps its share."""


def compute(task: TargetTask, assignor: ServerAssignor) -> TargetResult:
    """Call the assignor. Raises Refused UNKNOWN_SERVER_ERROR if it fails, or leaves a member out."""
    try:
        shares = assignor(task.members, task.topics)
        changed = {
            member_id: shares[member_id]
            for member_id, known in task.members.items()
            if shares[member_id] != known.owned
        }
    except Exception as error:
        # An assignor may be third-party code: its group fails, and nothing else.
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the assignor {task.assignor_name} failed on the group {task.group_id!a:.80}: {error!r:.300}; choose "
            "another one",
        ) from error
    return TargetResult(task.group_id, task.group_epoch, task.assignor_name, changed)


def compute_away(asked: tuple[TargetTask, ServerAssignor]) -> TargetResult:
    """Call the assignor in a worker process, which gets a single argument."""
    return compute(*asked)
