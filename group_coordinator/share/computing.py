"""Computation of the target of a share group (`group_coordinator.computing`).

A target that takes long is computed in another process, as those of consumer groups are (decision 9).

Source: spec groups 5.9, 6.1; KIP-932; design 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from coordinator_protocol.assignors.simple import PAIRS_MAX, assign_simple
from coordinator_protocol.assignors.values import MemberSpec
from group_coordinator.assignors import SIMPLE
from group_coordinator.computing import MemberRow, TargetResult, changed_shares, member_rows, members_of

ON_LOOP_US_MAX: Final = 1_000
"""Estimated duration of a computation above which it leaves the loop (us)."""

# Measured costs of the assignor, right to a factor of three.
_US_PER_MEMBER: Final = 0.3
_US_PER_MEMBER_BALANCED: Final = 2.5
_US_PER_PARTITION_BALANCED: Final = 0.7
_US_PER_TOPIC_BALANCED: Final = 4.0


@dataclass(frozen=True, slots=True)
class ShareTargetTask:
    """Everything that a computation needs, so that it can be done in any process."""

    group_id: str
    group_epoch: int
    members: Mapping[str, MemberSpec[bytes]]
    partitions: Mapping[bytes, tuple[int, ...]]
    """Partitions that have a state, ascending, by topic id."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self.group_id, self.group_epoch, member_rows(self.members), self.partitions)


def _unpacked(
    group_id: str, group_epoch: int, members: Iterable[MemberRow], partitions: Mapping[bytes, tuple[int, ...]]
) -> ShareTargetTask:
    return ShareTargetTask(group_id, group_epoch, members_of(members), partitions)


def is_large(member_count: int, partition_count: int, topic_count: int) -> bool:
    """Return True if the computation would block the loop for too long."""
    cost_us = member_count * _US_PER_MEMBER
    if member_count * partition_count > PAIRS_MAX:
        cost_us = (
            member_count * _US_PER_MEMBER_BALANCED
            + partition_count * _US_PER_PARTITION_BALANCED
            + topic_count * _US_PER_TOPIC_BALANCED
        )
    return cost_us > ON_LOOP_US_MAX


def compute(task: ShareTargetTask) -> TargetResult:
    """Call the assignor. Raises Refused UNKNOWN_SERVER_ERROR if it fails."""
    changed = changed_shares(
        task.members,
        lambda: assign_simple(task.members, task.partitions),
        group_id=task.group_id,
        assignor_name=SIMPLE,
    )
    return TargetResult(task.group_id, task.group_epoch, SIMPLE, changed)
