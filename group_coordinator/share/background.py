"""Background work for share groups: large targets (`group_coordinator.target_computer`)."""

from __future__ import annotations

from typing import Final

from group_coordinator.assignors import SIMPLE
from group_coordinator.shard import GroupShard
from group_coordinator.share.assigning import (
    ComputeShareTarget,
    assign,
    decide_result,
    decide_target_here,
    target_task,
)
from group_coordinator.share.computing import compute
from group_coordinator.share.group import find_group
from group_coordinator.target_computer import AskedTarget, TargetRules


def _asked(shard: GroupShard, group_id: str) -> AskedTarget | None:
    group = find_group(shard, group_id)
    if group is None or not group.is_target_due:
        return None
    task = target_task(shard, group)
    return AskedTarget(task.group_epoch, SIMPLE, task)


SHARE_TARGETS: Final = TargetRules(
    effect=ComputeShareTarget,
    asked=_asked,
    compute=compute,
    decide_result=decide_result,
    decide_here=decide_target_here,
    assign=assign,
)
"""Rules of `TargetComputer` for share groups."""
